//! Disks in inputs.

use filesystem::{Disk, Result};
use std::collections::HashMap;

const BLOCK_BYTES: u64 = 1024;
const DISK_BYTES: u64 = 8 << 20;

/// A disk of which few blocks are not zeros.
pub struct Sparse(HashMap<u64, [u8; BLOCK_BYTES as usize]>);

impl Sparse {
    /// Takes a list of blocks of 1 KiB, each behind its number of two bytes.
    pub fn decode(bytes: &[u8]) -> Sparse {
        let blocks = bytes.chunks_exact(2 + BLOCK_BYTES as usize).filter_map(|record| {
            let (no, block) = record.split_first_chunk()?;
            Some((u16::from_le_bytes(*no).into(), block.try_into().ok()?))
        });
        Sparse(blocks.collect())
    }
}

impl Disk for Sparse {
    fn size(&self) -> u64 {
        DISK_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert!(offset.checked_add(buf.len() as u64).is_some_and(|end| end <= DISK_BYTES));
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for no in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let Some(block) = self.0.get(&no) else { continue };
            let start = no * BLOCK_BYTES;
            let (from, to) = (offset.max(start), end.min(start + BLOCK_BYTES));
            let taken = &block[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(taken);
        }
        Ok(())
    }
}
