//! What a whole segment is known by: its signature (alike) and its fingerprint (equal).

use crate::fingerprint::Fingerprint;
use crate::piece::Piece;

/// Separates segment fingerprints from every other hash; part of the format.
const CONTEXT: &str = "Sapwood 2026 segment fingerprint v1";
const TAG_NULL: u8 = 0;
const TAG_DATA: u8 = 1;

/// The least prefix of a segment's chunk fingerprints, null chunks not among them; `None` where
/// there are none. Segments with equal signatures probably share chunks (VM-centric 3.1).
pub fn signature(fingerprints: &[Fingerprint]) -> Option<u64> {
    fingerprints.iter().map(Fingerprint::prefix).min()
}

/// The fingerprint of a segment that was cut into `pieces`, whose data pieces have these
/// `fingerprints`, in order. Segments cut by the same spec are equal when and only when their
/// values are; how a null range is divided into pieces makes no difference.
///
/// # Panics
/// When there are not as many fingerprints as data pieces.
pub fn segment_fingerprint(pieces: &[Piece], fingerprints: &[Fingerprint]) -> Fingerprint {
    let mut input = Vec::with_capacity(pieces.len() * 37);
    let mut fingerprints_left = fingerprints.iter();
    let mut null_bytes = 0u64;
    let push_null = |input: &mut Vec<u8>, bytes: &mut u64| {
        if *bytes > 0 {
            input.push(TAG_NULL);
            input.extend_from_slice(&bytes.to_le_bytes());
            *bytes = 0;
        }
    };
    for piece in pieces {
        match *piece {
            Piece::Null { bytes } => null_bytes += u64::from(bytes),
            Piece::Data { bytes } => {
                push_null(&mut input, &mut null_bytes);
                let fingerprint = fingerprints_left.next();
                assert!(fingerprint.is_some(), "fewer fingerprints than data pieces");
                input.push(TAG_DATA);
                input.extend_from_slice(&bytes.to_le_bytes());
                input.extend(fingerprint.iter().flat_map(|f| f.0));
            }
        }
    }
    push_null(&mut input, &mut null_bytes);
    assert!(fingerprints_left.next().is_none(), "more fingerprints than data pieces");
    Fingerprint(blake3::derive_key(CONTEXT, &input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(no: u8) -> Fingerprint {
        Fingerprint::of(&[no])
    }

    #[test]
    fn signature_is_the_least_prefix() {
        assert_eq!(signature(&[]), None);
        let all: Vec<_> = (0..200).map(fingerprint).collect();
        let mut prefixes: Vec<_> = all.iter().map(Fingerprint::prefix).collect();
        prefixes.sort_unstable();
        assert_eq!(signature(&all), Some(prefixes[0]));
        assert_eq!(signature(&all[7..8]), Some(all[7].prefix()));
    }

    #[test]
    fn golden() {
        let pieces = [
            Piece::Null { bytes: 8192 },
            Piece::Data { bytes: 4096 },
            Piece::Data { bytes: 100 },
            Piece::Null { bytes: 4096 },
        ];
        let value = segment_fingerprint(&pieces, &[fingerprint(1), fingerprint(2)]);
        let mut input = vec![0, 0, 0x20, 0, 0, 0, 0, 0, 0];
        input.extend([1, 0, 0x10, 0, 0]);
        input.extend(fingerprint(1).0);
        input.extend([1, 100, 0, 0, 0]);
        input.extend(fingerprint(2).0);
        input.extend([0, 0, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(value.0, blake3::derive_key("Sapwood 2026 segment fingerprint v1", &input));
        assert_eq!(value.to_string(), "c108953ec850c4295d4bce4499c4b08163fa84dd5866eb6ab3c91e5cc130a6b2");
    }

    #[test]
    fn what_differs_tells() {
        let (a, b) = (fingerprint(1), fingerprint(2));
        let (data, null) = (|bytes| Piece::Data { bytes }, |bytes| Piece::Null { bytes });
        let values = [
            segment_fingerprint(&[], &[]),
            segment_fingerprint(&[null(4096)], &[]),
            segment_fingerprint(&[null(8192)], &[]),
            segment_fingerprint(&[data(4096)], &[a]),
            segment_fingerprint(&[data(4096)], &[b]),
            segment_fingerprint(&[data(4095)], &[a]),
            segment_fingerprint(&[data(4096), null(4096)], &[a]),
            segment_fingerprint(&[null(4096), data(4096)], &[a]),
            segment_fingerprint(&[data(4096), data(4096)], &[a, b]),
            segment_fingerprint(&[data(4096), data(4096)], &[b, a]),
            a,
        ];
        for (no, value) in values.iter().enumerate() {
            assert!(!values[..no].contains(value), "{no}");
        }
        let divided = [null(4096), null(0), null(4096)];
        assert_eq!(segment_fingerprint(&divided, &[]), values[2]);
    }

    #[test]
    #[should_panic(expected = "fewer fingerprints")]
    fn a_missing_fingerprint_is_a_mistake() {
        segment_fingerprint(&[Piece::Data { bytes: 1 }], &[]);
    }
}
