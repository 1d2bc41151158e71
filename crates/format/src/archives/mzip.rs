//! The parts of an mzip archive: head, recipe pages, heads of blocks, index, footer (`docs/format/mzip.md`).

mod blocks;
mod far;
mod head;
mod index;
mod pages;
mod sum;

pub use blocks::{BlockHead, Body, BLOCK_HEAD_BYTES};
pub use far::{FarBody, FarMatch, FarMatches, MATCH_BYTES_MIN};
pub use head::{
    Compressor, Head, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, HEAD_BYTES, MAGIC, VERSION, VERSION_DELTAS,
    VERSION_FAR, VERSION_SUMMED,
};
pub use index::{Footer, Index, FOOTER_BYTES, INDEX_BLOCK_BYTES, INDEX_PAGE_BYTES};
pub use pages::{
    Extent, Page, PageHead, Place, DELTA_BYTES_MAX, DELTA_PAGE_EXTENTS_MAX, PAGE_EXTENTS_MAX, PAGE_HEAD_BYTES,
};
pub use sum::PlaceSum;
