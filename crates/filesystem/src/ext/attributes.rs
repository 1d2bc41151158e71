//! Extended attributes: behind the fields of the inode, in a block of their own, and their large values in inodes.

use super::blocks::{BlockNo, Blocks};
use super::checksum::{crc32c, crc32c_without};
use super::error::corrupt;
use super::inode::{Inode, InodeNo};
use super::superblock::Superblock;
use super::{acl, mapping};
use crate::bytes::{le16, le32};
use crate::error::Result;
use crate::tree::extents;

const MAGIC: u32 = 0xea02_0000;
const INODE_HEADER_BYTES: usize = 4;
const BLOCK_HEADER_BYTES: usize = 32;
const BLOCK_CHECKSUM_AT: usize = 16;
const ENTRY_BYTES: usize = 16;
/// The longest value that can be set.
const VALUE_BYTES_MAX: u64 = 64 << 10;

const INDEX_ACL: u8 = 2;
const INDEX_DEFAULT_ACL: u8 = 3;
const INDEX_SYSTEM: u8 = 7;
/// Rest of inline data, an attribute of [`INDEX_SYSTEM`] that nobody sees.
const INLINE_NAME: &[u8] = b"data";

/// What stands before the names of an index; `None`: they are not shown.
fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        1 => b"user.",
        INDEX_ACL => b"system.posix_acl_access",
        INDEX_DEFAULT_ACL => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        INDEX_SYSTEM => b"system.",
        8 => b"system.richacl",
        10 => b"gnu.",
        _ => return None,
    })
}

/// All attributes with their full names, sorted.
pub(super) fn list(blocks: &Blocks, sb: &Superblock, inode: &Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for area in areas(blocks, sb, inode)? {
        for entry in area.entries()? {
            if entry.index == INDEX_SYSTEM && entry.name == INLINE_NAME {
                continue;
            }
            let Some(prefix) = prefix(entry.index) else { continue };
            let value = match entry.inode {
                Some(no) => large_value(blocks, sb, inode, no, entry.len)?,
                None => area.value(&entry)?.to_vec(),
            };
            let value = match entry.index {
                INDEX_ACL | INDEX_DEFAULT_ACL => acl::shown(&value)
                    .ok_or_else(|| area.damage(&format!("an ACL of {} bytes is not valid", value.len())))?,
                _ => value,
            };
            found.push(([prefix, entry.name].concat(), value));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// What of inline data is not in the inode's map.
pub(super) fn inline_data(inode: &Inode) -> Result<Vec<u8>> {
    let Some(area) = in_inode(inode) else { return Ok(Vec::new()) };
    for entry in area.entries()? {
        if entry.index == INDEX_SYSTEM && entry.name == INLINE_NAME {
            if entry.inode.is_some() {
                return Err(area.damage("inline data is not inline"));
            }
            return Ok(area.value(&entry)?.to_vec());
        }
    }
    Ok(Vec::new())
}

/// Where attributes of an inode are: in it, and in a block.
fn areas(blocks: &Blocks, sb: &Superblock, inode: &Inode) -> Result<Vec<Area>> {
    let mut areas = Vec::from_iter(in_inode(inode));
    if let Some(no) = inode.attributes_block() {
        blocks.check(no, 1, &|| format!("an attribute of inode {}", inode.no.0))?;
        let area = Area {
            bytes: blocks.block(no)?.to_vec(),
            first: BLOCK_HEADER_BYTES,
            inode: inode.no,
            block: Some(no),
        };
        area.check_block(sb)?;
        areas.push(area);
    }
    Ok(areas)
}

fn in_inode(inode: &Inode) -> Option<Area> {
    let (magic, bytes) = inode.rest().split_at_checked(INODE_HEADER_BYTES)?;
    (le32(magic, 0)? == MAGIC).then_some(Area {
        bytes: bytes.to_vec(),
        first: 0,
        inode: inode.no,
        block: None,
    })
}

/// The value of an attribute that is an inode's data.
fn large_value(blocks: &Blocks, sb: &Superblock, owner: &Inode, no: InodeNo, len: u32) -> Result<Vec<u8>> {
    let inode = Inode::read(blocks, sb, no)?;
    let owner = owner.no.0;
    if !inode.is_attribute()
        || inode.is_inline()
        || inode.size != u64::from(len)
        || inode.size > VALUE_BYTES_MAX
    {
        return Err(corrupt(format!(
            "an attribute of inode {owner} of {len} bytes is said to be in inode {}, which has {} and {}",
            no.0,
            inode.size,
            if inode.is_attribute() { "is an attribute" } else { "is something else" }
        )));
    }
    let mut value = vec![0; inode.size as usize];
    extents::read(blocks, &mapping::extents(blocks, &inode)?, inode.size, 0, &mut value)?;
    Ok(value)
}

/// Entries, and behind them values.
struct Area {
    bytes: Vec<u8>,
    /// Where the entries begin. Values are found from the beginning of the bytes.
    first: usize,
    inode: InodeNo,
    block: Option<BlockNo>,
}

/// An attribute.
struct Entry<'a> {
    index: u8,
    name: &'a [u8],
    offset: usize,
    len: u32,
    /// Where its value is, if elsewhere.
    inode: Option<InodeNo>,
}

impl Area {
    fn damage(&self, why: &str) -> crate::FsError {
        let place = self.block.map_or("it".into(), |no| format!("block {}", no.0));
        corrupt(format!("the attributes of inode {} in {place}: {why}", self.inode.0))
    }

    fn check_block(&self, sb: &Superblock) -> Result<()> {
        let magic = le32(&self.bytes, 0).unwrap_or(0);
        if magic != MAGIC {
            return Err(self.damage(&format!("they begin with {magic:#x} instead of {MAGIC:#x}")));
        }
        let (Some(seed), Some(no)) = (sb.checksum_seed, self.block) else { return Ok(()) };
        let stored = le32(&self.bytes, BLOCK_CHECKSUM_AT).unwrap_or(0);
        let got = crc32c_without(crc32c(seed, &no.0.to_le_bytes()), &self.bytes, BLOCK_CHECKSUM_AT, 4);
        if stored != got {
            return Err(self.damage(&format!("their checksum is {got:#x}, and {stored:#x} is stored")));
        }
        Ok(())
    }

    /// Entries end with four zeros.
    fn entries(&self) -> Result<Vec<Entry<'_>>> {
        let mut entries = Vec::new();
        let mut at = self.first;
        while le32(&self.bytes, at).is_some_and(|next| next != 0) {
            let Some(entry) = self.entry(at) else {
                return Err(self.damage(&format!("the one at byte {at} is cut off")));
            };
            at += (ENTRY_BYTES + entry.name.len()).next_multiple_of(4);
            if entry.name.contains(&0) {
                return Err(self.damage(&format!("the name before byte {at} has a zero byte")));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn entry(&self, at: usize) -> Option<Entry<'_>> {
        let name_len = usize::from(*self.bytes.get(at)?);
        let inode = le32(&self.bytes, at + 4)?;
        Some(Entry {
            index: *self.bytes.get(at + 1)?,
            name: self.bytes.get(at + ENTRY_BYTES..)?.get(..name_len)?,
            offset: le16(&self.bytes, at + 2)?.into(),
            len: le32(&self.bytes, at + 8)?,
            inode: (inode != 0).then_some(InodeNo(inode)),
        })
    }

    fn value(&self, entry: &Entry) -> Result<&[u8]> {
        if entry.len == 0 {
            return Ok(&[]);
        }
        let value = self.bytes.get(entry.offset..).and_then(|b| b.get(..entry.len as usize));
        value.ok_or_else(|| {
            let room = self.bytes.len();
            self.damage(&format!("a value of {} bytes at byte {} of {room}", entry.len, entry.offset))
        })
    }
}
