//! The table in a disk's first sector, and the chain of those that describe logical partitions.

use super::partition::{Partition, SECTOR_BYTES};
use crate::bytes::{le16, le32};
use crate::disk::{Disk, Piece};
use crate::error::{FsError, Result};

const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
const ENTRIES: usize = 4;
const SIGNATURE: u16 = 0xaa55;
const BOOTABLE: u8 = 0x80;
const TYPE_PROTECTIVE: u8 = 0xee;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;
/// Logical partitions are a list; Linux reads no more of it either.
const LOGICAL_MAX: usize = 256;

/// An entry. Sectors.
#[derive(Clone, Copy, Debug)]
struct Entry {
    status: u8,
    kind: u8,
    start: u32,
    len: u32,
}

impl Entry {
    fn decode(bytes: &[u8]) -> Option<Entry> {
        Some(Entry {
            status: *bytes.first()?,
            kind: *bytes.get(4)?,
            start: le32(bytes, 8)?,
            len: le32(bytes, 12)?,
        })
    }

    fn is_used(&self) -> bool {
        self.kind != 0 && self.len != 0
    }

    /// It holds logical partitions.
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// The partition, where the entry counts from sector `base`.
    fn partition(&self, number: u32, base: u64) -> Partition {
        Partition {
            number,
            piece: Piece {
                offset: (base + u64::from(self.start)) * SECTOR_BYTES,
                len: u64::from(self.len) * SECTOR_BYTES,
            },
            type_id: format!("{:x}", self.kind),
            label: String::new(),
        }
    }
}

/// The entries of one sector.
pub(super) struct Table([Entry; ENTRIES]);

impl Table {
    /// `None` without the signature.
    pub fn decode(sector: &[u8; SECTOR_BYTES as usize]) -> Option<Table> {
        if le16(sector, sector.len() - 2)? != SIGNATURE {
            return None;
        }
        let entry = |n| Entry::decode(&sector[ENTRIES_AT + n * ENTRY_BYTES..]);
        Some(Table([entry(0)?, entry(1)?, entry(2)?, entry(3)?]))
    }

    /// It stands before a GPT, which knows better.
    pub fn is_protective(&self) -> bool {
        self.0.iter().any(|e| e.kind == TYPE_PROTECTIVE)
    }

    /// Other boot sectors have the signature too.
    pub fn is_sane(&self, disk_bytes: u64) -> bool {
        let is_here = |e: &Entry| u64::from(e.start) < disk_bytes / SECTOR_BYTES;
        let mut used = self.0.iter().filter(|e| e.is_used());
        self.0.iter().all(|e| e.status & !BOOTABLE == 0)
            && used.clone().all(|e| e.start > 0)
            && used.any(is_here)
    }
}

/// All partitions of the table but those that hold others.
pub(super) fn read(disk: &dyn Disk, table: &Table) -> Result<Vec<Partition>> {
    let mut found = Vec::new();
    let used = || table.0.iter().enumerate().filter(|(_, e)| e.is_used());
    for (nth, entry) in used().filter(|(_, e)| !e.is_extended()) {
        found.push(entry.partition(nth as u32 + 1, 0));
    }
    let mut number = FIRST_LOGICAL;
    for (_, entry) in used().filter(|(_, e)| e.is_extended()) {
        read_logical(disk, entry, &mut number, &mut found)?;
    }
    Ok(found)
}

/// Follows the list in an extended partition. Each of its sectors has a partition, and where the next sector is.
fn read_logical(
    disk: &dyn Disk,
    extended: &Entry,
    number: &mut u32,
    found: &mut Vec<Partition>,
) -> Result<()> {
    let first = u64::from(extended.start);
    let mut seen = Vec::new();
    let mut at = first;
    loop {
        let end = (at + 1) * SECTOR_BYTES;
        if end > disk.size() {
            return Ok(());
        }
        if seen.contains(&at) {
            return Err(corrupt(format!("the list of logical partitions comes back to sector {at}")));
        }
        if seen.len() == LOGICAL_MAX {
            return Err(corrupt(format!("there are more than {LOGICAL_MAX} logical partitions")));
        }
        seen.push(at);
        let mut sector = [0; SECTOR_BYTES as usize];
        disk.read_at(at * SECTOR_BYTES, &mut sector)?;
        let Some(table) = Table::decode(&sector) else { return Ok(()) };
        let used = || table.0.iter().filter(|e| e.is_used());
        if let Some(entry) = used().find(|e| !e.is_extended()) {
            found.push(entry.partition(*number, at));
            *number += 1;
        }
        match used().find(|e| e.is_extended()) {
            Some(next) => at = first + u64::from(next.start),
            None => return Ok(()),
        }
    }
}

fn corrupt(why: String) -> FsError {
    FsError::corrupt("the partition table (MBR)", why)
}
