//! Scans: passes over all groups that have blocks without a fingerprint.

use std::collections::HashMap;

use format::pool::{BlockGroupNo, Home, PoolBlock, Sharing, VolumeId};

use super::leaf::{Holder, LeafScan};
use super::stats::ScanCounters;
use crate::engine::{BlockSet, Engine};
use crate::error::Result;
use crate::volume::InFlight;

/// Blocks that are looked up together.
const BATCH_BLOCKS: usize = 256;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStep {
    /// Blocks that it read: data, and fingerprint stores.
    pub blocks: u64,
    /// The scan has ended; the next step begins another one.
    pub is_end: bool,
}

/// Where the current scan is.
#[derive(Default)]
pub(crate) struct Scanner {
    /// The next group to look at.
    next: u32,
    /// The group that is looked at, and those of its cold blocks that are left.
    current: Option<(BlockGroupNo, BlockSet)>,
}

/// What a step works with.
pub(crate) struct Scan<'a> {
    engine: &'a Engine,
    in_flight: &'a InFlight,
    holders: &'a [Holder],
    /// When blocks of volumes and snapshots are shared.
    modes: HashMap<VolumeId, Sharing>,
    generation: u64,
    counters: &'a ScanCounters,
}

impl Scanner {
    /// Goes on with the scan until about `budget` blocks were read, or the scan has ended.
    pub fn step(&mut self, scan: &Scan<'_>, budget: u64) -> Result<ScanStep> {
        let mut blocks = 0;
        while blocks < budget {
            scan.engine.check_alive()?;
            let most = usize::try_from(budget - blocks).unwrap_or(BATCH_BLOCKS).min(BATCH_BLOCKS);
            if let Some((group, cold)) = &mut self.current {
                let batch = cold.take_first(most);
                if batch.is_empty() {
                    self.current = None;
                    continue;
                }
                let geometry = &scan.engine.geometry;
                let batch: Vec<_> = batch.into_iter().map(|n| geometry.data_block(*group, n)).collect();
                // What has nothing to read takes time as well: none of it is free.
                blocks += scan.share(&batch)?.max(1);
            } else if self.next >= scan.engine.geometry.groups {
                self.next = 0;
                scan.counters.add_scan();
                return Ok(ScanStep { blocks, is_end: true });
            } else {
                let group = BlockGroupNo(self.next);
                self.next += 1;
                if let Some(cold) = scan.look_at(group)? {
                    blocks += u64::from(scan.engine.geometry.fingerprint_pages());
                    self.current = Some((group, cold));
                }
            }
        }
        Ok(ScanStep { blocks, is_end: false })
    }
}

impl<'a> Scan<'a> {
    /// `holders` are all that may name blocks; `generation` is another one whenever they have changed.
    pub fn new(
        engine: &'a Engine,
        in_flight: &'a InFlight,
        holders: &'a [Holder],
        generation: u64,
        counters: &'a ScanCounters,
    ) -> Self {
        let modes = holders.iter().filter(|h| !h.is_deleted).map(|h| (h.id, h.sharing)).collect();
        Scan { engine, in_flight, holders, modes, generation, counters }
    }

    /// The cold blocks of a group; `None` where nothing is to be done.
    fn look_at(&self, group: BlockGroupNo) -> Result<Option<BlockSet>> {
        // Where the volume that wrote a block is gone, clones may have the block.
        let of_others = self.modes.values().any(|mode| *mode != Sharing::Off);
        let is_wanted =
            |home: &Home| self.modes.get(&home.volume).map_or(of_others, |mode| *mode != Sharing::Off);
        match self.engine.scan_group(group, self.generation, is_wanted) {
            // A fingerprint store that is damaged or cannot be read is found by others; other groups are not affected.
            Err(_) => self.engine.check_alive().map(|()| None),
            found => found,
        }
    }

    /// Shares blocks of one group. Returns how many were read.
    fn share(&self, blocks: &[PoolBlock]) -> Result<u64> {
        // Where a fingerprint store cannot be read, its blocks have no home.
        let home = |block: PoolBlock| {
            self.engine.fingerprint_entry(block).ok().map(|(_, bytes)| Home::decode(&bytes.0))
        };
        let mut at_home: Vec<_> = blocks.iter().filter_map(|block| Some((home(*block)?, *block))).collect();
        let leaf = |home: &Home| (home.volume, home.block.leaf_start());
        at_home.sort_by_key(|(home, block)| (leaf(home), *block));
        let (engine, in_flight, holders, counters) =
            (self.engine, self.in_flight, self.holders, self.counters);
        let leaf_scan = LeafScan { engine, in_flight, holders, counters };
        let mut read = 0;
        for of_leaf in at_home.chunk_by(|a, b| leaf(&a.0) == leaf(&b.0)) {
            let blocks: Vec<_> = of_leaf.iter().map(|(_, block)| *block).collect();
            read += leaf_scan.share(&blocks)?;
        }
        Ok(read)
    }
}
