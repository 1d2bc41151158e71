//! The bytes of a pool: `docs/format/pool.md` lists them all.
//!
//! A pool has no objects and no frames: pages lie at fixed places, and what changes in them is recorded as bytes at an
//! offset. So most of this module are offsets into pages.

mod catalog;
mod entry;
mod file;
mod filter_part;
mod geometry;
mod journal;
mod names_header;
mod page;
mod superblock;
mod volume_block;

pub use catalog::{
    CatalogEntry, CatalogState, Fill, MapRoot, Sharing, VolumeId, CATALOG_NAME_BYTES_MAX,
    FILL_SOURCE_BYTES_MAX,
};
pub use entry::{FingerprintEntry, Home, MapEntry, SummaryEntry, COUNT_MAX};
pub use file::{FileKind, FileRecord, FileTime, LINK_BYTES_MAX};
pub use filter_part::{FilterEntry, FilterHeader, FilterPart};
pub use geometry::{
    BatchNo, BlockGroupNo, CatalogIndex, Geometry, PoolBlock, Slot, BLOCK_BYTES, FILTER_PART_BYTES,
    FINGERPRINT_SLOTS, MAP_SLOTS,
};
pub use journal::{
    BatchHeader, DataSum, JournalReader, JournalRecord, JournalWriter, BATCH_HEADER_BYTES, SET_BYTES_MAX,
};
pub use names_header::NamesHeader;
pub use page::{PageHeader, PageKind, PAGE_HEADER_BYTES};
pub use superblock::{JournalTail, PoolId, Superblock};
pub use volume_block::VolumeBlock;
