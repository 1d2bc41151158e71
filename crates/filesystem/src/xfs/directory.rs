//! The entries of directories: within the inode, or in blocks of their own.
//!
//! A directory is read front to back. Its hashes and free lists, behind 32 GiB in its address space, are left alone.

use super::error::corrupt;
use super::inode::{Fork, Format, Inode};
use super::runs::{self, Run};
use super::volume::{Block, Stamp, Volume};
use crate::bytes::{be16, be32, be64};
use crate::error::{FsError, Result};
use crate::tree::{Entry, NodeId};

/// Directories have grown this large in no known case; the kernel's limit is 32 GiB.
const MAX_BYTES: u64 = 1 << 30;
const MAX_ENTRIES: usize = 1 << 24;
/// What lies behind in a directory's address space are hashes.
const HASHES_AT: u64 = 32 << 30;

const MAGIC_4_BLOCK: [u8; 4] = *b"XD2B";
const MAGIC_4_DATA: [u8; 4] = *b"XD2D";
const MAGIC_5_BLOCK: [u8; 4] = *b"XDB3";
const MAGIC_5_DATA: [u8; 4] = *b"XDD3";
const HEADER_4_BYTES: usize = 16;
const HEADER_5_BYTES: usize = 64;
const STAMP: Stamp = Stamp { crc: 4, place: 8, uuid: 24, owner: 40 };

/// What an entry in a block is aligned to.
const ALIGNMENT: usize = 8;
/// Where an entry's inode number should be, in a place that is free.
const FREE: u16 = 0xffff;
/// A hash and an address, at the end of a directory that is one block.
const LEAF_ENTRY_BYTES: usize = 8;
const BLOCK_TAIL_BYTES: usize = 8;

/// Entries in the order in which they are stored, without `.` and `..`.
pub(super) fn entries(volume: &Volume, inode: &Inode) -> Result<Vec<Entry>> {
    let mut reader = Reader { volume, inode: inode.number, entries: Vec::new() };
    match inode.data.format {
        Format::Local => reader.short_form(&inode.data, inode.size)?,
        _ => reader.blocks(inode)?,
    }
    Ok(reader.entries)
}

struct Reader<'a> {
    volume: &'a Volume,
    inode: u64,
    entries: Vec<Entry>,
}

impl Reader<'_> {
    fn wrong(&self, why: impl std::fmt::Display) -> FsError {
        corrupt(format!("directory {}: {why}", self.inode))
    }

    fn push(&mut self, name: &[u8], number: u64) -> Result<()> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        if self.entries.len() == MAX_ENTRIES {
            let what = format!("xfs: directory {}", self.inode);
            return Err(FsError::unsupported(
                what,
                format!("a directory of more than {MAX_ENTRIES} entries"),
            ));
        }
        self.entries.push(Entry { name: name.to_vec(), id: NodeId(number) });
        Ok(())
    }

    /// Entries within the inode.
    fn short_form(&mut self, fork: &Fork, size: u64) -> Result<()> {
        let used = usize::try_from(size).ok().and_then(|size| fork.bytes.get(..size));
        let bytes = used.ok_or_else(|| self.wrong(format!("{size} bytes within the inode")))?;
        let [count, count_large, ..] = bytes else {
            return Err(self.wrong(format!("{size} bytes")));
        };
        let number_bytes = if *count_large > 0 { 8 } else { 4 };
        let mut at = 2 + number_bytes;
        for n in 0..*count {
            let (name, number, next) = self
                .short_entry(bytes, at, number_bytes)
                .ok_or_else(|| self.wrong(format!("entry {n} at byte {at} of {size} is cut off")))?;
            self.push(name, number)?;
            at = next;
        }
        Ok(())
    }

    /// An entry within the inode: name, inode, and where the next one is.
    fn short_entry<'b>(
        &self,
        bytes: &'b [u8],
        at: usize,
        number_bytes: usize,
    ) -> Option<(&'b [u8], u64, usize)> {
        // The length of the name, and two bytes for the order in a block.
        let name_at = at + 3;
        let name_end = name_at + usize::from(*bytes.get(at)?);
        let number_at = name_end + usize::from(self.volume.superblock.has_ftype);
        let number = match number_bytes {
            8 => be64(bytes, number_at)?,
            _ => be32(bytes, number_at)?.into(),
        };
        Some((bytes.get(name_at..name_end)?, number, number_at + number_bytes))
    }

    fn blocks(&mut self, inode: &Inode) -> Result<()> {
        let superblock = &self.volume.superblock;
        if inode.size > MAX_BYTES || inode.size > superblock.bytes() {
            return Err(self.wrong(format!("{} bytes on a volume of {}", inode.size, superblock.bytes())));
        }
        let (block_log, step) = (superblock.block_log, 1u64 << superblock.dir_block_log);
        let all = runs::read(self.volume, inode, &inode.data)?;
        let data: Vec<Run> = all.into_iter().take_while(|r| r.first < HASHES_AT >> block_log).collect();
        let (mut next, end) = (0, inode.size.div_ceil(step << block_log) * step);
        for run in &data {
            let mut at = (run.first / step * step).max(next);
            while at < run.end() && at < end {
                let pieces = runs::locate(&data, block_log, at, step)
                    .ok_or_else(|| self.wrong(format!("a hole within the directory block at block {at}")))?;
                let block = self.volume.read_pieces(&pieces)?;
                self.data_block(&block)?;
                at += step;
            }
            next = next.max(at);
        }
        Ok(())
    }

    fn data_block(&mut self, block: &Block) -> Result<()> {
        let has_crc = self.volume.superblock.has_crc;
        if has_crc {
            self.volume.verify(block, STAMP, self.inode, "a directory block")?;
        }
        let bytes = &block.bytes;
        let (header, end) = match (bytes.first_chunk::<4>(), has_crc) {
            (Some(&MAGIC_4_DATA), false) => (HEADER_4_BYTES, Some(bytes.len())),
            (Some(&MAGIC_5_DATA), true) => (HEADER_5_BYTES, Some(bytes.len())),
            (Some(&MAGIC_4_BLOCK), false) => (HEADER_4_BYTES, block_end(bytes)),
            (Some(&MAGIC_5_BLOCK), true) => (HEADER_5_BYTES, block_end(bytes)),
            (magic, _) => {
                let magic = magic.map_or(0, |m| u32::from_be_bytes(*m));
                return Err(self.wrong(format!("magic {magic:#x} at offset {:#x}", block.offset)));
            }
        };
        let data = end.and_then(|end| bytes.get(..end)).ok_or_else(|| {
            self.wrong(format!("too many hashes in the block at offset {:#x}", block.offset))
        })?;
        let mut at = header;
        while at < data.len() {
            at = self.data_entry(data, at)?.ok_or_else(|| {
                self.wrong(format!("the entry at byte {at} of the block at offset {:#x}", block.offset))
            })?;
        }
        Ok(())
    }

    /// Takes the entry at `at`, or skips a free place; where the next one is.
    fn data_entry(&mut self, data: &[u8], at: usize) -> Result<Option<usize>> {
        let free = be16(data, at).filter(|tag| *tag == FREE).and_then(|_| be16(data, at + 2));
        if let Some(len) = free.map(usize::from) {
            let next = at + len;
            return Ok((len > 0 && len % ALIGNMENT == 0 && next <= data.len()).then_some(next));
        }
        let (Some(number), Some(len)) = (be64(data, at), data.get(at + 8)) else { return Ok(None) };
        let name_end = at + 9 + usize::from(*len);
        let Some(name) = data.get(at + 9..name_end) else { return Ok(None) };
        // The kind, and the entry's own place in two bytes.
        let next = (name_end + usize::from(self.volume.superblock.has_ftype) + 2).next_multiple_of(ALIGNMENT);
        if next > data.len() {
            return Ok(None);
        }
        self.push(name, number)?;
        Ok(Some(next))
    }
}

/// Where the hashes begin in a directory that is one block.
fn block_end(bytes: &[u8]) -> Option<usize> {
    let tail = bytes.len().checked_sub(BLOCK_TAIL_BYTES)?;
    let hashes = usize::try_from(be32(bytes, tail)?).ok()?.checked_mul(LEAF_ENTRY_BYTES)?;
    tail.checked_sub(hashes)
}
