//! One entry of a partition table.

use crate::disk::Piece;

/// What a table counts in, but for GPT on disks with larger sectors.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A partition. It may reach beyond the disk, and overlap others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// As Linux counts them: logical ones from 5 on.
    pub number: u32,
    /// Where it is on the disk.
    pub piece: Piece,
    /// Two hexadecimal digits, or a GUID.
    pub type_id: String,
    /// The name that GPT gives it; empty in an MBR.
    pub label: String,
}
