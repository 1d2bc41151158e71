//! Whether a pool is what it should be, and what of it can be made anew.
//!
//! The maps are what counts: which blocks they name. Counts, summaries, and which entry of a fingerprint store says what,
//! follow from them and from the content, and are made anew where they are wrong. A map or content that is damaged is not:
//! nothing else has it.

mod copies;
mod group;
mod maps;
mod mend;
mod names;
mod scrub;

use std::collections::HashSet;
use std::ops::Range;

use format::pool::{BlockGroupNo, CatalogIndex, MapRoot, PoolBlock};

use crate::engine::Engine;
use crate::error::Result;
use crate::pool::Pool;
use names::Names;

/// Findings that a report lists at most.
const FINDINGS_MAX: usize = 10_000;
/// Data blocks that are counted at once, four bytes of memory each: 128 GiB of a pool. A larger one has its maps read again
/// for each further part.
const COUNTED_BLOCKS: u32 = 1 << 25;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// Whether it was mended.
    pub is_mended: bool,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What else is wrong, and was not mended: there was no room to list it.
    pub more: u64,
    /// Blocks in use, map nodes included.
    pub used_blocks: u64,
    /// Slots of map leaves that name a block, those of each volume and snapshot counted for itself.
    pub mapped_blocks: u64,
    /// Data blocks in use.
    pub stored_blocks: u64,
    /// Of those, blocks without a fingerprint: nobody has looked yet whether others have their content.
    pub unshared_blocks: u64,
}

/// A volume or a snapshot, and where its map begins.
struct Root {
    name: String,
    slot: CatalogIndex,
    root: MapRoot,
}

struct Check<'a> {
    engine: &'a Engine,
    /// Content and homes as well.
    data: bool,
    /// What can be made anew is.
    mends: bool,
    roots: Vec<Root>,
    names: Names,
    /// Blocks that are not at the home that their entries say.
    homeless: HashSet<PoolBlock>,
    /// Blocks that no map names, or not as often as they are counted, while a map cannot be read.
    hidden_blocks: u64,
    report: CheckReport,
}

impl Pool {
    /// Compares maps, counts, fingerprint stores and the summary; with `data` all content with its fingerprints as well.
    /// Nobody may write meanwhile. Takes up to 128 MiB of memory, and about 40 bytes for each map node (2 MiB of a volume).
    pub fn check(&self, data: bool) -> Result<CheckReport> {
        let mut report = self.compare(data, false, COUNTED_BLOCKS)?;
        self.compare_copies(false, &mut report)?;
        Ok(report)
    }

    /// What the maps name, and what is in use. Somebody may write meanwhile: then it is about right.
    pub(crate) fn count_blocks(&self) -> Result<CheckReport> {
        self.compare(false, false, COUNTED_BLOCKS)
    }

    /// The same, and makes anew what follows from the maps and from the content: counts, pages of fingerprint stores, the
    /// summary. Where a map cannot be read nothing is freed, because it may name it. Nobody else may use the pool meanwhile.
    pub fn repair(&self, data: bool) -> Result<CheckReport> {
        self.settle();
        self.forget_deleted()?;
        let mut report = self.compare(data, true, COUNTED_BLOCKS)?;
        self.compare_copies(true, &mut report)?;
        Ok(report)
    }

    /// The same, in parts of so many blocks.
    fn compare(&self, data: bool, mends: bool, counted_blocks: u32) -> Result<CheckReport> {
        self.flush()?;
        let roots = self.roots()?.into_iter().map(|(slot, name, root)| Root { name, slot, root }).collect();
        let geometry = &self.engine().geometry;
        let mut check = Check {
            engine: self.engine(),
            data,
            mends,
            roots,
            names: Names::new(geometry.data_blocks()),
            homeless: HashSet::new(),
            hidden_blocks: 0,
            report: CheckReport::default(),
        };
        let groups_at_once = (counted_blocks / geometry.data_blocks()).max(1);
        // All maps are read before anything is mended: nothing is freed if one cannot be.
        for part in parts(geometry.groups, groups_at_once) {
            check.count(part.clone());
            for group in part.map(BlockGroupNo) {
                check.group(group)?;
            }
        }
        let hidden = check.hidden_blocks;
        if hidden > 0 {
            check.found(format!("{hidden} blocks are kept that only what cannot be read may name"), false);
        }
        if mends {
            self.flush()?;
        }
        Ok(check.report)
    }
}

/// Ranges of so many groups that follow each other.
fn parts(groups: u32, at_once: u32) -> impl Iterator<Item = Range<u32>> {
    (0..groups).step_by(at_once as usize).map(move |first| first..groups.min(first + at_once))
}

impl Check<'_> {
    /// Notes what is wrong, and whether it is mended.
    fn found(&mut self, what: String, is_mended: bool) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(Finding { what, is_mended });
        } else if !is_mended {
            self.report.more += 1;
        }
    }

    /// Counts how often the maps name each block of some groups. The first time, what is wrong with the maps is noted.
    fn count(&mut self, groups: Range<u32>) {
        let is_first = groups.start == 0;
        self.names.begin(groups);
        let mut wrong = Vec::new();
        for index in 0..self.roots.len() {
            let Root { name, slot, root } = &self.roots[index];
            let (name, slot, root) = (name.clone(), *slot, *root);
            let mapped = root.root.map_or(0, |node| self.node(&name, node, root.level));
            if is_first {
                self.report.mapped_blocks += mapped;
                if let Some(counted) = root.mapped.filter(|counted| *counted != mapped) {
                    let what = format!("{name}: its map names {mapped} blocks, its slot says {counted}");
                    wrong.push((slot, mapped, what));
                }
            }
        }
        // Maps share nodes: what is below one that cannot be read is missing in all that have it, and nothing else is wrong.
        if !self.names.were_all_read {
            return;
        }
        for (slot, mapped, what) in wrong {
            let is_mended = self.set_mapped(slot, mapped);
            self.found(what, is_mended);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::device::FsDevice;
    use crate::pool::Options;
    use format::pool::{Geometry, Sharing};
    use store::file_system::{Access, FileSystem};
    use store::SimFs;

    const BLOCKS: u64 = 4000;

    /// A pool of which a part is counted at a time is found to have, and not to have, the same.
    #[test]
    fn parts_are_counted_as_the_whole_is() {
        let fs = SimFs::new(1);
        let device = || {
            let file = fs.open("pool", Access::Create).unwrap();
            FsDevice::new(fs.clone(), file, BLOCKS * 4096)
        };
        let file = fs.open("pool", Access::Create).unwrap();
        fs.set_len(&file, BLOCKS * 4096).unwrap();
        Pool::create_with(&device(), Geometry::plan_with(BLOCKS, 256, 64).unwrap()).unwrap();
        let pool = Pool::open(Box::new(device()), Options::default()).unwrap();
        for (name, sharing) in [("a", Sharing::Inline), ("b", Sharing::Background)] {
            pool.create_volume(name, 6 << 20, sharing).unwrap();
            let bytes: Vec<u8> = (0..4 << 20).map(|n: u32| (n / 4096 % 700 + n % 7) as u8).collect();
            pool.volume(name).unwrap().write_at(0, &bytes).unwrap();
            pool.snapshot(name, "s").unwrap();
        }
        let whole = pool.compare(true, false, COUNTED_BLOCKS).unwrap();
        assert!(whole.findings.is_empty() && whole.used_blocks > 1000, "{whole:?}");
        assert_eq!(pool.compare(true, false, 1).unwrap(), whole);

        // Counts that are wrong, in all groups.
        let engine = pool.engine();
        let geometry = engine.geometry;
        for group in (0..geometry.groups).map(BlockGroupNo) {
            if engine.summary(group).unwrap().in_use {
                let block = geometry.data_block(group, 3);
                let used = engine.fingerprint_entry(block).unwrap().0.count > 0;
                let refer = |t: &mut crate::engine::Transaction<'_>| {
                    t.refer(block, i64::from(used));
                    Ok(())
                };
                engine.transact(refer).unwrap();
            }
        }
        let wrong = pool.compare(true, false, COUNTED_BLOCKS).unwrap();
        assert!(wrong.findings.len() > 3, "{wrong:?}");
        assert_eq!(pool.compare(true, false, 1).unwrap(), wrong);
        let mended = pool.compare(true, true, 300).unwrap();
        assert!(mended.findings.iter().all(|f| f.is_mended), "{mended:?}");
        assert_eq!(pool.compare(true, false, COUNTED_BLOCKS).unwrap(), whole);
    }
}
