//! Inodes: the core, and the forks behind it.

use super::error::corrupt;
use super::superblock::crc_is_right;
use super::volume::Volume;
use crate::bytes::{array, be16, be32, be64};
use crate::error::Result;
use crate::tree::{Node, NodeKind, Time};

/// The first two bytes of an inode.
pub(super) const MAGIC: u16 = 0x494e;
/// Where the checksum of an inode of version 3 is.
const CRC_AT: usize = 100;
/// Where the forks begin.
const CORE_2_BYTES: usize = 100;
const CORE_3_BYTES: usize = 176;

const FLAG_REALTIME: u16 = 1 << 0;
const FLAG2_BIGTIME: u64 = 1 << 3;
const FLAG2_NREXT64: u64 = 1 << 4;

/// Times in one number count from here: the least that 32 bits hold.
const BIGTIME_EPOCH: i64 = i32::MIN as i64;
const NANOS: u64 = 1_000_000_000;

/// How a fork holds what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Device,
    Local,
    Extents,
    Btree,
    /// A format that no file, directory or link has.
    Other(u8),
}

/// The part of an inode that holds data or attributes, or says where they are.
#[derive(Debug)]
pub(super) struct Fork {
    /// How `bytes` are to be understood.
    pub format: Format,
    /// How many extents it has, inside or in a tree.
    pub extents: u64,
    /// The fork as it stands in the inode.
    pub bytes: Vec<u8>,
}

/// An inode in use.
#[derive(Debug)]
pub(super) struct Inode {
    /// Its number on the volume.
    pub number: u64,
    /// What it says of itself.
    pub node: Node,
    /// Bytes of a file, a link, or a directory.
    pub size: u64,
    /// Whether its data is on the realtime device.
    pub is_realtime: bool,
    /// Where the data is.
    pub data: Fork,
    /// Where the attributes are, if it has some.
    pub attributes: Option<Fork>,
}

impl Inode {
    /// Reads an inode that a directory names.
    pub fn read(volume: &Volume, number: u64) -> Result<Inode> {
        let wrong = |why: String| corrupt(format!("inode {number}: {why}"));
        let size = volume.superblock.inode_bytes();
        let offset = volume
            .superblock
            .inode_offset(number)
            .filter(|at| at + size as u64 <= volume.disk().size())
            .ok_or_else(|| wrong("there is no such place on the volume".into()))?;
        let block = volume.read(offset, size)?;
        let bytes = &block.bytes;
        let (magic, mode) = be16(bytes, 0).zip(be16(bytes, 2)).unwrap_or_default();
        let version = bytes.get(4).copied().unwrap_or_default();
        if magic != MAGIC {
            return Err(wrong(format!("magic {magic:#06x} at offset {offset:#x}")));
        }
        match (volume.superblock.has_crc, version) {
            (true, 3) => {
                if volume.check_crc && !block.replayed && !crc_is_right(bytes, CRC_AT) {
                    return Err(wrong(format!("its checksum at offset {offset:#x} is wrong")));
                }
                if be64(bytes, 152) != Some(number) || array(bytes, 160) != Some(volume.superblock.uuid) {
                    return Err(wrong(format!("another inode is at offset {offset:#x}")));
                }
            }
            (false, 1 | 2) => {}
            _ => return Err(wrong(format!("version {version}"))),
        }
        if mode == 0 {
            return Err(wrong("it is not in use".into()));
        }
        Inode::parse(bytes, number).ok_or_else(|| wrong("it is cut off".into()))?
    }

    /// Takes the fields from the bytes of an inode. `None` where they do not suffice.
    fn parse(bytes: &[u8], number: u64) -> Option<Result<Inode>> {
        let wrong = |why: String| Some(Err(corrupt(format!("inode {number}: {why}"))));
        let (mode, version) = (be16(bytes, 2)?, *bytes.get(4)?);
        let flags2 = if version >= 3 { be64(bytes, 120)? } else { 0 };
        let size = be64(bytes, 56)?;
        if size > i64::MAX as u64 {
            return wrong(format!("a size of {size:#x}"));
        }
        let forks = bytes.get(if version >= 3 { CORE_3_BYTES } else { CORE_2_BYTES }..)?;
        let forkoff = usize::from(*bytes.get(82)?) * 8;
        if forkoff >= forks.len() {
            return wrong(format!("the attributes begin at byte {forkoff} of {}", forks.len()));
        }
        let (extents, attribute_extents) = if flags2 & FLAG2_NREXT64 != 0 {
            (be64(bytes, 24)?, be32(bytes, 76)?.into())
        } else {
            (be32(bytes, 76)?.into(), be16(bytes, 80)?.into())
        };
        let (data, attributes) = forks.split_at(if forkoff == 0 { forks.len() } else { forkoff });
        let data = Fork { format: Format::new(*bytes.get(5)?), extents, bytes: data.to_vec() };
        let attributes = (forkoff != 0).then_some(Fork {
            format: Format::new(*bytes.get(83)?),
            extents: attribute_extents,
            bytes: attributes.to_vec(),
        });
        let Some(kind) = kind_of(mode, &data) else {
            return wrong(format!("mode {mode:#o}"));
        };
        let node = Node {
            kind,
            mode: mode & 0o7777,
            uid: be32(bytes, 8)?,
            gid: be32(bytes, 12)?,
            size: if matches!(kind, NodeKind::File | NodeKind::Link) { size } else { 0 },
            links: if version == 1 { be16(bytes, 6)?.into() } else { be32(bytes, 16)? },
            modified: time(bytes, 40, flags2)?,
            changed: time(bytes, 48, flags2)?,
        };
        let is_realtime = be16(bytes, 90)? & FLAG_REALTIME != 0;
        Some(Ok(Inode { number, node, size, is_realtime, data, attributes }))
    }
}

impl Format {
    fn new(byte: u8) -> Format {
        match byte {
            0 => Format::Device,
            1 => Format::Local,
            2 => Format::Extents,
            3 => Format::Btree,
            other => Format::Other(other),
        }
    }
}

/// What an inode of this mode is; the numbers of a device are in its fork.
fn kind_of(mode: u16, data: &Fork) -> Option<NodeKind> {
    let device = || {
        let number = be32(&data.bytes, 0).filter(|_| data.format == Format::Device)?;
        Some((number >> 18 & 0x3fff, number & 0x3_ffff))
    };
    Some(match mode >> 12 {
        0x1 => NodeKind::Fifo,
        0x2 => device().map(|(major, minor)| NodeKind::CharDevice { major, minor })?,
        0x4 => NodeKind::Directory,
        0x6 => device().map(|(major, minor)| NodeKind::BlockDevice { major, minor })?,
        0x8 => NodeKind::File,
        0xa => NodeKind::Link,
        0xc => NodeKind::Socket,
        _ => return None,
    })
}

fn time(bytes: &[u8], at: usize, flags2: u64) -> Option<Time> {
    if flags2 & FLAG2_BIGTIME != 0 {
        let all = be64(bytes, at)?;
        return Some(Time { seconds: BIGTIME_EPOCH + (all / NANOS) as i64, nanos: (all % NANOS) as u32 });
    }
    let (seconds, nanos) = (be32(bytes, at)? as i32, be32(bytes, at + 4)?);
    Some(Time { seconds: seconds.into(), nanos: nanos.min(NANOS as u32 - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_one_number_and_in_two() {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&(((4_000_000_000u64 + (1 << 31)) * NANOS) + 7).to_be_bytes());
        assert_eq!(time(&bytes, 0, FLAG2_BIGTIME), Some(Time { seconds: 4_000_000_000, nanos: 7 }));
        bytes = [0; 8];
        assert_eq!(time(&bytes, 0, FLAG2_BIGTIME), Some(Time { seconds: -(1 << 31), nanos: 0 }));
        bytes = [0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 9];
        assert_eq!(time(&bytes, 0, 0), Some(Time { seconds: -2, nanos: 9 }));
        assert_eq!(time(&bytes, 1, 0), None);
    }
}
