//! Whether a pool is what it should be.

use std::collections::HashMap;

use chunk::Fingerprint;
use format::pool::{BlockGroupNo, Home, PageKind, PoolBlock, VolumeBlock, BLOCK_BYTES};

use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::volume::{node_entries, slot_blocks};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Blocks in use, map nodes included.
    pub used_blocks: u64,
    /// Slots of map leaves that name a block, those of each volume and snapshot counted for itself.
    pub mapped_blocks: u64,
    /// Data blocks in use.
    pub stored_blocks: u64,
    /// Of those, blocks without a fingerprint: nobody has looked yet whether others have their content.
    pub unshared_blocks: u64,
}

struct Check<'a> {
    engine: &'a Engine,
    /// Content and homes as well.
    data: bool,
    /// How often each block is named.
    named: HashMap<PoolBlock, u32>,
    /// Map nodes, and how many slots of leaves below them name a block.
    nodes: HashMap<PoolBlock, u64>,
    report: CheckReport,
}

impl Pool {
    /// Compares maps, counts, fingerprint stores and the summary; with `data` all content with its fingerprints as well.
    /// Nobody may write meanwhile. Takes 16 bytes of memory and more for each block in use.
    pub fn check(&self, data: bool) -> Result<CheckReport> {
        self.flush()?;
        let mut check = Check {
            engine: self.engine(),
            data,
            named: HashMap::new(),
            nodes: HashMap::new(),
            report: CheckReport::default(),
        };
        for (name, root) in self.roots()? {
            let mapped = root.root.map_or(0, |node| check.node(&name, node, root.level, VolumeBlock(0)));
            check.report.mapped_blocks += mapped;
            if let Some(counted) = root.mapped.filter(|counted| *counted != mapped) {
                check.wrong(format!("{name}: its map names {mapped} blocks, its slot says {counted}"));
            }
        }
        for group in (0..check.engine.geometry.groups).map(BlockGroupNo) {
            check.group(group)?;
        }
        for (block, count) in std::mem::take(&mut check.named) {
            check.wrong(format!("block {block} is named {count} times, in a group that is not in use"));
        }
        Ok(check.report)
    }
}

impl Check<'_> {
    fn wrong(&mut self, what: String) {
        self.report.findings.push(Finding { what });
    }

    /// Counts what a node names that maps a volume's blocks from `first` on, once for each node. Returns how many slots of
    /// leaves below it name a block.
    fn node(&mut self, name: &str, block: PoolBlock, level: u8, first: VolumeBlock) -> u64 {
        *self.named.entry(block).or_default() += 1;
        if let Some(mapped) = self.nodes.get(&block) {
            return *mapped;
        }
        self.nodes.insert(block, 0);
        let page = match self.engine.page(block, PageKind::Map) {
            Ok(page) => page,
            Err(error) => {
                self.wrong(format!("{name}: {error}"));
                return 0;
            }
        };
        let found = page.bytes()[9];
        if found != level {
            self.wrong(format!("{name}: node {block} has level {found}, not {level}"));
            return 0;
        }
        let mut mapped = 0;
        for (index, entry) in node_entries(&page) {
            let Some(child) = entry.block() else { continue };
            let first = first + index as u64 * slot_blocks(level);
            if self.engine.geometry.locate(child).is_none() {
                self.wrong(format!("{name}: node {block} names {child}, which is not a data block"));
            } else if level > 0 {
                mapped += self.node(name, child, level - 1, first);
            } else {
                mapped += 1;
                *self.named.entry(child).or_default() += 1;
                self.home(name, child, first);
            }
        }
        self.nodes.insert(block, mapped);
        mapped
    }

    /// A block without a fingerprint is named at its home only. A fingerprint store
    /// that cannot be read is found with its group.
    fn home(&mut self, name: &str, block: PoolBlock, named_at: VolumeBlock) {
        let entry = if self.data { self.engine.fingerprint_entry(block).ok() } else { None };
        let Some((entry, bytes)) = entry else { return };
        let home = Home::decode(&bytes.0);
        if entry.is_unshared() && home.block != named_at {
            self.wrong(format!(
                "{name}: block {block} was written as block {}, but is block {named_at}",
                home.block
            ));
        }
    }

    fn group(&mut self, group: BlockGroupNo) -> Result<()> {
        let summary = self.engine.summary(group)?;
        if !summary.in_use {
            return Ok(());
        }
        let blocks = self.engine.geometry.data_blocks();
        let (mut free, mut unshared) = (0, 0);
        for index in 0..blocks {
            let block = self.engine.geometry.data_block(group, index);
            let (entry, fingerprint) = match self.engine.fingerprint_entry(block) {
                Ok(found) => found,
                Err(PoolError::Damaged { what, why }) => {
                    self.wrong(format!("{what} is damaged: {why}"));
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let named = self.named.remove(&block).unwrap_or(0);
            if named != entry.count {
                self.wrong(format!("block {block} has count {}, but is named {named} times", entry.count));
            }
            let is_node = self.nodes.contains_key(&block);
            if entry.count == 0 {
                free += 1;
                continue;
            }
            self.report.used_blocks += 1;
            self.report.stored_blocks += u64::from(!is_node);
            if entry.is_node != is_node {
                self.wrong(format!("block {block} is {}a map node", if is_node { "" } else { "not " }));
            }
            unshared += u64::from(entry.is_unshared());
            if self.data && entry.has_fingerprint {
                let mut content = [0; BLOCK_BYTES];
                self.engine.read_blocks(block, &mut content)?;
                if Fingerprint::of(&content) != fingerprint {
                    self.wrong(format!("block {block} does not have the content of its fingerprint"));
                }
            }
        }
        self.report.unshared_blocks += unshared;
        if unshared > 0 && !summary.has_unshared {
            self.wrong(format!(
                "group {} has {unshared} blocks without fingerprints, which its summary does not say",
                group.0
            ));
        }
        if free != summary.free {
            self.wrong(format!(
                "group {} has {free} free blocks, its summary says {}",
                group.0, summary.free
            ));
        }
        Ok(())
    }
}
