//! Directories: blocks of entries. Those of an index look like entries that were deleted.

use super::blocks::Blocks;
use super::checksum::crc32c;
use super::error::corrupt;
use super::inode::{Inode, InodeNo};
use super::superblock::Superblock;
use super::{attributes, mapping};
use crate::bytes::{le16, le32};
use crate::disk::Disk;
use crate::error::Result;
use crate::tree::extents::Place;
use std::ops::ControlFlow;

/// The longest directory that is read.
const DIRECTORY_BYTES_MAX: u64 = 1 << 30;
/// Read at once.
const READ_BYTES: u64 = 256 << 10;
/// An entry without its name: inode, length of the entry, length of the name, kind.
const HEADER_BYTES: usize = 8;
/// The last entry of a block with a checksum has no inode, no name, this kind, and the checksum.
const TAIL_BYTES: usize = 12;
/// The entry of `.`, with which a directory begins; that of `..` is behind it.
const DOT_BYTES: usize = 12;
const TAIL_KIND: u8 = 0xde;
/// Where the limit and the count of an index are: in its root, behind `.` and `..`, and in the other blocks.
const ROOT_COUNTS_AT: usize = 32;
const NODE_COUNTS_AT: usize = 8;
const INDEX_ENTRY_BYTES: usize = 8;
/// An inline directory begins with the inode of `..`.
const INLINE_PARENT_BYTES: usize = 4;

/// What is done with each entry.
type Each<'a> = dyn FnMut(&[u8], InodeNo) -> ControlFlow<()> + 'a;

/// Visits the entries of a directory but its own `.` and `..`, until `each` breaks off.
pub(super) fn visit(blocks: &Blocks, sb: &Superblock, dir: &Inode, each: &mut Each) -> Result<()> {
    dir.check_readable()?;
    if dir.is_inline() {
        return visit_inline(sb, dir, each);
    }
    if dir.size > DIRECTORY_BYTES_MAX {
        return Err(corrupt(format!("the directory of inode {} has {} bytes", dir.no.0, dir.size)));
    }
    let block_bytes = blocks.block_bytes();
    let mut buf = Vec::new();
    for extent in mapping::extents(blocks, dir)? {
        let Place::Volume(start) = extent.place else {
            return Err(corrupt(format!("the directory of inode {} was never written", dir.no.0)));
        };
        let whole = extent.len - extent.len % block_bytes as u64;
        let mut done = 0;
        while done < whole {
            buf.resize((whole - done).min(READ_BYTES) as usize, 0);
            blocks.read_at(start + done, &mut buf)?;
            for (nth, bytes) in buf.chunks_exact(block_bytes).enumerate() {
                let no = ((start + done) >> blocks.bits()) + nth as u64;
                let at = (extent.offset + done) / block_bytes as u64 + nth as u64;
                let block = Block { bytes, sb, dir, place: Within::Block(no), is_first: at == 0 };
                block.check_sum()?;
                if block.visit(each)?.is_break() {
                    return Ok(());
                }
            }
            done += buf.len() as u64;
        }
    }
    Ok(())
}

/// The entries are in the inode, and then in an attribute of it.
fn visit_inline(sb: &Superblock, dir: &Inode, each: &mut Each) -> Result<()> {
    let more = attributes::inline_data(dir)?;
    for bytes in [&dir.map()[INLINE_PARENT_BYTES..], &more] {
        let block = Block { bytes, sb, dir, place: Within::Inode, is_first: false };
        if block.visit(each)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// A name, and the inode that it leads to.
type Named<'a> = (&'a [u8], InodeNo);

/// Where entries are.
#[derive(Clone, Copy)]
enum Within {
    Block(u64),
    Inode,
}

/// Entries that fill their bytes.
struct Block<'a> {
    bytes: &'a [u8],
    sb: &'a Superblock,
    dir: &'a Inode,
    place: Within,
    is_first: bool,
}

impl Block<'_> {
    fn damage(&self, at: usize, why: &str) -> crate::FsError {
        let place = match self.place {
            Within::Block(no) => format!("block {no}"),
            Within::Inode => "the inode".into(),
        };
        corrupt(format!("the directory of inode {} in {place}, at byte {at}: {why}", self.dir.no.0))
    }

    fn visit(&self, each: &mut Each) -> Result<ControlFlow<()>> {
        let mut at = 0;
        while at < self.bytes.len() {
            let (len, entry) = self.entry(at).map_err(|why| self.damage(at, &why))?;
            if let Some((name, inode)) = entry {
                if each(name, inode).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            at += len;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The length of the entry at `at`, and its name and inode if it is neither deleted nor the directory's `.` or `..`.
    fn entry(&self, at: usize) -> std::result::Result<(usize, Option<Named<'_>>), String> {
        let rest = &self.bytes[at..];
        let header = rest.first_chunk::<HEADER_BYTES>().ok_or("an entry that is cut off")?;
        let len = self.entry_bytes(header);
        if len < HEADER_BYTES + 4 || len % 4 != 0 || len > rest.len() {
            return Err(format!("an entry of {len} bytes, where {} are left", rest.len()));
        }
        let inode = le32(header, 0).unwrap_or(0);
        if inode == 0 {
            return Ok((len, None));
        }
        let high = if self.sb.has_file_types { 0 } else { header[7] };
        let name_len = usize::from(high) << 8 | usize::from(header[6]);
        let Some(name) = rest[HEADER_BYTES..len].get(..name_len).filter(|n| !n.is_empty()) else {
            return Err(format!("a name of {name_len} bytes in an entry of {len}"));
        };
        if self.is_first && at <= DOT_BYTES && matches!(name, b"." | b"..") {
            return Ok((len, None));
        }
        Ok((len, Some((name, InodeNo(inode)))))
    }

    /// Lengths above 64 KiB have their upper bits in the two lowest ones.
    fn entry_bytes(&self, header: &[u8; HEADER_BYTES]) -> usize {
        let stored = usize::from(le16(header, 4).unwrap_or(0));
        match stored {
            _ if self.sb.block_bytes() <= u16::MAX.into() => stored,
            0 | 0xffff => self.sb.block_bytes(),
            _ => stored & 0xfffc | (stored & 3) << 16,
        }
    }

    fn check_sum(&self) -> Result<()> {
        let Some(seed) = self.dir.seed else { return Ok(()) };
        let index = if self.dir.is_indexed() { self.index_counts_at() } else { None };
        let sums = match index {
            Some(at) => self.index_sums(at, seed),
            None => self.leaf_sums(seed),
        };
        match sums {
            Some((stored, got)) if stored == got => Ok(()),
            Some((stored, got)) => {
                Err(self.damage(0, &format!("its checksum is {got:#x}, and {stored:#x} is stored")))
            }
            None => Err(self.damage(0, "its checksum is missing")),
        }
    }

    /// The stored checksum and the right one.
    fn leaf_sums(&self, seed: u32) -> Option<(u32, u32)> {
        let (entries, tail) = self.bytes.split_at(self.bytes.len().checked_sub(TAIL_BYTES)?);
        let is_tail = le32(tail, 0)? == 0
            && usize::from(le16(tail, 4)?) == TAIL_BYTES
            && le16(tail, 6)? == u16::from(TAIL_KIND) << 8;
        is_tail.then_some((le32(tail, 8)?, crc32c(seed, entries)))
    }

    /// Where the limit and the count of an index are; `None` in blocks of entries.
    fn index_counts_at(&self) -> Option<usize> {
        let len_at = |at: usize| Some(self.entry_bytes(self.bytes.get(at..)?.first_chunk()?));
        if self.is_first {
            return Some(ROOT_COUNTS_AT);
        }
        (le32(self.bytes, 0)? == 0 && len_at(0)? == self.bytes.len()).then_some(NODE_COUNTS_AT)
    }

    /// The checksum is that of the used part and of the tail, which is behind the room for entries.
    fn index_sums(&self, counts_at: usize, seed: u32) -> Option<(u32, u32)> {
        let limit = usize::from(le16(self.bytes, counts_at)?);
        let count = usize::from(le16(self.bytes, counts_at + 2)?);
        let used = self.bytes.get(..counts_at + count * INDEX_ENTRY_BYTES)?;
        let tail = self.bytes.get(counts_at + limit * INDEX_ENTRY_BYTES..)?.first_chunk::<8>()?;
        let sum = crc32c(crc32c(seed, used), &tail[..4]);
        Some((le32(tail, 4)?, crc32c(sum, &[0; 4])))
    }
}
