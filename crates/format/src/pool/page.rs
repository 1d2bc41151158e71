//! The header of a page.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{BatchNo, PoolBlock, PoolId, BLOCK_BYTES};
use crate::bytes::{Malformed, Result};

/// Bytes of a page's header.
pub const PAGE_HEADER_BYTES: usize = 28;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Of a fingerprint store.
    Fingerprints = 1,
    /// A map node.
    Map = 2,
    /// Of the summary of groups.
    Summary = 3,
    /// Of the catalog.
    Catalog = 4,
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// What the page is.
    pub kind: PageKind,
    /// Level of a map node; 0 for other pages.
    pub level: u8,
    /// The batch of the journal that has the page's last change.
    pub batch: BatchNo,
    /// The page's own number.
    pub block: PoolBlock,
}

impl PageHeader {
    /// Where kind and level stand: a page keeps them from its first change on.
    pub const KIND_AT: usize = 8;

    /// Kind and level as a page has them at [`PageHeader::KIND_AT`].
    pub fn kind_bytes(kind: PageKind, level: u8) -> [u8; 2] {
        [kind as u8, level]
    }

    /// Completes the header of a page that has its kind and its level: batch, block, checksum.
    pub fn seal(pool: PoolId, block: PoolBlock, batch: BatchNo, page: &mut [u8; BLOCK_BYTES]) {
        page[12..20].copy_from_slice(&batch.0.to_le_bytes());
        page[20..28].copy_from_slice(&block.0.to_le_bytes());
        let sum = checksum(pool, page);
        page[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the header of the page that should stand at `block`, and compares its checksum.
    pub fn open(pool: PoolId, block: PoolBlock, page: &[u8; BLOCK_BYTES]) -> Result<Self> {
        if page[..8] != checksum(pool, page).to_le_bytes() {
            return Err(Malformed::new("checksum does not match its bytes"));
        }
        let header = Self::read(page)?;
        if header.block != block {
            return Err(Malformed::new(format!("is a copy of block {}", header.block)));
        }
        Ok(header)
    }

    /// Reads the header of a page whose checksum is not looked at.
    fn read(page: &[u8; BLOCK_BYTES]) -> Result<Self> {
        let kind = match page[8] {
            1 => PageKind::Fingerprints,
            2 => PageKind::Map,
            3 => PageKind::Summary,
            4 => PageKind::Catalog,
            other => return Err(Malformed::new(format!("a page of kind {other}"))),
        };
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&page[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Ok(PageHeader { kind, level: page[9], batch: BatchNo(number(12)), block: PoolBlock(number(20)) })
    }
}

fn checksum(pool: PoolId, page: &[u8; BLOCK_BYTES]) -> u64 {
    xxh3_64_with_seed(&page[8..], pool.seed())
}
