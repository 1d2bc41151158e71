//! Checkpoints of the filter, so that opening a pool does not read every fingerprint store.

use std::sync::atomic::Ordering;

use format::pool::{BlockGroupNo, FilterEntry, FilterHeader, FilterPart, PoolBlock, BLOCK_BYTES};

use super::state::Engine;
use crate::error::{PoolError, Result};
use crate::filter::prefix;

impl Engine {
    /// Writes the filter beside the checkpoint that counts, and lets it count. Others may change the filter meanwhile: from
    /// the new epoch on their groups are read again after a crash.
    pub fn write_filter(&self) -> Result<()> {
        let epoch = self.filter_epoch.fetch_add(1, Ordering::SeqCst) + 1;
        let which = self.superblock.lock().filter.map_or(0, |(which, _)| 1 - which);
        self.write_superblock(|s| s.epoch = epoch)?;
        let start = self.geometry.filter_start(which);
        let end = start.0 + u64::from(self.geometry.filter_blocks);
        let (mut at, mut parts, mut entries) = (start.0 + 1, 0, 0);
        let mut part = FilterPart::default();
        let mut written = Ok(());
        let mut put = |part: &mut FilterPart| {
            let bytes = part.finish(epoch);
            // What has no room is found by reading fingerprint stores again, or not at all.
            if at + (bytes.len() / BLOCK_BYTES) as u64 <= end {
                self.write_at(PoolBlock(at), &bytes)?;
                at += (bytes.len() / BLOCK_BYTES) as u64;
                parts += 1;
            }
            Ok(())
        };
        self.filter.for_each(|entry| {
            entries += 1;
            if written.is_ok() && !part.push(entry) {
                written = put(&mut part);
            }
        });
        written?;
        if !part.is_empty() {
            put(&mut part)?;
        }
        let header = FilterHeader { pool: self.id, epoch, entries, parts };
        self.write_at(start, &header.encode())?;
        self.sync()?;
        self.write_superblock(|s| s.filter = Some((which, epoch)))
    }

    /// Fills the filter. What could not be read is missing for ever.
    pub fn complete_filter(&self) {
        let _ = self.load_filter();
        self.filter.complete();
    }

    /// Fills the filter: from the checkpoint, and from the fingerprint stores of groups that changed since. It
    /// is a hint: what cannot be read costs space only.
    fn load_filter(&self) -> Result<()> {
        let checkpoint = self.superblock.lock().filter;
        let loaded = checkpoint.and_then(|(which, epoch)| self.read_checkpoint(which, epoch).ok());
        let since = match (loaded, checkpoint) {
            (Some(()), Some((_, epoch))) => epoch,
            _ => 0,
        };
        let mut found = Vec::new();
        for group in (0..self.geometry.groups).map(BlockGroupNo) {
            let summary = self.summary(group)?;
            if summary.in_use && summary.changed >= since && self.check_alive().is_ok() {
                self.read_fingerprints(group, &mut found);
            }
            if found.len() >= self.filter.batch_entries() {
                self.filter.insert_all(&mut found);
                found.clear();
            }
        }
        self.filter.insert_all(&mut found);
        Ok(())
    }

    fn read_checkpoint(&self, which: u8, epoch: u32) -> Result<()> {
        let start = self.geometry.filter_start(which);
        let wrong = |why| PoolError::damaged(format!("the filter at block {start}"), why);
        let mut block = vec![0; BLOCK_BYTES];
        self.read_blocks(start, &mut block)?;
        let header = FilterHeader::decode(&block).map_err(wrong)?;
        if header.pool != self.id || header.epoch != epoch {
            return Err(PoolError::Damaged {
                what: format!("the filter at block {start}"),
                why: "it is an old one".into(),
            });
        }
        let changed: Vec<bool> = (0..self.geometry.groups)
            .map(|group| self.summary(BlockGroupNo(group)).map(|s| s.changed >= epoch))
            .collect::<Result<_>>()?;
        let mut at = start.0 + 1;
        for _ in 0..header.parts {
            self.read_blocks(PoolBlock(at), &mut block)?;
            let bytes = FilterPart::stored_bytes(&block).map_err(wrong)?;
            let mut part = vec![0; bytes];
            self.read_blocks(PoolBlock(at), &mut part)?;
            let mut found = Vec::new();
            FilterPart::read(&part, epoch, |entry| {
                // Groups that changed are read anew.
                if self.geometry.locate(entry.block).is_some_and(|(group, _)| !changed[group.0 as usize]) {
                    found.push(entry);
                }
            })
            .map_err(wrong)?;
            self.filter.insert_all(&mut found);
            at += (bytes / BLOCK_BYTES) as u64;
        }
        Ok(())
    }

    /// Adds what a group's fingerprint store has to `found`.
    fn read_fingerprints(&self, group: BlockGroupNo, found: &mut Vec<FilterEntry>) {
        for page in 0..self.geometry.fingerprint_pages() {
            // What cannot be read costs space only.
            let _ = self.entries_of(group, page, |index, entry, fingerprint| {
                if entry.count > 0 && entry.has_fingerprint {
                    let block = self.geometry.data_block(group, index);
                    found.push(FilterEntry { prefix: prefix(&fingerprint), block });
                }
            });
        }
    }
}
