//! Similar chunks as deltas to the first one of their cluster (Lin 2015, 2.4.2), in the order of the input: no chunk is moved.

use super::found::{of, record_of, Found, Part, Room, What};
use super::joining::Joining;
use super::migration::Piece;
use super::sorter::Sorter;
use super::tape::Tape;
use format::mzip::{Extent, PlaceSum, DELTA_BYTES_MAX};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// In [`Deltas::restore`]: zeros that are not stored, and chunks that are no deltas.
const NONE: u64 = u64::MAX;
/// Where the file of deltas begins among what is stored: far behind every input.
pub(in crate::mzip) const DELTAS_AT: u64 = 1 << 62;

/// A chunk that is stored, and the one that it is similar to.
#[derive(Clone, Copy, Debug)]
pub(in crate::mzip) struct Candidate {
    pub own: Piece,
    /// Of the chunk, as it was when it was found.
    pub sum: PlaceSum,
    /// The same of the other one.
    pub base: Option<(Piece, PlaceSum)>,
}

/// What is stored where deltas take the place of similar chunks.
pub(in crate::mzip) struct Deltas {
    /// What is stored: offsets in the input, or in the file of deltas, and lengths.
    pieces: Tape<2>,
    /// Length, place, stored length, and place and length of the base.
    restore: Tape<5>,
    pub file: File,
    pub file_bytes: u64,
    pub stored_bytes: u64,
    /// Of the chunks that are stored as they are.
    pub kept_sum: PlaceSum,
}

/// The chunks that are to be stored, in order, each with its base.
pub(in crate::mzip) fn candidates<'a>(
    found: &'a Found,
    room: &Room,
) -> io::Result<impl Iterator<Item = io::Result<Candidate>> + 'a> {
    let (table, scratch) = (room.table_bytes, room.scratch.as_path());
    // First of the cluster, chunk; then the place of the first, and its sum, by chunk.
    let mut wanted = Sorter::<2>::new(table);
    for part in found.parts() {
        if let What::Similar(chunk, first) = part?.what {
            wanted.push([first, chunk], scratch)?;
        }
    }
    let mut bases = Sorter::<4>::new(table);
    let mut wanted = wanted.sorted().peekable();
    for part in found.parts() {
        let Part { offset, bytes, sum, what } = part?;
        if let What::Own(first) = what {
            while let Some(chunk) = of(&mut wanted, first)? {
                bases.push([chunk, offset, bytes, sum.value()], scratch)?;
            }
        }
    }
    let mut bases = bases.sorted().peekable();
    Ok(found.parts().filter_map(move |part| {
        let candidate = part.and_then(|Part { offset, bytes, sum, what }| {
            let own = Piece { offset, bytes };
            Ok(match what {
                What::Zeros | What::Equal(..) => None,
                What::Own(_) => Some(Candidate { own, sum, base: None }),
                What::Similar(chunk, _) => {
                    let base = record_of(&mut bases, chunk)?
                        .map(|[_, offset, bytes, sum]| (Piece { offset, bytes }, PlaceSum::from_value(sum)));
                    let fits = |piece: &Piece| piece.bytes <= DELTA_BYTES_MAX;
                    Some(Candidate { own, sum, base: base.filter(|(base, _)| fits(base) && fits(&own)) })
                }
            })
        });
        candidate.transpose()
    }))
}

/// Takes what becomes of the candidates, in their order.
pub(in crate::mzip) struct DeltaWriter {
    room: Room,
    file: File,
    file_bytes: u64,
    /// Length that is stored, and whether it is a delta.
    stored: Tape<2>,
    stored_bytes: u64,
    kept_sum: PlaceSum,
    pieces: Joining<2>,
}

impl DeltaWriter {
    pub(in crate::mzip) fn new(room: &Room) -> io::Result<DeltaWriter> {
        Ok(DeltaWriter {
            room: room.clone(),
            file: tempfile::tempfile_in(&room.scratch)?,
            file_bytes: 0,
            stored: Tape::new(room.table_bytes / 4),
            stored_bytes: 0,
            kept_sum: PlaceSum::default(),
            pieces: Joining::new(room.table_bytes / 4, |a, b| {
                (a[0] + a[1] == b[0]).then_some([a[0], a[1] + b[1]])
            }),
        })
    }

    /// A chunk that is stored, or the delta that takes its place.
    pub(in crate::mzip) fn push(&mut self, chunk: &Candidate, delta: Option<&[u8]>) -> io::Result<()> {
        let scratch = self.room.scratch.as_path();
        let (offset, bytes) = match delta {
            None => {
                self.kept_sum += chunk.sum;
                (chunk.own.offset, chunk.own.bytes)
            }
            Some(delta) => {
                self.file.write_all_at(delta, self.file_bytes)?;
                self.file_bytes += delta.len() as u64;
                (DELTAS_AT + self.file_bytes - delta.len() as u64, delta.len() as u64)
            }
        };
        self.pieces.push([offset, bytes], scratch)?;
        self.stored.push([bytes, delta.is_some().into()], scratch)?;
        self.stored_bytes += bytes;
        Ok(())
    }

    /// The recipes, when there are no more.
    pub(in crate::mzip) fn finish(self, found: &Found) -> io::Result<Deltas> {
        let DeltaWriter { room, file, file_bytes, stored, stored_bytes, kept_sum, pieces } = self;
        let (table, scratch) = (room.table_bytes, room.scratch.as_path());
        // First of the cluster, chunk: of deltas. Chunk, place, length: of all that is stored.
        let mut wanted = Sorter::<2>::new(table);
        let mut places = Tape::<3>::new(table / 4);
        let (mut lengths, mut at) = (stored.records(), 0);
        for part in found.parts() {
            let (chunk, first) = match part?.what {
                What::Zeros | What::Equal(..) => continue,
                What::Own(chunk) => (chunk, None),
                What::Similar(chunk, first) => (chunk, Some(first)),
            };
            let [bytes, is_delta] = lengths.next().ok_or_else(lost)??;
            places.push([chunk, at, bytes], scratch)?;
            if let Some(first) = first.filter(|_| is_delta == 1) {
                wanted.push([first, chunk], scratch)?;
            }
            at += bytes;
        }
        let mut bases = Sorter::<3>::new(table);
        let mut wanted = wanted.sorted().peekable();
        for record in places.records() {
            let [first, at, bytes] = record?;
            while let Some(chunk) = of(&mut wanted, first)? {
                bases.push([chunk, at, bytes], scratch)?;
            }
        }
        // The same with the chunks that are equal to others.
        let mut copies = Sorter::<2>::new(table);
        for part in found.parts() {
            if let What::Equal(chunk, first) = part?.what {
                copies.push([first, chunk], scratch)?;
            }
        }
        let mut all = Sorter::<5>::new(table);
        let (mut bases, mut copies) = (bases.sorted().peekable(), copies.sorted().peekable());
        for record in places.records() {
            let [chunk, at, bytes] = record?;
            let [_, base_at, base_bytes] = record_of(&mut bases, chunk)?.unwrap_or([chunk, NONE, 0]);
            all.push([chunk, at, bytes, base_at, base_bytes], scratch)?;
            while let Some(copy) = of(&mut copies, chunk)? {
                all.push([copy, at, bytes, base_at, base_bytes], scratch)?;
            }
        }
        let mut all = all.sorted().peekable();
        let mut restore = Joining::new(table / 4, join);
        for part in found.parts() {
            let Part { bytes, what, .. } = part?;
            match what {
                What::Zeros => restore.push([bytes, NONE, 0, NONE, 0], scratch)?,
                What::Equal(chunk, _) | What::Similar(chunk, _) | What::Own(chunk) => {
                    let record = record_of(&mut all, chunk)?.ok_or_else(lost)?;
                    restore.push([bytes, record[1], record[2], record[3], record[4]], scratch)?;
                }
            }
        }
        let (pieces, restore) = (pieces.end(scratch)?, restore.end(scratch)?);
        Ok(Deltas { pieces, restore, file, file_bytes, stored_bytes, kept_sum })
    }
}

fn lost() -> io::Error {
    io::Error::other("a chunk has no place")
}

/// Makes one extent of two that follow each other, unless one is a delta.
fn join(a: &[u64; 5], b: &[u64; 5]) -> Option<[u64; 5]> {
    let (zeros, plain) = ([a, b].map(|x| x[1] == NONE), [a, b].map(|x| x[3] == NONE));
    match (zeros, plain) {
        ([true, true], _) => Some([a[0] + b[0], NONE, 0, NONE, 0]),
        ([false, false], [true, true]) if a[1] + a[2] == b[1] => {
            Some([a[0] + b[0], a[1], a[2] + b[2], NONE, 0])
        }
        _ => None,
    }
}

impl Deltas {
    /// What is stored: parts of the input, or of the file of deltas.
    pub(in crate::mzip) fn pieces(&self) -> impl Iterator<Item = io::Result<Piece>> + '_ {
        self.pieces.records().map(|record| record.map(|[offset, bytes]| Piece { offset, bytes }))
    }

    /// The input, as parts of what is stored.
    pub(in crate::mzip) fn extents(&self) -> impl Iterator<Item = io::Result<Extent>> + '_ {
        self.restore.records().map(|record| {
            record.map(|[bytes, at, delta_bytes, base_at, base_bytes]| match (at, base_at) {
                (NONE, _) => Extent::Zeros { bytes },
                (at, NONE) => Extent::Stored { at, bytes },
                _ => Extent::Delta { at, delta_bytes, base_at, base_bytes, bytes },
            })
        })
    }
}
