//! Bytes of a file, or of one of its attributes, that are read piece by piece.

use super::extents::Extent;
use crate::error::Result;
use std::ops::Range;

/// Bytes compared at once.
const STEP_BYTES: usize = 1 << 20;

type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> Result<usize> + 'a;

/// What a file, or an attribute that is too long to be read whole, holds.
pub struct Content<'a> {
    size: u64,
    extents: Vec<Extent>,
    read_at: Box<ReadAt<'a>>,
}

impl<'a> Content<'a> {
    /// Bytes that `read_at` reads at an offset, less than it is asked for only at the end. What is in no extent is zeros.
    pub(crate) fn new(
        size: u64,
        extents: Vec<Extent>,
        read_at: impl Fn(u64, &mut [u8]) -> Result<usize> + 'a,
    ) -> Content<'a> {
        Content { size, extents, read_at: Box::new(read_at) }
    }

    /// Whether it holds other bytes than `other`.
    pub(super) fn differs(&self, other: &Content) -> Result<bool> {
        if self.size != other.size {
            return Ok(true);
        }
        let (mut a, mut b) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
        // What neither has an extent for is zeros in both, however long it is.
        for range in covered(&self.extents, &other.extents, self.size) {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(STEP_BYTES as u64) as usize;
                let got = (self.read_at)(at, &mut a[..len])?;
                if got != (other.read_at)(at, &mut b[..len])? || a[..got] != b[..got] {
                    return Ok(true);
                }
                at += len as u64;
            }
        }
        Ok(false)
    }
}

/// The ranges that are in extents of one of two lists, joined.
fn covered(a: &[Extent], b: &[Extent], size: u64) -> Vec<Range<u64>> {
    let mut all: Vec<_> = a.iter().chain(b).map(|e| e.offset..(e.offset + e.len).min(size)).collect();
    all.retain(|r| !r.is_empty());
    all.sort_unstable_by_key(|r| r.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in all {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
