//! Which chunk of the input stands where: the recipes of migration and restoration (Lin 2015, 2.4.1.2).

use super::base::error::{MzipError, Result};
use chunk::{migrated_order, Clusters, Fingerprint, SuperFeatures};
use format::mzip::Extent;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// In [`Plan::sequence`]: not the number of a chunk but of a range of zeros.
const ZEROS: u32 = 1 << 31;
/// Bytes that a fingerprint takes in its table.
const SEEN_BYTES: usize = size_of::<(Fingerprint, u32)>() + 1;

/// A chunk that is stored.
struct Chunk {
    /// Where it is in the input.
    offset: u64,
    bytes: u32,
    /// The first chunk of its cluster.
    first: u32,
}

/// A part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub offset: u64,
    pub bytes: u64,
}

/// Takes the chunks of the input, in order.
pub(super) struct Planner {
    plan: Plan,
    seen: HashMap<Fingerprint, u32, BuildHasherDefault<Prefix>>,
    clusters: Clusters,
    tables_bytes_max: usize,
}

impl Planner {
    /// With tables of at most so many bytes: where they are full, they are begun anew, and what was before is not found
    /// any more.
    pub(super) fn new(tables_bytes_max: usize) -> Self {
        let (plan, seen) = (Plan::default(), HashMap::default());
        Planner { plan, seen, clusters: Clusters::default(), tables_bytes_max }
    }

    /// The next chunk, with its super-features if it has any.
    pub(super) fn chunk(
        &mut self,
        bytes: u32,
        fingerprint: Fingerprint,
        features: Option<&SuperFeatures>,
    ) -> Result<()> {
        let plan = &mut self.plan;
        let offset = plan.original_bytes;
        plan.original_bytes += u64::from(bytes);
        if let Some(known) = self.seen.get(&fingerprint) {
            plan.sequence.push(*known);
            plan.duplicate_bytes += u64::from(bytes);
            return Ok(());
        }
        // Tables grow by doubling: the old one is beside the new one for a moment.
        if self.seen.capacity() * SEEN_BYTES + self.clusters.bytes() > self.tables_bytes_max / 2 {
            self.seen = HashMap::default();
            self.clusters = Clusters::default();
        }
        let number = plan.chunks.len() as u32;
        if number >= ZEROS {
            return Err(MzipError::TooManyChunks);
        }
        self.seen.insert(fingerprint, number);
        let first = features.map_or(number, |features| self.clusters.join(number, features));
        if first != number {
            plan.similar_bytes += u64::from(bytes);
        }
        plan.chunks.push(Chunk { offset, bytes, first });
        plan.sequence.push(number);
        plan.stored_bytes += u64::from(bytes);
        Ok(())
    }

    /// Zeros that come next.
    pub(super) fn zeros(&mut self, bytes: u32) -> Result<()> {
        let plan = &mut self.plan;
        plan.original_bytes += u64::from(bytes);
        plan.zero_bytes += u64::from(bytes);
        match (plan.sequence.last(), plan.zeros.last_mut()) {
            (Some(last), Some(zeros)) if last & ZEROS != 0 => *zeros += u64::from(bytes),
            _ => {
                let number = plan.zeros.len() as u32;
                if number >= ZEROS {
                    return Err(MzipError::TooManyChunks);
                }
                plan.sequence.push(number | ZEROS);
                plan.zeros.push(u64::from(bytes));
            }
        }
        Ok(())
    }

    /// The plan, when there are no more chunks.
    pub(super) fn finish(self) -> Plan {
        let mut plan = self.plan;
        drop((self.seen, self.clusters));
        plan.order = migrated_order(plan.chunks.iter().map(|chunk| chunk.first));
        plan.stored_at = vec![0; plan.chunks.len()];
        let mut at = 0;
        for chunk in &plan.order {
            plan.stored_at[*chunk as usize] = at;
            at += u64::from(plan.chunks[*chunk as usize].bytes);
        }
        plan
    }
}

/// Where each chunk goes.
#[derive(Default)]
pub(super) struct Plan {
    chunks: Vec<Chunk>,
    /// The input: numbers of chunks, or of ranges of zeros with [`ZEROS`].
    sequence: Vec<u32>,
    zeros: Vec<u64>,
    /// What is stored: numbers of chunks.
    order: Vec<u32>,
    /// Where each chunk is stored.
    stored_at: Vec<u64>,
    pub original_bytes: u64,
    pub stored_bytes: u64,
    pub duplicate_bytes: u64,
    pub zero_bytes: u64,
    /// Of chunks that stand beside an older similar one.
    pub similar_bytes: u64,
}

impl Plan {
    /// Nothing is moved.
    pub(super) fn of_whole(original_bytes: u64) -> Plan {
        Plan { original_bytes, stored_bytes: original_bytes, ..Plan::default() }
    }

    /// Chunks that are stored.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// What is left out or moved is worth a recipe if it is more than one byte in so many.
    pub(super) const WORTH: u64 = 256;

    /// Whether it is worth a recipe.
    pub(super) fn pays(&self) -> bool {
        (self.duplicate_bytes + self.zero_bytes + self.similar_bytes) > self.original_bytes / Plan::WORTH
    }

    /// What is stored, as parts of the input: the migrate recipe.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let chunks = self.order.iter().map(|chunk| &self.chunks[*chunk as usize]);
        joined(chunks.map(|c| Piece { offset: c.offset, bytes: c.bytes.into() }), |a, b| {
            (a.offset + a.bytes == b.offset).then_some(Piece { offset: a.offset, bytes: a.bytes + b.bytes })
        })
    }

    /// The input, as parts of what is stored: the restore recipe.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let extents = self.sequence.iter().map(|number| match number & ZEROS {
            0 => Extent::Stored {
                at: self.stored_at[*number as usize],
                bytes: self.chunks[*number as usize].bytes.into(),
            },
            _ => Extent::Zeros { bytes: self.zeros[(number & !ZEROS) as usize] },
        });
        joined(extents, |a, b| match (*a, *b) {
            (Extent::Stored { at, bytes }, Extent::Stored { at: next, bytes: more })
                if at + bytes == next =>
            {
                Some(Extent::Stored { at, bytes: bytes + more })
            }
            _ => None,
        })
    }
}

/// Joins neighbours that a function makes one of.
fn joined<T>(items: impl Iterator<Item = T>, join: impl Fn(&T, &T) -> Option<T>) -> impl Iterator<Item = T> {
    let mut items = items.peekable();
    std::iter::from_fn(move || {
        let mut item = items.next()?;
        while let Some(both) = items.peek().and_then(|next| join(&item, next)) {
            item = both;
            items.next();
        }
        Some(item)
    })
}

/// Cuts pieces into blocks of so many bytes; the last may be shorter.
pub(super) fn blocks(
    pieces: impl Iterator<Item = Piece>,
    block_bytes: u64,
) -> impl Iterator<Item = Vec<Piece>> {
    let mut pieces = pieces.fuse();
    let mut rest: Option<Piece> = None;
    std::iter::from_fn(move || {
        let (mut block, mut room) = (Vec::new(), block_bytes);
        while room > 0 {
            let Some(piece) = rest.take().or_else(|| pieces.next()) else { break };
            let bytes = piece.bytes.min(room);
            block.push(Piece { offset: piece.offset, bytes });
            room -= bytes;
            if bytes < piece.bytes {
                rest = Some(Piece { offset: piece.offset + bytes, bytes: piece.bytes - bytes });
            }
        }
        (!block.is_empty()).then_some(block)
    })
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks_exact(8).take(1) {
            self.0 = part.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
    }

    /// Their length, which all have.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn planned(parts: &[(&[u8], Option<[u64; 4]>)]) -> Plan {
        let mut planner = Planner::new(1 << 20);
        for (bytes, features) in parts {
            if bytes.iter().all(|b| *b == 0) {
                planner.zeros(bytes.len() as u32).unwrap();
                continue;
            }
            let features = features.map(SuperFeatures);
            planner.chunk(bytes.len() as u32, Fingerprint::of(bytes), features.as_ref()).unwrap();
        }
        planner.finish()
    }

    #[test]
    fn similar_chunks_stand_together_and_equal_ones_once() {
        // A, B, zeros, B again, A', C.
        let plan = planned(&[
            (b"AAAA", Some([1, 2, 3, 4])),
            (b"BBB", Some([5, 6, 7, 8])),
            (&[0; 5], None),
            (&[0; 2], None),
            (b"BBB", Some([5, 6, 7, 8])),
            (b"AAaA", Some([9, 2, 9, 9])),
            (b"CC", None),
        ]);
        let pieces: Vec<(u64, u64)> = plan.pieces().map(|p| (p.offset, p.bytes)).collect();
        assert_eq!(pieces, [(0, 4), (17, 4), (4, 3), (21, 2)]);
        let stored = |at, bytes| Extent::Stored { at, bytes };
        let extents: Vec<Extent> = plan.extents().collect();
        let expected = [
            stored(0, 4),
            stored(8, 3),
            Extent::Zeros { bytes: 7 },
            stored(8, 3),
            stored(4, 4),
            stored(11, 2),
        ];
        assert_eq!(extents, expected);
        assert_eq!((plan.original_bytes, plan.stored_bytes, plan.chunks()), (23, 13, 4));
        assert_eq!((plan.duplicate_bytes, plan.zero_bytes, plan.similar_bytes), (3, 7, 4));
        assert!(plan.pays());
    }

    #[test]
    fn what_has_nothing_in_common_stays_one_piece() {
        let plan = planned(&[(b"abc", None), (b"def", Some([1, 1, 1, 1])), (b"g", Some([2, 2, 2, 2]))]);
        assert_eq!(plan.pieces().collect::<Vec<_>>(), [Piece { offset: 0, bytes: 7 }]);
        assert_eq!(plan.extents().collect::<Vec<_>>(), [Extent::Stored { at: 0, bytes: 7 }]);
        assert!(!plan.pays());
        assert!(!planned(&[]).pays());
    }

    #[test]
    fn blocks_have_their_length() {
        let pieces = [(10, 5), (100, 1), (50, 9)].map(|(offset, bytes)| Piece { offset, bytes });
        let cut: Vec<Vec<(u64, u64)>> = blocks(pieces.into_iter(), 4)
            .map(|block| block.iter().map(|p| (p.offset, p.bytes)).collect())
            .collect();
        assert_eq!(cut, [vec![(10, 4)], vec![(14, 1), (100, 1), (50, 2)], vec![(52, 4)], vec![(56, 3)],]);
    }

    #[test]
    fn full_tables_are_begun_anew() {
        let mut planner = Planner::new(100_000);
        for n in 0..10_000u32 {
            let bytes = n.to_le_bytes();
            planner.chunk(4, Fingerprint::of(&bytes), Some(&SuperFeatures([u64::from(n); 4]))).unwrap();
            assert!(planner.seen.capacity() * SEEN_BYTES + planner.clusters.bytes() <= 100_000);
        }
        assert_eq!(planner.finish().chunks(), 10_000);
    }
}
