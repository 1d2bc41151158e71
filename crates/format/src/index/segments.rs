//! Segments: the part of the shared segment index for one writer (RevDedup 3.1.1).

use crate::bytes::{In, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ChunkNo, ContainerId};

/// Bytes of one entry: fingerprint, container, first chunk.
const ENTRY_BYTES: usize = 44;

/// A segment in a shared container: its chunks stand one behind the other, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentPlace {
    /// The container that has all of its chunks.
    pub container: ContainerId,
    /// Number of its first chunk.
    pub first: ChunkNo,
    /// The segment's fingerprint.
    pub fingerprint: [u8; 32],
}

/// The segments that a writer put into shared containers. A hint, never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(pub Vec<SegmentPlace>);

impl Segments {
    /// Segments of one writer at most: what a frame has room for. Others cannot be found.
    pub const MAX: usize = Kind::Segments.body_max() / ENTRY_BYTES;

    /// As a frame: the first [`Self::MAX`].
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let kept = &self.0[..self.0.len().min(Self::MAX)];
        let mut o = Out(Vec::with_capacity(kept.len() * ENTRY_BYTES));
        for s in kept {
            o.bytes(&s.fingerprint);
            o.u64(s.container.raw());
            o.u32(s.first.0);
        }
        encode_frame(Kind::Segments, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body that is no whole number of entries, a container's id that none has, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Segments, context, bytes)?;
        let mut i = In::new(&body);
        let mut all = Vec::with_capacity(body.len() / ENTRY_BYTES);
        while i.remaining() > 0 {
            let fingerprint = i.array()?;
            let container = ContainerId::from_raw(i.u64()?)?;
            all.push(SegmentPlace { container, first: ChunkNo(i.u32()?), fingerprint });
        }
        Ok(Segments(all))
    }
}
