//! Segments whose chunks stand one behind the other in one container: `reverse` takes them whole (RevDedup 3.1.1).

use crate::container::tables::ChunkPlace;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, ContainerId, Reference, SegmentRecipe};
use std::collections::HashMap;

/// Segments that a backup remembers of those it has written (48 bytes each; 8 TiB in segments of 8 MiB). Of others it
/// finds no copy in itself.
const KNOWN_MAX: usize = 1 << 20;

/// The segments that this backup has written.
#[derive(Default)]
pub(crate) struct FreshSegments(HashMap<[u8; 32], ChunkPlace>);

impl FreshSegments {
    /// Where the chunks of a segment begin.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<ChunkPlace> {
        self.0.get(&fingerprint.0).copied()
    }

    /// Remembers a segment whose chunks stand in a container from `first` on.
    pub fn add(&mut self, fingerprint: &[u8; 32], container: ContainerId, first: ChunkNo) {
        if self.0.len() < KNOWN_MAX {
            self.0.insert(*fingerprint, (container, first));
        }
    }
}

/// References to a segment whose chunks stand one behind the other.
pub(crate) fn references(pieces: &[Piece], container: ContainerId, first: ChunkNo) -> Vec<Reference> {
    let mut all = Vec::new();
    let mut next = first.0;
    for piece in pieces {
        match (piece, all.last_mut()) {
            (Piece::Null { bytes }, Some(Reference::Null { bytes: b })) => *b += bytes,
            (Piece::Null { bytes }, _) => all.push(Reference::Null { bytes: *bytes }),
            (Piece::Data { .. }, Some(Reference::Direct { count, .. })) => *count += 1,
            (Piece::Data { .. }, _) => {
                all.push(Reference::Direct { container, first: ChunkNo(next), count: 1 });
            }
        }
        next += u32::from(matches!(piece, Piece::Data { .. }));
    }
    all
}

/// Where a segment's chunks begin, if they stand one behind the other in one container.
pub(crate) fn in_one_place(s: &SegmentRecipe) -> Option<ChunkPlace> {
    let mut start: Option<(ContainerId, u32)> = None;
    let mut next = 0;
    for r in &s.references {
        match *r {
            Reference::Null { .. } => {}
            Reference::Direct { container, first, count } => {
                match start {
                    None => start = Some((container, first.0)),
                    Some((c, _)) if c == container && next == first.0 => {}
                    Some(_) => return None,
                }
                next = first.0.checked_add(count)?;
            }
            Reference::Indirect { .. } => return None,
        }
    }
    start.map(|(container, first)| (container, ChunkNo(first)))
}
