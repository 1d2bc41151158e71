//! The map of a volume: a tree from its blocks to data blocks.

use std::sync::Arc;

use format::pool::{Geometry, MapEntry, MapRoot, PageKind, PoolBlock, VolumeBlock, MAP_SLOTS};

use super::Volume;
use crate::engine::{Need, Page, Transaction, Urgency};
use crate::error::{PoolError, Result};

/// Bits of a block number that a level resolves.
const LEVEL_BITS: u32 = 9;

/// The slot of a node of a level that leads to a block.
pub(crate) fn index_at(level: u8, block: VolumeBlock) -> usize {
    (block.0 >> (LEVEL_BITS * u32::from(level))) as usize % MAP_SLOTS
}

/// Blocks of a volume that a slot of a node of a level leads to.
pub(crate) fn slot_blocks(level: u8) -> u64 {
    1 << (LEVEL_BITS * u32::from(level))
}

/// An entry of a node.
pub(crate) fn entry_of(node: &Page, index: usize) -> MapEntry {
    MapEntry::decode(node.array(Geometry::map_slot(node.block, index).offset))
}

/// All entries of a node that lead somewhere.
pub(crate) fn node_entries(node: &Page) -> Vec<(usize, MapEntry)> {
    let bytes = node.bytes();
    (0..MAP_SLOTS)
        .filter_map(|index| {
            let at = Geometry::map_slot(node.block, index).offset;
            let mut slot = [0; MapEntry::BYTES];
            slot.copy_from_slice(&bytes[at..at + MapEntry::BYTES]);
            let entry = MapEntry::decode(slot);
            entry.block().map(|_| (index, entry))
        })
        .collect()
}

/// Where a node hangs: in the catalog, or in a slot of its parent.
#[derive(Clone)]
pub(crate) enum Node {
    /// It is the root.
    Root,
    /// A slot of a node.
    Of(Arc<Page>, usize),
}

/// What a walk to a leaf that is to be changed ends with.
pub(super) enum Walk {
    /// The leaf: nothing else leads to it.
    Leaf(Arc<Page>),
    /// No node of this level is there.
    Missing(Node, u8),
    /// A node of this level that others lead to as well.
    Shared(Node, Arc<Page>, u8),
}

impl Volume {
    /// The leaf that maps a block; or, where none does, the number of blocks from the block's slot on that lead nowhere.
    pub(super) fn leaf(
        &self,
        root: MapRoot,
        block: VolumeBlock,
    ) -> Result<std::result::Result<Arc<Page>, u64>> {
        let mut next = root.root;
        for level in (0..=root.level).rev() {
            let Some(node) = next else { return Ok(Err(slot_blocks(level + 1))) };
            let page = self.engine.page(node, PageKind::Map)?;
            self.check_level(&page, level)?;
            if level == 0 {
                return Ok(Ok(page));
            }
            next = entry_of(&page, index_at(level, block)).block();
        }
        Ok(Err(1))
    }

    /// The first leaf that maps blocks at or behind a block, and the first block that it maps.
    pub(crate) fn next_leaf(&self, from: VolumeBlock) -> Result<Option<(VolumeBlock, Arc<Page>)>> {
        let root = self.root();
        let mut from = from;
        while from.0 < slot_blocks(root.level + 1) {
            match self.leaf(root, from)? {
                Ok(leaf) => return Ok(Some((from.leaf_start(), leaf))),
                // None leads to these blocks, which begin at a multiple of their number.
                Err(blocks) => from = VolumeBlock((from.0 / blocks + 1) * blocks),
            }
        }
        Ok(None)
    }

    /// The leaf that maps a block, if there is one. Others may lead to it as well.
    pub(crate) fn any_leaf(&self, block: VolumeBlock) -> Result<Option<Arc<Page>>> {
        let root = self.root();
        if block.0 >= slot_blocks(root.level + 1) {
            return Ok(None);
        }
        Ok(self.leaf(root, block)?.ok())
    }

    /// The same, in a transaction.
    pub(crate) fn any_leaf_now(
        &self,
        t: &Transaction<'_>,
        block: VolumeBlock,
    ) -> std::result::Result<Option<Arc<Page>>, Need> {
        let root = self.root();
        if block.0 >= slot_blocks(root.level + 1) {
            return Ok(None);
        }
        let mut next = root.root;
        for level in (0..=root.level).rev() {
            let Some(node) = next else { return Ok(None) };
            let page = t.page(node, PageKind::Map)?;
            self.check_level(&page, level)?;
            if level == 0 {
                return Ok(Some(page));
            }
            next = entry_of(&page, index_at(level, block)).block();
        }
        Ok(None)
    }

    /// Notes that the map names so many blocks more, where they are counted.
    pub(super) fn count(&self, t: &mut Transaction<'_>, more: i64) {
        if more == 0 {
            return;
        }
        if let Some(before) = self.root().mapped {
            let bytes = MapRoot::encode_mapped(Some(before.saturating_add_signed(more)));
            t.set(&self.catalog, self.slot.offset + MapRoot::MAPPED_AT, &bytes);
        }
    }

    /// Counts the blocks that the map names, by reading all of it. Somebody may write meanwhile.
    pub(crate) fn count_mapped(&self) -> Result<u64> {
        let _guard = self.engine.read_guard();
        let root = self.root();
        root.root.map_or(Ok(0), |node| self.count_below(node, root.level))
    }

    fn count_below(&self, node: PoolBlock, level: u8) -> Result<u64> {
        let page = self.engine.page(node, PageKind::Map)?;
        self.check_level(&page, level)?;
        let entries = node_entries(&page);
        if level == 0 {
            return Ok(entries.len() as u64);
        }
        entries
            .iter()
            .filter_map(|(_, entry)| entry.block())
            .map(|child| self.count_below(child, level - 1))
            .sum()
    }

    pub(super) fn check_level(&self, page: &Page, level: u8) -> Result<()> {
        let found = page.bytes()[9];
        if found == level {
            return Ok(());
        }
        Err(PoolError::Damaged {
            what: format!("map node {} of {} in {}", page.block, self.name, self.engine.location()),
            why: format!("it has level {found}, not {level}"),
        })
    }

    /// Walks to the leaf of a block that is to be changed.
    pub(super) fn walk(&self, t: &Transaction<'_>, block: VolumeBlock) -> std::result::Result<Walk, Need> {
        let root = self.root();
        if root.owner != Some(self.id) {
            return Err(Need::Failed(PoolError::Refused(format!("{} was deleted", self.name))));
        }
        let (mut at, mut next) = (Node::Root, root.root);
        for level in (0..=root.level).rev() {
            let Some(node) = next else { return Ok(Walk::Missing(at, level)) };
            let page = t.page(node, PageKind::Map)?;
            self.check_level(&page, level)?;
            if t.entry(node)?.0.count > 1 {
                return Ok(Walk::Shared(at, page, level));
            }
            if level == 0 {
                return Ok(Walk::Leaf(page));
            }
            let index = index_at(level, block);
            next = entry_of(&page, index).block();
            at = Node::Of(page, index);
        }
        Err(Need::Failed(PoolError::Refused("a tree without leaves".into())))
    }

    /// Lets a slot lead to a node, or to nothing.
    pub(super) fn hang(&self, t: &mut Transaction<'_>, at: &Node, node: Option<PoolBlock>) {
        match at {
            Node::Root => {
                let bytes = node.map_or(0, |block| block.0).to_le_bytes();
                t.set(&self.catalog, self.slot.offset + MapRoot::ROOT_AT, &bytes);
            }
            Node::Of(parent, index) => {
                t.set_map(parent, *index, &[node.map_or(MapEntry::NONE, MapEntry::child)]);
            }
        }
    }

    /// Makes the way to a block's leaf this volume's own: nodes that others share are copied, missing ones are made.
    pub(super) fn own_leaf(&self, block: VolumeBlock, urgency: Urgency) -> Result<()> {
        loop {
            let needed = self.engine.transact(|t| {
                Ok(match self.walk(t, block)? {
                    Walk::Leaf(_) => 0,
                    Walk::Shared(..) => 1,
                    Walk::Missing(_, level) => u32::from(level) + 1,
                })
            })?;
            if needed == 0 {
                return Ok(());
            }
            let mut nodes = Vec::new();
            let done = (0..needed)
                .try_for_each(|_| {
                    nodes.push(self.engine.allocate(&self.nodes, 1, urgency)?);
                    Ok(())
                })
                .and_then(|()| {
                    let blocks: Vec<_> = nodes.iter().map(|run| run.first).collect();
                    self.engine.transact(|t| self.own_step(t, block, &blocks))
                });
            match done {
                Ok(used) => nodes.drain(..used).for_each(drop),
                Err(error) => {
                    nodes.into_iter().for_each(|run| self.engine.give_back(run));
                    return Err(error);
                }
            }
            nodes.into_iter().for_each(|run| self.engine.give_back(run));
        }
    }

    /// Copies one node, or makes what is missing. Returns how many of the blocks it used.
    fn own_step(
        &self,
        t: &mut Transaction<'_>,
        block: VolumeBlock,
        blocks: &[PoolBlock],
    ) -> std::result::Result<usize, Need> {
        match self.walk(t, block)? {
            Walk::Leaf(_) => Ok(0),
            Walk::Shared(at, node, level) => {
                let entries = node_entries(&node);
                for (_, entry) in &entries {
                    entry.block().into_iter().for_each(|child| t.refer(child, 1));
                }
                t.refer(node.block, -1);
                t.new_node(blocks[0], level, entries);
                self.hang(t, &at, Some(blocks[0]));
                Ok(1)
            }
            Walk::Missing(at, level) => {
                let levels = usize::from(level) + 1;
                if blocks.len() < levels {
                    return Ok(0);
                }
                for (n, level) in (0..=level).rev().enumerate() {
                    let entries = match level {
                        0 => Vec::new(),
                        _ => vec![(index_at(level, block), MapEntry::child(blocks[n + 1]))],
                    };
                    t.new_node(blocks[n], level, entries);
                }
                self.hang(t, &at, Some(blocks[0]));
                Ok(levels)
            }
        }
    }
}
