//! The index of shared segments (RevDedup 3.1.1): 32 bytes of memory for each segment, and one object on the store for
//! each session.
//!
//! A hit is a hint: the backup claims its container and compares every fingerprint of the segment with the container's
//! table. Segments that this session has written itself need no check.

use crate::base::error::UnlessDamaged;
use crate::base::error::{Named, Result, VaultError};
use crate::container::tables::Tables;
use crate::lookup::claims::Claims;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use chunk::{Fingerprint, Piece};
use format::{
    names, ChunkNo, ContainerId, Kind, Owner, Reference, SegmentPlace, SegmentRecipe, Segments, WriterNo,
};
use std::collections::{BTreeSet, HashMap};
use store::StoreError;

/// Segments that are known at most (32 MiB; 8 TiB in segments of 8 MiB). Others are not found: that costs space only.
const KNOWN_MAX: usize = 1 << 20;

/// Segments of the shared set.
pub(crate) struct SegmentIndex {
    /// Half a fingerprint, container, first chunk; sorted.
    known: Vec<(u128, ContainerId, u32)>,
    claims: Claims,
    matched: BTreeSet<ContainerId>,
    /// What this session has written.
    fresh: Vec<SegmentPlace>,
    fresh_by: HashMap<[u8; 32], usize>,
}

fn half(fingerprint: &[u8; 32]) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&fingerprint[..16]);
    u128::from_le_bytes(half)
}

impl SegmentIndex {
    /// Reads the index of every session that made one of `containers`. One that is missing costs space only.
    pub fn load(shared: &Folder, containers: &Containers, session: &Session) -> Result<Self> {
        let mut writers: BTreeSet<WriterNo> = BTreeSet::new();
        containers.each(|e| {
            writers.insert(e.id.writer());
            Ok(())
        })?;
        let mut known = Vec::new();
        for writer in writers {
            let Some(segments) = read_segments(shared, writer).unless_damaged()? else { continue };
            let room = KNOWN_MAX - known.len();
            known.reserve_exact(segments.len().min(room));
            known.extend(segments.iter().take(room).map(|s| (half(&s.fingerprint), s.container, s.first.0)));
        }
        known.sort_unstable();
        Ok(SegmentIndex {
            known,
            claims: Claims::new(shared.clone(), session.token),
            matched: BTreeSet::new(),
            fresh: Vec::new(),
            fresh_by: HashMap::new(),
        })
    }

    /// Looks a segment up. Returns its references.
    pub fn find(
        &mut self,
        tables: &Tables,
        fingerprint: &Fingerprint,
        pieces: &[Piece],
        chunks: &[Fingerprint],
    ) -> Result<Option<Vec<Reference>>> {
        if let Some(n) = self.fresh_by.get(&fingerprint.0) {
            let at = self.fresh[*n];
            return Ok(Some(references(pieces, at.container, at.first)));
        }
        let wanted = half(&fingerprint.0);
        let from = self.known.partition_point(|k| k.0 < wanted);
        for n in from..self.known.len() {
            let (key, id, first) = self.known[n];
            if key != wanted {
                break;
            }
            if self.is_there(tables, id, ChunkNo(first), pieces, chunks)? {
                self.matched.insert(id);
                return Ok(Some(references(pieces, id, ChunkNo(first))));
            }
        }
        Ok(None)
    }

    /// Claims a container and compares every chunk.
    fn is_there(
        &mut self,
        tables: &Tables,
        id: ContainerId,
        first: ChunkNo,
        pieces: &[Piece],
        chunks: &[Fingerprint],
    ) -> Result<bool> {
        let Some(claimed) = self.claims.claim(id)? else { return Ok(false) };
        if claimed.dead.count_within(first.0, chunks.len() as u32) > 0 {
            return Ok(false);
        }
        let Some(table) = tables.load(&claimed.entry).unless_damaged()? else { return Ok(false) };
        let lengths: Vec<u32> =
            pieces.iter().filter(|p| matches!(p, Piece::Data { .. })).map(|p| p.bytes()).collect();
        let Some(from) = table.index_of(first) else { return Ok(false) };
        let range = from..from + chunks.len();
        let last = ChunkNo(first.0.saturating_add(chunks.len() as u32 - 1));
        Ok(table.index_of(last) == Some(range.end - 1)
            && table.lengths[range.clone()] == lengths[..]
            && table.fingerprints[range].iter().zip(chunks).all(|(a, b)| *a == b.0))
    }

    /// Remembers a segment that this session has written, if its chunks stand one behind the other.
    pub fn add(&mut self, segment: &SegmentRecipe) {
        if let Some(at) = in_one_place(segment) {
            self.fresh_by.insert(at.fingerprint, self.fresh.len());
            self.fresh.push(at);
        }
    }

    /// The shared containers that may be referenced by now, but for those that this session made.
    pub fn matched(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.matched.iter().copied()
    }

    /// Writes down what this session has written, for later ones.
    pub fn save(&self, session: &Session) -> Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        session.wrote(names::segments(session.folder.owner, session.writer));
        put_segments(&session.folder, session.writer, &self.fresh)
    }
}

/// References to a segment whose chunks stand one behind the other.
fn references(pieces: &[Piece], container: ContainerId, first: ChunkNo) -> Vec<Reference> {
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

/// Where a segment's chunks stand, if that is one behind the other in a shared container.
pub(crate) fn in_one_place(s: &SegmentRecipe) -> Option<SegmentPlace> {
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
    let (container, first) = start.filter(|s| s.0.owner() == Owner::Shared)?;
    Some(SegmentPlace { fingerprint: s.fingerprint, container, first: ChunkNo(first) })
}

/// The index of one session; empty where there is none.
pub(crate) fn read_segments(shared: &Folder, writer: WriterNo) -> Result<Vec<SegmentPlace>> {
    let name = names::segments(shared.owner, writer);
    let frame = match shared.store.read(&name, Kind::Segments.frame_max()) {
        Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
        other => other.named()?,
    };
    let decoded = Segments::decode(shared.context(&name), &frame);
    decoded.map(|segments| segments.0).map_err(VaultError::malformed(&name))
}

/// Writes the index of one session.
fn put_segments(folder: &Folder, writer: WriterNo, segments: &[SegmentPlace]) -> Result<()> {
    let name = names::segments(folder.owner, writer);
    let frame = Segments(segments.to_vec()).encode(folder.context(&name));
    Ok(folder.store.put(&name, &[&frame])?)
}

/// Replaces the indexes of all sessions by what `segments` says.
pub(crate) fn replace_segments(folder: &Folder, segments: BTreeSet<SegmentPlace>) -> Result<u64> {
    let all: Vec<SegmentPlace> = segments.into_iter().collect();
    // In order of containers, and so of writers.
    for of_writer in all.chunk_by(|a, b| a.container.writer() == b.container.writer()) {
        let writer = of_writer[0].container.writer();
        folder.store.delete(&names::segments(folder.owner, writer))?;
        match put_segments(folder, writer, of_writer) {
            // Somebody else rebuilds it, too.
            Err(VaultError::Store(StoreError::AlreadyExists { .. })) => {}
            other => other?,
        }
    }
    Ok(all.len() as u64)
}
