//! The parts of an mzip archive: head, recipe pages, heads of blocks, index, footer (`docs/format/mzip.md`).

use super::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{In, Malformed, Out, Result};
use xxhash_rust::xxh3::xxh3_64;

/// What an archive begins with.
pub const MAGIC: [u8; 8] = *b"SAPMZIP\0";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Bytes of the head of a recipe page.
pub const PAGE_HEAD_BYTES: usize = 48;
/// Bytes of the head of a block.
pub const BLOCK_HEAD_BYTES: usize = 48;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;
/// Bytes of a page in the index.
pub const INDEX_PAGE_BYTES: usize = 12;
/// Bytes of a block in the index.
pub const INDEX_BLOCK_BYTES: usize = 4;
/// Most extents of a page.
pub const PAGE_EXTENTS_MAX: usize = 32_768;
/// Smallest and largest number of stored bytes in a block.
pub const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Largest number of stored bytes in a block.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;

const PAGE_MAGIC: [u8; 4] = *b"PAGE";
const BLOCK_MAGIC: [u8; 4] = *b"BLCK";
const FOOTER_MAGIC: [u8; 8] = *b"SAPMZEND";
/// Two varints of at most ten bytes.
const EXTENT_BYTES_MAX: usize = 20;
const MIGRATED: u16 = 1;
/// The level of zstd that pages are compressed with.
const PAGE_LEVEL: i32 = 6;

/// What the blocks of an archive are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// A gzip member a block.
    Gzip,
    /// A bzip2 stream a block.
    Bzip2,
    /// A zstd frame a block.
    Zstd,
    /// An xz stream a block.
    Xz,
}

impl Compressor {
    const ALL: [Compressor; 4] = [Self::Gzip, Self::Bzip2, Self::Zstd, Self::Xz];

    fn number(self) -> u8 {
        match self {
            Self::Gzip => 1,
            Self::Bzip2 => 2,
            Self::Zstd => 3,
            Self::Xz => 4,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Compressor> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    fn numbered(number: u8) -> Option<Compressor> {
        Self::ALL.into_iter().find(|c| c.number() == number)
    }
}

/// The head of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What blocks are compressed with.
    pub compressor: Compressor,
    /// With which level, as a note.
    pub level: u8,
    /// Whether chunks were moved: recipe pages follow. Else what is stored is the file.
    pub migrated: bool,
    /// Stored bytes in each block but the last.
    pub block_bytes: u32,
}

impl Head {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&MAGIC);
        out.u32(VERSION);
        out.u8(self.compressor.number());
        out.u8(self.level);
        out.u16(if self.migrated { MIGRATED } else { 0 });
        out.u32(self.block_bytes);
        out.u32(0);
        sealed(out)
    }

    /// Blocks for so many stored bytes.
    pub fn blocks_of(&self, stored_bytes: u64) -> u64 {
        stored_bytes.div_ceil(self.block_bytes.into())
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Malformed::new("this is not an mzip archive: its magic number is missing"));
        }
        let version = u32_at(bytes, 8);
        if version > VERSION {
            return Err(Malformed::newer(format!("mzip version {version}, this program reads {VERSION}")));
        }
        check_seal(bytes)?;
        let (compressor, flags, block_bytes) = (bytes[12], u32_at(bytes, 12) >> 16, u32_at(bytes, 16));
        let known = version != 0 && flags & !u32::from(MIGRATED) == 0 && u32_at(bytes, 20) == 0;
        match Compressor::numbered(compressor) {
            Some(compressor) if known && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) => {
                Ok(Head { compressor, level: bytes[13], migrated: flags != 0, block_bytes })
            }
            _ => Err(Malformed::new(format!(
                "version {version}, compressor {compressor}, flags {flags:#x}, blocks of {block_bytes} bytes"
            ))),
        }
    }
}

/// A part of the original file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Zeros that are not stored.
    Zeros {
        /// How many.
        bytes: u64,
    },
    /// Bytes that are stored.
    Stored {
        /// Where, from the start of the first block's content.
        at: u64,
        /// How many.
        bytes: u64,
    },
}

impl Extent {
    /// Length in the original file.
    pub fn bytes(self) -> u64 {
        match self {
            Extent::Zeros { bytes } | Extent::Stored { bytes, .. } => bytes,
        }
    }
}

/// A page of the restore recipe: the next extents of the original file.
pub struct Page;

impl Page {
    /// A page as bytes, with its head.
    ///
    /// # Panics
    /// If there are more extents than a page has.
    pub fn encode(extents: &[Extent]) -> Vec<u8> {
        assert!(extents.len() <= PAGE_EXTENTS_MAX, "a page of {} extents", extents.len());
        let (mut raw, mut expected, mut original_bytes) = (Out::default(), 0u64, 0);
        for extent in extents {
            original_bytes += extent.bytes();
            match *extent {
                Extent::Zeros { bytes } => raw.varint(bytes << 1 | 1),
                Extent::Stored { at, bytes } => {
                    raw.varint(bytes << 1);
                    raw.signed(at.wrapping_sub(expected) as i64);
                    expected = at + bytes;
                }
            }
        }
        let mut body = Vec::with_capacity(zstd_safe::compress_bound(raw.0.len()));
        // It has room for whatever comes of it.
        zstd_safe::compress(&mut body, &raw.0, PAGE_LEVEL).expect("a buffer of the bound's length");
        let head = PageHead {
            body_bytes: body.len() as u32,
            raw_bytes: raw.0.len() as u32,
            extents: extents.len() as u32,
            original_bytes,
            checksum: xxh3_64(&body),
        };
        [&head.encode()[..], &body].concat()
    }

    /// The extents in a page's body.
    pub fn decode(head: &PageHead, body: &[u8]) -> Result<Vec<Extent>> {
        let got = xxh3_64(body);
        if got != head.checksum {
            let expected = head.checksum;
            return Err(Malformed::new(format!(
                "the checksum of a recipe page is {got:016x}, expected {expected:016x}"
            )));
        }
        let mut raw = Vec::with_capacity(head.raw_bytes as usize);
        let done = zstd_safe::decompress(&mut raw, body);
        if done.is_err() || raw.len() != head.raw_bytes as usize {
            return Err(Malformed::new("a recipe page cannot be decompressed"));
        }
        let (mut fields, mut expected, mut sum) = (In::new(&raw), 0u64, 0u64);
        let mut extents = Vec::with_capacity(head.extents as usize);
        for _ in 0..head.extents {
            let length = fields.varint()?;
            let bytes = length >> 1;
            sum = sum.checked_add(bytes).ok_or_else(|| Malformed::new("a recipe page of too many bytes"))?;
            if length & 1 == 1 {
                extents.push(Extent::Zeros { bytes });
                continue;
            }
            let at = expected.wrapping_add(fields.signed()? as u64);
            let end = at.checked_add(bytes);
            expected = end.ok_or_else(|| Malformed::new(format!("{bytes} stored bytes at {at}")))?;
            extents.push(Extent::Stored { at, bytes });
        }
        fields.end()?;
        if sum != head.original_bytes {
            let why = format!("a recipe page gives {sum} bytes, {} expected", head.original_bytes);
            return Err(Malformed::new(why));
        }
        Ok(extents)
    }
}

/// The head of a recipe page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHead {
    /// Bytes that follow.
    pub body_bytes: u32,
    /// Bytes once they are decompressed.
    pub raw_bytes: u32,
    /// Extents.
    pub extents: u32,
    /// Bytes of the original file.
    pub original_bytes: u64,
    /// XXH3-64 of the body.
    pub checksum: u64,
}

impl PageHead {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; PAGE_HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&PAGE_MAGIC);
        out.u32(self.body_bytes);
        out.u32(self.raw_bytes);
        out.u32(self.extents);
        out.u64(self.original_bytes);
        out.u64(self.checksum);
        out.u64(0);
        sealed(out)
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; PAGE_HEAD_BYTES]) -> Result<PageHead> {
        if !bytes.starts_with(&PAGE_MAGIC) {
            return Err(Malformed::new("the magic number of a recipe page is missing"));
        }
        check_seal(bytes)?;
        let head = PageHead {
            body_bytes: u32_at(bytes, 4),
            raw_bytes: u32_at(bytes, 8),
            extents: u32_at(bytes, 12),
            original_bytes: u64_at(bytes, 16),
            checksum: u64_at(bytes, 24),
        };
        let raw_max = PAGE_EXTENTS_MAX * EXTENT_BYTES_MAX;
        let fits = head.extents as usize <= PAGE_EXTENTS_MAX && head.raw_bytes as usize <= raw_max;
        if !fits || head.body_bytes as usize > zstd_safe::compress_bound(raw_max) || u64_at(bytes, 32) != 0 {
            return Err(Malformed::new(format!(
                "a recipe page of {} extents in {} bytes, {} compressed",
                head.extents, head.raw_bytes, head.body_bytes
            )));
        }
        Ok(head)
    }
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Its number, from 0.
    pub number: u64,
    /// Whether it is kept as it is, because compressed it would be longer.
    pub raw: bool,
    /// Bytes of its content.
    pub content_bytes: u32,
    /// Bytes that follow.
    pub body_bytes: u32,
    /// XXH3-64 of the bytes that follow.
    pub body_checksum: u64,
    /// XXH3-64 of the content.
    pub content_checksum: u64,
}

impl BlockHead {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&BLOCK_MAGIC);
        out.u32(u32::from(self.raw));
        out.u64(self.number);
        out.u32(self.content_bytes);
        out.u32(self.body_bytes);
        out.u64(self.body_checksum);
        out.u64(self.content_checksum);
        sealed(out)
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Result<BlockHead> {
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Err(Malformed::new("the magic number of a block is missing"));
        }
        check_seal(bytes)?;
        let flags = u32_at(bytes, 4);
        let head = BlockHead {
            number: u64_at(bytes, 8),
            raw: flags == 1,
            content_bytes: u32_at(bytes, 16),
            body_bytes: u32_at(bytes, 20),
            body_checksum: u64_at(bytes, 24),
            content_checksum: u64_at(bytes, 32),
        };
        let fits =
            (1..=BLOCK_BYTES_MAX).contains(&head.content_bytes) && head.body_bytes <= head.content_bytes;
        if flags > 1 || !fits || head.raw && head.body_bytes != head.content_bytes {
            return Err(Malformed::new(format!(
                "flags {flags:#x}, {} bytes of content in {} bytes",
                head.content_bytes, head.body_bytes
            )));
        }
        Ok(head)
    }
}

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
        out.u64(0);
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
        if u32_at(bytes, 28) != 0 || u64_at(bytes, 48) != 0 {
            return Err(Malformed::new("unknown fields of the footer"));
        }
        Ok(Footer {
            original_bytes: u64_at(bytes, 8),
            stored_bytes: u64_at(bytes, 16),
            pages: u32_at(bytes, 24),
            blocks: u64_at(bytes, 32),
            index_checksum: u64_at(bytes, 40),
        })
    }

    /// Bytes of the index before it; `None` if there cannot be such a one.
    pub fn index_bytes(&self) -> Option<u64> {
        let blocks = self.blocks.checked_mul(INDEX_BLOCK_BYTES as u64)?;
        blocks.checked_add(u64::from(self.pages) * INDEX_PAGE_BYTES as u64)
    }
}
