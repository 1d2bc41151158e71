//! Batches of the journal, and the records in them.

use std::mem;

use xxhash_rust::xxh3::{xxh3_128_with_seed, Xxh3};

use super::{BatchNo, PoolBlock, PoolId, BLOCK_BYTES};
use crate::bytes::{In, Malformed, Out, Result};

const MAGIC: [u8; 4] = *b"SPJC";
/// Bytes of a batch in front of its records.
pub const BATCH_HEADER_BYTES: usize = 32;
/// The most bytes that one record sets.
pub const SET_BYTES_MAX: usize = BLOCK_BYTES;

const SET: u8 = 0;
const FRESH: u8 = 1;
const FORGET: u8 = 2;
const WRITE_BACK: u8 = 3;
const DATA: u8 = 4;

/// A change in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRecord<'a> {
    /// Bytes of a page change.
    Set {
        /// The page.
        page: PoolBlock,
        /// Where in it.
        offset: usize,
        /// What stands there from now on.
        bytes: &'a [u8],
    },
    /// Pages whose bytes are zero from now on.
    Fresh {
        /// The first.
        first: PoolBlock,
        /// How many.
        count: u32,
    },
    /// No page any more.
    Forget {
        /// The block.
        page: PoolBlock,
    },
    /// Pages that may be partly written.
    WriteBack {
        /// The first.
        first: PoolBlock,
        /// How many.
        count: u32,
    },
    /// A data block that was synced together with this batch, not before it.
    Data {
        /// The block.
        block: PoolBlock,
        /// Of its content.
        sum: DataSum,
    },
}

/// Tells what a data block holds from what it held before: xxh3-128 with the pool's seed, so no machine can make two contents of
/// one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSum([u8; 16]);

impl DataSum {
    /// Of a block's content.
    pub fn of(pool: PoolId, content: &[u8]) -> Self {
        DataSum(xxh3_128_with_seed(content, pool.seed()).to_le_bytes())
    }
}

/// Collects the records of a batch.
pub struct JournalWriter {
    out: Out,
}

impl Default for JournalWriter {
    fn default() -> Self {
        JournalWriter { out: Out(vec![0; BATCH_HEADER_BYTES]) }
    }
}

impl JournalWriter {
    /// A batch with records as another one has them: what a test has made up.
    pub fn with_records(records: &[u8]) -> Self {
        let mut writer = Self::default();
        writer.out.bytes(records);
        writer
    }

    /// Bytes so far, the header included.
    pub fn len(&self) -> usize {
        self.out.0.len()
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.len() == BATCH_HEADER_BYTES
    }

    /// Adds a record.
    pub fn push(&mut self, record: JournalRecord<'_>) {
        match record {
            JournalRecord::Set { page, offset, bytes } => {
                debug_assert!(offset + bytes.len() <= BLOCK_BYTES);
                self.head(SET, page);
                self.out.u16(offset as u16);
                self.out.u16(bytes.len() as u16);
                self.out.bytes(bytes);
            }
            JournalRecord::Fresh { first, count } => {
                self.head(FRESH, first);
                self.out.u32(count);
            }
            JournalRecord::Forget { page } => self.head(FORGET, page),
            JournalRecord::WriteBack { first, count } => {
                self.head(WRITE_BACK, first);
                self.out.u32(count);
            }
            JournalRecord::Data { block, sum } => {
                self.head(DATA, block);
                self.out.bytes(&sum.0);
            }
        }
    }

    fn head(&mut self, kind: u8, block: PoolBlock) {
        let [a, b, c, d, e, ..] = block.0.to_le_bytes();
        self.out.bytes(&[kind, a, b, c, d, e]);
    }

    /// The batch, filled up to whole blocks with zeros; the writer is empty again.
    pub fn finish(&mut self, pool: PoolId, batch: BatchNo) -> Vec<u8> {
        let mut bytes = mem::take(self).out.0;
        bytes[..4].copy_from_slice(&MAGIC);
        let length = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..16].copy_from_slice(&batch.0.to_le_bytes());
        let sum = checksum(pool, &bytes);
        bytes[16..32].copy_from_slice(&sum);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }
}

/// The header of a batch, before its checksum was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Bytes of the batch, header included.
    pub length: usize,
    /// Its number.
    pub batch: BatchNo,
}

impl BatchHeader {
    /// The header at the start of a block; `None` where no batch starts there.
    pub fn peek(block: &[u8]) -> Option<Self> {
        let mut fields = In::new(block);
        let magic = fields.array::<4>().ok()?;
        let (length, batch) = (fields.u32().ok()? as usize, BatchNo(fields.u64().ok()?));
        (magic == MAGIC && length > BATCH_HEADER_BYTES).then_some(BatchHeader { length, batch })
    }

    /// Blocks of the batch.
    pub fn blocks(&self) -> u32 {
        self.length.div_ceil(BLOCK_BYTES) as u32
    }
}

/// Reads the records of a batch.
pub struct JournalReader<'a> {
    fields: In<'a>,
}

impl<'a> JournalReader<'a> {
    /// Begins with a batch whose checksum is right: `bytes` starts with it, and may be longer.
    pub fn open(pool: PoolId, bytes: &'a [u8]) -> Result<Self> {
        let header = BatchHeader::peek(bytes).ok_or_else(|| Malformed::new("is not a batch of a journal"))?;
        let batch = bytes
            .get(..header.length)
            .ok_or_else(|| Malformed::new(format!("{} of {} bytes", bytes.len(), header.length)))?;
        if batch[16..32] != checksum(pool, batch) {
            return Err(Malformed::new("checksum does not match its bytes"));
        }
        Ok(JournalReader { fields: In::new(&batch[BATCH_HEADER_BYTES..]) })
    }

    /// The next record; `None` at the end.
    pub fn next_record(&mut self) -> Result<Option<JournalRecord<'a>>> {
        if self.fields.remaining() == 0 {
            return Ok(None);
        }
        let kind = self.fields.u8()?;
        let [a, b, c, d, e] = self.fields.array()?;
        let block = PoolBlock(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]));
        Ok(Some(match kind {
            SET => {
                let (offset, length) = (usize::from(self.fields.u16()?), usize::from(self.fields.u16()?));
                if offset + length > BLOCK_BYTES {
                    return Err(Malformed::new(format!("{length} bytes at {offset} of a page")));
                }
                JournalRecord::Set { page: block, offset, bytes: self.fields.bytes(length)? }
            }
            FRESH => JournalRecord::Fresh { first: block, count: self.fields.u32()? },
            FORGET => JournalRecord::Forget { page: block },
            WRITE_BACK => JournalRecord::WriteBack { first: block, count: self.fields.u32()? },
            DATA => JournalRecord::Data { block, sum: DataSum(self.fields.array()?) },
            other => return Err(Malformed::new(format!("a record of kind {other}"))),
        }))
    }
}

fn checksum(pool: PoolId, batch: &[u8]) -> [u8; 16] {
    let mut sum = Xxh3::with_seed(pool.seed());
    sum.update(&batch[..16]);
    sum.update(&batch[BATCH_HEADER_BYTES..]);
    sum.digest128().to_le_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId([5; 16]);

    #[test]
    fn records_come_back_and_flipped_bits_are_found() {
        let records = [
            JournalRecord::Fresh { first: PoolBlock(70), count: 288 },
            JournalRecord::Set { page: PoolBlock((1 << 36) - 1), offset: 28, bytes: &[9; 36] },
            JournalRecord::Forget { page: PoolBlock(5) },
            JournalRecord::WriteBack { first: PoolBlock(71), count: 2 },
            JournalRecord::Data { block: PoolBlock(90), sum: DataSum::of(POOL, &[1; BLOCK_BYTES]) },
        ];
        let mut writer = JournalWriter::default();
        records.iter().for_each(|r| writer.push(*r));
        let bytes = writer.finish(POOL, BatchNo(17));
        assert!(writer.is_empty());
        assert_eq!(bytes.len(), BLOCK_BYTES);
        let header = BatchHeader::peek(&bytes).unwrap();
        assert_eq!((header.batch, header.blocks()), (BatchNo(17), 1));
        let mut reader = JournalReader::open(POOL, &bytes).unwrap();
        for record in records {
            assert_eq!(reader.next_record().unwrap(), Some(record));
        }
        assert_eq!(reader.next_record().unwrap(), None);
        for bit in 0..header.length * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(JournalReader::open(POOL, &flipped).is_err(), "bit {bit}");
        }
        assert!(JournalReader::open(PoolId([6; 16]), &bytes).is_err());
    }
}
