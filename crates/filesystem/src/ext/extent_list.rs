//! The extents of an inode while they are collected.

use super::blocks::{merge, BlockNo, Blocks};
use super::error::corrupt;
use super::inode::Inode;
use crate::error::Result;
use crate::tree::extents::{Extent, Place};

/// The extents of an inode, collected from the front to the back.
pub(super) struct ExtentList<'a> {
    /// The volume.
    pub blocks: &'a Blocks,
    /// The inode whose data it is.
    pub inode: &'a Inode,
    /// What was found so far, in the order of the file; adjacent extents are merged.
    pub extents: Vec<Extent>,
    /// The first block of the file that was not yet spoken of.
    next: u64,
    /// Blocks that one file can still have. No block belongs to it twice.
    left: u64,
}

impl<'a> ExtentList<'a> {
    /// None yet.
    pub fn new(blocks: &'a Blocks, inode: &'a Inode) -> ExtentList<'a> {
        ExtentList { blocks, inode, extents: Vec::new(), next: 0, left: blocks.end() }
    }

    /// Blocks of the file; none behind them matter.
    pub fn file_blocks(&self) -> u64 {
        self.inode.size.div_ceil(self.blocks.block_bytes() as u64)
    }

    /// Takes `len` blocks from block `at` of the file on. `None`: never written.
    pub fn add(&mut self, at: u64, len: u64, start: Option<BlockNo>) -> Result<()> {
        let no = self.inode.no.0;
        if at < self.next {
            return Err(corrupt(format!("block {at} of inode {no} comes behind block {}", self.next)));
        }
        if let Some(start) = start {
            self.blocks.check(start, len, &|| format!("block {at} of inode {no}"))?;
        }
        self.spend(len)?;
        self.next = at.saturating_add(len);
        self.push(at, len, start);
        Ok(())
    }

    /// Counts blocks that belong to the file.
    pub fn spend(&mut self, len: u64) -> Result<()> {
        self.left = self.left.checked_sub(len).ok_or_else(|| {
            let (no, end) = (self.inode.no.0, self.blocks.end());
            corrupt(format!("inode {no} has more than the {end} blocks of the volume"))
        })?;
        Ok(())
    }

    fn push(&mut self, at: u64, len: u64, start: Option<BlockNo>) {
        let bits = self.blocks.bits();
        let len = len.min(self.file_blocks().saturating_sub(at));
        if len == 0 {
            return;
        }
        let offset = at << bits;
        let len = (len << bits).min(self.inode.size - offset);
        let place = start.map_or(Place::Zeros, |s| Place::Volume(s.0 << bits));
        merge(&mut self.extents, Extent { offset, len, place });
    }
}
