//! The first reading of the input: chunks, fingerprints, super-features, and from them the plan.

use super::base::error::{MzipError, Result};
use super::base::memory::Memory;
use super::base::parallel::in_order;
use super::base::progress::Progress;
use super::plan::{Finder, Found, Room};
use chunk::{cut, fingerprint_pieces, ChunkSpec, Fingerprint, Piece, Similarity, SuperFeatures};
use format::mzip::PlaceSum;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read and cut at a time. No chunk goes beyond its segment, which has whole chunks of fixed length.
pub(super) fn segment_bytes(spec: ChunkSpec, memory: Memory) -> usize {
    let (most, average) = (memory.segment(), u64::from(spec.average_bytes()));
    let bytes = match spec {
        ChunkSpec::Fixed { .. } => most / average * average,
        ChunkSpec::ContentDefined { .. } => most,
    };
    bytes.max(average) as usize
}

/// What a segment is made of.
struct Scanned {
    bytes: usize,
    pieces: Vec<Piece>,
    /// Of those that hold data.
    data: Vec<Data>,
}

/// What is known of a chunk.
struct Data {
    sum: PlaceSum,
    fingerprint: Fingerprint,
    features: Option<SuperFeatures>,
}

/// How chunks are made, and looked at.
pub(super) struct Scan<'a> {
    pub spec: ChunkSpec,
    pub similarity: Similarity,
    pub memory: Memory,
    pub threads: usize,
    /// Directory of temporary files.
    pub scratch: &'a Path,
}

/// Finds which chunks of segments are equal or similar. `next` gives the segments of the input until there are no more.
pub(super) fn scan(
    how: &Scan<'_>,
    progress: &Progress,
    mut next: impl FnMut() -> Result<Option<Arc<Vec<u8>>>>,
) -> Result<Found> {
    let Scan { spec, similarity, memory, threads, scratch } = how;
    let mut finder = Finder::new(&Room { table_bytes: memory.table(), scratch: scratch.to_path_buf() });
    let mut end = 0;
    let next = || {
        progress.check()?;
        Ok(next()?.map(|segment| {
            let at = end;
            end += segment.len() as u64;
            (at, segment)
        }))
    };
    let work = |(at, segment): (u64, Arc<Vec<u8>>)| Ok(scanned(at, &segment, *spec, similarity));
    let take = |scanned: Scanned| {
        let mut data = scanned.data.iter();
        for piece in scanned.pieces {
            match (piece, piece.bytes()) {
                (Piece::Null { .. }, bytes) => finder.zeros(bytes),
                (Piece::Data { .. }, bytes) => {
                    // Each piece of data has been fingerprinted.
                    let Some(Data { sum, fingerprint, features }) = data.next() else { break };
                    finder.chunk(bytes, *sum, *fingerprint, features.as_ref()).map_err(MzipError::Scratch)?;
                }
            }
        }
        progress.add(scanned.bytes as u64);
        Ok(())
    };
    in_order(memory.scanners(*threads), next, work, take)?;
    finder.finish().map_err(MzipError::Scratch)
}

fn scanned(mut at: u64, segment: &[u8], spec: ChunkSpec, similarity: &Similarity) -> Scanned {
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    cut(segment, spec, &mut pieces);
    fingerprint_pieces(segment, &pieces, &mut fingerprints);
    let mut data = Vec::with_capacity(fingerprints.len());
    let (mut rest, mut fingerprints) = (segment, fingerprints.into_iter());
    for piece in &pieces {
        let (bytes, after) = rest.split_at(piece.bytes() as usize);
        if let Piece::Data { .. } = piece {
            // Each piece of data has been fingerprinted.
            let Some(fingerprint) = fingerprints.next() else { break };
            data.push(Data { sum: PlaceSum::of(at, bytes), fingerprint, features: similarity.of(bytes) });
        }
        at += bytes.len() as u64;
        rest = after;
    }
    Scanned { bytes: segment.len(), pieces, data }
}
