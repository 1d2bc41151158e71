//! A record: one or more headers of a block, and data whose blocks all begin with a cycle's number instead of their own
//! first word, which the headers keep.

use super::ring::{Position, Ring};
use crate::bytes::{array, be32, be64};
use crate::error::Result;
use crate::xfs::error::corrupt;
use crate::xfs::volume::SECTOR;

/// The first word of a record's header. All other blocks begin with the number of the round in which they were written.
pub(super) const MAGIC: u32 = 0xfeed_babe;
/// Data of one header.
const HEADER_COVERS: u32 = 32 << 10;
const MAX_DATA_BYTES: u32 = 256 << 10;
const CYCLE_DATA_AT: usize = 44;
/// How much of the header the checksum covers: with padding on 64 bits, and without.
const CHECKED_HEADER_BYTES: [usize; 2] = [328, 324];
const CHECKED_EXTENSION_BYTES: usize = 4 + 64 * 4;
const CRC_AT: usize = 32;

const FORMAT_LITTLE: u32 = 1;

/// The header of an operation.
const OPERATION_BYTES: usize = 12;
/// An operation that says that the file system was unmounted.
pub(super) const FLAG_UNMOUNT: u8 = 0x20;

/// A part of a transaction: whose, and what it does.
pub(super) struct Operation<'a> {
    /// The number of the transaction; numbers come again.
    pub transaction: u32,
    /// Whether it begins, goes on with or commits the transaction.
    pub flags: u8,
    /// A region of an item, or a part of one.
    pub data: &'a [u8],
}

/// A record that is whole.
pub(super) struct Record {
    /// Where it begins.
    pub at: Position,
    /// Where the oldest change begins that may not be in its place.
    pub tail: Position,
    /// Where the next record begins.
    pub end: Position,
    operations: u32,
    data: Vec<u8>,
}

impl Record {
    /// Reads the record at a position; `None` where no whole one of that round is.
    pub fn read(ring: &Ring, at: Position) -> Result<Option<Record>> {
        let mut headers = ring.read(at.block, 1)?;
        let field = |n| be32(&headers, n).unwrap_or_default();
        let (version, len, size) = (field(8), field(12), field(320));
        let is_here = field(0) == MAGIC && be64(&headers, 16) == Some(at.lsn()) && field(4) == at.cycle;
        if !is_here || len > MAX_DATA_BYTES || !matches!(version, 1 | 2) {
            return Ok(None);
        }
        let stored_crc = array(&headers, CRC_AT).map_or(0, u32::from_le_bytes);
        let (format, operations) = (field(300), field(40));
        let tail = Position::new(be64(&headers, 24).unwrap_or_default());
        let has_more = ring.has_log_2 && version == 2 && size > HEADER_COVERS;
        let header_count = if has_more { size.min(MAX_DATA_BYTES).div_ceil(HEADER_COVERS) } else { 1 };
        let blocks = len.div_ceil(SECTOR as u32);
        if header_count + blocks >= ring.blocks || blocks > header_count * (HEADER_COVERS / SECTOR as u32) {
            return Ok(None);
        }
        if header_count > 1 {
            headers = ring.read(at.block, header_count)?;
        }
        let data_at = ring.advance(at, header_count);
        let mut data = ring.read(data_at.block, blocks)?;
        let end = ring.advance(data_at, blocks);
        if !was_written_here(ring, data_at, &data)
            || !crc_fits(ring, &headers, &data[..len as usize], stored_crc)
        {
            return Ok(None);
        }
        if array::<16>(&headers, 304) != Some(ring.uuid) {
            return Err(corrupt(format!("the log's record at block {} is of another file system", at.block)));
        }
        if format != FORMAT_LITTLE {
            return Err(corrupt(format!("the log is of format {format}; {FORMAT_LITTLE} can be replayed")));
        }
        restore_words(&headers, &mut data);
        data.truncate(len as usize);
        Ok(Some(Record { at, tail, end, operations, data }))
    }

    /// Its operations, in order.
    pub fn operations(&self) -> impl Iterator<Item = Result<Operation<'_>>> {
        let mut at = 0;
        (0..self.operations).map_while(move |_| {
            if at == self.data.len() {
                return None;
            }
            let operation = self.operation(at);
            at = operation.as_ref().map_or(self.data.len(), |o| at + OPERATION_BYTES + o.data.len());
            Some(operation.ok_or_else(|| {
                corrupt(format!("an operation in the log's record at block {}", self.at.block))
            }))
        })
    }

    fn operation(&self, at: usize) -> Option<Operation<'_>> {
        let len = usize::try_from(be32(&self.data, at + 4)?).ok()?;
        let data_at = at + OPERATION_BYTES;
        let data = self.data.get(data_at..data_at.checked_add(len)?)?;
        Some(Operation { transaction: be32(&self.data, at)?, flags: *self.data.get(at + 9)?, data })
    }

    /// Whether it says that the file system was unmounted.
    pub fn is_unmount(&self) -> bool {
        self.operations == 1 && self.operation(0).is_some_and(|o| o.flags & FLAG_UNMOUNT != 0)
    }
}

/// Whether all blocks of the data were written in the round of the record: a torn write leaves older ones.
fn was_written_here(ring: &Ring, data_at: Position, data: &[u8]) -> bool {
    data.chunks_exact(SECTOR)
        .zip(0..)
        .all(|(block, n)| be32(block, 0) == Some(ring.advance(data_at, n).cycle))
}

/// Only version 5 vouches for them, and mkfs writes none.
fn crc_fits(ring: &Ring, headers: &[u8], data: &[u8], stored: u32) -> bool {
    if !ring.has_crc || stored == 0 {
        return true;
    }
    CHECKED_HEADER_BYTES.iter().any(|header| {
        let mut crc = crc32c::crc32c(&headers[..CRC_AT]);
        crc = crc32c::crc32c_append(crc, &[0; 4]);
        crc = crc32c::crc32c_append(crc, &headers[CRC_AT + 4..*header]);
        for extension in headers.chunks_exact(SECTOR).skip(1) {
            crc = crc32c::crc32c_append(crc, &extension[..CHECKED_EXTENSION_BYTES]);
        }
        crc32c::crc32c_append(crc, data) == stored
    })
}

/// Puts the first word of each block back.
fn restore_words(headers: &[u8], data: &mut [u8]) {
    let words = headers.chunks_exact(SECTOR).enumerate().flat_map(|(n, header)| {
        let at = if n == 0 { CYCLE_DATA_AT } else { 4 };
        header[at..at + 64 * 4].chunks_exact(4)
    });
    for (block, word) in data.chunks_exact_mut(SECTOR).zip(words) {
        block[..4].copy_from_slice(word);
    }
}
