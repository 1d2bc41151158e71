//! The parts of an mtar stream: its head, the heads of its sections, and their records (`docs/format/mtar.md`).

use super::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{In, Malformed, Out, Result};

/// What a stream begins with.
pub const MAGIC: [u8; 8] = *b"SAPMTAR\0";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the head of a stream, without the zeros behind it.
pub const HEAD_BYTES: usize = 24;
/// Bytes of the head of a section.
pub const SECTION_HEAD_BYTES: usize = 64;
/// Largest data of a section, a multiple of every alignment.
pub const DATA_BYTES_MAX: usize = 16 << 20;
/// Largest records of a section.
pub const RECORDS_BYTES_MAX: usize = 4 << 20;
/// Smallest alignment.
pub const ALIGN_MIN: u32 = 512;
/// Largest alignment.
pub const ALIGN_MAX: u32 = 64 << 10;

/// What a section begins with.
const SECTION_MAGIC: [u8; 4] = *b"SECT";
/// The flag of the last section.
const LAST: u32 = 1;

/// The head of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Every part of the stream begins at a multiple of this many bytes: a power of two.
    pub align: u32,
}

impl Head {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&MAGIC);
        out.u32(VERSION);
        out.u32(self.align);
        sealed(out)
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Malformed::new("this is not an mtar stream: its magic number is missing"));
        }
        let version = u32_at(bytes, 8);
        if version > VERSION {
            return Err(Malformed::newer(format!("mtar version {version}, this program reads {VERSION}")));
        }
        check_seal(bytes)?;
        let align = u32_at(bytes, 12);
        if version == 0 || !align_is_valid(align) {
            return Err(Malformed::new(format!("version {version} with an alignment of {align} bytes")));
        }
        Ok(Head { align })
    }
}

/// Whether a stream may have this alignment.
pub fn align_is_valid(align: u32) -> bool {
    align.is_power_of_two() && (ALIGN_MIN..=ALIGN_MAX).contains(&align)
}

/// The head of a section: its records and its data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHead {
    /// Its number in the stream, from 0.
    pub number: u64,
    /// No section follows.
    pub last: bool,
    /// Bytes of the records, without the zeros behind them.
    pub records_bytes: u32,
    /// Bytes of the data, with the zeros between pieces and behind them.
    pub data_bytes: u32,
    /// Bytes of the tar archive that the section gives.
    pub tar_bytes: u64,
    /// XXH3-64 of the records.
    pub records_checksum: u64,
    /// XXH3-64 of the data.
    pub data_checksum: u64,
}

impl SectionHead {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; SECTION_HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&SECTION_MAGIC);
        out.u32(if self.last { LAST } else { 0 });
        out.u64(self.number);
        out.u32(self.records_bytes);
        out.u32(self.data_bytes);
        out.u64(self.tar_bytes);
        out.u64(self.records_checksum);
        out.u64(self.data_checksum);
        out.u64(0);
        sealed(out)
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; SECTION_HEAD_BYTES]) -> Result<SectionHead> {
        if !bytes.starts_with(&SECTION_MAGIC) {
            return Err(Malformed::new("the magic number of a section is missing"));
        }
        check_seal(bytes)?;
        let (flags, unused) = (u32_at(bytes, 4), u64_at(bytes, 48));
        if flags & !LAST != 0 || unused != 0 {
            return Err(Malformed::new(format!("flags {flags:#x} and {unused} of a section are unknown")));
        }
        let head = SectionHead {
            number: u64_at(bytes, 8),
            last: flags & LAST != 0,
            records_bytes: u32_at(bytes, 16),
            data_bytes: u32_at(bytes, 20),
            tar_bytes: u64_at(bytes, 24),
            records_checksum: u64_at(bytes, 32),
            data_checksum: u64_at(bytes, 40),
        };
        if head.records_bytes as usize > RECORDS_BYTES_MAX || head.data_bytes as usize > DATA_BYTES_MAX {
            let (records, data) = (head.records_bytes, head.data_bytes);
            return Err(Malformed::new(format!(
                "a section with {records} bytes of records and {data} of data"
            )));
        }
        Ok(head)
    }
}

/// A record: bytes of the archive that stand in the record itself, then bytes that stand in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Headers.
    pub headers: &'a [u8],
    /// Length of the piece of data that follows the headers in the archive.
    pub data_bytes: u32,
    /// Whether the piece begins at the next multiple of the alignment in the section's data, instead of at the end of the
    /// piece before it.
    pub is_aligned: bool,
}

impl Record<'_> {
    /// Appends the record to others.
    pub fn encode_to(&self, records: &mut Vec<u8>) {
        let mut out = Out(std::mem::take(records));
        out.varint(self.headers.len() as u64);
        out.bytes(self.headers);
        out.varint(u64::from(self.data_bytes) << 1 | u64::from(self.is_aligned));
        *records = out.0;
    }
}

/// Reads the records of a section one after the other.
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// The records in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Records(bytes)
    }

    fn record(&mut self) -> Result<Record<'a>> {
        let len = self.varint()?;
        let split = usize::try_from(len).ok().and_then(|len| self.0.split_at_checked(len));
        let Some((headers, rest)) = split else {
            return Err(Malformed::new(format!(
                "a record has {len} bytes of headers, {} are there",
                self.0.len()
            )));
        };
        self.0 = rest;
        let data = self.varint()?;
        let (bytes, is_aligned) = (data >> 1, data & 1 == 1);
        let fits = u32::try_from(bytes).ok().filter(|&bytes| bytes as usize <= DATA_BYTES_MAX);
        let data_bytes = fits.ok_or_else(|| Malformed::new(format!("a record has {bytes} bytes of data")))?;
        Ok(Record { headers, data_bytes, is_aligned })
    }

    fn varint(&mut self) -> Result<u64> {
        let mut fields = In::new(self.0);
        let value = fields.varint()?;
        self.0 = &self.0[self.0.len() - fields.remaining()..];
        Ok(value)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}
