//! Checks segments of recipes: each has the chunks that it was made of.

use crate::base::error::{fault, Result};
use crate::base::lru::Lru;
use crate::container::dead::read_dead;
use crate::container::tables::Tables;
use crate::recipe::indirect::chunks_max;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, ContainerId, PageNo, RecipeRoot, Reference, RunSet, SegmentRecipe, Table};
use std::sync::Arc;

/// Chunks and references that are in memory at once, but for one segment that has more.
const BATCH_CHUNKS: usize = 256 << 10;
/// Memory for lists of dead chunks, in bytes, but for one that takes more.
const DEAD_BYTES: usize = 8 << 20;
/// Memory of one beside its runs, in bytes, about, and of a run.
const DEAD_LOG_BYTES: usize = 128;
const RUN_BYTES: usize = 8;

/// Compares segments with the tables of the containers that they reference.
pub(super) struct SegmentCheck<'a> {
    tables: &'a Tables,
    dead: Lru<ContainerId, Arc<RunSet>>,
}

/// A direct reference, and where its chunks belong in the batch.
struct Run {
    container: ContainerId,
    first: ChunkNo,
    count: u32,
    segment: usize,
    at: usize,
}

impl<'a> SegmentCheck<'a> {
    /// Of a disk that has these tables.
    pub fn new(tables: &'a Tables) -> Self {
        SegmentCheck { tables, dead: Lru::new(DEAD_BYTES) }
    }

    /// What is wrong with segments of a page, if anything.
    pub fn check(
        &mut self,
        root: &RecipeRoot,
        page_no: PageNo,
        segments: &[&(u16, SegmentRecipe)],
    ) -> Result<Option<String>> {
        let (mut from, mut chunks) = (0, 0);
        for (n, (index, s)) in segments.iter().enumerate() {
            let of_segment: u64 = s.references.iter().map(Reference::chunks).sum();
            if of_segment > chunks_max(root.segment_bytes) {
                let place = page_no.segment(*index).0 * u64::from(root.segment_bytes);
                return Ok(Some(format!("the segment at {place} has {of_segment} chunks")));
            }
            // Zeros count as well: there may be any number of them.
            let size = of_segment as usize + s.references.len();
            if chunks + size > BATCH_CHUNKS && n > from {
                if let Some(why) = self.check_segments(root, page_no, &segments[from..n])? {
                    return Ok(Some(why));
                }
                (from, chunks) = (n, 0);
            }
            chunks += size;
        }
        self.check_segments(root, page_no, &segments[from..])
    }

    fn check_segments(
        &mut self,
        root: &RecipeRoot,
        page_no: PageNo,
        segments: &[&(u16, SegmentRecipe)],
    ) -> Result<Option<String>> {
        let (mut runs, chunks) = runs_of(segments);
        runs.sort_by_key(|r| r.container);
        let mut lengths = vec![0u32; chunks];
        let mut fingerprints = vec![Fingerprint([0; 32]); chunks];
        let mut unknown = vec![false; segments.len()];
        for of_container in runs.chunk_by(|a, b| a.container == b.container) {
            let id = of_container[0].container;
            let Some((table, dead)) = self.container(id)? else {
                of_container.iter().for_each(|r| unknown[r.segment] = true);
                continue;
            };
            for r in of_container {
                if let Some(why) = resolve(r, &table, &dead, &mut lengths, &mut fingerprints) {
                    return Ok(Some(why));
                }
            }
        }
        let mut at = 0;
        for ((index, s), unknown) in segments.iter().zip(unknown) {
            let chunks = s.references.iter().map(Reference::chunks).sum::<u64>() as usize;
            let place = page_no.segment(*index).0 * u64::from(root.segment_bytes);
            let of_segment = at..at + chunks;
            at += chunks;
            if unknown {
                continue;
            }
            let wanted = u64::from(root.segment_bytes).min(root.size.saturating_sub(place));
            if let Some(why) =
                check_segment(s, wanted, &lengths[of_segment.clone()], &fingerprints[of_segment])
            {
                return Ok(Some(format!("the segment at {place} {why}")));
            }
        }
        Ok(None)
    }

    /// A container's table and dead chunks; `None` where its table cannot be read, which is told of elsewhere.
    fn container(&mut self, id: ContainerId) -> Result<Option<(Arc<Table>, Arc<RunSet>)>> {
        let read = || -> Result<_> {
            let entry = self.tables.entry(id)?;
            Ok((entry, self.tables.load(&entry)?))
        };
        let (entry, table) = match read() {
            Ok(both) => both,
            Err(e) => return fault(e).map(|_| None),
        };
        if let Some(dead) = self.dead.get(&id) {
            return Ok(Some((table, dead)));
        }
        let dead = match read_dead(&self.tables.folder_of(id), &entry) {
            Ok(dead) => Arc::new(dead),
            Err(e) => fault(e).map(|_| Arc::default())?,
        };
        self.dead.insert(id, dead.clone(), DEAD_LOG_BYTES + dead.runs().len() * RUN_BYTES);
        Ok(Some((table, dead)))
    }
}

/// The direct references of segments, and how many chunks all references have.
fn runs_of(segments: &[&(u16, SegmentRecipe)]) -> (Vec<Run>, usize) {
    let (mut runs, mut at) = (Vec::new(), 0);
    for (segment, (_, s)) in segments.iter().enumerate() {
        for r in &s.references {
            if let Reference::Direct { container, first, count } = *r {
                runs.push(Run { container, first, count, segment, at });
            }
            at += r.chunks() as usize;
        }
    }
    (runs, at)
}

/// Fills in the lengths and fingerprints of a run. Returns what is wrong with it.
fn resolve(
    r: &Run,
    table: &Table,
    dead: &RunSet,
    lengths: &mut [u32],
    fingerprints: &mut [Fingerprint],
) -> Option<String> {
    let last = r.first.0.saturating_add(r.count - 1);
    let from = table.index_of(r.first);
    let to = table.index_of(ChunkNo(last));
    let indices = match (from, to) {
        (Some(from), Some(to)) if to.0 - from.0 == r.count - 1 => from.range(r.count),
        _ => {
            return Some(format!(
                "references chunks {} to {last} of container {}, which has not all of them",
                r.first.0, r.container
            ))
        }
    };
    if dead.count_within(r.first, r.count) > 0 {
        return Some(format!(
            "references chunks {} to {last} of container {}, some of them dead",
            r.first.0, r.container
        ));
    }
    let places = r.at..r.at + r.count as usize;
    lengths[places.clone()].copy_from_slice(indices.of(&table.lengths));
    for (place, f) in places.zip(indices.of(&table.fingerprints)) {
        fingerprints[place] = Fingerprint(*f);
    }
    None
}

/// Whether the chunks are those that the segment was made of. Returns what is wrong.
fn check_segment(
    s: &SegmentRecipe,
    wanted: u64,
    lengths: &[u32],
    fingerprints: &[Fingerprint],
) -> Option<String> {
    let mut pieces = Vec::with_capacity(lengths.len());
    let mut lengths = lengths.iter();
    for r in &s.references {
        match r {
            Reference::Null { bytes } => pieces.push(Piece::Null { bytes: *bytes }),
            Reference::Direct { count, .. } => {
                pieces.extend(lengths.by_ref().take(*count as usize).map(|l| Piece::Data { bytes: *l }));
            }
            Reference::Indirect { .. } => return Some("refers to a newer snapshot".into()),
        }
    }
    let bytes: u64 = pieces.iter().map(|p| u64::from(p.bytes())).sum();
    if bytes != wanted {
        return Some(format!("has {bytes} bytes, {wanted} expected"));
    }
    if chunk::segment_fingerprint(&pieces, fingerprints).0 != s.fingerprint {
        return Some("does not have the content it was stored with".into());
    }
    None
}
