//! Where symbolic links lead.

use super::error::corrupt;
use super::inode::{Format, Inode};
use super::runs;
use super::volume::{Stamp, Volume};
use crate::bytes::be32;
use crate::error::Result;

/// The longest target that the kernel makes.
const MAX_BYTES: u64 = 1024;
const MAGIC: [u8; 4] = *b"XSLM";
const HEADER_BYTES: usize = 56;
const STAMP: Stamp = Stamp { crc: 12, place: 40, uuid: 16, owner: 32 };

/// Reads the target of a link.
pub(super) fn read(volume: &Volume, inode: &Inode) -> Result<Vec<u8>> {
    let wrong = |why: String| corrupt(format!("link {}: {why}", inode.number));
    if inode.size == 0 || inode.size > MAX_BYTES {
        return Err(wrong(format!("a target of {} bytes", inode.size)));
    }
    let len = inode.size as usize;
    if inode.data.format == Format::Local {
        let target = inode.data.bytes.get(..len).map(<[u8]>::to_vec);
        return target.ok_or_else(|| wrong(format!("{len} bytes within the inode")));
    }
    let (block_log, has_crc) = (volume.superblock.block_log, volume.superblock.has_crc);
    let header = if has_crc { HEADER_BYTES } else { 0 };
    let mut target = Vec::new();
    // Each extent begins with a header. The largest target with all its headers is less than 16 of the smallest blocks.
    for run in runs::read(volume, inode, &inode.data)?.iter().take(16) {
        let block = volume.read(run.offset, (run.blocks.min(16) << block_log) as usize)?;
        if has_crc {
            volume.verify(&block, STAMP, inode.number, "a link's target")?;
            let (at, here) = (be32(&block.bytes, 4), be32(&block.bytes, 8).unwrap_or_default() as usize);
            if !block.bytes.starts_with(&MAGIC)
                || at != Some(target.len() as u32)
                || here > len - target.len()
            {
                return Err(wrong(format!("the header at offset {:#x}", block.offset)));
            }
        }
        let body = block.bytes.get(header..).unwrap_or_default();
        let taken = body.len().min(len - target.len());
        target.extend_from_slice(&body[..taken]);
    }
    if target.len() < len {
        return Err(wrong(format!("{} of {len} bytes", target.len())));
    }
    Ok(target)
}
