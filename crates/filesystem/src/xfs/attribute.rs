//! Extended attributes: within the inode, in one leaf, or in a tree of leaves; long values in blocks of their own.

use super::error::corrupt;
use super::inode::{Fork, Format, Inode};
use super::runs::{self, Run};
use super::volume::{Block, Stamp, Volume};
use crate::bytes::{be16, be32};
use crate::error::{FsError, Result};
use std::collections::HashSet;

/// The longest value that the kernel makes.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Names, values, and `PER_ATTRIBUTE_BYTES` for each.
const MAX_BYTES: usize = 64 << 20;
const PER_ATTRIBUTE_BYTES: usize = 64;

const FLAG_LOCAL: u8 = 1 << 0;
const FLAG_ROOT: u8 = 1 << 1;
const FLAG_SECURE: u8 = 1 << 2;
const FLAG_PARENT: u8 = 1 << 3;
const FLAG_INCOMPLETE: u8 = 1 << 7;

const MAGIC_4_LEAF: u16 = 0xfbee;
const MAGIC_4_NODE: u16 = 0xfebe;
const MAGIC_5_LEAF: u16 = 0x3bee;
const MAGIC_5_NODE: u16 = 0x3ebe;
const STAMP: Stamp = Stamp { crc: 12, place: 16, uuid: 32, owner: 48 };
/// Where the counts of leaves and nodes are, behind the header that they share.
const INFO_4_BYTES: usize = 12;
const INFO_5_BYTES: usize = 56;
const LEAF_4_BYTES: usize = 32;
const LEAF_5_BYTES: usize = 80;
const NODE_4_BYTES: usize = 16;
const NODE_5_BYTES: usize = 64;
const LEAF_ENTRY_BYTES: usize = 8;
/// More than the blocks of a fork could need.
const MAX_LEVELS: usize = 8;

const MAGIC_VALUE: [u8; 4] = *b"XARM";
const VALUE_HEADER_BYTES: usize = 56;
const VALUE_STAMP: Stamp = Stamp { crc: 12, place: 40, uuid: 16, owner: 32 };

/// Access lists have names of their own on the disk, and another layout than everywhere else.
const ACLS: [(&[u8], &[u8]); 2] =
    [(b"SGI_ACL_FILE", b"system.posix_acl_access"), (b"SGI_ACL_DEFAULT", b"system.posix_acl_default")];
const ACL_VERSION: u32 = 2;
const ACL_ENTRY_BYTES: usize = 12;

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// All attributes by their full names, sorted.
pub(super) fn read(volume: &Volume, inode: &Inode) -> Result<Attributes> {
    let Some(fork) = &inode.attributes else { return Ok(Vec::new()) };
    let mut reader = Reader { volume, inode: inode.number, runs: Vec::new(), found: Vec::new(), bytes: 0 };
    match fork.format {
        Format::Local => reader.short_form(fork)?,
        Format::Extents if fork.extents == 0 => {}
        _ => {
            reader.runs = runs::read(volume, inode, fork)?;
            reader.leaves()?;
        }
    }
    reader.found.sort();
    Ok(reader.found)
}

struct Reader<'a> {
    volume: &'a Volume,
    inode: u64,
    runs: Vec<Run>,
    found: Attributes,
    /// How much is found.
    bytes: usize,
}

impl Reader<'_> {
    fn wrong(&self, why: impl std::fmt::Display) -> FsError {
        corrupt(format!("inode {}: attributes: {why}", self.inode))
    }

    /// Takes an attribute unless it is not there for users, or half written.
    fn push(&mut self, flags: u8, name: &[u8], value: &[u8]) -> Result<()> {
        self.bytes += name.len() + value.len() + PER_ATTRIBUTE_BYTES;
        if self.bytes > MAX_BYTES {
            return Err(self.wrong(format!("more than {MAX_BYTES} bytes")));
        }
        let acl = ACLS.iter().find(|(on_disk, _)| flags & FLAG_ROOT != 0 && *on_disk == name);
        if let Some((_, full)) = acl {
            let value = acl_value(value)
                .ok_or_else(|| self.wrong(format!("an access list of {} bytes", value.len())))?;
            self.found.push((full.to_vec(), value));
            return Ok(());
        }
        let space: &[u8] = match flags & (FLAG_ROOT | FLAG_SECURE) {
            0 => b"user.",
            FLAG_ROOT => b"trusted.",
            FLAG_SECURE => b"security.",
            _ => return Err(self.wrong(format!("flags {flags:#x}"))),
        };
        self.found.push(([space, name].concat(), value.to_vec()));
        Ok(())
    }

    /// Attributes within the inode.
    fn short_form(&mut self, fork: &Fork) -> Result<()> {
        let bytes = &fork.bytes;
        let (size, count) = (be16(bytes, 0).unwrap_or_default(), bytes.get(2).copied().unwrap_or_default());
        let mut at = 4;
        for n in 0..count {
            let cut = || self.wrong(format!("number {n} at byte {at} of {size} is cut off"));
            let Some([name_len, value_len, flags]) = bytes.get(at..at + 3) else { return Err(cut()) };
            let (name_len, value_len, flags) = (usize::from(*name_len), usize::from(*value_len), *flags);
            let body = bytes.get(at + 3..at + 3 + name_len + value_len).ok_or_else(cut)?;
            let (name, value) = body.split_at(name_len);
            at += 3 + name_len + value_len;
            if flags & (FLAG_INCOMPLETE | FLAG_PARENT) == 0 {
                self.push(flags, name, value)?;
            }
        }
        Ok(())
    }

    /// All leaves, from the first one on along their chain.
    fn leaves(&mut self) -> Result<()> {
        let mut at = self.first_leaf()?;
        let mut seen = HashSet::new();
        loop {
            if !seen.insert(at) {
                return Err(self.wrong(format!("the chain of leaves comes back to block {at}")));
            }
            let block = self.block(at)?;
            if be16(&block.bytes, 8) != Some(self.pick(MAGIC_4_LEAF, MAGIC_5_LEAF)) {
                return Err(self.wrong_block(&block));
            }
            self.leaf(&block)?;
            match be32(&block.bytes, 0) {
                Some(next) if next != 0 => at = next.into(),
                _ => return Ok(()),
            }
        }
    }

    fn first_leaf(&self) -> Result<u64> {
        let mut at = 0;
        for _ in 0..MAX_LEVELS {
            let block = self.block(at)?;
            if be16(&block.bytes, 8) != Some(self.pick(MAGIC_4_NODE, MAGIC_5_NODE)) {
                return Ok(at);
            }
            let count = be16(&block.bytes, self.pick(INFO_4_BYTES, INFO_5_BYTES));
            // The first entry is a hash and the block below.
            let below = be32(&block.bytes, self.pick(NODE_4_BYTES, NODE_5_BYTES) + 4);
            match below.filter(|_| count != Some(0)) {
                Some(below) => at = below.into(),
                None => return Err(self.wrong_block(&block)),
            }
        }
        Err(self.wrong(format!("a tree of more than {MAX_LEVELS} levels")))
    }

    fn pick<T>(&self, version_4: T, version_5: T) -> T {
        if self.volume.superblock.has_crc {
            version_5
        } else {
            version_4
        }
    }

    fn wrong_block(&self, block: &Block) -> FsError {
        let magic = be16(&block.bytes, 8).unwrap_or_default();
        self.wrong(format!("magic {magic:#x} in the block at offset {:#x}", block.offset))
    }

    /// A leaf or a node of the tree.
    fn block(&self, at: u64) -> Result<Block> {
        let pieces = self.locate(at, 1)?;
        let block = self.volume.read_pieces(&pieces)?;
        if self.volume.superblock.has_crc {
            self.volume.verify(&block, STAMP, self.inode, "a block of attributes")?;
        }
        Ok(block)
    }

    fn locate(&self, at: u64, blocks: u64) -> Result<Vec<(u64, usize)>> {
        runs::locate(&self.runs, self.volume.superblock.block_log, at, blocks)
            .ok_or_else(|| self.wrong(format!("blocks {at} to {} are not there", at.saturating_add(blocks))))
    }

    fn leaf(&mut self, block: &Block) -> Result<()> {
        let bytes = &block.bytes;
        let count = be16(bytes, self.pick(INFO_4_BYTES, INFO_5_BYTES)).unwrap_or_default();
        let first = self.pick(LEAF_4_BYTES, LEAF_5_BYTES);
        for n in 0..usize::from(count) {
            self.leaf_entry(bytes, first + n * LEAF_ENTRY_BYTES)?.ok_or_else(|| {
                self.wrong(format!("number {n} of {count} in the leaf at offset {:#x}", block.offset))
            })?;
        }
        Ok(())
    }

    /// Takes an attribute of a leaf; `None` where it is cut off.
    fn leaf_entry(&mut self, bytes: &[u8], at: usize) -> Result<Option<()>> {
        let (Some(name_at), Some(flags)) = (be16(bytes, at + 4), bytes.get(at + 6).copied()) else {
            return Ok(None);
        };
        if flags & (FLAG_INCOMPLETE | FLAG_PARENT) != 0 {
            return Ok(Some(()));
        }
        let name_at = usize::from(name_at);
        let cut = |at: usize, len: usize| bytes.get(at..at.checked_add(len)?);
        if flags & FLAG_LOCAL != 0 {
            let lens = be16(bytes, name_at).zip(bytes.get(name_at + 2));
            let Some((value_len, name_len)) = lens.map(|(v, n)| (usize::from(v), usize::from(*n))) else {
                return Ok(None);
            };
            let Some(body) = cut(name_at + 3, name_len + value_len) else { return Ok(None) };
            let (name, value) = body.split_at(name_len);
            self.push(flags, name, value)?;
            return Ok(Some(()));
        }
        let remote = be32(bytes, name_at).zip(be32(bytes, name_at + 4)).zip(bytes.get(name_at + 8));
        let Some(((value_at, value_len), name_len)) = remote else { return Ok(None) };
        let Some(name) = cut(name_at + 9, usize::from(*name_len)) else { return Ok(None) };
        let value = self.remote_value(value_at.into(), value_len as usize)?;
        self.push(flags, name, &value)?;
        Ok(Some(()))
    }

    /// Reads a value from blocks of its own; in version 5, each has a header.
    fn remote_value(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        if len > MAX_VALUE_BYTES {
            return Err(self.wrong(format!("a value of {len} bytes")));
        }
        let block_bytes = self.volume.superblock.block_bytes();
        let header = self.pick(0, VALUE_HEADER_BYTES);
        let mut value = Vec::with_capacity(len);
        let pieces = self.locate(at, len.div_ceil(block_bytes - header) as u64)?;
        for (offset, piece) in pieces {
            for start in (0..piece).step_by(block_bytes) {
                let block = self.volume.read(offset + start as u64, block_bytes)?;
                if self.volume.superblock.has_crc {
                    self.check_value_block(&block, value.len())?;
                }
                let taken = (block_bytes - header).min(len - value.len());
                value.extend_from_slice(&block.bytes[header..header + taken]);
            }
        }
        Ok(value)
    }

    fn check_value_block(&self, block: &Block, at: usize) -> Result<()> {
        self.volume.verify(block, VALUE_STAMP, self.inode, "an attribute's value")?;
        if !block.bytes.starts_with(&MAGIC_VALUE) || be32(&block.bytes, 4) != Some(at as u32) {
            return Err(self.wrong(format!("the value's header at offset {:#x}", block.offset)));
        }
        Ok(())
    }
}

/// An access list as the kernel gives it to users; `None` where it is cut off.
fn acl_value(on_disk: &[u8]) -> Option<Vec<u8>> {
    let count = usize::try_from(be32(on_disk, 0)?).ok()?;
    let entries = on_disk.get(4..4usize.checked_add(count.checked_mul(ACL_ENTRY_BYTES)?)?)?;
    let mut value = ACL_VERSION.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(ACL_ENTRY_BYTES) {
        let (tag, id, permissions) = (be32(entry, 0)?, be32(entry, 4)?, be16(entry, 8)?);
        value.extend_from_slice(&u16::try_from(tag).ok()?.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_change_their_layout() {
        let on_disk = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 3, 0xe8, 0, 6, 0, 0];
        assert_eq!(acl_value(&on_disk), Some(vec![2, 0, 0, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0]));
        assert_eq!(acl_value(&on_disk[..15]), None);
        assert_eq!(acl_value(&[0xff; 4]), None);
    }
}
