//! The ring of blocks that the log is, and its newest record.

use super::record::{Position, Record};
use crate::bytes::be32;
use crate::disk::Disk;
use crate::error::Result;
use crate::xfs::superblock::FsBlock;
use crate::xfs::volume::Volume;
use crate::xfs::{corrupt, SECTOR};
use std::sync::Arc;

/// The first word of a record's header. All other blocks begin with the number of the round in which they were written.
pub(super) const MAGIC: u32 = 0xfeed_babe;
/// What may be on its way to the disk at once is 2 MiB: this many blocks, and room for the record before.
const WINDOW_BLOCKS: u32 = 3 << 11;

/// The blocks of the log, 512 bytes each.
pub(super) struct Ring {
    disk: Arc<dyn Disk>,
    offset: u64,
    pub blocks: u32,
    pub has_log_2: bool,
    pub has_crc: bool,
    pub uuid: [u8; 16],
}

impl Ring {
    pub fn new(volume: &Volume, start: FsBlock) -> Result<Ring> {
        let superblock = &volume.superblock;
        let count = superblock.log_blocks;
        let offset = volume.offset_of(start, count.into());
        let blocks = u32::try_from(u64::from(count) << superblock.block_log >> 9).ok().filter(|n| *n > 2);
        let Some((offset, blocks)) = offset.zip(blocks) else {
            return Err(corrupt(format!("a log of {count} blocks at block {:#x}", start.0)));
        };
        Ok(Ring {
            disk: volume.disk_shared(),
            offset,
            blocks,
            has_log_2: superblock.has_log_2,
            has_crc: superblock.has_crc && volume.check_crc,
            uuid: superblock.log_uuid,
        })
    }

    /// Reads blocks, around the end of the ring.
    pub fn read(&self, first: u32, count: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * SECTOR];
        let before_end = (self.blocks - first).min(count) as usize * SECTOR;
        let (head, rest) = bytes.split_at_mut(before_end);
        self.disk.read_at(self.offset + u64::from(first) * SECTOR as u64, head)?;
        if !rest.is_empty() {
            self.disk.read_at(self.offset, rest)?;
        }
        Ok(bytes)
    }

    /// The position `count` blocks on.
    pub fn advance(&self, from: Position, count: u32) -> Position {
        let block = u64::from(from.block) + u64::from(count);
        match block.checked_sub(self.blocks.into()) {
            Some(block) => Position { cycle: from.cycle.wrapping_add(1), block: block as u32 },
            None => Position { block: block as u32, ..from },
        }
    }

    /// The newest record that is whole; `None` where nothing was ever written.
    ///
    /// All blocks before the head were written in one round, all behind it in the one before. Writes of the last
    /// records may have reached the disk in any order: the first that is not whole ends the log.
    pub fn newest(&self) -> Result<Option<Record>> {
        let cycle = self.cycle(0)?;
        if cycle == 0 {
            return Ok(None);
        }
        let head = self.head(cycle)?;
        let window = head.min(WINDOW_BLOCKS);
        if let Some(newest) = self.newest_within(Position { cycle, block: head - window }, window)? {
            // The records before may lie in the round before, and one of them be the last whole one.
            return Ok(Some(newest));
        }
        let rest = (WINDOW_BLOCKS - window).min((self.blocks - head) / 2).max(1);
        let from = Position { cycle: cycle.wrapping_sub(1), block: self.blocks - rest };
        match self.newest_within(from, rest)? {
            Some(newest) => Ok(Some(newest)),
            None => {
                Err(corrupt(format!("the log has no whole record before block {head} of {}", self.blocks)))
            }
        }
    }

    /// Follows the records that begin in a window, from its first one that is whole.
    fn newest_within(&self, from: Position, count: u32) -> Result<Option<Record>> {
        let bytes = self.read(from.block, count)?;
        for (block, bytes) in (from.block..).zip(bytes.chunks_exact(SECTOR)) {
            if be32(bytes, 0) != Some(MAGIC) {
                continue;
            }
            let Some(mut newest) = Record::read(self, Position { block, ..from })? else { continue };
            while let Some(next) = Record::read(self, newest.end)? {
                newest = next;
            }
            return Ok(Some(newest));
        }
        Ok(None)
    }

    /// The first block that was not written in the round of block 0.
    fn head(&self, cycle: u32) -> Result<u32> {
        let (mut same, mut other) = (0, self.blocks);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if self.cycle(middle)? == cycle {
                same = middle;
            } else {
                other = middle;
            }
        }
        Ok(other)
    }

    /// The round in which a block was written.
    fn cycle(&self, block: u32) -> Result<u32> {
        let bytes = self.read(block, 1)?;
        let at = if be32(&bytes, 0) == Some(MAGIC) { 4 } else { 0 };
        Ok(be32(&bytes, at).unwrap_or_default())
    }
}
