//! The envelope of every piece of metadata: what it is, how long, and a checksum bound to its place.
//!
//! The checksum covers the vault's id and the object's name, so that a whole and valid frame in the wrong
//! place (a file put where another was) is found like a flipped bit.

use crate::bytes::{In, Malformed, Out, Result};
use crate::ids::VaultId;
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

/// Bytes before a frame's body.
pub const FRAME_HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"SAPW";
const VERSION: u8 = 1;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// No frame's body is longer, before or after compression.
const MAX_BODY: usize = 1 << 30;
const ZSTD_LEVEL: i32 = 3;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Manifest = 1,
    ContainerPage = 2,
    RecipeRoot = 3,
    RecipePage = 4,
    Summary = 5,
    Table = 6,
    Directory = 7,
    Dead = 8,
    Session = 9,
    Reader = 10,
    Claim = 11,
    Retiring = 12,
    Name = 13,
    Prefixes = 14,
    Segments = 15,
    Popular = 16,
    Bloom = 17,
}

impl Kind {
    /// The longest body that reading one accepts: a few bytes may announce it, and it is taken in memory whole.
    fn longest(self) -> usize {
        match self {
            Kind::Session | Kind::Reader | Kind::Claim | Kind::Retiring | Kind::Name => 64 << 10,
            Kind::ContainerPage | Kind::Dead => 64 << 20,
            Kind::RecipeRoot | Kind::RecipePage | Kind::Summary => 512 << 20,
            Kind::Manifest
            | Kind::Table
            | Kind::Directory
            | Kind::Prefixes
            | Kind::Segments
            | Kind::Popular
            | Kind::Bloom => MAX_BODY,
        }
    }
}

/// The place a frame belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The vault.
    pub vault: VaultId,
    /// The object's name, with `#offset` behind it for a frame that does not stand at an object's start.
    pub place: &'a str,
}

/// Wraps a body. Bodies that shrink are compressed (except tables: fingerprints do not).
pub fn encode_frame(kind: Kind, context: Context<'_>, body: &[u8]) -> Vec<u8> {
    assert!(body.len() <= kind.longest(), "{kind:?}: a body of {} bytes", body.len());
    let mut packed = Vec::new();
    let is_dense =
        matches!(kind, Kind::Table | Kind::Prefixes | Kind::Segments | Kind::Popular | Kind::Bloom);
    if !is_dense && body.len() > 64 {
        packed.resize(zstd_safe::compress_bound(body.len()), 0);
        let n = zstd_safe::compress(&mut packed[..], body, ZSTD_LEVEL).unwrap_or(usize::MAX);
        packed.truncate(if n < body.len() { n } else { 0 });
    }
    let (codec, stored) = if packed.is_empty() { (RAW, body) } else { (ZSTD, &packed[..]) };
    let mut out = Out(Vec::with_capacity(FRAME_HEADER_BYTES + stored.len()));
    out.bytes(&MAGIC);
    out.u8(kind as u8);
    out.u8(VERSION);
    out.u8(codec);
    out.u8(0);
    out.u32(stored.len() as u32);
    out.u32(body.len() as u32);
    let sum = checksum(context, &out.0, stored);
    out.bytes(&sum);
    out.bytes(stored);
    out.0
}

/// Length of the frame that starts with these bytes, header included.
pub fn frame_len(header: &[u8]) -> Result<usize> {
    let mut i = In::new(header);
    i.bytes(8)?;
    let stored = i.u32()? as usize;
    if stored > MAX_BODY {
        return Err(Malformed::new(format!("a length of {stored} bytes is not plausible")));
    }
    Ok(FRAME_HEADER_BYTES + stored)
}

/// Unwraps a frame, which must fill `bytes` exactly.
pub fn decode_frame(kind: Kind, context: Context<'_>, bytes: &[u8]) -> Result<Vec<u8>> {
    let (stored, codec, raw_len) = check_frame(kind, context, bytes)?;
    match codec {
        RAW => Ok(stored.to_vec()),
        _ => {
            let mut body = vec![0; raw_len];
            match zstd_safe::decompress(&mut body[..], stored) {
                Ok(n) if n == raw_len => Ok(body),
                _ => Err(Malformed::new("does not decompress to its length")),
            }
        }
    }
}

/// Checks a frame whose body stands in it as it is. Returns where.
pub fn plain_frame(kind: Kind, context: Context<'_>, bytes: &[u8]) -> Result<Range<usize>> {
    match check_frame(kind, context, bytes)? {
        (_, RAW, _) => Ok(FRAME_HEADER_BYTES..bytes.len()),
        _ => Err(Malformed::new("is compressed, which frames of its kind are not")),
    }
}

/// Checks a frame. Returns the body as stored, its codec, and its length.
fn check_frame<'a>(kind: Kind, context: Context<'_>, bytes: &'a [u8]) -> Result<(&'a [u8], u8, usize)> {
    let mut i = In::new(bytes);
    let head = i.bytes(16).map_err(|_| Malformed::new(format!("only {} bytes long", bytes.len())))?;
    if head[..4] != MAGIC {
        return Err(Malformed::new("does not start with Sapwood's magic number"));
    }
    let sum: [u8; 16] = i.array()?;
    let len = frame_len(bytes)?;
    if len != bytes.len() {
        return Err(Malformed::new(format!("{} bytes long, {len} expected", bytes.len())));
    }
    let stored = i.bytes(len - FRAME_HEADER_BYTES)?;
    if checksum(context, head, stored) != sum {
        return Err(Malformed::new("checksum does not match its bytes and its place"));
    }
    // Behind the checksum, which stays where it is: a flipped bit is damage, not a newer version.
    if head[5] > VERSION {
        return Err(Malformed::newer(format!(
            "written in version {} of the format, this program knows up to {VERSION}",
            head[5]
        )));
    }
    if head[4] != kind as u8 {
        return Err(Malformed::new(format!("is of kind {}, {kind:?} expected", head[4])));
    }
    let raw_len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
    match head[6] {
        RAW if raw_len == stored.len() => Ok((stored, RAW, raw_len)),
        ZSTD if raw_len <= kind.longest() => Ok((stored, ZSTD, raw_len)),
        c => Err(Malformed::new(format!("codec {c}, {raw_len} bytes: not valid"))),
    }
}

fn checksum(context: Context<'_>, head: &[u8], stored: &[u8]) -> [u8; 16] {
    let mut h = Xxh3::new();
    h.update(&context.vault.0);
    h.update(&(context.place.len() as u32).to_le_bytes());
    h.update(context.place.as_bytes());
    h.update(head);
    h.update(stored);
    h.digest128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "disks/x/manifest" };

    proptest! {
        #[test]
        fn bodies_come_back(body in proptest::collection::vec(0u8..4, 0..300)) {
            let f = encode_frame(Kind::Manifest, HERE, &body);
            prop_assert_eq!(frame_len(&f).unwrap(), f.len());
            prop_assert_eq!(decode_frame(Kind::Manifest, HERE, &f).unwrap(), body);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let f = encode_frame(Kind::Dead, HERE, &[9; 100]);
        for bit in 0..f.len() * 8 {
            let mut g = f.clone();
            g[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(Kind::Dead, HERE, &g).is_err(), "bit {bit}");
        }
        for len in 0..f.len() {
            assert!(decode_frame(Kind::Dead, HERE, &f[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn a_frame_in_another_place_is_found() {
        let f = encode_frame(Kind::Dead, HERE, b"body");
        let there = Context { place: "disks/y/manifest", ..HERE };
        assert!(decode_frame(Kind::Dead, there, &f).is_err());
        assert!(decode_frame(Kind::Manifest, HERE, &f).is_err());
    }
}
