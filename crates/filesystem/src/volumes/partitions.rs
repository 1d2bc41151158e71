//! Partition tables: MBR with logical partitions, and GPT.

mod gpt;
mod mbr;
mod partition;

pub(crate) use partition::Partition;

use crate::disk::Disk;
use crate::error::Result;
use crate::volumes::probe;
use partition::SECTOR_BYTES;

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
