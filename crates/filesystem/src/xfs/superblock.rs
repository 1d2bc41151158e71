//! The superblock: the geometry of the volume, and which features it uses.

use super::error::{corrupt, unsupported};
use crate::bytes::{array, be16, be32, be64};
use crate::error::Result;

/// The first four bytes of the volume.
pub(super) const MAGIC: [u8; 4] = *b"XFSB";
/// The largest sector, and so the most that a superblock takes.
pub(super) const MAX_SECTOR_BYTES: u32 = 32 << 10;

const CRC_AT: usize = 224;

const VERSION_4: u16 = 4;
const VERSION_5: u16 = 5;
const VERSION_MASK: u16 = 0xf;
const VERSION_LOG_2: u16 = 0x0400;
const VERSION_DIRECTORY_2: u16 = 0x2000;
const VERSION_MORE: u16 = 0x8000;
const FEATURES2_FTYPE: u32 = 0x200;

const INCOMPAT_FTYPE: u32 = 1 << 0;
const INCOMPAT_META_UUID: u32 = 1 << 2;
const INCOMPAT_NEEDS_REPAIR: u32 = 1 << 4;
/// These, and: sparse inodes, bigtime, nrext64, exchange of ranges, parent pointers, metadata directories.
const INCOMPAT_KNOWN: u32 = 0x1ff;
const INCOMPAT_ZONED: u32 = 1 << 9;
const INCOMPAT_ZONE_GAPS: u32 = 1 << 10;

/// The number of a block: its allocation group above, the block in it below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FsBlock(pub u64);

/// What a superblock says, checked.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// Binary logarithm of a block's bytes.
    pub block_log: u8,
    /// Binary logarithm of an inode's bytes.
    pub inode_log: u8,
    /// Blocks of all allocation groups.
    pub blocks: u64,
    /// Blocks of an allocation group; the last one may have fewer.
    pub group_blocks: u32,
    /// How many allocation groups there are.
    pub groups: u32,
    /// Bits of a block's number that count inside its allocation group.
    pub group_block_log: u8,
    /// Binary logarithm of a directory block's file-system blocks.
    pub dir_block_log: u8,
    /// The inode of the topmost directory.
    pub root: u64,
    /// Where the log is; `None` on another device.
    pub log_start: Option<FsBlock>,
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Whether log records may have more than one header.
    pub has_log_2: bool,
    /// Whether metadata carries checksums and its place (version 5).
    pub has_crc: bool,
    /// Whether the entries of directories say what they lead to.
    pub has_ftype: bool,
    /// Whether tools noted that it must be repaired before use.
    pub needs_repair: bool,
    /// What metadata is stamped with.
    pub uuid: [u8; 16],
    /// What users take for its identity; the log is stamped with it.
    pub log_uuid: [u8; 16],
    /// Whether the two differ.
    pub has_meta_uuid: bool,
    /// The label, without the zeros behind it.
    pub label: Vec<u8>,
}

impl Superblock {
    /// The size of a sector as the superblock has it, for reading all of it.
    pub fn sector_bytes(bytes: &[u8]) -> Result<u32> {
        let size = u32::from(be16(bytes, 102).unwrap_or_default());
        if !size.is_power_of_two() || !(512..=MAX_SECTOR_BYTES).contains(&size) {
            return Err(corrupt(format!("the superblock: sectors of {size} bytes")));
        }
        Ok(size)
    }

    /// Parses the first sector of the volume, whose magic was seen.
    pub fn parse(bytes: &[u8], check_crc: bool) -> Result<Superblock> {
        let version = field(be16, bytes, 100)?;
        let has_crc = match version & VERSION_MASK {
            VERSION_4 => false,
            VERSION_5 => true,
            other => return Err(unsupported(format!("version {other}"))),
        };
        if version & VERSION_DIRECTORY_2 == 0 {
            return Err(unsupported("version 1 of directories"));
        }
        let log_uuid = field(array::<16>, bytes, 32)?;
        let (mut uuid, mut has_ftype, mut needs_repair, mut has_meta_uuid) = (log_uuid, false, false, false);
        if has_crc {
            if check_crc && !crc_is_right(bytes, CRC_AT) {
                return Err(corrupt("the superblock: its checksum is wrong"));
            }
            let incompat = field(be32, bytes, 216)?;
            check_incompat(incompat)?;
            has_ftype = incompat & INCOMPAT_FTYPE != 0;
            needs_repair = incompat & INCOMPAT_NEEDS_REPAIR != 0;
            has_meta_uuid = incompat & INCOMPAT_META_UUID != 0;
            if has_meta_uuid {
                uuid = field(array::<16>, bytes, 248)?;
            }
        } else if version & VERSION_MORE != 0 {
            has_ftype = (field(be32, bytes, 200)? | field(be32, bytes, 204)?) & FEATURES2_FTYPE != 0;
        }
        let label: [u8; 12] = field(array, bytes, 108)?;
        let superblock = Superblock {
            block_log: field(byte, bytes, 120)?,
            inode_log: field(byte, bytes, 122)?,
            blocks: field(be64, bytes, 8)?,
            group_blocks: field(be32, bytes, 84)?,
            groups: field(be32, bytes, 88)?,
            group_block_log: field(byte, bytes, 124)?,
            dir_block_log: field(byte, bytes, 192)?,
            root: field(be64, bytes, 56)?,
            log_start: Some(FsBlock(field(be64, bytes, 48)?)).filter(|b| b.0 != 0),
            log_blocks: field(be32, bytes, 96)?,
            has_log_2: has_crc || version & VERSION_LOG_2 != 0,
            has_crc,
            has_ftype,
            needs_repair,
            uuid,
            log_uuid,
            has_meta_uuid,
            label: label.iter().copied().take_while(|b| *b != 0).collect(),
        };
        superblock.check(bytes)?;
        Ok(superblock)
    }

    /// Holds the sizes, their logarithms and the counts against each other.
    fn check(&self, bytes: &[u8]) -> Result<()> {
        let wrong = |why: String| Err(corrupt(format!("the superblock: {why}")));
        let block_bytes = field(be32, bytes, 4)?;
        if !(9..=16).contains(&self.block_log) || block_bytes != 1 << self.block_log {
            return wrong(format!("blocks of {block_bytes} bytes, logarithm {}", self.block_log));
        }
        let inode_bytes = field(be16, bytes, 104)?;
        let smallest = if self.has_crc { 9 } else { 8 };
        if !(smallest..=11).contains(&self.inode_log)
            || self.inode_log > self.block_log
            || inode_bytes != 1 << self.inode_log
        {
            return wrong(format!("inodes of {inode_bytes} bytes, logarithm {}", self.inode_log));
        }
        if u32::from(self.dir_block_log) + u32::from(self.block_log) > 16 {
            return wrong(format!("directory blocks of 2^{} blocks", self.dir_block_log));
        }
        let logs = (self.group_block_log, self.inodes_per_block_log());
        if logs.0 > 32 || u64::from(self.group_blocks) > 1 << logs.0 || field(byte, bytes, 123)? != logs.1 {
            return wrong(format!("groups of {} blocks, logarithm {}", self.group_blocks, logs.0));
        }
        let all = u64::from(self.group_blocks) * u64::from(self.groups);
        if self.blocks == 0 || self.blocks > all || all - self.blocks >= u64::from(self.group_blocks) {
            return wrong(format!(
                "{} blocks in {} groups of {}",
                self.blocks, self.groups, self.group_blocks
            ));
        }
        if self.blocks > i64::MAX as u64 >> self.block_log {
            return wrong(format!("{} blocks", self.blocks));
        }
        Ok(())
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_log
    }

    /// Bytes of an inode.
    pub fn inode_bytes(&self) -> usize {
        1 << self.inode_log
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_log
    }

    /// Binary logarithm of the inodes in a block.
    pub fn inodes_per_block_log(&self) -> u8 {
        self.block_log - self.inode_log
    }

    /// Where a run of blocks lies on the volume; `None` where it leaves its allocation group.
    pub fn offset_of(&self, block: FsBlock, count: u64) -> Option<u64> {
        let group = block.0 >> self.group_block_log;
        let within = block.0 & ((1 << self.group_block_log) - 1);
        let first = group.checked_mul(u64::from(self.group_blocks))?;
        if group >= u64::from(self.groups) {
            return None;
        }
        let group_end = (first + u64::from(self.group_blocks)).min(self.blocks);
        let end = first.checked_add(within)?.checked_add(count)?;
        (end <= group_end).then(|| (first + within) << self.block_log)
    }

    /// Where an inode lies on the volume.
    pub fn inode_offset(&self, number: u64) -> Option<u64> {
        let log = self.inodes_per_block_log();
        let within = number & ((1 << log) - 1);
        Some(self.offset_of(FsBlock(number >> log), 1)? + (within << self.inode_log))
    }
}

/// Whether the checksum at `at` (little-endian, unlike all else) fits the bytes around it.
pub(super) fn crc_is_right(bytes: &[u8], at: usize) -> bool {
    let Some((head, rest)) = bytes.split_at_checked(at) else { return false };
    let Some((stored, tail)) = rest.split_first_chunk::<4>() else { return false };
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(head), &[0; 4]), tail);
    crc == u32::from_le_bytes(*stored)
}

fn check_incompat(bits: u32) -> Result<()> {
    if bits & (INCOMPAT_ZONED | INCOMPAT_ZONE_GAPS) != 0 {
        return Err(unsupported("a zoned realtime device"));
    }
    match bits & !INCOMPAT_KNOWN {
        0 => Ok(()),
        unknown => Err(unsupported(format!("an unknown feature (incompatible bits {unknown:#x})"))),
    }
}

fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn field<T>(get: fn(&[u8], usize) -> Option<T>, bytes: &[u8], at: usize) -> Result<T> {
    get(bytes, at).ok_or_else(|| corrupt("the superblock is cut off"))
}
