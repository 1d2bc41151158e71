//! Reading a volume.

use format::pool::{Geometry, MapEntry, PoolBlock, VolumeBlock, BLOCK_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::Volume;
use crate::error::{PoolError, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Whether reads go through the system's page cache.
#[derive(Clone, Copy)]
enum SystemCache {
    Through,
    Past,
}

impl Volume {
    /// Fills `buf` from `offset` on. Every block is compared with the check bits of its map entry.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(SystemCache::Through, offset, buf)
    }

    /// The same, past the system's page cache where that is possible: for callers that keep what they read.
    pub fn read_past_cache(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(SystemCache::Past, offset, buf)
    }

    fn read(&self, cache: SystemCache, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let in_leaf = VolumeBlock::at(at).leaf_end().offset() - at;
            let length = (rest.len() as u64).min(in_leaf) as usize;
            let (piece, behind) = rest.split_at_mut(length);
            self.read_in_leaf(cache, at, piece)?;
            at += length as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Reads a range whose blocks one leaf maps.
    fn read_in_leaf(&self, cache: SystemCache, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut before: Option<(Vec<MapEntry>, String)> = None;
        loop {
            // Before the entries: what they do not name has not arrived if it had not arrived then.
            let root = self.root();
            let guard = self.engine.read_guard();
            let looked_up =
                self.entries(VolumeBlock::at(offset), VolumeBlock::behind(offset + buf.len() as u64));
            let (entries, outcome) = match looked_up {
                Ok(entries) => {
                    let outcome = self.read_entries(cache, offset, buf, &entries);
                    (entries, outcome)
                }
                Err(error) => (Vec::new(), Err(error)),
            };
            match outcome {
                Err(error @ PoolError::Damaged { .. }) => {
                    // A node may have been replaced while it was looked up; what is wrong twice is damaged.
                    let now = (entries, error.to_string());
                    if before.as_ref() == Some(&now) {
                        return Err(error);
                    }
                    before = Some(now);
                }
                // What is read elsewhere may take long: blocks that were freed can be used again meanwhile.
                Ok(()) if root.filled.is_some() => {
                    drop(guard);
                    if self.read_absent(&root, offset, buf, &entries)? {
                        return Ok(());
                    }
                }
                other => return other,
            }
        }
    }

    /// The entries of blocks that one leaf maps.
    pub(super) fn entries(&self, first: VolumeBlock, end: VolumeBlock) -> Result<Vec<MapEntry>> {
        let count = first.count_to(end) as usize;
        let Ok(leaf) = self.leaf(self.root(), first)? else { return Ok(vec![MapEntry::NONE; count]) };
        let start = Geometry::map_slot(leaf.block, first.slot()).offset;
        let bytes = leaf.bytes();
        let entries =
            bytes[start..start + count * MapEntry::BYTES].chunks_exact(MapEntry::BYTES).map(|slot| {
                let mut entry = [0; MapEntry::BYTES];
                entry.copy_from_slice(slot);
                MapEntry::decode(entry)
            });
        Ok(entries.collect())
    }

    fn read_entries(
        &self,
        cache: SystemCache,
        offset: u64,
        buf: &mut [u8],
        entries: &[MapEntry],
    ) -> Result<()> {
        let is_aligned = offset % BLOCK == 0 && buf.len() % BLOCK_BYTES == 0;
        if is_aligned {
            return self.read_aligned(cache, VolumeBlock::at(offset), buf, entries);
        }
        let mut whole = vec![0; entries.len() * BLOCK_BYTES];
        self.read_aligned(cache, VolumeBlock::at(offset), &mut whole, entries)?;
        let start = (offset % BLOCK) as usize;
        buf.copy_from_slice(&whole[start..start + buf.len()]);
        Ok(())
    }

    /// Reads whole blocks, those that lie behind each other at once.
    fn read_aligned(
        &self,
        cache: SystemCache,
        first: VolumeBlock,
        buf: &mut [u8],
        entries: &[MapEntry],
    ) -> Result<()> {
        let mut at = 0;
        while at < entries.len() {
            let Some(block) = entries[at].block() else {
                buf[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].fill(0);
                at += 1;
                continue;
            };
            let follows = |n: &usize| entries[at + n].block() == Some(PoolBlock(block.0 + *n as u64));
            let count = 1 + (1..entries.len() - at).take_while(follows).count();
            let target = &mut buf[at * BLOCK_BYTES..(at + count) * BLOCK_BYTES];
            match cache {
                SystemCache::Through => self.engine.read_blocks(block, target)?,
                SystemCache::Past => self.engine.read_blocks_past_cache(block, target)?,
            }
            for (n, data) in target.chunks_exact(BLOCK_BYTES).enumerate() {
                if !entries[at + n].checks(xxh3_64(data)) {
                    return Err(self.wrong_content(first + (at + n) as u64, PoolBlock(block.0 + n as u64)));
                }
            }
            at += count;
        }
        Ok(())
    }

    fn wrong_content(&self, block: VolumeBlock, pool_block: PoolBlock) -> PoolError {
        PoolError::Damaged {
            what: format!("block {pool_block} of {}", self.engine.location()),
            why: format!("it is not what was written to {} at byte {}", self.name, block.offset()),
        }
    }
}
