//! The parts of an mzip archive: head, recipe pages, heads of blocks, index, footer (`docs/format/mzip.md`).

mod far;

pub use far::{FarBody, FarMatch, FarMatches, MATCH_BYTES_MIN};

use super::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{In, Malformed, Out, Result};
use xxhash_rust::xxh3::xxh3_64;

/// What an archive begins with.
pub const MAGIC: [u8; 8] = *b"SAPMZIP\0";
/// The version of an archive with neither deltas nor far matches.
pub const VERSION: u32 = 1;
/// The version of an archive with deltas.
pub const VERSION_DELTAS: u32 = 2;
/// The version of an archive with far matches, and the last one that this program reads.
pub const VERSION_FAR: u32 = 3;
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
/// Most extents of a page of an archive with deltas: what they take is the same.
pub const DELTA_PAGE_EXTENTS_MAX: usize = 13_107;
/// Longest chunk that is a delta, and longest one that it is a delta to.
pub const DELTA_BYTES_MAX: u64 = 1 << 20;
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
const DELTAS: u16 = 2;
const FAR: u16 = 4;
/// Kinds of extents where there are deltas.
const STORED: u64 = 0;
const ZEROS: u64 = 1;
const DELTA: u64 = 2;
/// The level of zstd that pages are compressed with.
const PAGE_LEVEL: i32 = 6;

/// What the blocks of an archive are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Nothing: each block is its content, for another program to compress.
    None,
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
    /// All of them.
    pub const ALL: [Compressor; 5] = [Self::None, Self::Gzip, Self::Bzip2, Self::Zstd, Self::Xz];

    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Bzip2 => 2,
            Self::Zstd => 3,
            Self::Xz => 4,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
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
    /// Whether chunks may be stored as deltas. Only with recipe pages.
    pub deltas: bool,
    /// Whether blocks may have far matches.
    pub far: bool,
    /// Stored bytes in each block but the last.
    pub block_bytes: u32,
}

impl Head {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&MAGIC);
        out.u32(match self {
            Head { far: true, .. } => VERSION_FAR,
            Head { deltas: true, .. } => VERSION_DELTAS,
            _ => VERSION,
        });
        out.u8(self.compressor.number());
        out.u8(self.level);
        let flags = [(self.migrated, MIGRATED), (self.deltas, DELTAS), (self.far, FAR)];
        out.u16(flags.into_iter().map(|(is_set, flag)| u16::from(is_set) * flag).sum());
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
        if version > VERSION_FAR {
            let why = format!("mzip version {version}, this program reads {VERSION_FAR}");
            return Err(Malformed::newer(why));
        }
        check_seal(bytes)?;
        let (compressor, block_bytes) = (bytes[12], u32_at(bytes, 16));
        let flags = (u32_at(bytes, 12) >> 16) as u16;
        let known = match version {
            VERSION => flags & !MIGRATED == 0,
            VERSION_DELTAS => flags == MIGRATED | DELTAS,
            VERSION_FAR => matches!(flags ^ FAR, 0 | MIGRATED) || flags ^ FAR == MIGRATED | DELTAS,
            _ => false,
        };
        let known = known && u32_at(bytes, 20) == 0;
        match Compressor::numbered(compressor) {
            Some(compressor) if known && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) => {
                let has = |flag| flags & flag != 0;
                let (migrated, deltas, far) = (has(MIGRATED), has(DELTAS), has(FAR));
                Ok(Head { compressor, level: bytes[13], migrated, deltas, far, block_bytes })
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
    /// Bytes that are stored as a delta to others.
    Delta {
        /// Where the delta is, from the start of the first block's content.
        at: u64,
        /// Its length.
        delta_bytes: u64,
        /// Where the others are.
        base_at: u64,
        /// How many.
        base_bytes: u64,
        /// Length in the original file.
        bytes: u64,
    },
}

impl Extent {
    /// Length in the original file.
    pub fn bytes(self) -> u64 {
        match self {
            Extent::Zeros { bytes } | Extent::Stored { bytes, .. } | Extent::Delta { bytes, .. } => bytes,
        }
    }
}

/// Bytes that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where, from the start of the first block's content.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

impl Place {
    /// Where they end, if they do.
    pub fn end(self) -> Option<u64> {
        self.at.checked_add(self.bytes)
    }
}

impl Extent {
    /// What is stored of it, and what else it needs. Zeros need nothing, at 0.
    pub fn places(self) -> (Place, Option<Place>) {
        match self {
            Extent::Zeros { .. } => (Place { at: 0, bytes: 0 }, None),
            Extent::Stored { at, bytes } => (Place { at, bytes }, None),
            Extent::Delta { at, delta_bytes, base_at, base_bytes, .. } => {
                (Place { at, bytes: delta_bytes }, Some(Place { at: base_at, bytes: base_bytes }))
            }
        }
    }
}

/// Bits of the kind of an extent.
fn kind_bits(deltas: bool) -> u32 {
    1 + u32::from(deltas)
}

/// A page of the restore recipe: the next extents of the original file.
pub struct Page;

impl Page {
    /// A page as bytes, with its head.
    ///
    /// # Panics
    /// If there are more extents than a page has, or deltas in an archive that is to have none.
    pub fn encode(extents: &[Extent], deltas: bool) -> Vec<u8> {
        let most = if deltas { DELTA_PAGE_EXTENTS_MAX } else { PAGE_EXTENTS_MAX };
        assert!(extents.len() <= most, "a page of {} extents", extents.len());
        let (mut raw, mut expected, mut original_bytes) = (Out::default(), 0u64, 0);
        let kind_bits = kind_bits(deltas);
        for extent in extents {
            original_bytes += extent.bytes();
            match *extent {
                Extent::Zeros { bytes } => raw.varint(bytes << kind_bits | ZEROS),
                Extent::Stored { at, bytes } => {
                    raw.varint(bytes << kind_bits | STORED);
                    raw.signed(at.wrapping_sub(expected) as i64);
                    expected = at + bytes;
                }
                Extent::Delta { at, delta_bytes, base_at, base_bytes, bytes } => {
                    assert!(deltas, "a delta");
                    raw.varint(bytes << kind_bits | DELTA);
                    raw.signed(at.wrapping_sub(expected) as i64);
                    raw.varint(delta_bytes);
                    raw.signed(base_at.wrapping_sub(at) as i64);
                    raw.varint(base_bytes);
                    expected = at + delta_bytes;
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

    /// The extents in a page's body. An archive with deltas has other extents.
    pub fn decode(head: &PageHead, body: &[u8], deltas: bool) -> Result<Vec<Extent>> {
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
            let bytes = length >> kind_bits(deltas);
            sum = sum.checked_add(bytes).ok_or_else(|| Malformed::new("a recipe page of too many bytes"))?;
            let kind = length & ((1 << kind_bits(deltas)) - 1);
            if kind == ZEROS {
                extents.push(Extent::Zeros { bytes });
                continue;
            }
            let at = expected.wrapping_add(fields.signed()? as u64);
            let extent = match kind {
                STORED => Extent::Stored { at, bytes },
                DELTA => {
                    let delta_bytes = fields.varint()?;
                    let base_at = at.wrapping_add(fields.signed()? as u64);
                    Extent::Delta { at, delta_bytes, base_at, base_bytes: fields.varint()?, bytes }
                }
                _ => return Err(Malformed::new(format!("an extent of kind {kind}"))),
            };
            let (own, others) = extent.places();
            let ends = (own.end(), others.map_or(Some(0), |others| others.end()));
            let (Some(end), Some(_)) = ends else {
                return Err(Malformed::new(format!("{} stored bytes at {at}", own.bytes)));
            };
            let lengths = [bytes, own.bytes, others.map_or(0, |others| others.bytes)];
            if others.is_some() && lengths.iter().any(|bytes| *bytes > DELTA_BYTES_MAX) {
                let [bytes, delta, base] = lengths;
                return Err(Malformed::new(format!("{bytes} bytes, as a delta of {delta} to {base}")));
            }
            expected = end;
            extents.push(extent);
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

/// What the body of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Its content, compressed.
    Packed,
    /// Its content as it is, because compressed it would be longer.
    Raw,
    /// Its far matches, and what is in none of them ([`FarBody`]).
    Far,
}

impl Body {
    const ALL: [Body; 3] = [Body::Packed, Body::Raw, Body::Far];
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Its number, from 0.
    pub number: u64,
    /// What follows.
    pub body: Body,
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
        out.u32(self.body as u32);
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
        let kind = u32_at(bytes, 4);
        let Some(body) = Body::ALL.get(kind as usize) else {
            return Err(Malformed::new(format!("a block of kind {kind}")));
        };
        let head = BlockHead {
            number: u64_at(bytes, 8),
            body: *body,
            content_bytes: u32_at(bytes, 16),
            body_bytes: u32_at(bytes, 20),
            body_checksum: u64_at(bytes, 24),
            content_checksum: u64_at(bytes, 32),
        };
        let fits =
            (1..=BLOCK_BYTES_MAX).contains(&head.content_bytes) && head.body_bytes <= head.content_bytes;
        if !fits || head.body == Body::Raw && head.body_bytes != head.content_bytes {
            return Err(Malformed::new(format!(
                "a block of kind {kind}, {} bytes of content in {} bytes",
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
