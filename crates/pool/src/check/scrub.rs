//! Reading all of a pool while it is in use.
//!
//! What volumes and snapshots name is read and compared with what the maps and the fingerprint stores say of it. Counts are
//! not compared: they change all the time. A block may be freed, and a map node replaced, between two looks at it, so what is
//! wrong is looked up again: only what is wrong twice, of something that is still there, is damaged.

use std::collections::HashSet;

use chunk::Fingerprint;
use format::pool::{BlockGroupNo, MapEntry, PoolBlock, VolumeBlock, BLOCK_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::{CheckReport, Finding, FINDINGS_MAX};
use crate::engine::{Engine, Page};
use crate::error::Result;
use crate::pool::Pool;
use crate::share::Holder;
use crate::volume::node_entries;

struct Scrub<'a> {
    pool: &'a Pool,
    engine: &'a Engine,
    /// Content as well.
    data: bool,
    /// Data blocks that were looked at: maps share them. One that is freed and used again was written since.
    seen: Vec<u64>,
    /// Bytes that were read.
    bytes: u64,
    said: HashSet<String>,
    report: CheckReport,
}

/// Where a look at a leaf ends.
enum Next {
    /// There is more from here on.
    At(VolumeBlock),
    End,
}

impl Pool {
    /// Reads all maps, fingerprint stores and the summary, and with `data` all content, while others use the pool. Counts
    /// are not compared, so the report has only findings and the blocks in use. Takes a bit of memory for each block: 32 MiB for 1
    /// TiB. Map nodes and pages of fingerprint stores that are in memory are not read again.
    ///
    /// `go_on` is told now and then how many bytes of content were read; it may wait, and ends the check by `false`: then there
    /// is no report.
    pub fn scrub(&self, data: bool, go_on: &dyn Fn(u64) -> bool) -> Result<Option<CheckReport>> {
        let engine = self.engine();
        let mut scrub = Scrub {
            pool: self,
            engine,
            data,
            seen: vec![0; (engine.geometry.blocks as usize).div_ceil(64)],
            bytes: 0,
            said: HashSet::new(),
            report: CheckReport::default(),
        };
        let (holders, _) = self.holders()?;
        for holder in holders.iter().filter(|holder| !holder.is_deleted) {
            let mut next = Next::At(VolumeBlock(0));
            while let Next::At(start) = next {
                if !go_on(scrub.bytes) {
                    return Ok(None);
                }
                next = scrub.leaf(holder, start);
            }
        }
        for group in (0..engine.geometry.groups).map(BlockGroupNo) {
            if !go_on(scrub.bytes) {
                return Ok(None);
            }
            scrub.group(group);
        }
        engine.check_alive()?;
        Ok(Some(scrub.report))
    }
}

impl Scrub<'_> {
    /// Notes what is wrong, once.
    fn found(&mut self, what: String) {
        if self.said.contains(&what) {
            return;
        }
        if self.report.findings.len() < FINDINGS_MAX {
            self.said.insert(what.clone());
            self.report.findings.push(Finding { what, is_mended: false });
        } else {
            self.report.more += 1;
        }
    }

    fn is_seen(&self, block: PoolBlock) -> bool {
        self.seen.get(block.0 as usize / 64).is_some_and(|bits| bits >> (block.0 % 64) & 1 != 0)
    }

    fn see(&mut self, block: PoolBlock) {
        if let Some(bits) = self.seen.get_mut(block.0 as usize / 64) {
            *bits |= 1 << (block.0 % 64);
        }
    }

    /// Looks at the first leaf of a map from a block on.
    fn leaf(&mut self, holder: &Holder, start: VolumeBlock) -> Next {
        let mut before: Option<Vec<String>> = None;
        loop {
            // What is named now stays as it is meanwhile.
            let guard = self.engine.read_guard();
            let (wrong, blocks, next) = match holder.volume.next_leaf(start) {
                Ok(None) => return Next::End,
                Ok(Some((first, leaf))) => {
                    let (wrong, blocks) = self.content(&leaf, holder.volume.name());
                    (wrong, blocks, Next::At(first.leaf_end()))
                }
                Err(error) => {
                    let what = format!("{}: {error}", holder.volume.name());
                    (vec![what], Vec::new(), Next::At(start.leaf_end()))
                }
            };
            drop(guard);
            if wrong.is_empty() || before.as_ref() == Some(&wrong) {
                // What else names the blocks must look at them again.
                if !wrong.is_empty() && !self.pool.has_volume(holder.id) {
                    return Next::End;
                }
                blocks.into_iter().for_each(|block| self.see(block));
                wrong.into_iter().for_each(|what| self.found(what));
                return next;
            }
            before = Some(wrong);
        }
    }

    /// Reads what a leaf names and nobody has looked at. Returns what is wrong, and the blocks.
    fn content(&mut self, leaf: &Page, name: &str) -> (Vec<String>, Vec<PoolBlock>) {
        let mut wrong = Vec::new();
        let named = node_entries(leaf).into_iter().filter_map(|(_, entry)| Some((entry.block()?, entry)));
        let mut new: Vec<(PoolBlock, MapEntry)> = Vec::new();
        for (block, entry) in named {
            if self.engine.geometry.locate(block).is_none() {
                wrong.push(format!("{name}: node {} names {block}, which is not a data block", leaf.block));
            } else if self.data && !self.is_seen(block) {
                new.push((block, entry));
            }
        }
        new.sort_by_key(|(block, _)| *block);
        new.dedup_by_key(|(block, _)| *block);
        let mut content = Vec::new();
        for run in new.chunk_by(|a, b| a.0 .0 + 1 == b.0 .0) {
            content.resize(run.len() * BLOCK_BYTES, 0);
            self.bytes += content.len() as u64;
            if self.engine.read_blocks(run[0].0, &mut content).is_ok() {
                let pairs = run.iter().zip(content.chunks_exact(BLOCK_BYTES));
                wrong.extend(
                    pairs.filter_map(|((block, entry), content)| self.compare(name, *block, *entry, content)),
                );
                continue;
            }
            for (block, entry) in run {
                match self.engine.read_blocks(*block, &mut content[..BLOCK_BYTES]) {
                    Ok(()) => wrong.extend(self.compare(name, *block, *entry, &content[..BLOCK_BYTES])),
                    Err(error) => wrong.push(format!("{name}: {error}")),
                }
            }
        }
        (wrong, new.into_iter().map(|(block, _)| block).collect())
    }

    /// What is wrong with a block's content.
    fn compare(&self, name: &str, block: PoolBlock, entry: MapEntry, content: &[u8]) -> Option<String> {
        if !entry.checks(xxh3_64(content)) {
            return Some(format!("{name}: block {block} does not have the content that its map says"));
        }
        // A fingerprint store that cannot be read is found with its group.
        let (entry, fingerprint) = self.engine.fingerprint_entry(block).ok()?;
        let is_other = entry.count > 0 && entry.has_fingerprint && Fingerprint::of(content) != fingerprint;
        is_other.then(|| format!("{name}: block {block} does not have the content of its fingerprint"))
    }

    /// Reads the fingerprint store of a group, and what the summary says.
    fn group(&mut self, group: BlockGroupNo) {
        let summary = match self.engine.summary(group) {
            Ok(summary) => summary,
            Err(error) => return self.found(error.to_string()),
        };
        if !summary.in_use {
            return;
        }
        self.report.used_blocks += u64::from(self.engine.geometry.data_blocks().saturating_sub(summary.free));
        for page in 0..self.engine.geometry.fingerprint_pages() {
            if let Err(error) = self.engine.entries_of(group, page, |_, _, _| ()) {
                self.found(error.to_string());
            }
        }
    }
}
