//! Group descriptors: where each group's inodes are.

use super::blocks::{BlockNo, Blocks};
use super::checksum::{crc16, crc32c, crc32c_without};
use super::error::corrupt;
use super::superblock::{Superblock, DESCRIPTOR_BYTES};
use crate::bytes::{le16, le32};
use crate::error::Result;

/// Where the checksum is.
const CHECKSUM_AT: usize = 0x1e;

/// The block with a group's first inodes. They may reach beyond the volume.
pub(super) fn inode_table(blocks: &Blocks, sb: &Superblock, group: u32) -> Result<BlockNo> {
    let per_block = (sb.block_bytes() / sb.descriptor_bytes) as u64;
    let no = BlockNo(sb.descriptor_block(u64::from(group) / per_block));
    // The superblock may be in block 0, descriptors never are.
    let block = blocks.block(no)?;
    let at = (u64::from(group) % per_block) as usize * sb.descriptor_bytes;
    let descriptor = block.get(at..at + sb.descriptor_bytes).unwrap_or_default();
    table_of(descriptor, sb, group).ok_or_else(|| {
        corrupt(format!("the descriptor of group {group} in block {} has a wrong checksum", no.0))
    })
}

/// `None`: its checksum is wrong.
fn table_of(descriptor: &[u8], sb: &Superblock, group: u32) -> Option<BlockNo> {
    let stored = le16(descriptor, CHECKSUM_AT)?;
    let expected = if let Some(seed) = sb.checksum_seed {
        let sum = crc32c(seed, &group.to_le_bytes());
        crc32c_without(sum, descriptor, CHECKSUM_AT, 2) as u16
    } else if sb.has_group_checksums {
        let sum = crc16(crc16(u16::MAX, &sb.uuid), &group.to_le_bytes());
        let sum = crc16(sum, &descriptor[..CHECKSUM_AT]);
        crc16(sum, descriptor.get(DESCRIPTOR_BYTES..)?)
    } else {
        stored
    };
    let high = if sb.descriptor_bytes > DESCRIPTOR_BYTES { le32(descriptor, 0x28)? } else { 0 };
    let table = u64::from(high) << 32 | u64::from(le32(descriptor, 0x8)?);
    (stored == expected).then_some(BlockNo(table))
}
