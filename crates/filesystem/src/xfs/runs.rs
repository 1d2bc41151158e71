//! The extents of a fork: in the inode, or in a tree of blocks.

use super::error::corrupt;
use super::inode::{Fork, Format, Inode};
use super::superblock::FsBlock;
use super::volume::{Block, Stamp, Volume};
use crate::bytes::{be16, be32, be64};
use crate::error::Result;
use crate::tree::extents::{Extent, Place};

const MAGIC_4: [u8; 4] = *b"BMAP";
const MAGIC_5: [u8; 4] = *b"BMA3";
const HEADER_4_BYTES: usize = 24;
const HEADER_5_BYTES: usize = 72;
const STAMP: Stamp = Stamp { crc: 64, place: 24, uuid: 40, owner: 56 };

/// A record of an extent, and a key with its pointer, take as much.
const RECORD_BYTES: usize = 16;
const KEY_BYTES: usize = 8;
/// The level and the count at the front of a tree's root in an inode.
const ROOT_HEADER_BYTES: usize = 4;
/// More than 2^48 extents, with the smallest blocks.
const MAX_LEVELS: u16 = 15;

/// An extent of a fork, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first block in the file.
    pub first: u64,
    /// Never 0.
    pub blocks: u64,
    /// Where it lies on the volume, in bytes.
    pub offset: u64,
    /// Whether it was allocated and never written: it reads as zeros.
    pub is_unwritten: bool,
}

impl Run {
    /// The block behind it.
    pub fn end(&self) -> u64 {
        self.first + self.blocks
    }
}

/// All extents of a fork, in the order of the file and without overlaps.
pub(super) fn read(volume: &Volume, inode: &Inode, fork: &Fork) -> Result<Vec<Run>> {
    let wrong = |why: String| corrupt(format!("inode {}: {why}", inode.number));
    let mut reader = Reader { volume, inode: inode.number, limit: fork.extents, runs: Vec::new() };
    match fork.format {
        Format::Extents => {
            let records = usize::try_from(fork.extents)
                .ok()
                .and_then(|n| n.checked_mul(RECORD_BYTES))
                .and_then(|len| fork.bytes.get(..len))
                .ok_or_else(|| {
                    wrong(format!("{} extents in a fork of {} bytes", fork.extents, fork.bytes.len()))
                })?;
            reader.records(records)?;
        }
        Format::Btree => reader.root(&fork.bytes)?,
        other => return Err(wrong(format!("a fork of format {other:?} where extents must be"))),
    }
    if reader.runs.len() as u64 != fork.extents {
        return Err(wrong(format!("{} extents, and {} are counted", reader.runs.len(), fork.extents)));
    }
    Ok(reader.runs)
}

struct Reader<'a> {
    volume: &'a Volume,
    inode: u64,
    limit: u64,
    runs: Vec<Run>,
}

impl Reader<'_> {
    fn wrong<T>(&self, why: String) -> Result<T> {
        Err(corrupt(format!("inode {}: {why}", self.inode)))
    }

    fn records(&mut self, bytes: &[u8]) -> Result<()> {
        for record in bytes.chunks_exact(RECORD_BYTES) {
            let (high, low) = be64(record, 0).zip(be64(record, 8)).unwrap_or_default();
            let (first, blocks) = (high >> 9 & ((1 << 54) - 1), low & ((1 << 21) - 1));
            let block = FsBlock((high & 0x1ff) << 43 | low >> 21);
            let after = self.runs.last().map_or(0, Run::end);
            let offset = self.volume.offset_of(block, blocks);
            let (Some(offset), true) = (offset, blocks > 0 && first >= after) else {
                let block = block.0;
                return self.wrong(format!(
                    "an extent of {blocks} blocks from {first} (after {after}) at {block:#x}"
                ));
            };
            if self.runs.len() as u64 >= self.limit {
                return self.wrong(format!("more than the {} extents that are counted", self.limit));
            }
            self.runs.push(Run { first, blocks, offset, is_unwritten: high >> 63 != 0 });
        }
        Ok(())
    }

    fn root(&mut self, bytes: &[u8]) -> Result<()> {
        let (level, count) = be16(bytes, 0).zip(be16(bytes, 2)).unwrap_or_default();
        if !(1..=MAX_LEVELS).contains(&level) {
            return self.wrong(format!("a tree of {level} levels"));
        }
        let body = bytes.get(ROOT_HEADER_BYTES..).unwrap_or_default();
        for pointer in self.pointers(body, count)? {
            self.block(pointer, level - 1)?;
        }
        Ok(())
    }

    /// Reads a block of the tree and all below it. No block is read twice: its records would not be in order.
    fn block(&mut self, at: FsBlock, level: u16) -> Result<()> {
        let Some(offset) = self.volume.offset_of(at, 1) else {
            return self.wrong(format!("a tree's block {:#x}, beyond the volume's end", at.0));
        };
        let block = self.volume.read(offset, self.volume.superblock.block_bytes())?;
        let has_crc = self.volume.superblock.has_crc;
        if has_crc {
            self.volume.verify(&block, STAMP, self.inode, "a block of extents")?;
        }
        let (magic, header) = if has_crc { (MAGIC_5, HEADER_5_BYTES) } else { (MAGIC_4, HEADER_4_BYTES) };
        let count = self.check_header(&block, magic, level)?;
        let body = block.bytes.get(header..).unwrap_or_default();
        if level > 0 {
            for pointer in self.pointers(body, count)? {
                self.block(pointer, level - 1)?;
            }
            return Ok(());
        }
        match body.get(..usize::from(count) * RECORD_BYTES) {
            Some(records) => self.records(records),
            None => self.wrong(format!("{count} extents in the block at offset {offset:#x}")),
        }
    }

    /// The count of what is in a block, which must be of this level and not empty.
    fn check_header(&self, block: &Block, magic: [u8; 4], level: u16) -> Result<u16> {
        let bytes = &block.bytes;
        let found = (be32(bytes, 0), be16(bytes, 4), be16(bytes, 6).unwrap_or_default());
        if found.0 != Some(u32::from_be_bytes(magic)) || found.1 != Some(level) || found.2 == 0 {
            let (magic, level_found) = (found.0.unwrap_or_default(), found.1.unwrap_or_default());
            return self.wrong(format!(
                "a block of extents at offset {:#x}: magic {magic:#x}, level {level_found} instead of {level}, {} records",
                block.offset, found.2
            ));
        }
        Ok(found.2)
    }

    /// The pointers behind the room for the keys.
    fn pointers(&self, body: &[u8], count: u16) -> Result<Vec<FsBlock>> {
        let room = body.len() / RECORD_BYTES;
        if count == 0 || usize::from(count) > room {
            return self.wrong(format!("{count} pointers in a tree's block with room for {room}"));
        }
        let pointers = body.get(room * KEY_BYTES..).unwrap_or_default();
        Ok((0..usize::from(count)).filter_map(|n| be64(pointers, n * KEY_BYTES)).map(FsBlock).collect())
    }
}

/// The extents of a file of `size` bytes, adjacent ones put together.
pub(super) fn extents(runs: &[Run], block_log: u8, size: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for run in runs {
        let Some(offset) = run.first.checked_mul(1 << block_log).filter(|o| *o < size) else { break };
        let len = (run.blocks << block_log).min(size - offset);
        let place = if run.is_unwritten { Place::Zeros } else { Place::Volume(run.offset) };
        if let Some(last) = extents.last_mut().filter(|last| last.offset + last.len == offset) {
            let follows = match (last.place, place) {
                (Place::Volume(a), Place::Volume(b)) => a + last.len == b,
                (a, b) => a == b,
            };
            if follows {
                last.len += len;
                continue;
            }
        }
        extents.push(Extent { offset, len, place });
    }
    extents
}

/// Where `blocks` blocks of a file from `first` on lie; `None` where some are holes.
pub(super) fn locate(runs: &[Run], block_log: u8, first: u64, blocks: u64) -> Option<Vec<(u64, usize)>> {
    let end = first.checked_add(blocks)?;
    let (mut at, mut pieces) = (first, Vec::new());
    let from = runs.partition_point(|r| r.end() <= first);
    for run in runs.get(from..)? {
        if at >= end || run.first > at {
            break;
        }
        let count = run.end().min(end) - at;
        pieces.push((run.offset + ((at - run.first) << block_log), (count << block_log) as usize));
        at += count;
    }
    (at == end).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, blocks: u64, offset: u64) -> Run {
        Run { first, blocks, offset, is_unwritten: false }
    }

    #[test]
    fn neighbours_become_one_extent() {
        let unwritten = Run { is_unwritten: true, ..run(6, 4, 0) };
        let runs = [run(0, 1, 8192), run(1, 1, 12288), run(2, 1, 4096), unwritten, run(10, 9, 40960)];
        let extents = extents(&runs, 12, 45000);
        let expected = [
            (0, 8192, Place::Volume(8192)),
            (8192, 4096, Place::Volume(4096)),
            (24576, 16384, Place::Zeros),
            (40960, 4040, Place::Volume(40960)),
        ];
        assert_eq!(extents, expected.map(|(offset, len, place)| Extent { offset, len, place }));
    }

    #[test]
    fn blocks_are_located_over_several_runs() {
        let runs = [run(2, 2, 8192), run(4, 1, 4096), run(6, 1, 40960)];
        assert_eq!(locate(&runs, 12, 3, 2), Some(vec![(12288, 4096), (4096, 4096)]));
        assert_eq!(locate(&runs, 12, 2, 1), Some(vec![(8192, 4096)]));
        assert_eq!(locate(&runs, 12, 4, 2), None);
        assert_eq!(locate(&runs, 12, 0, 1), None);
        assert_eq!(locate(&runs, 12, 9, 1), None);
    }
}
