//! How often maps name blocks.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ops::Range;

use format::pool::{BlockGroupNo, Geometry, PoolBlock};

/// How often the data blocks of some groups are named, and all map nodes.
pub(super) struct Names {
    data_blocks: u32,
    /// The groups whose blocks are counted.
    groups: Range<u32>,
    counts: Vec<u32>,
    /// Whether each node of each map could be read.
    pub were_all_read: bool,
    nodes: HashMap<PoolBlock, Node>,
}

/// A map node.
struct Node {
    /// How many slots of leaves below it name a block.
    mapped: u64,
    /// The first group of those that were counted when it was read last.
    counted: u32,
}

impl Names {
    /// Nothing yet, of groups with so many data blocks each.
    pub fn new(data_blocks: u32) -> Self {
        Names { data_blocks, groups: 0..0, counts: Vec::new(), were_all_read: true, nodes: HashMap::new() }
    }

    /// Begins to count the blocks of some groups.
    pub fn begin(&mut self, groups: Range<u32>) {
        // Zeros that nobody writes take no memory.
        self.counts = vec![0; groups.len() * self.data_blocks as usize];
        self.groups = groups;
        self.were_all_read = true;
    }

    /// Counts that a block is named. Returns whether it is of the groups that are counted.
    pub fn count(&mut self, geometry: &Geometry, block: PoolBlock) -> bool {
        let Some((group, index)) = geometry.locate(block) else { return false };
        if !self.groups.contains(&group.0) {
            return false;
        }
        let at = (group.0 - self.groups.start) as usize * self.data_blocks as usize + index as usize;
        self.counts[at] = self.counts[at].saturating_add(1);
        true
    }

    /// How often each block of a group is named.
    pub fn of(&self, group: BlockGroupNo) -> &[u32] {
        let blocks = self.data_blocks as usize;
        let from = (group.0 - self.groups.start) as usize * blocks;
        &self.counts[from..from + blocks]
    }

    /// Whether a map has it as a node.
    pub fn is_node(&self, block: PoolBlock) -> bool {
        self.nodes.contains_key(&block)
    }

    /// Whether these are the first groups.
    pub fn is_first(&self) -> bool {
        self.groups.start == 0
    }

    /// Begins with a node. If it was read for these groups before, what [`Names::end_node`] noted.
    pub fn begin_node(&mut self, block: PoolBlock) -> Option<u64> {
        let counted = self.groups.start;
        match self.nodes.entry(block) {
            Entry::Occupied(node) if node.get().counted == counted => return Some(node.get().mapped),
            Entry::Occupied(mut node) => node.get_mut().counted = counted,
            Entry::Vacant(node) => drop(node.insert(Node { mapped: 0, counted })),
        }
        None
    }

    /// Notes how many slots of leaves below a node name a block.
    pub fn end_node(&mut self, block: PoolBlock, mapped: u64) {
        if let Some(node) = self.nodes.get_mut(&block) {
            node.mapped = mapped;
        }
    }
}
