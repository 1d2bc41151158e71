//! Extent trees: runs of blocks, sorted by where they are in the file.

use super::blocks::BlockNo;
use super::checksum::crc32c;
use super::error::corrupt;
use super::extent_list::ExtentList;
use crate::bytes::{le16, le32};
use crate::error::{FsError, Result};
use std::ops::Range;

const MAGIC: u16 = 0xf30a;
/// A node's header, and each of its entries.
const ENTRY_BYTES: usize = 12;
/// Levels below the root.
const DEPTH_MAX: u16 = 5;
/// Lengths above this are those of extents that were never written, plus this.
const WRITTEN_BLOCKS_MAX: u16 = 1 << 15;
/// One behind the last block that a file can have.
const FILE_BLOCKS_END: u64 = 1 << 32;

/// Reads the tree whose root is in the inode.
pub(super) fn walk(list: &mut ExtentList) -> Result<()> {
    let root = *list.inode.map();
    let depth = le16(&root, 6).unwrap_or(0);
    if depth > DEPTH_MAX {
        return Err(damage(list, None, &format!("it is {depth} levels deep")));
    }
    visit(list, &root, None, depth, 0..FILE_BLOCKS_END)
}

fn damage(list: &ExtentList, node: Option<BlockNo>, why: &str) -> FsError {
    let place = node.map_or("the inode".into(), |no| format!("block {}", no.0));
    corrupt(format!("the extent tree of inode {} in {place}: {why}", list.inode.no.0))
}

/// Reads a node and all below it, which may speak of the blocks `range` of the file only.
fn visit(
    list: &mut ExtentList,
    node: &[u8],
    no: Option<BlockNo>,
    depth: u16,
    range: Range<u64>,
) -> Result<()> {
    let entries = entries(node, depth).map_err(|why| damage(list, no, &why))?;
    check_sum(list, node, no)?;
    let starts: Vec<u64> = entries.iter().map(|e| le32(e, 0).unwrap_or(0).into()).collect();
    for (nth, entry) in entries.iter().enumerate() {
        let start = starts[nth];
        let end = starts.get(nth + 1).copied().unwrap_or(range.end);
        if start < range.start || start >= end || end > range.end {
            let why = format!("entry {nth} begins at {start}, outside of {}..{end}", range.start);
            return Err(damage(list, no, &why));
        }
        if depth == 0 {
            add(list, entry, start, no, end)?;
            continue;
        }
        let child = BlockNo(wide(entry, 4, 8));
        let inode = list.inode.no.0;
        list.blocks.check(child, 1, &|| format!("the extent tree of inode {inode}"))?;
        list.spend(1)?;
        let block = list.blocks.block(child)?;
        visit(list, &block, Some(child), depth - 1, start..end)?;
    }
    Ok(())
}

/// Takes an extent; it must end before `end`.
fn add(list: &mut ExtentList, entry: &[u8], start: u64, no: Option<BlockNo>, end: u64) -> Result<()> {
    let stored = le16(entry, 4).unwrap_or(0);
    let is_written = stored <= WRITTEN_BLOCKS_MAX;
    let len = u64::from(if is_written { stored } else { stored - WRITTEN_BLOCKS_MAX });
    if len == 0 || len > end - start {
        return Err(damage(list, no, &format!("{len} blocks at {start} end behind {end}")));
    }
    let place = BlockNo(wide(entry, 8, 6));
    list.add(start, len, is_written.then_some(place))
}

/// 48 bits.
fn wide(entry: &[u8], low_at: usize, high_at: usize) -> u64 {
    u64::from(le16(entry, high_at).unwrap_or(0)) << 32 | u64::from(le32(entry, low_at).unwrap_or(0))
}

/// The entries of a node of this depth; they are whole.
fn entries(node: &[u8], depth: u16) -> std::result::Result<Vec<&[u8]>, String> {
    let field = |at| le16(node, at).unwrap_or(0);
    let (magic, count, max, found) = (field(0), field(2), field(4), field(6));
    if magic != MAGIC {
        return Err(format!("it begins with {magic:#x} instead of {MAGIC:#x}"));
    }
    if found != depth {
        return Err(format!("its depth is {found} instead of {depth}"));
    }
    let room = (node.len() / ENTRY_BYTES).saturating_sub(1);
    if count > max || usize::from(max) > room {
        return Err(format!("{count} entries of at most {max} in a node with room for {room}"));
    }
    if count == 0 && depth > 0 {
        return Err("a node without entries".into());
    }
    Ok(node.chunks_exact(ENTRY_BYTES).skip(1).take(count.into()).collect())
}

/// A block of the tree ends with a checksum, behind the room for entries; the inode has its own.
fn check_sum(list: &ExtentList, node: &[u8], no: Option<BlockNo>) -> Result<()> {
    let (Some(seed), Some(_)) = (list.inode.seed, no) else { return Ok(()) };
    let at = ENTRY_BYTES * (1 + usize::from(le16(node, 4).unwrap_or(0)));
    let Some(stored) = le32(node, at) else {
        return Err(damage(list, no, "there is no room for its checksum"));
    };
    let got = crc32c(seed, &node[..at]);
    if stored != got {
        return Err(damage(list, no, &format!("its checksum is {got:#x}, and {stored:#x} is stored")));
    }
    Ok(())
}
