//! From what was found to the recipes of migration and restoration (Lin 2015, 2.4.1.2).

use super::found::{of, Found, Part, Room, What};
use super::joining::Joining;
use super::sorter::Sorter;
use super::tape::Tape;
use format::mzip::Extent;
use std::io;

/// In [`Migration::restore`]: zeros that are not stored.
const ZEROS: u64 = u64::MAX;

/// A part of the input that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) struct Piece {
    pub offset: u64,
    pub bytes: u64,
}

/// Where each chunk goes if similar ones stand together: clusters in the order of their first chunks, the chunks of one in
/// the order of the input.
pub(in crate::mzip) struct Migration {
    /// What is stored: offsets in the input, and lengths.
    migrate: Tape<2>,
    /// The input: where its parts are stored, or [`ZEROS`], and lengths.
    restore: Tape<2>,
}

impl Migration {
    pub(in crate::mzip) fn new(found: &Found, room: &Room) -> io::Result<Migration> {
        let (table, scratch) = (room.table_bytes, room.scratch.as_path());
        // First of the cluster, chunk, and its place in the input.
        let mut order = Sorter::<4>::new(table);
        // First of equal ones, chunk.
        let mut copies = Sorter::<2>::new(table);
        for part in found.parts() {
            let Part { offset, bytes, what, .. } = part?;
            match what {
                What::Zeros => {}
                What::Equal(chunk, first) => copies.push([first, chunk], scratch)?,
                What::Similar(chunk, first) => order.push([first, chunk, offset, bytes], scratch)?,
                What::Own(chunk) => order.push([chunk, chunk, offset, bytes], scratch)?,
            }
        }
        let mut migrate =
            Joining::new(table / 4, |a, b| (a[0] + a[1] == b[0]).then_some([a[0], a[1] + b[1]]));
        // Chunk, where it is stored.
        let mut stored = Sorter::<2>::new(table);
        let mut at = 0;
        for record in order.sorted() {
            let [_, chunk, offset, bytes] = record?;
            migrate.push([offset, bytes], scratch)?;
            stored.push([chunk, at], scratch)?;
            at += bytes;
        }
        let migrate = migrate.end(scratch)?;
        // The same of all chunks.
        let mut places = Sorter::<2>::new(table);
        let mut copies = copies.sorted().peekable();
        for record in stored.sorted() {
            let [chunk, at] = record?;
            places.push([chunk, at], scratch)?;
            while let Some(copy) = of(&mut copies, chunk)? {
                places.push([copy, at], scratch)?;
            }
        }
        let mut places = places.sorted().peekable();
        let mut restore = Joining::new(table / 4, |a, b| match (a[0], b[0]) {
            (ZEROS, ZEROS) => Some([ZEROS, a[1] + b[1]]),
            (ZEROS, _) | (_, ZEROS) => None,
            (at, next) => (at + a[1] == next).then_some([at, a[1] + b[1]]),
        });
        for part in found.parts() {
            let Part { bytes, what, .. } = part?;
            let at = match what {
                What::Zeros => Some(ZEROS),
                What::Equal(chunk, _) | What::Similar(chunk, _) | What::Own(chunk) => of(&mut places, chunk)?,
            };
            let at = at.ok_or_else(|| io::Error::other("a chunk has no place"))?;
            restore.push([at, bytes], scratch)?;
        }
        Ok(Migration { migrate, restore: restore.end(scratch)? })
    }

    /// How many pieces there are.
    pub(in crate::mzip) fn pieces_len(&self) -> u64 {
        self.migrate.len()
    }

    /// What is stored, as parts of the input: the migrate recipe.
    pub(in crate::mzip) fn pieces(&self) -> impl Iterator<Item = io::Result<Piece>> + '_ {
        self.migrate.records().map(|record| record.map(|[offset, bytes]| Piece { offset, bytes }))
    }

    /// The input, as parts of what is stored: the restore recipe.
    pub(in crate::mzip) fn extents(&self) -> impl Iterator<Item = io::Result<Extent>> + '_ {
        self.restore.records().map(|record| {
            record.map(|[at, bytes]| match at {
                ZEROS => Extent::Zeros { bytes },
                _ => Extent::Stored { at, bytes },
            })
        })
    }
}

/// Cuts pieces into blocks of so many bytes; the last may be shorter.
pub(in crate::mzip) fn blocks(
    pieces: impl Iterator<Item = io::Result<Piece>>,
    block_bytes: u64,
) -> impl Iterator<Item = io::Result<Vec<Piece>>> {
    let mut pieces = pieces.fuse();
    let mut rest: Option<Piece> = None;
    std::iter::from_fn(move || {
        let (mut block, mut room) = (Vec::new(), block_bytes);
        while room > 0 {
            let piece = match rest.take() {
                Some(piece) => piece,
                None => match pieces.next() {
                    Some(Ok(piece)) => piece,
                    Some(Err(e)) => return Some(Err(e)),
                    None => break,
                },
            };
            let bytes = piece.bytes.min(room);
            block.push(Piece { offset: piece.offset, bytes });
            room -= bytes;
            if bytes < piece.bytes {
                rest = Some(Piece { offset: piece.offset + bytes, bytes: piece.bytes - bytes });
            }
        }
        (!block.is_empty()).then_some(Ok(block))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::found::{Finder, Totals};
    use super::*;
    use chunk::{Fingerprint, SuperFeatures};
    use format::mzip::PlaceSum;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn room(table_bytes: usize) -> Room {
        Room { table_bytes, scratch: std::env::temp_dir() }
    }

    fn found(parts: &[(&[u8], Option<[u64; 4]>)], table_bytes: usize) -> Found {
        let (mut finder, mut at) = (Finder::new(&room(table_bytes)), 0);
        for (bytes, features) in parts {
            let sum = PlaceSum::of(at, bytes);
            at += bytes.len() as u64;
            if bytes.iter().all(|b| *b == 0) {
                finder.zeros(bytes.len() as u32);
                continue;
            }
            let features = features.map(SuperFeatures);
            finder.chunk(bytes.len() as u32, sum, Fingerprint::of(bytes), features.as_ref()).unwrap();
        }
        finder.finish().unwrap()
    }

    fn recipes(found: &Found, table_bytes: usize) -> (Vec<(u64, u64)>, Vec<Extent>) {
        let plan = Migration::new(found, &room(table_bytes)).unwrap();
        let pieces: Vec<(u64, u64)> =
            plan.pieces().map(|p| p.map(|p| (p.offset, p.bytes)).unwrap()).collect();
        assert_eq!(pieces.len() as u64, plan.pieces_len());
        (pieces, plan.extents().map(Result::unwrap).collect())
    }

    #[test]
    fn similar_chunks_stand_together_and_equal_ones_once() {
        // A, B, zeros, B again, A', C.
        let parts: [(&[u8], Option<[u64; 4]>); 7] = [
            (b"AAAA", Some([1, 2, 3, 4])),
            (b"BBB", Some([5, 6, 7, 8])),
            (&[0; 5], None),
            (&[0; 2], None),
            (b"BBB", Some([5, 6, 7, 8])),
            (b"AAaA", Some([9, 2, 9, 9])),
            (b"CC", None),
        ];
        let stored = |at, bytes| Extent::Stored { at, bytes };
        let expected = [
            stored(0, 4),
            stored(8, 3),
            Extent::Zeros { bytes: 7 },
            stored(8, 3),
            stored(4, 4),
            stored(11, 2),
        ];
        for table_bytes in [1, 100, 1 << 20] {
            let found = found(&parts, table_bytes);
            let (pieces, extents) = recipes(&found, table_bytes);
            assert_eq!(pieces, [(0, 4), (17, 4), (4, 3), (21, 2)]);
            assert_eq!(extents, expected);
            let distinct = [(0, &b"AAAA"[..]), (4, b"BBB"), (17, b"AAaA"), (21, b"CC")];
            let distinct_sum = distinct.into_iter().map(|(at, bytes)| PlaceSum::of(at, bytes)).sum();
            let totals = Totals {
                original_bytes: 23,
                duplicate_bytes: 3,
                zero_bytes: 7,
                similar_bytes: 4,
                chunks: 4,
                sum: Some([distinct_sum, PlaceSum::of(14, b"BBB")].into_iter().sum()),
                distinct_sum,
            };
            assert_eq!((found.totals, totals.distinct_bytes()), (totals, 13));
            assert!(found.totals.pays());
        }
    }

    #[test]
    fn what_has_nothing_in_common_stays_one_piece() {
        let parts: [(&[u8], Option<[u64; 4]>); 3] =
            [(b"abc", None), (b"def", Some([1, 1, 1, 1])), (b"g", Some([2, 2, 2, 2]))];
        let found = found(&parts, 1000);
        assert_eq!(recipes(&found, 1000), (vec![(0, 7)], vec![Extent::Stored { at: 0, bytes: 7 }]));
        assert!(!found.totals.pays());
        assert!(!Found::nothing(0).totals.pays());
        assert_eq!(recipes(&super::tests::found(&[], 1), 1), (vec![], vec![]));
    }

    #[test]
    fn blocks_have_their_length() {
        let pieces = [(10, 5), (100, 1), (50, 9)].map(|(offset, bytes)| Ok(Piece { offset, bytes }));
        let cut: Vec<Vec<(u64, u64)>> = blocks(pieces.into_iter(), 4)
            .map(|block| block.unwrap().iter().map(|p| (p.offset, p.bytes)).collect())
            .collect();
        assert_eq!(cut, [vec![(10, 4)], vec![(14, 1), (100, 1), (50, 2)], vec![(52, 4)], vec![(56, 3)],]);
    }

    proptest! {
        /// As a plan with everything in memory has it, whatever memory there is.
        #[test]
        fn memory_does_not_change_the_recipes(
            parts in proptest::collection::vec((0u64..60, proptest::option::of([0u64..40, 0u64..40, 0u64..90, 0u64..90])), 0..300),
            table_bytes in 1usize..5000,
        ) {
            // A chunk's content decides its super-features.
            let contents: Vec<Vec<u8>> = (0..60).map(|n| vec![n as u8; 1 + n as usize % 7]).collect();
            let mut features_of: HashMap<u64, Option<[u64; 4]>> = HashMap::new();
            let parts: Vec<(&[u8], Option<[u64; 4]>)> = parts
                .iter()
                .map(|(n, features)| (&contents[*n as usize][..], *features_of.entry(*n).or_insert(*features)))
                .collect();
            let small = found(&parts, table_bytes);
            prop_assert_eq!(recipes(&small, table_bytes), recipes(&found(&parts, 1 << 20), 1 << 20));
            let mut seen: HashMap<&[u8], u64> = HashMap::new();
            let mut tables: [HashMap<u64, u64>; 4] = Default::default();
            let mut chunk = 0;
            for (part, (bytes, features)) in small.parts().zip(joined_zeros(&parts)) {
                let part = part.unwrap();
                prop_assert_eq!(part.bytes, bytes.len() as u64);
                let expected = if bytes.iter().all(|b| *b == 0) {
                    What::Zeros
                } else if let Some(first) = seen.get(&bytes[..]) {
                    What::Equal(chunk, *first)
                } else {
                    let features = features.unwrap_or([u64::MAX; 4]);
                    let first = tables.iter().zip(features).find_map(|(t, f)| t.get(&f).filter(|_| f != u64::MAX));
                    match first {
                        Some(first) => What::Similar(chunk, *first),
                        None => {
                            for (table, feature) in tables.iter_mut().zip(features) {
                                table.insert(feature, chunk);
                            }
                            What::Own(chunk)
                        }
                    }
                };
                if expected != What::Zeros {
                    if let Some((key, _)) = parts.iter().find(|(b, _)| b[..] == bytes[..]) {
                        seen.entry(key).or_insert(chunk);
                    }
                    chunk += 1;
                }
                prop_assert_eq!(part.what, expected);
            }
        }
    }

    /// Zeros that follow each other are one part.
    fn joined_zeros(parts: &[(&[u8], Option<[u64; 4]>)]) -> Vec<(Vec<u8>, Option<[u64; 4]>)> {
        let mut joined: Vec<(Vec<u8>, Option<[u64; 4]>)> = Vec::new();
        for (bytes, features) in parts {
            match joined.last_mut() {
                Some((last, _)) if last.iter().chain(*bytes).all(|b| *b == 0) => {
                    last.extend_from_slice(bytes)
                }
                _ => joined.push((bytes.to_vec(), *features)),
            }
        }
        joined
    }
}
