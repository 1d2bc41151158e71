//! Partition tables: MBR with logical partitions, and GPT.

mod gpt;
mod mbr;

use crate::disk::{Disk, Piece};
use crate::error::Result;
use crate::probe;

/// What a table counts in, but for GPT on disks with larger sectors.
const SECTOR_BYTES: u64 = 512;

/// A partition. It may reach beyond the disk, and overlap others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// As Linux counts them: logical ones from 5 on.
    pub number: u32,
    pub piece: Piece,
    /// Two hexadecimal digits, or a GUID.
    pub type_id: String,
    pub label: String,
}

/// The partitions of a disk in the order of their numbers; `None` if it has no table.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Vec<Partition>>> {
    let mut sector = [0; SECTOR_BYTES as usize];
    if disk.size() < SECTOR_BYTES {
        return Ok(None);
    }
    disk.read_at(0, &mut sector)?;
    let Some(table) = mbr::Table::decode(&sector) else { return Ok(None) };
    if table.is_protective() {
        return gpt::read(disk).map(Some);
    }
    if probe::boot_sector(&sector).is_some() || !table.is_sane(disk.size()) {
        return Ok(None);
    }
    mbr::read(disk, &table).map(Some)
}
