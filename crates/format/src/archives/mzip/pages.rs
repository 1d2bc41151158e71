//! The restore recipe: pages of extents of the original file.

use crate::archives::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{In, Malformed, Out, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the head of a recipe page.
pub const PAGE_HEAD_BYTES: usize = 48;
/// Most extents of a page.
pub const PAGE_EXTENTS_MAX: usize = 32_768;
/// Most extents of a page of an archive with deltas: what they take is the same.
pub const DELTA_PAGE_EXTENTS_MAX: usize = 13_107;
/// Longest chunk that is a delta, and longest one that it is a delta to.
pub const DELTA_BYTES_MAX: u64 = 1 << 20;
const PAGE_MAGIC: [u8; 4] = *b"PAGE";
/// Two varints of at most ten bytes.
const EXTENT_BYTES_MAX: usize = 20;
/// Kinds of extents where there are deltas.
const STORED: u64 = 0;
const ZEROS: u64 = 1;
const DELTA: u64 = 2;
/// The level of zstd that pages are compressed with.
const PAGE_LEVEL: i32 = 6;

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
            if bytes == 0 {
                return Err(Malformed::new("an extent of no bytes"));
            }
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
            let is_delta = others.is_some();
            if is_delta && lengths.iter().any(|bytes| !(1..=DELTA_BYTES_MAX).contains(bytes)) {
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
