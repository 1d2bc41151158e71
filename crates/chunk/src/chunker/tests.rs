use super::*;
use proptest::prelude::*;

#[test]
fn specs_read_and_write() {
    for (text, spec) in [
        ("4k", ChunkSpec::Fixed { bytes: 4096 }),
        ("32k", ChunkSpec::Fixed { bytes: 32768 }),
        ("512", ChunkSpec::Fixed { bytes: 512 }),
        ("cdc:4k", ChunkSpec::ContentDefined { min: 1024, average: 4096, max: 16384 }),
        ("cdc:2k,4k,64k", ChunkSpec::ContentDefined { min: 2048, average: 4096, max: 65536 }),
    ] {
        assert_eq!(text.parse(), Ok(spec));
        assert_eq!(spec.to_string(), text);
    }
    assert_eq!("fixed:12K".parse(), Ok(ChunkSpec::Fixed { bytes: 12288 }));
    assert_eq!("1m".parse(), Ok(ChunkSpec::Fixed { bytes: 1 << 20 }));
}

#[test]
fn what_is_no_spec_says_why() {
    for text in ["", "k", "4q", "+4k", "gear:4k", "cdc:", "cdc:4k,8k", "5000000000", "4194304m", "é"] {
        assert_eq!(text.parse::<ChunkSpec>(), Err(SpecError::Form { text: text.to_owned() }));
    }
    for text in ["0", "100", "32m"] {
        assert!(matches!(text.parse::<ChunkSpec>(), Err(SpecError::FixedRange { .. })), "{text}");
    }
    for text in ["cdc:0", "cdc:128", "cdc:4k,4k,8k", "cdc:1k,8k,4k", "cdc:8m"] {
        assert!(matches!(text.parse::<ChunkSpec>(), Err(SpecError::ContentRange { .. })), "{text}");
    }
}

fn stream(label: &str, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new().update(label.as_bytes()).finalize_xof().fill(&mut data);
    data
}

fn pieces(segment: &[u8], spec: &str) -> Vec<Piece> {
    let mut out = Vec::new();
    cut(segment, spec.parse().unwrap(), &mut out);
    out
}

/// Data with null ranges of many lengths and alignments.
fn mixed() -> impl Strategy<Value = Vec<u8>> {
    let range = (any::<bool>(), prop_oneof![0usize..9000, (0usize..4).prop_map(|n| n * 4096)]);
    prop::collection::vec(range, 0..12).prop_map(|ranges| {
        let mut data = Vec::new();
        for (no, (null, bytes)) in ranges.into_iter().enumerate() {
            if null {
                data.resize(data.len() + bytes, 0);
            } else {
                data.extend(stream(&no.to_string(), bytes));
            }
        }
        data
    })
}

/// The definition in docs/format/chunking.md, word for word.
fn naive_content_defined(segment: &[u8], min: u32, average: u32, max: u32) -> Vec<Piece> {
    let hash = |at: usize| {
        let word = |from: usize| u64::from(u32::from_le_bytes(segment[from..from + 4].try_into().unwrap()));
        let mixed = (word(at - 4) + (word(at - 12) << 13)) % (1 << 32) * 0x5FCF_773B % (1 << 32);
        let sum = word(at - 8) + (word(at - 16) << 9) + (mixed ^ (mixed >> 15));
        let sum = sum % (1 << 32) * 0x267F_6FE3 + 0x06B6_E341;
        sum % (1 << 32)
    };
    let null = |at: usize| segment[at..segment.len().min(at + 4096)].iter().all(|b| *b == 0);
    let mut out = Vec::new();
    let mut at = 0;
    while at < segment.len() {
        let from = at;
        let run = |null_wanted: bool| {
            let mut to = from;
            while to < segment.len() && null(to) == null_wanted {
                to = segment.len().min(to + 4096);
            }
            to
        };
        if null(at) {
            at = run(true);
            out.push(Piece::Null { bytes: (at - from) as u32 });
            continue;
        }
        let end = run(false);
        while at < end {
            let start = at;
            at += 1;
            loop {
                let bytes = (at - start) as u32;
                if at == end || bytes == max {
                    break;
                }
                let numerator = if bytes < average - average / 8 { 1 << 30 } else { 1 << 34 };
                let threshold = numerator / u64::from(average);
                if bytes >= min && hash(at) < threshold {
                    break;
                }
                at += 1;
            }
            out.push(Piece::Data { bytes: (at - start) as u32 });
        }
    }
    out
}

proptest! {
    #[test]
    fn fixed_cuts_tile_and_tell_nulls(data in mixed(), blocks in 1u32..20) {
        let bytes = blocks * 512;
        let mut got = Vec::new();
        cut(&data, ChunkSpec::Fixed { bytes }, &mut got);
        let mut at = 0;
        for (no, piece) in got.iter().enumerate() {
            let range = &data[at..at + piece.bytes() as usize];
            let is_last = at + range.len() == data.len();
            prop_assert!(is_last || piece.bytes() % bytes == 0);
            match piece {
                Piece::Null { .. } => {
                    prop_assert!(range.iter().all(|byte| *byte == 0));
                    let merged = !matches!(got.get(no + 1), Some(Piece::Null { .. }));
                    prop_assert!(merged);
                }
                Piece::Data { .. } => {
                    prop_assert!(range.iter().any(|byte| *byte != 0));
                    prop_assert!(range.len() == bytes as usize || is_last);
                }
            }
            prop_assert!(!range.is_empty());
            at += range.len();
        }
        prop_assert_eq!(at, data.len());
    }

    #[test]
    fn content_defined_cuts_follow_the_definition(
        data in mixed(),
        (min, average, max) in prop_oneof![
            Just((1024u32, 4096u32, 16384u32)), Just((64, 256, 1024)), Just((64, 65, 66)),
            (64u32..500, 1u32..500, 1u32..3000).prop_map(|(a, b, c)| (a, a + b, a + b + c)),
        ],
    ) {
        let mut got = Vec::new();
        cut(&data, ChunkSpec::ContentDefined { min, average, max }, &mut got);
        prop_assert_eq!(&got, &naive_content_defined(&data, min, average, max));
    }

    #[test]
    fn any_spec_reads_back(numbers in (64u32..1 << 20, 1u32..1 << 20, 1u32..1 << 20)) {
        let (min, average, max) = (numbers.0, numbers.0 + numbers.1, numbers.0 + numbers.1 + numbers.2);
        let fixed = ChunkSpec::Fixed { bytes: min / 64 * 512 };
        for spec in [fixed, ChunkSpec::ContentDefined { min, average, max }] {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}

#[test]
fn content_moved_by_an_insertion_is_found_again() {
    let original = stream("insertion", 4 << 20);
    let known: std::collections::HashSet<&[u8]> = chunks(&original).collect();
    let edits = 16;
    let mut moved = Vec::new();
    for (no, part) in original.chunks(original.len() / edits).enumerate() {
        moved.extend(stream(&no.to_string(), 1 + no * 7));
        moved.extend(part);
    }
    let found: usize = chunks(&moved).filter(|c| known.contains(c)).map(<[u8]>::len).sum();
    assert!(found as f64 > 0.97 * moved.len() as f64, "{found} of {}", moved.len());
}

fn chunks(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    pieces(data, "cdc:4k").into_iter().map(move |piece| {
        let (chunk, after) = rest.split_at(piece.bytes() as usize);
        rest = after;
        chunk
    })
}

#[test]
fn the_mean_chunk_is_about_the_average() {
    for (spec, average) in [("cdc:4k", 4096), ("cdc:8k", 8192), ("cdc:32k", 32768)] {
        let data = stream(spec, 8 << 20);
        let mean = data.len() / pieces(&data, spec).len();
        assert!((average * 95 / 100..average * 110 / 100).contains(&mean), "{spec}: {mean}");
    }
}

#[test]
fn padding_is_not_cut_to_pieces() {
    for byte in [0x01, 0x20, 0xFF] {
        assert_eq!(pieces(&[byte; 40_000], "cdc:4k"), [16384, 16384, 7232].map(data));
    }
}

fn data(bytes: u32) -> Piece {
    Piece::Data { bytes }
}

fn null(bytes: u32) -> Piece {
    Piece::Null { bytes }
}

#[test]
fn golden_fixed() {
    let mut segment = stream("golden", 40_000);
    segment[4096..16384].fill(0);
    segment[39_936..].fill(0);
    let head = [data(4096), null(12288)];
    let expected = [&head[..], &[data(4096); 5][..], &[data(3136)][..]].concat();
    assert_eq!(pieces(&segment, "4k"), expected);
    assert_eq!(pieces(&segment, "12k"), [12288, 12288, 12288, 3136].map(data));
    assert_eq!(pieces(&segment[..16384], "4k"), head);
    assert_eq!(pieces(&[], "4k"), []);
    assert_eq!(pieces(&[0], "4k"), [null(1)]);
}

fn around_a_null_run(before: &[u32], after: &[u32]) -> Vec<Piece> {
    let before = before.iter().copied().map(data);
    let after = after.iter().copied().map(data);
    before.chain([null(16384)]).chain(after).chain([null(1696)]).collect()
}

#[test]
fn golden_content_defined() {
    let mut segment = stream("golden", 100_000);
    segment[40_000..60_000].fill(0);
    segment[98_304..].fill(0);
    assert_eq!(
        pieces(&segment, "cdc:4k"),
        around_a_null_run(
            &[3621, 2910, 3823, 3773, 3602, 4883, 4358, 4403, 4794, 4793],
            &[4456, 2209, 4544, 6465, 3792, 4982, 4216, 3695, 5845, 756]
        )
    );
    assert_eq!(
        pieces(&segment, "cdc:8k"),
        around_a_null_run(&[9542, 7356, 7318, 16744], &[6665, 7458, 7343, 9198, 10296])
    );
    assert_eq!(
        pieces(&segment, "cdc:512,2k,3k"),
        around_a_null_run(
            &[
                2802, 2224, 1505, 3011, 2902, 2000, 1891, 3072, 1983, 1911, 2521, 2105, 2009, 1802, 1910,
                1832, 2744, 2736
            ],
            &[
                3051, 2003, 1611, 2376, 2168, 2791, 1930, 2378, 2089, 2002, 1434, 1047, 2484, 1921, 2119,
                1823, 2368, 2133, 2476, 756
            ]
        )
    );
    assert_eq!(pieces(&[], "cdc:4k"), []);
    assert_eq!(pieces(&[0; 5000], "cdc:4k"), [null(5000)]);
    assert_eq!(pieces(&[1], "cdc:4k"), [data(1)]);
}
