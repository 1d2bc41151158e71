//! The frame around every piece of metadata: kind, version, lengths, and a checksum bound to its place.
//!
//! The checksum covers the vault's id and the object's name, so that a valid frame in the wrong place (a file copied
//! over another) is detected like a flipped bit.

use crate::bytes::{In, Malformed, Result};
use crate::ids::VaultId;
use std::borrow::Cow;
use std::cell::RefCell;
use xxhash_rust::xxh3::Xxh3;
use zstd_safe::DCtx;

/// Bytes before a frame's body.
pub const FRAME_HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"SAPW";
const VERSION: u8 = 1;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
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
    Hooks = 14,
    Popular = 16,
    Bloom = 17,
    Commit = 18,
    Referrer = 19,
    ReferenceBlock = 20,
    ReferenceFooter = 21,
    Verifications = 22,
    SnapshotPage = 23,
}

impl Kind {
    /// The longest body, before and after compression: a few bytes may announce it, and it is taken in memory whole (but
    /// for popular sets, which are mapped).
    pub const fn body_max(self) -> usize {
        match self {
            Kind::Session | Kind::Reader | Kind::Claim | Kind::Retiring | Kind::Name | Kind::Referrer => {
                64 << 10
            }
            Kind::ContainerPage => 16 << 10,
            Kind::ReferenceBlock | Kind::ReferenceFooter => 4 << 20,
            Kind::Dead | Kind::Verifications => 8 << 20,
            Kind::Table | Kind::Directory | Kind::RecipeRoot => 24 << 20,
            Kind::Manifest
            | Kind::Commit
            | Kind::SnapshotPage
            | Kind::RecipePage
            | Kind::Summary
            | Kind::Hooks => 32 << 20,
            Kind::Bloom => (32 << 20) + 10,
            Kind::Popular => 1 << 30,
        }
    }

    /// The longest frame.
    pub const fn frame_max(self) -> u64 {
        (FRAME_HEADER_BYTES + self.body_max()) as u64
    }

    /// Memory that a decoded body may take, in bytes.
    pub(crate) const fn memory_max(self) -> usize {
        match self {
            Kind::ContainerPage => 16 << 10,
            Kind::ReferenceBlock | Kind::ReferenceFooter => 4 << 20,
            Kind::Dead => 8 << 20,
            Kind::Verifications => 32 << 20,
            Kind::Table | Kind::Directory => 24 << 20,
            Kind::RecipeRoot => 20 << 20,
            Kind::Manifest | Kind::Commit | Kind::SnapshotPage | Kind::Summary => 32 << 20,
            // Of their references alone: 2^21 of 24 bytes.
            Kind::RecipePage => 56 << 20,
            Kind::Session => 4 << 10,
            // These are taken as they stand.
            Kind::Reader | Kind::Claim | Kind::Retiring | Kind::Name | Kind::Referrer => 0,
            Kind::Hooks | Kind::Popular | Kind::Bloom => 0,
        }
    }

    /// Whether bodies are never compressed: fingerprints and hashes do not shrink.
    const fn is_dense(self) -> bool {
        matches!(self, Kind::Table | Kind::Hooks | Kind::Popular | Kind::Bloom)
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

/// Wraps a body of at most [`Kind::body_max`] bytes. Bodies that shrink are compressed, but for those of dense kinds.
pub fn encode_frame(kind: Kind, context: Context<'_>, body: &[u8]) -> Vec<u8> {
    assert!(body.len() <= kind.body_max(), "{kind:?}: a body of {} bytes", body.len());
    let mut packed = Vec::new();
    if !kind.is_dense() && body.len() > 64 {
        packed.resize(zstd_safe::compress_bound(body.len()), 0);
        let n = zstd_safe::compress(&mut packed[..], body, ZSTD_LEVEL).unwrap_or(usize::MAX);
        packed.truncate(if n < body.len() { n } else { 0 });
    }
    let (codec, stored) = if packed.is_empty() { (RAW, body) } else { (ZSTD, &packed[..]) };
    let head = head(kind, codec, stored.len(), body.len());
    let sum = checksum(context, &head, stored);
    [&head, &sum, stored].concat()
}

/// The first half of a header.
fn head(kind: Kind, codec: u8, stored_len: usize, body_len: usize) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&[kind as u8, VERSION, codec, 0]);
    head[8..12].copy_from_slice(&(stored_len as u32).to_le_bytes());
    head[12..].copy_from_slice(&(body_len as u32).to_le_bytes());
    head
}

/// The header of a frame of a dense kind whose body need not fit into memory.
pub struct FrameHeader {
    head: [u8; 16],
    sum: Xxh3,
}

impl FrameHeader {
    /// Begins with a body of `body_len` bytes, at most [`Kind::body_max`].
    pub(crate) fn begin(kind: Kind, context: Context<'_>, body_len: usize) -> Self {
        assert!(kind.is_dense() && body_len <= kind.body_max(), "{kind:?}: a body of {body_len} bytes");
        let head = head(kind, RAW, body_len, body_len);
        FrameHeader { head, sum: begin_checksum(context, &head) }
    }

    /// Goes on with what follows in the body.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
    }

    /// The header, once all of the body was fed.
    pub fn finish(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..16].copy_from_slice(&self.head);
        header[16..].copy_from_slice(&self.sum.digest128().to_le_bytes());
        header
    }
}

/// Length of the frame that starts with these bytes, header included.
pub fn frame_len(header: &[u8]) -> Result<usize> {
    let mut i = In::new(header);
    i.bytes(8)?;
    Ok(FRAME_HEADER_BYTES + i.u32()? as usize)
}

/// Length of the body of the frame that starts with these bytes, once it is decompressed.
pub(crate) fn body_len(header: &[u8]) -> Result<usize> {
    let mut i = In::new(header);
    i.bytes(12)?;
    Ok(i.u32()? as usize)
}

/// Unwraps a frame, which must fill `bytes` exactly. A body that is not compressed stays where it is.
pub fn decode_frame<'a>(kind: Kind, context: Context<'_>, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    let (stored, codec, raw_len) = check_frame(kind, context, bytes)?;
    match codec {
        RAW => Ok(Cow::Borrowed(stored)),
        _ => {
            let mut body = vec![0; raw_len];
            match UNPACK.with_borrow_mut(|context| context.decompress(&mut body[..], stored)) {
                Ok(n) if n == raw_len => Ok(Cow::Owned(body)),
                _ => Err(Malformed::new("does not decompress to its length")),
            }
        }
    }
}

thread_local! {
    /// Of 95 KiB. Made for each frame, it costs more than decompressing a small one.
    static UNPACK: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// A frame of a dense kind that is checked piece by piece: it need not fit into memory.
pub(crate) struct FrameCheck {
    kind: Kind,
    head: [u8; 16],
    wanted: [u8; 16],
    sum: Xxh3,
}

impl FrameCheck {
    /// Begins with the header of a frame of `len` bytes.
    pub fn begin(
        kind: Kind,
        context: Context<'_>,
        header: &[u8; FRAME_HEADER_BYTES],
        len: u64,
    ) -> Result<Self> {
        if frame_len(header)? as u64 != len {
            return Err(Malformed::new(format!("{len} bytes long, {} expected", frame_len(header)?)));
        }
        let (mut head, mut wanted) = ([0; 16], [0; 16]);
        head.copy_from_slice(&header[..16]);
        wanted.copy_from_slice(&header[16..]);
        Ok(FrameCheck { kind, head, wanted, sum: begin_checksum(context, &head) })
    }

    /// Goes on with what follows.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
    }

    /// Ends.
    pub fn finish(self) -> Result<()> {
        check_head(self.kind, &self.head, self.sum.digest128().to_le_bytes() == self.wanted).map(drop)
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
    let (codec, raw_len) = check_head(kind, head, checksum(context, head, stored) == sum)?;
    Ok((stored, codec, raw_len))
}

/// Checks the first half of a header. Returns the codec, and the length of the body.
fn check_head(kind: Kind, head: &[u8], is_whole: bool) -> Result<(u8, usize)> {
    if head[..4] != MAGIC {
        return Err(Malformed::new("does not start with Sapwood's magic number"));
    }
    if !is_whole {
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
    let length =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (stored_len, raw_len, most) = (length(8), length(12), kind.body_max());
    if raw_len.max(stored_len) > most {
        let why = format!("a body of {} bytes, at most {most} are plausible", raw_len.max(stored_len));
        return Err(Malformed::new(why));
    }
    match head[6] {
        RAW if raw_len == stored_len => Ok((RAW, raw_len)),
        ZSTD if kind.is_dense() => Err(Malformed::new("is compressed, which frames of its kind are not")),
        ZSTD => Ok((ZSTD, raw_len)),
        c => Err(Malformed::new(format!("codec {c}, {raw_len} bytes: not valid"))),
    }
}

fn checksum(context: Context<'_>, head: &[u8], stored: &[u8]) -> [u8; 16] {
    let mut sum = begin_checksum(context, head);
    sum.update(stored);
    sum.digest128().to_le_bytes()
}

fn begin_checksum(context: Context<'_>, head: &[u8]) -> Xxh3 {
    let mut sum = Xxh3::new();
    sum.update(&context.vault.0);
    sum.update(&(context.place.len() as u32).to_le_bytes());
    sum.update(context.place.as_bytes());
    sum.update(head);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Out;
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

    /// 6 KB of manifest decompressed to a gibibyte: the limit was one for all kinds.
    #[test]
    fn no_frame_decompresses_to_more_than_its_kind_may_have() {
        for kind in [Kind::Session, Kind::ContainerPage, Kind::Dead, Kind::Manifest, Kind::RecipePage] {
            let most = kind.body_max();
            assert_eq!(
                decode_frame(kind, HERE, &encode_frame(kind, HERE, &vec![0; most])).unwrap().len(),
                most
            );
            // As an encoder without limits would write it.
            let mut packed = vec![0; 1 << 20];
            let n = zstd_safe::compress(&mut packed[..], &vec![0; most + 1], 3).unwrap();
            let mut out = Out(Vec::new());
            out.bytes(&MAGIC);
            out.bytes(&[kind as u8, VERSION, ZSTD, 0]);
            out.u32(n as u32);
            out.u32(most as u32 + 1);
            let sum = checksum(HERE, &out.0, &packed[..n]);
            out.bytes(&sum);
            out.bytes(&packed[..n]);
            let why = decode_frame(kind, HERE, &out.0).unwrap_err().why;
            assert!(why.contains("at most"), "{why}");
        }
    }
}
