//! The index of an archive, and its footer.

use super::sum::PlaceSum;
use crate::archives::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{Malformed, Out, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;
/// Bytes of a page in the index.
pub const INDEX_PAGE_BYTES: usize = 12;
/// Bytes of a block in the index.
pub const INDEX_BLOCK_BYTES: usize = 4;
/// Linux counts a file's bytes in 63 bits.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
const FOOTER_MAGIC: [u8; 8] = *b"SAPMZEND";

/// Where pages and blocks are: they follow each other behind the head, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Of each page: its bytes with its head, and its bytes of the original file.
    pub pages: Vec<(u32, u64)>,
    /// Of each block: its bytes with its head.
    pub blocks: Vec<u32>,
}

impl Index {
    /// The index as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        for (bytes, original) in &self.pages {
            out.u32(*bytes);
            out.u64(*original);
        }
        self.blocks.iter().for_each(|bytes| out.u32(*bytes));
        out.0
    }

    /// Reads an index.
    pub fn decode(footer: &Footer, bytes: &[u8]) -> Result<Index> {
        let got = xxh3_64(bytes);
        if got != footer.index_checksum {
            let expected = footer.index_checksum;
            return Err(Malformed::new(format!(
                "the checksum of the index is {got:016x}, expected {expected:016x}"
            )));
        }
        let pages_end = footer.pages as usize * INDEX_PAGE_BYTES;
        let Some((pages, blocks)) = bytes.split_at_checked(pages_end) else {
            return Err(Malformed::new(format!("an index of {} bytes", bytes.len())));
        };
        let pages = pages.chunks_exact(INDEX_PAGE_BYTES).map(|p| (u32_at(p, 0), u64_at(p, 4))).collect();
        let blocks = blocks.chunks_exact(INDEX_BLOCK_BYTES).map(|b| u32_at(b, 0)).collect();
        Ok(Index { pages, blocks })
    }
}

/// The end of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of the original file.
    pub original_bytes: u64,
    /// Bytes of the content of all blocks.
    pub stored_bytes: u64,
    /// Recipe pages.
    pub pages: u32,
    /// Blocks.
    pub blocks: u64,
    /// XXH3-64 of the index.
    pub index_checksum: u64,
    /// Of the original file, if the head says that it is here; else nothing.
    pub sum: PlaceSum,
}

impl Footer {
    /// The footer as bytes.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Out::default();
        out.bytes(&FOOTER_MAGIC);
        out.u64(self.original_bytes);
        out.u64(self.stored_bytes);
        out.u32(self.pages);
        out.u32(0);
        out.u64(self.blocks);
        out.u64(self.index_checksum);
        out.u64(self.sum.value());
        sealed(out)
    }

    /// Reads a footer.
    pub fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Footer> {
        if !bytes.starts_with(&FOOTER_MAGIC) {
            return Err(Malformed::new(
                "the archive does not end with a footer: it is cut off, or something follows it",
            ));
        }
        check_seal(bytes)?;
        if u32_at(bytes, 28) != 0 {
            return Err(Malformed::new("unknown fields of the footer"));
        }
        let original_bytes = u64_at(bytes, 8);
        if original_bytes > FILE_BYTES_MAX {
            return Err(Malformed::new(format!("{original_bytes} bytes, more than a file can have")));
        }
        Ok(Footer {
            original_bytes,
            stored_bytes: u64_at(bytes, 16),
            pages: u32_at(bytes, 24),
            blocks: u64_at(bytes, 32),
            index_checksum: u64_at(bytes, 40),
            sum: PlaceSum::from_value(u64_at(bytes, 48)),
        })
    }

    /// Bytes of the index before it; `None` if there cannot be such a one.
    pub fn index_bytes(&self) -> Option<u64> {
        let blocks = self.blocks.checked_mul(INDEX_BLOCK_BYTES as u64)?;
        blocks.checked_add(u64::from(self.pages) * INDEX_PAGE_BYTES as u64)
    }
}
