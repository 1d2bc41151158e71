//! The superblock: sizes and features of a file system.

use super::checksum::{crc32c, START};
use super::error::{corrupt, unsupported};
use crate::bytes::{array, le16, le32};
use crate::error::Result;

/// Where it is in the volume.
pub(super) const OFFSET: u64 = 1024;
/// Its length.
pub(super) const BYTES: usize = 1024;

const MAGIC: u16 = 0xef53;
/// Where its checksum is.
const CHECKSUM_AT: usize = 0x3fc;
/// A block has 1 KiB, shifted by at most this.
const BLOCK_SHIFT_MAX: u32 = 6;
/// An inode of the first revision, and the part of later ones that is always there.
pub(super) const INODE_BYTES_MIN: usize = 128;
/// A group descriptor without 64-bit numbers, and the least one with them.
pub(super) const DESCRIPTOR_BYTES: usize = 32;
const DESCRIPTOR_BYTES_64BIT: usize = 64;

const COMPAT_JOURNAL: u32 = 0x4;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;

const INCOMPAT_FILE_TYPE: u32 = 0x2;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_META_GROUPS: u32 = 0x10;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_MMP: u32 = 0x100;
const INCOMPAT_FLEX_GROUPS: u32 = 0x200;
const INCOMPAT_EA_INODE: u32 = 0x400;
const INCOMPAT_CHECKSUM_SEED: u32 = 0x2000;
const INCOMPAT_LARGE_DIR: u32 = 0x4000;
const INCOMPAT_INLINE_DATA: u32 = 0x8000;
const INCOMPAT_ENCRYPT: u32 = 0x1_0000;
const INCOMPAT_CASEFOLD: u32 = 0x2_0000;
const INCOMPAT_READ: u32 = INCOMPAT_EXT3
    | INCOMPAT_EXTENTS
    | INCOMPAT_64BIT
    | INCOMPAT_MMP
    | INCOMPAT_FLEX_GROUPS
    | INCOMPAT_EA_INODE
    | INCOMPAT_CHECKSUM_SEED
    | INCOMPAT_LARGE_DIR
    | INCOMPAT_INLINE_DATA
    | INCOMPAT_ENCRYPT
    | INCOMPAT_CASEFOLD;
/// What ext3 has too.
const INCOMPAT_EXT3: u32 = INCOMPAT_FILE_TYPE | INCOMPAT_RECOVER | INCOMPAT_META_GROUPS;

const RO_SPARSE_SUPER: u32 = 0x1;
const RO_GROUP_CHECKSUMS: u32 = 0x10;
const RO_METADATA_CHECKSUMS: u32 = 0x400;
/// What ext3 has too: sparse superblocks, large files, B-tree directories (never used).
const RO_EXT3: u32 = 0x7;

/// What a superblock says, checked.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// The binary logarithm of a block's bytes.
    pub block_bits: u32,
    /// Blocks, of which the volume may have fewer.
    pub blocks: u64,
    /// The first block of group 0.
    pub first_block: u64,
    /// Blocks of a group; the last one may have fewer.
    pub blocks_per_group: u32,
    /// Inodes of all groups.
    pub inodes: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode, a power of two.
    pub inode_bytes: usize,
    /// Bytes of a group's descriptor.
    pub descriptor_bytes: usize,
    /// From this block of descriptors on, each stands in a group that it describes.
    first_meta_group: Option<u32>,
    /// The only groups besides 0 with a copy of the superblock.
    backup_groups: Option<[u32; 2]>,
    has_sparse_copies: bool,
    /// The identity of the file system.
    pub uuid: [u8; 16],
    /// The label, padded with zeros.
    pub label: [u8; 16],
    /// Where the journal is, if it must be replayed.
    pub journal: Journal,
    /// Whether the entries of directories say what they lead to.
    pub has_file_types: bool,
    /// Whether directories may have 4 GiB and more.
    pub has_large_dirs: bool,
    /// What the checksums of all metadata start from.
    pub checksum_seed: Option<u32>,
    /// Group descriptors have a CRC-16.
    pub has_group_checksums: bool,
    /// `ext2`, `ext3` or `ext4`.
    pub kind: &'static str,
}

/// The journal, as far as the superblock knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Journal {
    /// There is none, or all that it holds was written to its place.
    Clean,
    /// This inode holds blocks that were not yet written to their places.
    Inode(u32),
    /// Another disk holds them.
    External,
}

impl Superblock {
    /// `None` without its magic number.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Option<Superblock>> {
        if le16(bytes, 0x38) != Some(MAGIC) {
            return Ok(None);
        }
        check_features(bytes)?;
        let Some(superblock) = Superblock::fields(bytes) else {
            return Err(corrupt("the superblock is cut off"));
        };
        superblock.check(bytes)?;
        Ok(Some(superblock))
    }

    fn fields(b: &[u8; BYTES]) -> Option<Superblock> {
        let (compat, incompat, ro) = features(b)?;
        let is_first_revision = le32(b, 0x4c)? == 0;
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high_blocks = if is_64bit { le32(b, 0x150)? } else { 0 };
        let has_checksums = ro & RO_METADATA_CHECKSUMS != 0;
        let uuid: [u8; 16] = array(b, 0x68)?;
        let seed = match incompat & INCOMPAT_CHECKSUM_SEED {
            0 => crc32c(START, &uuid),
            _ => le32(b, 0x270)?,
        };
        Some(Superblock {
            block_bits: le32(b, 0x18)?.min(BLOCK_SHIFT_MAX + 1) + 10,
            blocks: u64::from(high_blocks) << 32 | u64::from(le32(b, 0x4)?),
            first_block: le32(b, 0x14)?.into(),
            blocks_per_group: le32(b, 0x20)?,
            inodes: le32(b, 0)?,
            inodes_per_group: le32(b, 0x28)?,
            inode_bytes: if is_first_revision { INODE_BYTES_MIN } else { le16(b, 0x58)?.into() },
            descriptor_bytes: if is_64bit { le16(b, 0xfe)?.into() } else { DESCRIPTOR_BYTES },
            first_meta_group: (incompat & INCOMPAT_META_GROUPS != 0).then_some(le32(b, 0x104)?),
            backup_groups: (compat & COMPAT_SPARSE_SUPER2 != 0).then_some([le32(b, 0x24c)?, le32(b, 0x250)?]),
            has_sparse_copies: ro & RO_SPARSE_SUPER != 0,
            uuid,
            label: array(b, 0x78)?,
            journal: match le32(b, 0xe0)? {
                _ if compat & COMPAT_JOURNAL == 0 || incompat & INCOMPAT_RECOVER == 0 => Journal::Clean,
                0 => Journal::External,
                inode => Journal::Inode(inode),
            },
            has_file_types: incompat & INCOMPAT_FILE_TYPE != 0,
            has_large_dirs: incompat & INCOMPAT_LARGE_DIR != 0,
            checksum_seed: has_checksums.then_some(seed),
            has_group_checksums: ro & RO_GROUP_CHECKSUMS != 0 && !has_checksums,
            kind: if incompat & !INCOMPAT_EXT3 != 0 || ro & !RO_EXT3 != 0 {
                "ext4"
            } else if compat & COMPAT_JOURNAL != 0 {
                "ext3"
            } else {
                "ext2"
            },
        })
    }

    fn check(&self, bytes: &[u8; BYTES]) -> Result<()> {
        if self.checksum_seed.is_some() {
            let (wanted, got) = (le32(bytes, CHECKSUM_AT), crc32c(START, &bytes[..CHECKSUM_AT]));
            if wanted != Some(got) {
                return Err(corrupt(format!(
                    "the checksum of the superblock is {got:#x}, and {:#x} is stored",
                    wanted.unwrap_or(0)
                )));
            }
        }
        let wrong = |what: &str, value: u64| Err(corrupt(format!("the superblock says {value} {what}")));
        if self.block_bits > BLOCK_SHIFT_MAX + 10 {
            return Err(corrupt("the superblock says that a block has more than 64 KiB"));
        }
        let block_bytes = 1usize << self.block_bits;
        if !self.inode_bytes.is_power_of_two() || !(INODE_BYTES_MIN..=block_bytes).contains(&self.inode_bytes)
        {
            return wrong("bytes for an inode", self.inode_bytes as u64);
        }
        let is_64bit = self.descriptor_bytes != DESCRIPTOR_BYTES || {
            let incompat = features(bytes).map_or(0, |f| f.1);
            incompat & INCOMPAT_64BIT != 0
        };
        let least = if is_64bit { DESCRIPTOR_BYTES_64BIT } else { DESCRIPTOR_BYTES };
        if !self.descriptor_bytes.is_power_of_two() || !(least..=1024).contains(&self.descriptor_bytes) {
            return wrong("bytes for a group descriptor", self.descriptor_bytes as u64);
        }
        if self.blocks_per_group == 0 {
            return wrong("blocks for a group", 0);
        }
        if self.inodes_per_group == 0 || self.inodes_per_group as usize > 8 * block_bytes {
            return wrong("inodes for a group", self.inodes_per_group.into());
        }
        if self.blocks <= self.first_block || self.blocks.checked_mul(block_bytes as u64).is_none() {
            return wrong("blocks", self.blocks);
        }
        if u64::from(self.inodes) > self.groups().saturating_mul(self.inodes_per_group.into()) {
            return wrong("inodes", self.inodes.into());
        }
        Ok(())
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_bits
    }

    fn groups(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.blocks_per_group.into())
    }

    /// The block with the `nth` part of the group descriptors.
    pub fn descriptor_block(&self, nth: u64) -> u64 {
        if self.first_meta_group.is_none_or(|first| nth < u64::from(first)) {
            return OFFSET / self.block_bytes() as u64 + 1 + nth;
        }
        let group = nth * (self.block_bytes() / self.descriptor_bytes) as u64;
        let copies = u64::from(self.has_copy(group));
        // With blocks of 1 KiB that are counted from 0, the superblock is the second one.
        let boot = u64::from(self.block_bits == 10 && nth == 0 && self.first_block == 0);
        self.first_block + group.saturating_mul(self.blocks_per_group.into()) + copies + boot
    }

    /// Whether a group begins with a copy of the superblock.
    fn has_copy(&self, group: u64) -> bool {
        if let Some(groups) = self.backup_groups {
            return group == 0 || groups.iter().any(|g| u64::from(*g) == group);
        }
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        group <= 1 || !self.has_sparse_copies || [3, 5, 7].into_iter().any(is_power_of)
    }
}

/// Compatible, incompatible, and those that forbid writing only.
fn features(bytes: &[u8; BYTES]) -> Option<(u32, u32, u32)> {
    // The first revision has none, and nothing is defined where they would be.
    match le32(bytes, 0x4c)? {
        0 => Some((0, 0, 0)),
        _ => Some((le32(bytes, 0x5c)?, le32(bytes, 0x60)?, le32(bytes, 0x64)?)),
    }
}

fn check_features(bytes: &[u8; BYTES]) -> Result<()> {
    let incompat = features(bytes).map_or(0, |f| f.1);
    if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return Err(unsupported("an external journal as a file system"));
    }
    match incompat & !INCOMPAT_READ {
        0 => Ok(()),
        unknown => Err(unsupported(format!("the incompatible feature {unknown:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 KiB blocks, 3 groups.
    fn sample() -> [u8; BYTES] {
        let mut b = [0; BYTES];
        let fields: [(usize, u32); 9] = [
            (0, 300),
            (4, 90_000),
            (0x18, 2),
            (0x20, 32_768),
            (0x28, 100),
            (0x38, MAGIC.into()),
            (0x4c, 1),
            (0x58, 256),
            (0x60, INCOMPAT_FILE_TYPE),
        ];
        for (at, value) in fields {
            b[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        b
    }

    fn with(fields: &[(usize, u32)]) -> Result<Option<Superblock>> {
        let mut b = sample();
        for (at, value) in fields {
            b[*at..*at + 4].copy_from_slice(&value.to_le_bytes());
        }
        Superblock::decode(&b)
    }

    #[test]
    fn its_features_name_the_file_system() {
        let kind = |fields| with(fields).expect("valid").expect("with magic").kind;
        assert_eq!(kind(&[]), "ext2");
        assert_eq!(kind(&[(0x5c, COMPAT_JOURNAL)]), "ext3");
        assert_eq!(kind(&[(0x60, INCOMPAT_EXTENTS)]), "ext4");
    }

    #[test]
    fn without_magic_there_is_nothing() {
        assert!(with(&[(0x38, 0)]).expect("no error").is_none());
    }

    #[test]
    fn impossible_values_are_named() {
        let why = |at, value| with(&[(at, value)]).expect_err("damage").to_string();
        assert!(why(0x18, 7).contains("64 KiB"));
        assert!(why(0x18, u32::MAX).contains("64 KiB"));
        assert!(why(0x58, 8192).contains("8192 bytes for an inode"));
        assert!(why(0x58, 0).contains("0 bytes for an inode"));
        assert!(why(0x20, 0).contains("0 blocks for a group"));
        assert!(why(0x28, 0).contains("0 inodes for a group"));
        assert!(why(0, 301).contains("301 inodes"));
        assert!(why(4, 0).contains("0 blocks"));
        assert!(why(0x60, 1).contains("feature 0x1 is not supported"));
        let wide = with(&[(0x60, INCOMPAT_64BIT), (0xfe, 32)]).expect_err("damage").to_string();
        assert!(wide.contains("32 bytes for a group descriptor"));
        let sums = with(&[(0x64, RO_METADATA_CHECKSUMS)]).expect_err("damage").to_string();
        assert!(sums.contains("checksum"));
    }

    #[test]
    fn descriptors_stand_in_their_groups_from_the_first_meta_group_on() {
        let many = [(4, 32_768 * 1000), (0x60, INCOMPAT_META_GROUPS), (0x64, RO_SPARSE_SUPER), (0x104, 1)];
        let sb = with(&many).expect("valid").expect("with magic");
        let per_block = 4096 / DESCRIPTOR_BYTES as u64;
        assert_eq!(sb.descriptor_block(0), 1);
        assert_eq!(sb.descriptor_block(1), per_block * 32_768);
        let copies: Vec<u64> = (0..60).filter(|g| sb.has_copy(*g)).collect();
        assert_eq!(copies, [0, 1, 3, 5, 7, 9, 25, 27, 49]);
    }
}
