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
