//! A checkpoint of the fingerprint filter: a header and parts.

use xxhash_rust::xxh3::{xxh3_64, Xxh3};

use super::{PoolBlock, PoolId, BLOCK_BYTES, FILTER_PART_BYTES};
use crate::bytes::{In, Malformed, Out, Result};

const MAGIC: [u8; 8] = *b"SAPWFILT";
const PART_HEADER_BYTES: usize = 16;

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterHeader {
    /// The pool.
    pub pool: PoolId,
    /// The epoch that began when it was written.
    pub epoch: u32,
    /// Entries of all parts.
    pub entries: u64,
    /// Parts.
    pub parts: u32,
}

impl FilterHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut out = Out::default();
        out.bytes(&MAGIC);
        out.bytes(&self.pool.0);
        out.u32(self.epoch);
        out.u32(FilterEntry::BYTES as u32);
        out.u64(self.entries);
        out.u32(self.parts);
        out.u32(0);
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        let mut block = [0; BLOCK_BYTES];
        block[..out.0.len()].copy_from_slice(&out.0);
        block
    }

    /// What [`FilterHeader::encode`] wrote.
    pub fn decode(block: &[u8]) -> Result<Self> {
        let mut fields = In::new(block);
        let body = fields.bytes(48)?;
        if body[..8] != MAGIC || fields.u64()? != xxh3_64(body) {
            return Err(Malformed::new("is not a header of a filter"));
        }
        let mut fields = In::new(&body[8..]);
        let (pool, epoch, entry_bytes) = (PoolId(fields.array()?), fields.u32()?, fields.u32()?);
        if entry_bytes as usize != FilterEntry::BYTES {
            return Err(Malformed::new(format!("entries of {entry_bytes} bytes")));
        }
        Ok(FilterHeader { pool, epoch, entries: fields.u64()?, parts: fields.u32()? })
    }
}

/// A fingerprint's first 8 bytes, as a number, and the block that may have that fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterEntry {
    /// The first 8 bytes, big endian, so that numbers sort like fingerprints.
    pub prefix: u64,
    /// The block.
    pub block: PoolBlock,
}

impl FilterEntry {
    /// Bytes as stored.
    pub const BYTES: usize = 13;
}

/// Collects the entries of a part.
pub struct FilterPart {
    out: Out,
    entries: u32,
}

impl Default for FilterPart {
    fn default() -> Self {
        FilterPart { out: Out(vec![0; PART_HEADER_BYTES]), entries: 0 }
    }
}

impl FilterPart {
    /// Adds an entry. Returns whether another one has room.
    pub fn push(&mut self, entry: FilterEntry) -> bool {
        self.out.u64(entry.prefix);
        self.out.bytes(&entry.block.0.to_le_bytes()[..5]);
        self.entries += 1;
        self.out.0.len() + FilterEntry::BYTES <= FILTER_PART_BYTES
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The part, filled up to whole blocks with zeros; it is empty again.
    pub fn finish(&mut self, epoch: u32) -> Vec<u8> {
        let part = std::mem::take(self);
        let mut bytes = part.out.0;
        bytes[..4].copy_from_slice(&part.entries.to_le_bytes());
        bytes[4..8].copy_from_slice(&epoch.to_le_bytes());
        let sum = checksum(&bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// The bytes of the part that starts with this block, whole blocks.
    pub fn stored_bytes(first: &[u8]) -> Result<usize> {
        let entries = In::new(first).u32()? as usize;
        let bytes = PART_HEADER_BYTES + entries.min(FILTER_PART_BYTES) * FilterEntry::BYTES;
        if bytes > FILTER_PART_BYTES {
            return Err(Malformed::new(format!("a part of {entries} entries")));
        }
        Ok(bytes.next_multiple_of(BLOCK_BYTES))
    }

    /// The entries of a part that [`FilterPart::finish`] made.
    pub fn read(bytes: &[u8], epoch: u32, mut each: impl FnMut(FilterEntry)) -> Result<()> {
        let mut fields = In::new(bytes);
        let (entries, part_epoch, sum) = (fields.u32()? as usize, fields.u32()?, fields.u64()?);
        let body = entries
            .checked_mul(FilterEntry::BYTES)
            .and_then(|n| bytes.get(..PART_HEADER_BYTES + n))
            .ok_or_else(|| Malformed::new(format!("a part of {entries} entries")))?;
        if part_epoch != epoch || sum != checksum(body) {
            return Err(Malformed::new("checksum or epoch of a part does not match"));
        }
        for entry in body[PART_HEADER_BYTES..].chunks_exact(FilterEntry::BYTES) {
            let mut fields = In::new(entry);
            let prefix = fields.u64()?;
            let [a, b, c, d, e] = fields.array()?;
            each(FilterEntry { prefix, block: PoolBlock(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])) });
        }
        Ok(())
    }
}

fn checksum(part: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&part[..8]);
    sum.update(&part[PART_HEADER_BYTES..]);
    sum.digest()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_flipped_bits_are_found() {
        let mut part = FilterPart::default();
        let entries: Vec<_> =
            (0..500).map(|n| FilterEntry { prefix: n << 50, block: PoolBlock(n * n) }).collect();
        entries.iter().for_each(|e| assert!(part.push(*e)));
        let bytes = part.finish(3);
        assert_eq!(FilterPart::stored_bytes(&bytes).unwrap(), bytes.len());
        let mut read = Vec::new();
        FilterPart::read(&bytes, 3, |e| read.push(e)).unwrap();
        assert_eq!(read, entries);
        assert!(FilterPart::read(&bytes, 4, |_| {}).is_err());
        for bit in (0..6500 * 8).step_by(11) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(FilterPart::read(&flipped, 3, |_| {}).is_err(), "bit {bit}");
        }
        let header = FilterHeader { pool: PoolId([1; 16]), epoch: 3, entries: 500, parts: 1 };
        assert_eq!(FilterHeader::decode(&header.encode()), Ok(header));
    }
}
