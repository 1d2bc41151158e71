//! Where everything in a pool lies.

use std::fmt;

use crate::bytes::{Malformed, Result};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Slots of a page of a fingerprint store.
pub const FINGERPRINT_SLOTS: u32 = 113;
/// Slots of a map node.
pub const MAP_SLOTS: usize = 512;
/// Slots of a page of the summary.
const SUMMARY_SLOTS: u32 = 508;
/// Slots of a page of the catalog.
const CATALOG_SLOTS: u32 = 7;
/// Bits of a block number in a map.
const BLOCK_BITS: u32 = 36;
/// The most bytes of a part of a filter checkpoint.
pub const FILTER_PART_BYTES: usize = 1 << 20;
/// Superblocks in front.
const JOURNAL_START: u64 = 2;
/// Bytes of an entry of a filter checkpoint.
const FILTER_ENTRY_BYTES: u64 = 13;

/// A block of a pool, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolBlock(pub u64);

impl PoolBlock {
    /// Offset of its first byte.
    pub fn offset(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }
}

impl fmt::Display for PoolBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for PoolBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A block group of a pool, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockGroupNo(pub u32);

/// A slot of the catalog, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogIndex(pub u32);

impl fmt::Display for CatalogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Number of a batch of the journal. They count up by one, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchNo(pub u64);

impl BatchNo {
    /// Of a page that no batch has changed.
    pub const NONE: BatchNo = BatchNo(0);
    /// That of the first batch of a pool.
    pub const FIRST: BatchNo = BatchNo(1);

    /// The one after it.
    pub fn next(self) -> BatchNo {
        BatchNo(self.0 + 1)
    }

    /// The one before it.
    pub fn before(self) -> BatchNo {
        BatchNo(self.0 - 1)
    }
}

impl fmt::Display for BatchNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A slot of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The page.
    pub page: PoolBlock,
    /// Where the slot begins in it, in bytes.
    pub offset: usize,
}

/// The sizes that were chosen when a pool was made; all places follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the pool.
    pub blocks: u64,
    /// Blocks of a group.
    pub group_blocks: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// Pages of the catalog, and of its second copy.
    pub catalog_blocks: u32,
    /// Pages of the summary.
    pub summary_blocks: u32,
    /// Blocks of one checkpoint of the filter.
    pub filter_blocks: u32,
    /// Groups.
    pub groups: u32,
}

impl Geometry {
    /// The fewest blocks that [`plan`](Self::plan) makes a pool of: 146 MiB.
    pub const LEAST_BLOCKS: u64 = 146 << 8;

    /// The usual sizes for so many blocks; an error where not even one group fits.
    pub fn plan(blocks: u64) -> Result<Self> {
        if blocks < Self::LEAST_BLOCKS {
            let (has, least) = (blocks >> 8, Self::LEAST_BLOCKS >> 8);
            return Err(Malformed::new(format!(
                "{has} MiB are too few for a pool, which takes {least} MiB or more"
            )));
        }
        let journal = (blocks / 256).clamp(4 << 10, 64 << 10) as u32;
        Self::plan_with(blocks, 32_768, journal)
    }

    /// Sizes with groups and a journal of so many blocks.
    pub fn plan_with(blocks: u64, group_blocks: u32, journal_blocks: u32) -> Result<Self> {
        if blocks >= 1 << BLOCK_BITS {
            return Err(Malformed::new(format!("{blocks} blocks are too many for a pool")));
        }
        let catalog_blocks = (blocks / 4096).clamp(64, 8192) as u32;
        // What stands in front depends on the number of groups, and that on what stands in front.
        let mut groups = u32::try_from(blocks / u64::from(group_blocks.max(1))).unwrap_or(u32::MAX);
        loop {
            let entries = u64::from(groups) * u64::from(group_blocks);
            let filter_bytes = entries * FILTER_ENTRY_BYTES;
            let filter_blocks = 1
                + filter_bytes.div_ceil(BLOCK_BYTES as u64)
                + filter_bytes.div_ceil(FILTER_PART_BYTES as u64 / 2);
            let geometry = Geometry {
                blocks,
                group_blocks,
                journal_blocks,
                catalog_blocks,
                summary_blocks: groups.div_ceil(SUMMARY_SLOTS).max(1),
                filter_blocks: u32::try_from(filter_blocks).unwrap_or(u32::MAX),
                groups,
            };
            let end = geometry.groups_start().0 + u64::from(groups) * u64::from(group_blocks);
            if groups > 0 && end <= blocks {
                geometry.check()?;
                return Ok(geometry);
            }
            match groups.checked_sub((end - blocks).div_ceil(u64::from(group_blocks)) as u32) {
                Some(fewer) if fewer > 0 => groups = fewer,
                _ => return Err(Malformed::new(format!("{blocks} blocks are too few for a pool"))),
            }
        }
    }

    /// Whether the parts fit each other.
    pub(super) fn check(&self) -> Result<()> {
        // Groups of any other size are refused first: with these, no place below can overflow.
        let fits = (128..=32_768).contains(&self.group_blocks)
            && self.blocks < 1 << BLOCK_BITS
            && self.journal_blocks >= 64
            && self.catalog_blocks >= 1
            && self.groups >= 1
            && u64::from(self.summary_blocks) * u64::from(SUMMARY_SLOTS) >= u64::from(self.groups)
            && self.filter_blocks >= 1
            && self.groups_start().0 + u64::from(self.groups) * u64::from(self.group_blocks) <= self.blocks;
        if fits {
            Ok(())
        } else {
            Err(Malformed::new(format!("sizes that do not fit each other: {self:?}")))
        }
    }

    /// The first block of the journal.
    pub fn journal_start(&self) -> PoolBlock {
        PoolBlock(JOURNAL_START)
    }

    /// The first page of the catalog.
    pub fn catalog_start(&self) -> PoolBlock {
        PoolBlock(JOURNAL_START + u64::from(self.journal_blocks))
    }

    /// Where the second copy of a page of the catalog is; `None` for other blocks.
    pub fn catalog_twin(&self, page: PoolBlock) -> Option<PoolBlock> {
        let index = page.0.checked_sub(self.catalog_start().0)?;
        (index < u64::from(self.catalog_blocks)).then_some(PoolBlock(page.0 + u64::from(self.catalog_blocks)))
    }

    /// The first page of the summary.
    pub fn summary_start(&self) -> PoolBlock {
        PoolBlock(self.catalog_start().0 + 2 * u64::from(self.catalog_blocks))
    }

    /// The first block of a checkpoint of the filter.
    pub fn filter_start(&self, which: u8) -> PoolBlock {
        PoolBlock(
            self.summary_start().0
                + u64::from(self.summary_blocks)
                + u64::from(which) * u64::from(self.filter_blocks),
        )
    }

    /// The first block of the first group.
    pub fn groups_start(&self) -> PoolBlock {
        self.filter_start(2)
    }

    /// Pages of a group's fingerprint store.
    pub fn fingerprint_pages(&self) -> u32 {
        self.group_blocks.div_ceil(FINGERPRINT_SLOTS + 1)
    }

    /// Data blocks of a group.
    pub fn data_blocks(&self) -> u32 {
        self.group_blocks - self.fingerprint_pages()
    }

    /// The first page of a group's fingerprint store.
    pub fn fingerprints_start(&self, group: BlockGroupNo) -> PoolBlock {
        PoolBlock(self.groups_start().0 + u64::from(group.0) * u64::from(self.group_blocks))
    }

    /// The `index`-th data block of a group.
    pub fn data_block(&self, group: BlockGroupNo, index: u32) -> PoolBlock {
        PoolBlock(self.fingerprints_start(group).0 + u64::from(self.fingerprint_pages() + index))
    }

    /// The group of a data block, and which of its data blocks it is; `None` for a block that is none.
    pub fn locate(&self, block: PoolBlock) -> Option<(BlockGroupNo, u32)> {
        let from_start = block.0.checked_sub(self.groups_start().0)?;
        let group =
            u32::try_from(from_start / u64::from(self.group_blocks)).ok().filter(|g| *g < self.groups)?;
        let index = (from_start % u64::from(self.group_blocks)) as u32;
        Some((BlockGroupNo(group), index.checked_sub(self.fingerprint_pages())?))
    }

    /// The slot of a data block in its group's fingerprint store; `None` for a block that is none.
    pub fn fingerprint_slot(&self, block: PoolBlock) -> Option<Slot> {
        let (group, index) = self.locate(block)?;
        Some(Slot {
            page: PoolBlock(self.fingerprints_start(group).0 + u64::from(index / FINGERPRINT_SLOTS)),
            offset: 28 + (index % FINGERPRINT_SLOTS) as usize * 36,
        })
    }

    /// A group's slot in the summary.
    pub fn summary_slot(&self, group: BlockGroupNo) -> Slot {
        Slot {
            page: PoolBlock(self.summary_start().0 + u64::from(group.0 / SUMMARY_SLOTS)),
            offset: 32 + (group.0 % SUMMARY_SLOTS) as usize * 8,
        }
    }

    /// How many slots the catalog has.
    pub fn catalog_slots(&self) -> u32 {
        self.catalog_blocks * CATALOG_SLOTS
    }

    /// A slot of the catalog.
    pub fn catalog_slot(&self, index: CatalogIndex) -> Slot {
        Slot {
            page: PoolBlock(self.catalog_start().0 + u64::from(index.0 / CATALOG_SLOTS)),
            offset: 512 + (index.0 % CATALOG_SLOTS) as usize * 512,
        }
    }

    /// A slot of a map node.
    pub fn map_slot(page: PoolBlock, index: usize) -> Slot {
        Slot { page, offset: 512 + index * 7 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_usual_group() {
        let geometry = Geometry::plan(1 << 28).unwrap();
        assert_eq!(geometry.fingerprint_pages(), 288);
        assert_eq!(geometry.data_blocks(), 32_480);
        assert!(geometry.data_blocks() <= geometry.fingerprint_pages() * FINGERPRINT_SLOTS);
        // What a TiB gives up: about 1.6 % for fingerprint stores, checkpoints and journal.
        let data = u64::from(geometry.groups) * u64::from(geometry.data_blocks());
        assert!(data as f64 > 0.98 * (1u64 << 28) as f64, "{data}");
    }

    #[test]
    fn sizes_whose_sum_is_too_large_for_a_number_are_refused() {
        let good = Geometry::plan(1 << 20).unwrap();
        assert_eq!(good.check(), Ok(()));
        let most = u32::MAX;
        for bad in [
            Geometry { group_blocks: most, groups: most, summary_blocks: most, filter_blocks: most, ..good },
            Geometry { groups: most, summary_blocks: most, journal_blocks: most, ..good },
            Geometry { blocks: u64::MAX, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        for blocks in [0, Geometry::LEAST_BLOCKS - 1, 1 << BLOCK_BITS, u64::MAX] {
            assert!(Geometry::plan(blocks).is_err(), "{blocks}");
        }
        assert_eq!(Geometry::plan(Geometry::LEAST_BLOCKS).unwrap().groups, 1);
    }

    proptest! {
        #[test]
        fn every_data_block_has_a_slot_of_its_own(blocks in 2_000u64..40_000, group in 128u32..1_000) {
            let Ok(geometry) = Geometry::plan_with(blocks, group, 64) else { return Ok(()) };
            let mut seen = std::collections::BTreeSet::new();
            for g in 0..geometry.groups {
                for i in 0..geometry.data_blocks() {
                    let block = geometry.data_block(BlockGroupNo(g), i);
                    prop_assert_eq!(geometry.locate(block), Some((BlockGroupNo(g), i)));
                    let slot = geometry.fingerprint_slot(block).unwrap();
                    prop_assert!(slot.offset + 36 <= BLOCK_BYTES);
                    prop_assert!(geometry.locate(slot.page).is_none());
                    prop_assert!(seen.insert((slot.page, slot.offset)));
                }
            }
            prop_assert!(geometry.data_block(BlockGroupNo(geometry.groups - 1), geometry.data_blocks() - 1).0 < blocks);
        }
    }
}
