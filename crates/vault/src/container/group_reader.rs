//! Reads chunk groups: checks and decompresses each, and compares every chunk with its fingerprint.

use crate::base::error::{Result, VaultError};
use crate::container::codec::Unpacker;
use chunk::Fingerprint;
use format::{group_checksum, Codec, Group, Table, TableIndex, TableRange};
use std::ops::Range;

/// Reads groups. One for each thread.
pub(crate) struct GroupReader {
    unpacker: Unpacker,
    raw: Vec<u8>,
    fingerprints: Vec<Fingerprint>,
}

impl GroupReader {
    /// With buffers of its own, which it uses again for each group.
    pub fn new() -> Self {
        GroupReader { unpacker: Unpacker::new(), raw: Vec::new(), fingerprints: Vec::new() }
    }

    /// Decompresses a group of `table` that was read from `object`.
    pub fn open(&mut self, object: &str, table: &Table, group: &Group, stored: &[u8]) -> Result<()> {
        let wrong =
            |why: &str| VaultError::corrupt(object, format!("the group at offset {} {why}", group.offset));
        let first = table.number_at(group.first).ok_or_else(|| wrong("has no chunk"))?;
        check_cipher(object, group)?;
        // Dead chunks of a group that is stored raw may be holes: each chunk's fingerprint tells.
        if group.codec != Codec::Raw && group_checksum(table.container, first, stored) != group.checksum {
            return Err(wrong("does not match its checksum"));
        }
        self.unpacker.unpack(group.codec, stored, group.raw_len as usize, &mut self.raw).map_err(wrong)
    }

    /// The bytes of the group opened last, not compared with any fingerprint. None are left here.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.raw)
    }

    /// The bytes of chunks of the group opened last, compared with their fingerprints.
    ///
    /// `indices` are all within the group.
    pub fn chunks(
        &mut self,
        object: &str,
        table: &Table,
        group: &Group,
        indices: TableRange,
    ) -> Result<&[u8]> {
        let start = before(table, group, indices.start) as usize;
        let bytes = &self.raw[start..start + table.bytes_of(indices) as usize];
        compare(&mut self.fingerprints, object, table, indices, bytes)?;
        Ok(bytes)
    }

    /// Compares chunks that stand as they are in a group stored raw: `bytes` is all of them.
    pub fn compare_raw(
        &mut self,
        object: &str,
        table: &Table,
        group: &Group,
        indices: TableRange,
        bytes: &[u8],
    ) -> Result<()> {
        check_cipher(object, group)?;
        compare(&mut self.fingerprints, object, table, indices, bytes)
    }
}

/// Refuses what is encrypted.
pub(crate) fn check_cipher(object: &str, group: &Group) -> Result<()> {
    if group.cipher == 0 {
        return Ok(());
    }
    let why = format!("the group at offset {} is encrypted (cipher {})", group.offset, group.cipher);
    Err(VaultError::Newer { object: object.into(), why })
}

fn compare(
    scratch: &mut Vec<Fingerprint>,
    object: &str,
    table: &Table,
    indices: TableRange,
    bytes: &[u8],
) -> Result<()> {
    scratch.clear();
    chunk::fingerprints(bytes, indices.of(&table.lengths), scratch);
    for (n, f) in indices.into_iter().zip(&*scratch) {
        if *table.fingerprint(n) != f.0 {
            let no = table.number_at(n).map_or(0, |c| c.0);
            return Err(VaultError::corrupt(object, format!("chunk {no} does not match its fingerprint")));
        }
    }
    Ok(())
}

/// Where chunks of a group stand in the data object: themselves where it is stored raw, all of the group otherwise.
pub(crate) fn extent(table: &Table, group: &Group, indices: TableRange) -> Range<u64> {
    if group.codec != Codec::Raw {
        return group.offset..group.offset + u64::from(group.stored_len);
    }
    let start = group.offset + before(table, group, indices.start);
    start..start + table.bytes_of(indices)
}

/// Bytes of a group's chunks before one of them.
fn before(table: &Table, group: &Group, chunk: TableIndex) -> u64 {
    table.bytes_of(TableRange { start: group.first, end: chunk })
}
