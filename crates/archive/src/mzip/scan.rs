//! The first reading of the input: chunks, fingerprints, super-features, and from them the plan.

use super::base::error::{MzipError, Result};
use super::base::parallel::in_order;
use super::base::progress::Progress;
use super::plan::{Plan, Planner};
use chunk::{cut, fingerprint_pieces, ChunkSpec, Fingerprint, Piece, Similarity, SuperFeatures};
use std::sync::Arc;

/// Bytes that are read and cut at a time, about. No chunk goes beyond its segment.
const SEGMENT_BYTES: u32 = 4 << 20;

/// Bytes of a segment: whole chunks of fixed length.
pub(super) fn segment_bytes(spec: ChunkSpec) -> usize {
    let bytes = match spec {
        ChunkSpec::Fixed { bytes } => SEGMENT_BYTES / bytes * bytes,
        ChunkSpec::ContentDefined { .. } => SEGMENT_BYTES,
    };
    bytes.max(spec.average_bytes()) as usize
}

/// What a segment is made of.
struct Scanned {
    bytes: usize,
    pieces: Vec<Piece>,
    /// Of those that hold data.
    fingerprints: Vec<Fingerprint>,
    features: Vec<Option<SuperFeatures>>,
}

/// Plans where the chunks of segments go. `next` gives the segments of the input until there are no more.
pub(super) fn scan(
    threads: usize,
    spec: ChunkSpec,
    similarity: &Similarity,
    tables_bytes_max: usize,
    progress: &Progress,
    mut next: impl FnMut() -> Result<Option<Arc<Vec<u8>>>>,
) -> Result<Plan> {
    let mut planner = Planner::new(tables_bytes_max);
    let next = || {
        progress.check()?;
        next()
    };
    let take = |scanned: Scanned| {
        let mut data = scanned.fingerprints.iter().zip(&scanned.features);
        for piece in scanned.pieces {
            match (piece, piece.bytes()) {
                (Piece::Null { .. }, bytes) => planner.zeros(bytes)?,
                (Piece::Data { .. }, bytes) => {
                    let (fingerprint, features) = data.next().ok_or(MzipError::TooManyChunks)?;
                    planner.chunk(bytes, *fingerprint, features.as_ref())?;
                }
            }
        }
        progress.add(scanned.bytes as u64);
        Ok(())
    };
    in_order(threads, next, |segment| Ok(scanned(&segment, spec, similarity)), take)?;
    Ok(planner.finish())
}

fn scanned(segment: &[u8], spec: ChunkSpec, similarity: &Similarity) -> Scanned {
    let (mut pieces, mut fingerprints, mut features) = (Vec::new(), Vec::new(), Vec::new());
    cut(segment, spec, &mut pieces);
    fingerprint_pieces(segment, &pieces, &mut fingerprints);
    let mut rest = segment;
    for piece in &pieces {
        let (bytes, after) = rest.split_at(piece.bytes() as usize);
        if let Piece::Data { .. } = piece {
            features.push(similarity.of(bytes));
        }
        rest = after;
    }
    Scanned { bytes: segment.len(), pieces, fingerprints, features }
}
