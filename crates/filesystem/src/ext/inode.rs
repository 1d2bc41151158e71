//! Inodes: what a node is, and the bytes from which its data is found.

use super::blocks::{BlockNo, Blocks};
use super::checksum::{crc32c, crc32c_without};
use super::error::{corrupt, unsupported};
use super::groups::inode_table;
use super::superblock::{Superblock, INODE_BYTES_MIN};
use crate::bytes::{array, le16, le32};
use crate::error::Result;
use crate::tree::{Node, NodeKind, Time};

/// The bytes of an inode that say where its data is, or hold it.
pub(super) const MAP_BYTES: usize = 60;
const MAP_AT: usize = 0x28;
const CHECKSUM_AT: usize = 0x7c;
const CHECKSUM_HIGH_AT: usize = 0x82;

const FLAG_ENCRYPTED: u32 = 0x800;
const FLAG_INDEX: u32 = 0x1000;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE: u32 = 0x1000_0000;

/// The number of an inode, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InodeNo(pub u32);

/// An inode. All of its bytes are there, at least [`INODE_BYTES_MIN`].
#[derive(Clone, Debug)]
pub(super) struct Inode {
    /// Its number.
    pub no: InodeNo,
    /// Whether it is a file, a directory, a link or something else.
    pub kind: NodeKind,
    /// Bytes of its data.
    pub size: u64,
    flags: u32,
    /// What the checksums of its blocks start from.
    pub seed: Option<u32>,
    bytes: Vec<u8>,
}

impl Inode {
    /// Reads an inode that is in use.
    pub fn read(blocks: &Blocks, sb: &Superblock, no: InodeNo) -> Result<Inode> {
        if no.0 == 0 || no.0 > sb.inodes {
            return Err(corrupt(format!("inode {} is named, and there are {}", no.0, sb.inodes)));
        }
        let (group, index) = ((no.0 - 1) / sb.inodes_per_group, (no.0 - 1) % sb.inodes_per_group);
        let table = inode_table(blocks, sb, group)?;
        let at = u64::from(index) * sb.inode_bytes as u64;
        let block = BlockNo(table.0.saturating_add(at >> sb.block_bits));
        blocks.check(block, 1, &|| format!("inode {}", no.0))?;
        let at = (at & (sb.block_bytes() as u64 - 1)) as usize;
        let bytes = blocks.block(block)?.get(at..at + sb.inode_bytes).unwrap_or_default().to_vec();
        let inode = Inode::decode(no, bytes, sb)
            .unwrap_or_else(|| Err(corrupt(format!("inode {} is cut off", no.0))))?;
        inode.check(sb, block)?;
        Ok(inode)
    }

    fn decode(no: InodeNo, bytes: Vec<u8>, sb: &Superblock) -> Option<Result<Inode>> {
        if bytes.len() < INODE_BYTES_MIN {
            return None;
        }
        let mode = le16(&bytes, 0)?;
        let kind = match mode >> 12 {
            0o1 => NodeKind::Fifo,
            0o2 => device(&bytes, |major, minor| NodeKind::CharDevice { major, minor })?,
            0o4 => NodeKind::Directory,
            0o6 => device(&bytes, |major, minor| NodeKind::BlockDevice { major, minor })?,
            0o10 => NodeKind::File,
            0o12 => NodeKind::Link,
            0o14 => NodeKind::Socket,
            _ => return Some(Err(corrupt(format!("inode {} has the mode {mode:#o}", no.0)))),
        };
        let has_high_size = kind == NodeKind::File || sb.has_large_dirs;
        let high = if has_high_size { le32(&bytes, 0x6c)? } else { 0 };
        let generation = le32(&bytes, 0x64)?;
        let seed = |seed| crc32c(crc32c(seed, &no.0.to_le_bytes()), &generation.to_le_bytes());
        Some(Ok(Inode {
            no,
            kind,
            size: u64::from(high) << 32 | u64::from(le32(&bytes, 0x4)?),
            flags: le32(&bytes, 0x20)?,
            seed: sb.checksum_seed.map(seed),
            bytes,
        }))
    }

    fn check(&self, sb: &Superblock, block: BlockNo) -> Result<()> {
        let no = self.no.0;
        if self.extra_bytes() > sb.inode_bytes - INODE_BYTES_MIN {
            return Err(corrupt(format!(
                "inode {no} in block {} has {} more bytes, and there is room for {}",
                block.0,
                self.extra_bytes(),
                sb.inode_bytes - INODE_BYTES_MIN
            )));
        }
        if let Some(expected) = self.checksum() {
            let has_high = self.has(CHECKSUM_HIGH_AT, 2);
            let high = if has_high { le16(&self.bytes, CHECKSUM_HIGH_AT) } else { Some(0) };
            let stored =
                u32::from(high.unwrap_or(0)) << 16 | u32::from(le16(&self.bytes, CHECKSUM_AT).unwrap_or(0));
            let expected = if has_high { expected } else { expected & 0xffff };
            if stored != expected {
                return Err(corrupt(format!(
                    "the checksum of inode {no} in block {} is {expected:#x}, and {stored:#x} is stored",
                    block.0
                )));
            }
        }
        if self.links() == 0 {
            return Err(corrupt(format!("inode {no} in block {} is named, and was deleted", block.0)));
        }
        if self.size > i64::MAX as u64 {
            return Err(corrupt(format!("inode {no} has {} bytes", self.size)));
        }
        Ok(())
    }

    /// What its checksum should be; the high half counts if there is room for it.
    fn checksum(&self) -> Option<u32> {
        let sum = crc32c_without(self.seed?, &self.bytes[..INODE_BYTES_MIN], CHECKSUM_AT, 2);
        let more = &self.bytes[INODE_BYTES_MIN..];
        Some(if self.has(CHECKSUM_HIGH_AT, 2) {
            crc32c_without(sum, more, CHECKSUM_HIGH_AT - INODE_BYTES_MIN, 2)
        } else {
            crc32c(sum, more)
        })
    }

    /// Bytes behind the first [`INODE_BYTES_MIN`] that hold fields.
    fn extra_bytes(&self) -> usize {
        le16(&self.bytes, INODE_BYTES_MIN).unwrap_or(0).into()
    }

    /// Whether a field behind the first [`INODE_BYTES_MIN`] is there.
    fn has(&self, at: usize, len: usize) -> bool {
        self.bytes.len() > INODE_BYTES_MIN && at + len <= INODE_BYTES_MIN + self.extra_bytes()
    }

    fn links(&self) -> u16 {
        le16(&self.bytes, 0x1a).unwrap_or(0)
    }

    /// The bytes that say where its data is, or hold it; zeros where the inode is cut off.
    pub fn map(&self) -> &[u8; MAP_BYTES] {
        const NONE: [u8; MAP_BYTES] = [0; MAP_BYTES];
        self.bytes.get(MAP_AT..).and_then(|b| b.first_chunk()).unwrap_or(&NONE)
    }

    /// The bytes behind all fields, where attributes are.
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(INODE_BYTES_MIN + self.extra_bytes()..).unwrap_or_default()
    }

    /// The block with the attributes that have no room in the inode.
    pub fn attributes_block(&self) -> Option<BlockNo> {
        let high = u64::from(le16(&self.bytes, 0x76)?);
        let no = high << 32 | u64::from(le32(&self.bytes, 0x68)?);
        (no != 0).then_some(BlockNo(no))
    }

    /// Whether its data is found by an extent tree; otherwise by pointers to blocks.
    pub fn has_extents(&self) -> bool {
        self.flags & FLAG_EXTENTS != 0
    }

    /// Its data is in the inode.
    pub fn is_inline(&self) -> bool {
        self.flags & FLAG_INLINE != 0
    }

    /// It is a directory with an index.
    pub fn is_indexed(&self) -> bool {
        self.flags & FLAG_INDEX != 0
    }

    /// It holds the value of an attribute.
    pub fn is_attribute(&self) -> bool {
        self.flags & FLAG_EA_INODE != 0
    }

    /// Refuses a node whose names or data are encrypted.
    pub fn check_readable(&self) -> Result<()> {
        match self.flags & FLAG_ENCRYPTED {
            0 => Ok(()),
            _ => Err(unsupported(format!("encryption (of inode {})", self.no.0))),
        }
    }

    /// What it says of itself; `None` where it is cut off.
    pub fn node(&self) -> Option<Node> {
        let b = &self.bytes;
        let wide = |low, high| Some(u32::from(le16(b, high)?) << 16 | u32::from(le16(b, low)?));
        Some(Node {
            kind: self.kind,
            mode: le16(b, 0)? & 0o7777,
            uid: wide(0x2, 0x78)?,
            gid: wide(0x18, 0x7a)?,
            size: if matches!(self.kind, NodeKind::File | NodeKind::Link) { self.size } else { 0 },
            links: self.links().into(),
            modified: self.time(0x10, 0x88)?,
            changed: self.time(0xc, 0x84)?,
        })
    }

    /// Signed seconds; where there is room, two more bits of them, and nanoseconds above these.
    fn time(&self, at: usize, more_at: usize) -> Option<Time> {
        let seconds = i64::from(i32::from_le_bytes(array(&self.bytes, at)?));
        let more = if self.has(more_at, 4) { le32(&self.bytes, more_at)? } else { 0 };
        Some(Time { seconds: seconds + (i64::from(more & 3) << 32), nanos: (more >> 2).min(999_999_999) })
    }
}

/// Device numbers have two forms: 8 bits each, or, if that is 0, 12 bits and 20.
fn device(bytes: &[u8], kind: impl Fn(u32, u32) -> NodeKind) -> Option<NodeKind> {
    let (old, new) = (le32(bytes, MAP_AT)?, le32(bytes, MAP_AT + 4)?);
    Some(match old {
        0 => kind(new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00),
        _ => kind(old >> 8 & 0xff, old & 0xff),
    })
}
