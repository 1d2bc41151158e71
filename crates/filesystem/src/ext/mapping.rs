//! Where the data of an inode is: an extent tree, or pointers to blocks.

use super::blocks::Blocks;
use super::extent_list::ExtentList;
use super::extent_tree;
use super::indirect;
use super::inode::Inode;
use crate::error::Result;
use crate::tree::extents::Extent;

/// The extents of an inode's data, which is not inline. Adjacent ones are merged; nothing lies behind its size.
pub(super) fn extents(blocks: &Blocks, inode: &Inode) -> Result<Vec<Extent>> {
    let mut list = ExtentList::new(blocks, inode);
    if inode.has_extents() {
        extent_tree::walk(&mut list)?;
    } else {
        indirect::walk(&mut list)?;
    }
    Ok(list.extents)
}
