//! The journal's superblock, and its blocks, which are used round and round.

use super::copy::{Copy, TransactionId};
use crate::bytes::{be16, be32, le16, le32};
use crate::disk::Disk;
use crate::error::{FsError, Result};
use crate::ext::blocks::{Blocks, JOURNAL_MAGIC};
use crate::ext::checksum::{crc32c, crc32c_without, START};
use crate::ext::error::{corrupt, unsupported};
use crate::tree::extents::{Extent, Place};

const SUPERBLOCK_BYTES: usize = 1024;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const SUPERBLOCK_CHECKSUM_AT: usize = 0xfc;
/// Checksums at the ends of descriptors and revocations.
const TAIL_BYTES: usize = 4;
/// Magic number, kind, transaction.
pub(super) const HEADER_BYTES: usize = 12;

const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_CHECKSUM_V2: u32 = 0x8;
const INCOMPAT_CHECKSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// Those above, revocations, and commits that do not wait.
const INCOMPAT_READ: u32 = 0x3f;
/// Blocks for fast commits, where the superblock does not say.
const FAST_COMMIT_BLOCKS: u32 = 256;
/// If fast commits left fewer blocks for transactions, there is no area for them.
const BLOCKS_MIN: u32 = 1024;
/// What an area of fast commits begins with.
const FAST_COMMIT_HEAD: u16 = 9;

/// How block checksums are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksums {
    None,
    /// Half of each checksum of a copy.
    V2,
    /// With another form of tags.
    V3,
}

/// A journal.
pub(super) struct Log<'a> {
    blocks: &'a Blocks,
    extents: &'a [Extent],
    /// The first block of transactions, and one behind their last.
    first: u32,
    end: u32,
    /// Where the oldest transaction begins, and which one it is; 0: nowhere.
    pub start: u32,
    /// The oldest transaction.
    pub start_id: TransactionId,
    /// How its checksums are stored.
    pub checksums: Checksums,
    /// Whether numbers of blocks have 64 bits.
    pub is_64bit: bool,
    seed: u32,
    fast_commits: bool,
}

impl<'a> Log<'a> {
    /// Reads its superblock.
    pub fn open(blocks: &'a Blocks, extents: &'a [Extent]) -> Result<Log<'a>> {
        let mut log = Log {
            blocks,
            extents,
            first: 0,
            end: 0,
            start: 0,
            start_id: TransactionId(0),
            checksums: Checksums::None,
            is_64bit: false,
            seed: 0,
            fast_commits: false,
        };
        let block = log.block(0)?;
        let superblock = block.get(..SUPERBLOCK_BYTES).unwrap_or_default();
        log.take(superblock)?;
        Ok(log)
    }

    fn take(&mut self, superblock: &[u8]) -> Result<()> {
        let field = |at| be32(superblock, at).unwrap_or(0);
        let version = field(4);
        if !superblock.starts_with(&JOURNAL_MAGIC) || !matches!(version, SUPERBLOCK_V1 | SUPERBLOCK_V2) {
            return Err(damage("there is no superblock in its first block"));
        }
        let incompat = if version == SUPERBLOCK_V2 { field(0x28) } else { 0 };
        if incompat & !INCOMPAT_READ != 0 {
            return Err(unsupported(format!("the journal's feature {:#x}", incompat & !INCOMPAT_READ)));
        }
        if incompat & (INCOMPAT_CHECKSUM_V2 | INCOMPAT_CHECKSUM_V3) != 0 {
            let (stored, got) =
                (field(SUPERBLOCK_CHECKSUM_AT), crc32c_without(START, superblock, SUPERBLOCK_CHECKSUM_AT, 4));
            if stored != got {
                return Err(damage(format!(
                    "its superblock's checksum is {got:#x}, and {stored:#x} is stored"
                )));
            }
            let is_v3 = incompat & INCOMPAT_CHECKSUM_V3 != 0;
            self.checksums = if is_v3 { Checksums::V3 } else { Checksums::V2 };
        }
        self.is_64bit = incompat & INCOMPAT_64BIT != 0;
        self.seed = crc32c(START, superblock.get(0x30..0x40).unwrap_or_default());
        self.fast_commits = incompat & INCOMPAT_FAST_COMMIT != 0;
        let fast_blocks = match field(0x54) {
            _ if !self.fast_commits => 0,
            0 => FAST_COMMIT_BLOCKS,
            some => some,
        };
        let (block_bytes, len) = (field(0xc), field(0x10));
        self.first = field(0x14);
        self.end = len.saturating_sub(fast_blocks);
        if self.end < BLOCKS_MIN {
            (self.end, self.fast_commits) = (len, false);
        }
        self.start_id = TransactionId(field(0x18));
        self.start = field(0x1c);
        let room = self.extents.last().map_or(0, |e| (e.offset + e.len) >> self.blocks.bits());
        let is_inside = self.start == 0 || (self.first..self.end).contains(&self.start);
        if block_bytes as usize != self.blocks.block_bytes()
            || u64::from(len) > room
            || self.first == 0
            || self.first >= self.end
            || !is_inside
        {
            return Err(damage(format!(
                "its superblock speaks of {len} blocks of {block_bytes} bytes, of transactions in {}..{} from {} on, and there are {room} blocks",
                self.first, self.end, self.start
            )));
        }
        Ok(())
    }

    /// Blocks for transactions.
    pub fn len(&self) -> u32 {
        self.end - self.first
    }

    /// The block `n` behind block `at`, which is inside.
    pub fn after(&self, at: u32, n: u32) -> u32 {
        let turned = (u64::from(at - self.first) + u64::from(n)) % u64::from(self.len());
        self.first + turned as u32
    }

    /// Where a block is in the volume.
    pub fn offset(&self, at: u32) -> Result<u64> {
        let offset = u64::from(at) << self.blocks.bits();
        let nth = self.extents.partition_point(|e| e.offset + e.len <= offset);
        match self.extents.get(nth) {
            Some(Extent { offset: from, place: Place::Volume(place), .. }) if *from <= offset => {
                Ok(place + (offset - from))
            }
            _ => Err(damage(format!("its block {at} is nowhere"))),
        }
    }

    /// The bytes of a block of the journal.
    pub fn block(&self, at: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.blocks.block_bytes()];
        self.blocks.read_at(self.offset(at)?, &mut bytes)?;
        Ok(bytes)
    }

    /// The part of a descriptor or a revocation before its checksum, and whether that is right.
    pub fn without_tail<'b>(&self, block: &'b [u8]) -> (&'b [u8], bool) {
        if self.checksums == Checksums::None {
            return (block, true);
        }
        let at = block.len() - TAIL_BYTES;
        (&block[..at], be32(block, at) == Some(crc32c_without(self.seed, block, at, TAIL_BYTES)))
    }

    /// Whether the checksum of a commit block is right.
    pub fn is_valid_commit(&self, block: &[u8]) -> bool {
        const AT: usize = 16;
        self.checksums == Checksums::None || be32(block, AT) == Some(crc32c_without(self.seed, block, AT, 4))
    }

    /// Whether the checksum of a copy is right.
    pub fn is_valid(&self, copy: &Copy) -> Result<bool> {
        if self.checksums == Checksums::None {
            return Ok(true);
        }
        let sum = crc32c(self.seed, &copy.id.0.to_be_bytes());
        let sum = crc32c(sum, &self.block(copy.at)?);
        Ok(match self.checksums {
            Checksums::V2 => sum & 0xffff == copy.checksum,
            _ => sum == copy.checksum,
        })
    }

    /// Takes a tag apart: where the block belongs, its checksum, its flags.
    pub fn tag(&self, bytes: &[u8]) -> Option<(u64, u32, u32)> {
        let low = u64::from(be32(bytes, 0)?);
        let high = if self.is_64bit { u64::from(be32(bytes, 8)?) << 32 } else { 0 };
        Some(match self.checksums {
            Checksums::V3 => (low | high, be32(bytes, 12)?, be32(bytes, 4)?),
            _ => (low | high, be16(bytes, 4)?.into(), be16(bytes, 6)?.into()),
        })
    }

    /// Bytes of a tag, without a UUID behind it.
    pub fn tag_bytes(&self) -> usize {
        let wide = if self.is_64bit { 4 } else { 0 };
        match self.checksums {
            Checksums::None => 8 + wide,
            Checksums::V2 => 10 + wide,
            Checksums::V3 => 16,
        }
    }

    /// Whether there is a fast commit that follows the transactions, of which `next` would be the next.
    pub fn has_fast_commit(&self, next: TransactionId) -> Result<bool> {
        if !self.fast_commits {
            return Ok(false);
        }
        // A block is left out before the area. Tag, length, features, transaction.
        let head = self.block(self.end.saturating_add(1))?;
        Ok(le16(&head, 0) == Some(FAST_COMMIT_HEAD) && le32(&head, 8) == Some(next.0))
    }
}

/// Damage of the journal.
pub(super) fn damage(why: impl std::fmt::Display) -> FsError {
    corrupt(format!("the journal: {why}"))
}
