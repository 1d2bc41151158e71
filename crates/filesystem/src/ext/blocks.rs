//! The blocks of a volume, as they are once the journal has been replayed.

use super::error::corrupt;
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::Result;
use crate::tree::extents::{Extent, Place};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is kept of metadata.
const CACHE_BYTES: usize = 4 << 20;

/// The number of a block of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockNo(pub u64);

/// A block that the journal has a newer version of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// Where that version is in the volume.
    pub offset: u64,
    /// It begins with the journal's magic number, which the journal replaces by zeros.
    pub is_escaped: bool,
}

/// What the journal puts in the place of an escaped block's first bytes.
pub(super) const JOURNAL_MAGIC: [u8; 4] = 0xc03b_3998_u32.to_be_bytes();

/// A volume with the journal's blocks laid over it.
pub(super) struct Blocks {
    volume: Arc<dyn Disk>,
    bits: u32,
    first: u64,
    end: u64,
    logged: BTreeMap<BlockNo, Logged>,
    cache: Cache<BlockNo, Arc<[u8]>>,
}

impl Blocks {
    /// Blocks of `1 << bits` bytes; those that may be named are `first..end`.
    pub fn new(volume: Arc<dyn Disk>, bits: u32, first: u64, end: u64) -> Blocks {
        let cache = Cache::new(CACHE_BYTES);
        let mut blocks = Blocks { volume, bits, first, end, logged: BTreeMap::new(), cache };
        blocks.set_end(end);
        blocks
    }

    /// Says how many blocks there are; those behind the volume's end may not be named all the same.
    pub fn set_end(&mut self, end: u64) {
        self.end = end.min(self.volume_end());
    }

    /// One behind the last block that the volume has room for.
    pub fn volume_end(&self) -> u64 {
        self.volume.size() >> self.bits
    }

    /// Lays the journal's blocks over the volume.
    pub fn lay_over(&mut self, logged: BTreeMap<BlockNo, Logged>) {
        self.logged = logged;
        self.cache = Cache::new(CACHE_BYTES);
    }

    /// The binary logarithm of a block's bytes.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        1 << self.bits
    }

    /// One behind the last block that may be named.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Refuses what is not wholly in the volume. `what` names what claims it.
    pub fn check(&self, start: BlockNo, len: u64, what: &dyn Fn() -> String) -> Result<()> {
        let end = start.0.checked_add(len);
        // Block 0 is the boot sector's, or the superblock's.
        if start.0 < self.first.max(1) || end.is_none_or(|end| end > self.end) {
            return Err(corrupt(format!(
                "{} is said to be in {len} blocks from {} on, and the volume ends at block {}",
                what(),
                start.0,
                self.end
            )));
        }
        Ok(())
    }

    /// A block of metadata.
    pub fn block(&self, no: BlockNo) -> Result<Arc<[u8]>> {
        if let Some(block) = self.cache.get(no) {
            return Ok(block);
        }
        self.check(no, 1, &|| "a block of metadata".into())?;
        let mut bytes = vec![0; self.block_bytes()];
        self.read_at(no.0 << self.bits, &mut bytes)?;
        let block: Arc<[u8]> = bytes.into();
        self.cache.put(no, block.clone(), self.block_bytes());
        Ok(block)
    }

    /// Points extents to where the newest version of their data is.
    pub fn settle(&self, extents: &[Extent]) -> Vec<Extent> {
        let mut settled = Vec::with_capacity(extents.len());
        for extent in extents {
            self.settle_one(*extent, &mut settled);
        }
        settled
    }

    fn settle_one(&self, mut rest: Extent, settled: &mut Vec<Extent>) {
        let Place::Volume(start) = rest.place else { return merge(settled, rest) };
        let last = start + rest.len - 1;
        for (no, logged) in self.logged.range(BlockNo(start >> self.bits)..=BlockNo(last >> self.bits)) {
            let Place::Volume(at) = rest.place else { break };
            let block_at = (no.0 << self.bits).max(at);
            let before = block_at - at;
            if before > 0 {
                merge(settled, Extent { len: before, ..rest });
            }
            let len = (rest.len - before).min(((no.0 + 1) << self.bits) - block_at);
            let place = if logged.is_escaped {
                Place::Encoded
            } else {
                Place::Volume(logged.offset + (block_at & (self.block_bytes() as u64 - 1)))
            };
            merge(settled, Extent { offset: rest.offset + before, len, place });
            let taken = before + len;
            rest = Extent {
                offset: rest.offset + taken,
                len: rest.len - taken,
                place: Place::Volume(at + taken),
            };
        }
        if rest.len > 0 {
            merge(settled, rest);
        }
    }
}

/// Adds an extent, to the last one if it goes on from there.
pub(super) fn merge(extents: &mut Vec<Extent>, next: Extent) {
    if let Some(last) = extents.last_mut().filter(|last| last.offset + last.len == next.offset) {
        let follows = match last.place {
            Place::Volume(at) => Place::Volume(at + last.len),
            other => other,
        };
        if next.place == follows {
            last.len += next.len;
            return;
        }
    }
    extents.push(next);
}

impl Disk for Blocks {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.volume.read_at(offset, buf)?;
        if buf.is_empty() || self.logged.is_empty() {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        for (no, logged) in self.logged.range(BlockNo(offset >> self.bits)..=BlockNo((end - 1) >> self.bits))
        {
            let block_at = no.0 << self.bits;
            let (from, to) = (offset.max(block_at), end.min(block_at + self.block_bytes() as u64));
            let into = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.volume.read_at(logged.offset + (from - block_at), into)?;
            if logged.is_escaped {
                let magic = JOURNAL_MAGIC.iter().skip((from - block_at) as usize);
                into.iter_mut().zip(magic).for_each(|(byte, m)| *byte = *m);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    /// Ten blocks, each full of its number; the journal has number 3 in block 8, and number 4, escaped, in block 9.
    fn sample() -> Blocks {
        let bytes = (0..10 * 1024).map(|n| (n / 1024) as u8).collect();
        let mut blocks = Blocks::new(Arc::new(Memory(bytes)), 10, 1, 100);
        let logged = |no, at: u64, is_escaped| (BlockNo(no), Logged { offset: at << 10, is_escaped });
        blocks.lay_over([logged(3, 8, false), logged(4, 9, true)].into());
        blocks
    }

    #[test]
    fn reads_see_what_the_journal_has() {
        let blocks = sample();
        let mut all = vec![0; 8 * 1024];
        blocks.read_at(0, &mut all).expect("readable");
        for (start, expected) in [(2048, 2), (3072, 8), (4095, 8), (4100, 9), (5119, 9), (5120, 5)] {
            assert_eq!(all[start], expected, "at {start}");
        }
        assert_eq!(all[4096..4101], [0xc0, 0x3b, 0x39, 0x98, 9]);
        for (from, to) in [(3000, 3100), (4097, 4099), (4098, 5200), (5000, 5001)] {
            let mut part = vec![0; to - from];
            blocks.read_at(from as u64, &mut part).expect("readable");
            assert_eq!(part, all[from..to], "{from}..{to}");
        }
        assert_eq!(*blocks.block(BlockNo(4)).expect("readable"), all[4096..5120]);
    }

    #[test]
    fn extents_lead_to_what_the_journal_has() {
        let blocks = sample();
        let extent = |offset, len, place| Extent { offset, len, place };
        let settled = blocks.settle(&[
            extent(0, 2500, Place::Volume(2048)),
            extent(4096, 10, Place::Zeros),
            extent(8192, 1024, Place::Volume(5120)),
        ]);
        let expected = [
            extent(0, 1024, Place::Volume(2048)),
            extent(1024, 1024, Place::Volume(8192)),
            extent(2048, 452, Place::Encoded),
            extent(4096, 10, Place::Zeros),
            extent(8192, 1024, Place::Volume(5120)),
        ];
        assert_eq!(settled, expected);
    }

    #[test]
    fn blocks_outside_are_refused() {
        let blocks = sample();
        assert_eq!(blocks.end(), 10);
        for no in [0, 10, u64::MAX] {
            assert!(blocks.block(BlockNo(no)).is_err());
        }
        let why = blocks.check(BlockNo(9), 2, &|| "this".into()).expect_err("outside").to_string();
        assert!(why.contains("this is said to be in 2 blocks from 9 on"), "{why}");
    }
}
