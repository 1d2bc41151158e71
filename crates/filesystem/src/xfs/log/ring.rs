//! The ring of blocks that the log is.

use crate::disk::Disk;
use crate::error::Result;
use crate::xfs::error::corrupt;
use crate::xfs::superblock::FsBlock;
use crate::xfs::volume::{Volume, SECTOR};
use std::sync::Arc;

/// A block of the log, and the round in which it is written: a log sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The number of the round.
    pub cycle: u32,
    /// The block, counted from the start of the log.
    pub block: u32,
}

impl Position {
    /// Takes a log sequence number apart.
    pub fn new(lsn: u64) -> Position {
        Position { cycle: (lsn >> 32) as u32, block: lsn as u32 }
    }

    /// The log sequence number.
    pub fn lsn(self) -> u64 {
        u64::from(self.cycle) << 32 | u64::from(self.block)
    }
}

/// The blocks of the log, 512 bytes each.
pub(super) struct Ring {
    disk: Arc<dyn Disk>,
    offset: u64,
    /// How many there are.
    pub blocks: u32,
    /// Whether records may have more than one header.
    pub has_log_2: bool,
    /// Whether checksums of records are compared.
    pub has_crc: bool,
    /// What each record is stamped with.
    pub uuid: [u8; 16],
}

impl Ring {
    /// The log that begins at a block of the volume; an error where it leaves its group or the disk.
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
}
