//! Fingerprints: the identity of chunks. Batches are hashed in SIMD lanes across chunks, with the
//! same values as hashing each chunk alone.

use std::fmt;

use crate::batch::Batch;
use crate::chunker::Piece;

/// BLAKE3-256 of a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of one chunk. For many chunks [`fingerprints`] is faster.
    pub fn of(data: &[u8]) -> Self {
        Self(*blake3::hash(data).as_bytes())
    }

    /// The first 8 bytes, little endian: enough to suggest a match, never to decide one.
    pub fn prefix(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Appends to `out` the fingerprints of the pieces of `data` that have these `lengths` in bytes:
/// the first piece starts at the start of `data`, each next one where the last ended. Bytes of
/// `data` after the last piece are not read.
///
/// # Panics
/// When `lengths` add up to more than `data` holds.
pub fn fingerprints(data: &[u8], lengths: &[u32], out: &mut Vec<Fingerprint>) {
    out.reserve(lengths.len());
    let mut batch = Batch::new(out);
    let mut rest = data;
    for &length in lengths {
        let (piece, after) = rest.split_at(length as usize);
        batch.push(piece);
        rest = after;
    }
    batch.finish();
}

/// Appends to `out` the fingerprints of the data pieces of `segment`, passing over the null ones,
/// as [`cut`](crate::cut) made them.
///
/// # Panics
/// When the pieces are longer than `segment`.
pub fn fingerprint_pieces(segment: &[u8], pieces: &[Piece], out: &mut Vec<Fingerprint>) {
    out.reserve(pieces.len());
    let mut batch = Batch::new(out);
    let mut rest = segment;
    for piece in pieces {
        let (bytes, after) = rest.split_at(piece.bytes() as usize);
        if let Piece::Data { .. } = piece {
            batch.push(bytes);
        }
        rest = after;
    }
    batch.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut data);
        data
    }

    fn one_by_one(data: &[u8], lengths: &[u32]) -> Vec<Fingerprint> {
        let mut at = 0;
        lengths
            .iter()
            .map(|&length| {
                let from = at;
                at += length as usize;
                Fingerprint::of(&data[from..at])
            })
            .collect()
    }

    #[test]
    fn known_value() {
        let of_nothing = Fingerprint::of(b"");
        assert_eq!(
            of_nothing.to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(format!("{of_nothing:?}"), of_nothing.to_string());
        assert_eq!(of_nothing.prefix(), 0xa6a1_f9f5_b949_13af);
    }

    #[test]
    fn batches_of_every_size_equal_single_hashes() {
        let data = noise(512 * 1024);
        for length in [1024, 2048, 4096, 8192, 16384] {
            for count in 0..=33.min(data.len() / length) {
                let lengths = vec![length as u32; count];
                let mut got = Vec::new();
                fingerprints(&data, &lengths, &mut got);
                assert_eq!(got, one_by_one(&data, &lengths), "{count} of {length}");
            }
        }
    }

    #[test]
    fn null_pieces_have_no_fingerprint() {
        let data = noise(20_000);
        let pieces = [
            Piece::Data { bytes: 4096 },
            Piece::Null { bytes: 8192 },
            Piece::Data { bytes: 4096 },
            Piece::Data { bytes: 100 },
        ];
        let mut got = Vec::new();
        fingerprint_pieces(&data, &pieces, &mut got);
        let expected = [0..4096, 12288..16384, 16384..16484].map(|r| Fingerprint::of(&data[r]));
        assert_eq!(got, expected);
    }

    proptest! {
        #[test]
        fn any_lengths_equal_single_hashes(
            lengths in prop::collection::vec(
                prop_oneof![
                    4 => Just(4096u32), 1 => Just(1024), 1 => Just(2048), 1 => Just(8192),
                    2 => 0u32..20_000,
                ],
                0..60,
            ),
            start in 0usize..70,
        ) {
            let bytes: usize = lengths.iter().map(|&l| l as usize).sum();
            let data = noise(start + bytes + 10);
            let mut got = vec![Fingerprint([7; 32])];
            fingerprints(&data[start..], &lengths, &mut got);
            prop_assert_eq!(&got[1..], &one_by_one(&data[start..], &lengths)[..]);
        }
    }
}
