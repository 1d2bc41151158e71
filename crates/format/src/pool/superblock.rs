//! The superblock of a pool.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::{BatchNo, Geometry, BLOCK_BYTES};
use crate::bytes::{In, Malformed, Out, Result};

const MAGIC: [u8; 8] = *b"SAPWPOOL";
const VERSION: u32 = 4;

/// A pool, for ever. Random.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId(pub [u8; 16]);

impl PoolId {
    /// What the pool's checksums begin with, so that a page of another pool is found.
    pub(super) fn seed(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(bytes)
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where replaying the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalTail {
    /// Number of the batch.
    pub batch: BatchNo,
    /// Its first block, counted from the journal's start.
    pub block: u32,
}

/// The superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool.
    pub pool: PoolId,
    /// How often one was written.
    pub written: u64,
    /// Where everything lies.
    pub geometry: Geometry,
    /// Where replaying begins.
    pub tail: JournalTail,
    /// Whether the pool was closed: there is nothing to replay.
    pub is_clean: bool,
    /// Which checkpoint of the filter counts, and its epoch.
    pub filter: Option<(u8, u32)>,
    /// The current epoch.
    pub epoch: u32,
    /// How often the pool was opened without having been closed.
    pub cuts: u64,
}

impl Superblock {
    /// Its bytes.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut out = Out(Vec::with_capacity(BLOCK_BYTES));
        out.bytes(&MAGIC);
        out.u32(VERSION);
        out.u32(0);
        out.bytes(&self.pool.0);
        out.u64(self.written);
        out.u64(self.geometry.blocks);
        out.u32(self.geometry.group_blocks);
        out.u32(self.geometry.journal_blocks);
        out.u32(self.geometry.catalog_blocks);
        out.u32(self.geometry.summary_blocks);
        out.u32(self.geometry.filter_blocks);
        out.u32(self.geometry.groups);
        out.u64(self.tail.batch.0);
        out.u32(self.tail.block);
        out.u8(u8::from(self.is_clean));
        out.u8(self.filter.map_or(2, |(which, _)| which));
        out.u16(0);
        out.u32(self.filter.map_or(0, |(_, epoch)| epoch));
        out.u32(self.epoch);
        out.u64(self.cuts);
        let mut block = [0; BLOCK_BYTES];
        block[..out.0.len()].copy_from_slice(&out.0);
        let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// The version of a whole superblock of an earlier version, which cannot be decoded.
    pub fn earlier_version(block: &[u8; BLOCK_BYTES]) -> Option<u32> {
        let (body, sum) = block.split_at(BLOCK_BYTES - 8);
        let mut version = [0; 4];
        version.copy_from_slice(&body[8..12]);
        let version = u32::from_le_bytes(version);
        let is_whole = body[..8] == MAGIC && sum == xxh3_64(body).to_le_bytes();
        (is_whole && version < VERSION).then_some(version)
    }

    /// What [`Superblock::encode`] wrote.
    pub fn decode(block: &[u8; BLOCK_BYTES]) -> Result<Self> {
        if block[..8] != MAGIC {
            return Err(Malformed::new("does not start with a pool's magic number"));
        }
        let (body, sum) = block.split_at(BLOCK_BYTES - 8);
        if sum != xxh3_64(body).to_le_bytes() {
            return Err(Malformed::new("checksum does not match its bytes"));
        }
        let mut fields = In::new(&body[8..]);
        let (version, features) = (fields.u32()?, fields.u32()?);
        if version < VERSION {
            return Err(Malformed::new(format!("it has version {version}, this program reads {VERSION}")));
        }
        if version > VERSION || features != 0 {
            return Err(Malformed::newer(format!(
                "a pool of version {version} with features {features:#x}; this program knows version {VERSION}"
            )));
        }
        let pool = PoolId(fields.array()?);
        let written = fields.u64()?;
        let geometry = Geometry {
            blocks: fields.u64()?,
            group_blocks: fields.u32()?,
            journal_blocks: fields.u32()?,
            catalog_blocks: fields.u32()?,
            summary_blocks: fields.u32()?,
            filter_blocks: fields.u32()?,
            groups: fields.u32()?,
        };
        geometry.check()?;
        let tail = JournalTail { batch: BatchNo(fields.u64()?), block: fields.u32()? };
        let (is_clean, which) = (fields.u8()? != 0, fields.u8()?);
        fields.u16()?;
        let (filter_epoch, epoch, cuts) = (fields.u32()?, fields.u32()?, fields.u64()?);
        if tail.block >= geometry.journal_blocks || which > 2 {
            return Err(Malformed::new(format!("tail at block {}, filter {which}", tail.block)));
        }
        let filter = (which < 2).then_some((which, filter_epoch));
        Ok(Superblock { pool, written, geometry, tail, is_clean, filter, epoch, cuts })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_flipped_bits_are_found() {
        let superblock = Superblock {
            pool: PoolId([3; 16]),
            written: 7,
            geometry: Geometry::plan(1 << 20).unwrap(),
            tail: JournalTail { batch: BatchNo(9), block: 11 },
            is_clean: true,
            filter: Some((1, 5)),
            epoch: 6,
            cuts: 3,
        };
        let block = superblock.encode();
        assert_eq!(Superblock::decode(&block), Ok(superblock));
        assert_eq!(Superblock::earlier_version(&block), None);
        for bit in (0..BLOCK_BYTES * 8).step_by(13).chain(0..1024) {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
