//! An ext file system, opened and read through. The input is a list of blocks of 1 KiB, each behind its number.
#![no_main]

use filesystem::{ext, Disk, Result};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::sync::Arc;

#[path = "../../crates/filesystem/tests/common/explore.rs"]
mod explore;

const BLOCK_BYTES: u64 = 1024;
const VOLUME_BYTES: u64 = 8 << 20;

/// A volume of which few blocks are not zeros.
struct Sparse(HashMap<u64, [u8; BLOCK_BYTES as usize]>);

impl Disk for Sparse {
    fn size(&self) -> u64 {
        VOLUME_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert!(offset.checked_add(buf.len() as u64).is_some_and(|end| end <= VOLUME_BYTES));
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

fuzz_target!(|bytes: &[u8]| {
    let blocks = bytes.chunks_exact(2 + BLOCK_BYTES as usize).filter_map(|record| {
        let (no, block) = record.split_first_chunk()?;
        Some((u16::from_le_bytes(*no).into(), block.try_into().ok()?))
    });
    let volume: Arc<dyn Disk> = Arc::new(Sparse(blocks.collect()));
    if let Ok(Some(fs)) = ext::open(volume.clone()) {
        explore::explore(&fs, &*volume);
    }
});
