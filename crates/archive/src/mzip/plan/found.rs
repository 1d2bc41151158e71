//! What the first reading finds: which chunks are equal, and which are similar.

use super::clusters::Clusters;
use super::sorter::Sorter;
use super::tape::Tape;
use chunk::{Fingerprint, SuperFeatures};
use format::mzip::PlaceSum;
use std::io;
use std::iter::Peekable;
use std::path::PathBuf;

/// In [`Found::pieces`]: the piece is zeros.
const ZEROS: u64 = 1 << 63;

/// Memory for tables, and where they go beyond it.
#[derive(Clone, Debug)]
pub(in crate::mzip) struct Room {
    /// Bytes of each table, about; at most six are in use at a time.
    pub table_bytes: usize,
    /// Directory of temporary files.
    pub scratch: PathBuf,
}

/// Bytes of the input, by what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::mzip) struct Totals {
    pub original_bytes: u64,
    /// Of chunks that an earlier one is equal to.
    pub duplicate_bytes: u64,
    pub zero_bytes: u64,
    /// Of other chunks that an earlier one is similar to.
    pub similar_bytes: u64,
    /// Chunks without equal ones and zeros.
    pub chunks: u64,
    /// Of all of the input, if it was read.
    pub sum: Option<PlaceSum>,
    /// Of the chunks without equal ones and zeros.
    pub distinct_sum: PlaceSum,
}

impl Totals {
    /// What is left out or moved is worth a recipe if it is more than one byte in so many.
    pub(in crate::mzip) const WORTH: u64 = 256;

    /// What is left when equal chunks and zeros are not stored.
    pub(in crate::mzip) fn distinct_bytes(&self) -> u64 {
        self.original_bytes - self.duplicate_bytes - self.zero_bytes
    }

    /// Whether a recipe is worth it.
    pub(in crate::mzip) fn pays(&self) -> bool {
        self.duplicate_bytes + self.zero_bytes + self.similar_bytes > self.original_bytes / Totals::WORTH
    }
}

/// Takes the chunks of the input, in order.
pub(in crate::mzip) struct Finder {
    room: Room,
    pieces: Tape<2>,
    /// Zeros that are not yet among the pieces.
    zeros: u64,
    chunks: u64,
    /// Fingerprint, number.
    fingerprints: Sorter<5>,
    features: Clusters,
}

impl Finder {
    pub(in crate::mzip) fn new(room: &Room) -> Self {
        Finder {
            room: room.clone(),
            pieces: Tape::new(room.table_bytes / 4),
            zeros: 0,
            chunks: 0,
            fingerprints: Sorter::new(room.table_bytes),
            features: Clusters::new(2 * room.table_bytes, &room.scratch),
        }
    }

    fn piece(&mut self, piece: u64, sum: PlaceSum) -> io::Result<()> {
        self.pieces.push([piece, sum.value()], &self.room.scratch)
    }

    fn end_zeros(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.zeros) {
            0 => Ok(()),
            zeros => self.piece(ZEROS | zeros, PlaceSum::default()),
        }
    }

    /// The next chunk, with its sum, and with its super-features if it has any.
    pub(in crate::mzip) fn chunk(
        &mut self,
        bytes: u32,
        sum: PlaceSum,
        fingerprint: Fingerprint,
        features: Option<&SuperFeatures>,
    ) -> io::Result<()> {
        self.end_zeros()?;
        self.piece(bytes.into(), sum)?;
        let mut record = [self.chunks; 5];
        for (field, bytes) in record.iter_mut().zip(fingerprint.0.chunks_exact(8)) {
            *field = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
        self.fingerprints.push(record, &self.room.scratch)?;
        if let Some(features) = features {
            self.features.push(self.chunks, features)?;
        }
        self.chunks += 1;
        Ok(())
    }

    /// Zeros that come next.
    pub(in crate::mzip) fn zeros(&mut self, bytes: u32) {
        self.zeros += u64::from(bytes);
    }

    /// What was found, when there are no more chunks.
    pub(in crate::mzip) fn finish(mut self) -> io::Result<Found> {
        self.end_zeros()?;
        let Finder { room, pieces, chunks, fingerprints, features, .. } = self;
        let equal = equal(fingerprints, &room)?;
        let joined = features.joined(chunks)?;
        let mut found = Found { pieces, equal, joined, totals: Totals::default() };
        found.totals = found.sums()?;
        Ok(found)
    }
}

/// Chunks that are equal to an earlier one, in order, each with the first of them.
fn equal(fingerprints: Sorter<5>, room: &Room) -> io::Result<Tape<2>> {
    let mut by_number = Sorter::new(room.table_bytes);
    let mut first: Option<[u64; 5]> = None;
    for record in fingerprints.sorted() {
        let record = record?;
        match first {
            Some(first) if first[..4] == record[..4] => {
                by_number.push([record[4], first[4]], &room.scratch)?;
            }
            _ => first = Some(record),
        }
    }
    let mut equal = Tape::new(room.table_bytes / 4);
    by_number.sorted().try_for_each(|record| equal.push(record?, &room.scratch))?;
    Ok(equal)
}

/// Which chunks of the input are equal or similar.
pub(in crate::mzip) struct Found {
    /// The input: lengths of chunks, or of zeros with [`ZEROS`], and sums.
    pieces: Tape<2>,
    /// Chunk, the first one that is equal.
    equal: Tape<2>,
    /// Chunk, the first one of its cluster. Equal chunks may be among them, which counts nothing.
    joined: Tape<2>,
    pub totals: Totals,
}

/// A part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) struct Part {
    pub offset: u64,
    pub bytes: u64,
    pub sum: PlaceSum,
    pub what: What,
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) enum What {
    Zeros,
    /// Chunk of this number, equal to an earlier one of the other number.
    Equal(u64, u64),
    /// Chunk of this number, similar to the first one of its cluster, of the other number.
    Similar(u64, u64),
    /// Any other chunk, of this number.
    Own(u64),
}

impl Found {
    /// A file of which nothing is known.
    pub(in crate::mzip) fn nothing(original_bytes: u64) -> Found {
        let totals = Totals { original_bytes, ..Totals::default() };
        Found { pieces: Tape::new(1), equal: Tape::new(1), joined: Tape::new(1), totals }
    }

    /// The parts of the input, in order.
    pub(in crate::mzip) fn parts(&self) -> impl Iterator<Item = io::Result<Part>> + '_ {
        let (mut offset, mut number) = (0, 0);
        let (mut equal, mut joined) = (self.equal.records().peekable(), self.joined.records().peekable());
        self.pieces.records().map(move |piece| {
            let [piece, sum] = piece?;
            let bytes = piece & !ZEROS;
            let what = if piece & ZEROS != 0 {
                What::Zeros
            } else {
                let (equal, joined) = (of(&mut equal, number)?, of(&mut joined, number)?);
                number += 1;
                match (equal, joined) {
                    (Some(first), _) => What::Equal(number - 1, first),
                    (None, Some(first)) => What::Similar(number - 1, first),
                    (None, None) => What::Own(number - 1),
                }
            };
            offset += bytes;
            Ok(Part { offset: offset - bytes, bytes, sum: PlaceSum::from_value(sum), what })
        })
    }

    fn sums(&self) -> io::Result<Totals> {
        let (mut totals, mut all) = (Totals::default(), PlaceSum::default());
        for part in self.parts() {
            let Part { bytes, sum, what, .. } = part?;
            totals.original_bytes += bytes;
            all += sum;
            match what {
                What::Zeros => totals.zero_bytes += bytes,
                What::Equal(..) => totals.duplicate_bytes += bytes,
                What::Similar(..) => totals.similar_bytes += bytes,
                What::Own(_) => {}
            }
            if let What::Similar(..) | What::Own(_) = what {
                totals.chunks += 1;
                totals.distinct_sum += sum;
            }
        }
        totals.sum = Some(all);
        Ok(totals)
    }
}

/// What sorted records say of a number, if they do.
pub(super) fn of<const N: usize>(
    records: &mut Peekable<impl Iterator<Item = io::Result<[u64; N]>>>,
    number: u64,
) -> io::Result<Option<u64>> {
    Ok(record_of(records, number)?.map(|record| record[1]))
}

/// The record that begins with a number, if there is one.
pub(super) fn record_of<const N: usize>(
    records: &mut Peekable<impl Iterator<Item = io::Result<[u64; N]>>>,
    number: u64,
) -> io::Result<Option<[u64; N]>> {
    records.next_if(|next| next.as_ref().map_or(true, |record| record[0] == number)).transpose()
}
