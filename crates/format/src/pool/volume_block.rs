//! Blocks of volumes.

use std::fmt;
use std::ops::Add;

use super::{BLOCK_BYTES, MAP_SLOTS};

const BLOCK: u64 = BLOCK_BYTES as u64;
const LEAF_BLOCKS: u64 = MAP_SLOTS as u64;

/// A block of a volume, counted from the volume's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeBlock(pub u64);

impl VolumeBlock {
    /// The block that a byte of the volume is in.
    pub fn at(offset: u64) -> Self {
        VolumeBlock(offset / BLOCK)
    }

    /// The first block that lies behind all bytes in front of `end`.
    pub fn behind(end: u64) -> Self {
        VolumeBlock(end.div_ceil(BLOCK))
    }

    /// Offset of its first byte.
    pub fn offset(self) -> u64 {
        self.0 * BLOCK
    }

    /// The slot of its leaf that leads to it.
    pub fn slot(self) -> usize {
        (self.0 % LEAF_BLOCKS) as usize
    }

    /// The first block of its leaf.
    pub fn leaf_start(self) -> Self {
        VolumeBlock(self.0 - self.0 % LEAF_BLOCKS)
    }

    /// The first block of the next leaf.
    pub fn leaf_end(self) -> Self {
        self.leaf_start() + LEAF_BLOCKS
    }

    /// The blocks from this one up to `end`, without that.
    pub fn until(self, end: VolumeBlock) -> impl Iterator<Item = VolumeBlock> {
        (self.0..end.0).map(VolumeBlock)
    }

    /// How many blocks there are from this one up to `end`.
    pub fn count_to(self, end: VolumeBlock) -> u64 {
        end.0 - self.0
    }
}

impl Add<u64> for VolumeBlock {
    type Output = VolumeBlock;

    fn add(self, blocks: u64) -> VolumeBlock {
        VolumeBlock(self.0 + blocks)
    }
}

impl fmt::Display for VolumeBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
