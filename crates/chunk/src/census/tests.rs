use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn fingerprint(no: u64) -> Fingerprint {
    Fingerprint::of(&no.to_le_bytes())
}

#[test]
fn classes_and_popular_chunks() {
    let mut census = Census::with_capacity_bytes(1 << 20);
    for (no, copies) in [1, 1, 2, 3, 4, 5, 8, 9].into_iter().enumerate() {
        for _ in 0..copies {
            census.add(&fingerprint(no as u64), 1000 * (no as u32 + 1));
        }
    }
    let pieces = [Piece::Null { bytes: 8192 }, Piece::Data { bytes: 9000 }];
    census.add_pieces(&pieces, &[fingerprint(8)]);
    let report = census.report(2);
    assert!(report.is_exact());
    assert_eq!((report.chunks, report.unique_chunks, report.single_chunks), (34, 9, 3));
    assert_eq!((report.duplicate_chunks(), report.null_bytes), (25, 8192));
    let bytes = 1000 + 2000 + 2 * 3000 + 3 * 4000 + 4 * 5000 + 5 * 6000 + 8 * 7000 + 9 * 8000;
    assert_eq!((report.bytes, report.unique_bytes), (bytes + 9000, 45_000));
    assert_eq!(report.saved_bytes(), bytes - 36_000);
    let classes = report.classes.iter().map(|c| (c.copies_min, c.copies_max, c.unique_chunks, c.chunks));
    assert_eq!(
        classes.collect::<Vec<_>>(),
        [(1, 1, 3, 3), (2, 2, 1, 2), (3, 4, 2, 7), (5, 8, 2, 13), (9, 16, 1, 9)]
    );
    assert_eq!(report.classes[2].unique_bytes, 9000);
    assert_eq!(report.classes[2].bytes, 32_000);
    let popular: Vec<_> = report.popular.iter().map(|p| (p.prefix, p.copies, p.bytes)).collect();
    assert_eq!(popular, [(fingerprint(7).prefix(), 9, 8000), (fingerprint(6).prefix(), 8, 7000)]);
}

/// Rows of Paulo's tables 3.1 to 3.3 for 4 KiB blocks.
#[test]
fn ratios_and_metadata_are_those_of_the_study() {
    let report = CensusReport {
        chunks: 29_530_586,
        unique_chunks: 24_449_410,
        single_chunks: 22_610_369,
        ..CensusReport::default()
    };
    assert_eq!(report.duplicate_chunks(), 5_081_176);
    assert_eq!(format!("{:.2}", report.duplicated_share()), "0.23");
    assert_eq!(format!("{:.2}", report.duplicates_per_duplicated()), "2.76");
    let megabytes = report.metadata_bytes(MetadataCost::PAULO) as f64 / f64::from(1 << 20);
    assert!((megabytes - 971.44).abs() < 0.02, "{megabytes}");
}

#[test]
fn nothing_counted_is_no_division_by_zero() {
    let report = Census::with_capacity_bytes(0).report(10);
    assert_eq!(report, CensusReport::default());
    assert_eq!((report.duplicated_share(), report.duplicates_per_duplicated()), (0.0, 0.0));
}

#[test]
fn beyond_its_memory_it_estimates_and_says_so() {
    let cap = 1 << 20;
    let mut census = Census::with_capacity_bytes(cap);
    // Chunk n occurs 1 to 4 times, its copies far apart.
    for copy in 0..4 {
        for no in (0..500_000u64).filter(|no| no % 4 >= copy) {
            census.add(&fingerprint(no), 4096);
        }
    }
    assert!(census.memory_bytes() <= cap);
    let report = census.report(3);
    assert!(!report.is_exact());
    assert_eq!((report.chunks, report.bytes), (1_250_000, 1_250_000 * 4096));
    let near = |got: u64, expected: f64| (got as f64 / expected - 1.0).abs() < 0.03;
    assert!(near(report.unique_chunks, 500_000.0), "{report:?}");
    assert!(near(report.unique_bytes, 500_000.0 * 4096.0), "{report:?}");
    assert!(near(report.single_chunks, 125_000.0), "{report:?}");
    assert!(near(report.classes[2].unique_chunks, 250_000.0), "{report:?}");
    assert!(report.popular.iter().all(|popular| popular.copies == 4));
}

proptest! {
    #[test]
    fn equals_a_hash_map(chunks in prop::collection::vec(0u64..300, 0..2000)) {
        let mut census = Census::with_capacity_bytes(1 << 20);
        let mut model = HashMap::<u64, u64>::new();
        for &no in &chunks {
            census.add(&fingerprint(no), no as u32 + 1);
            *model.entry(no).or_default() += 1;
        }
        let report = census.report(5);
        prop_assert_eq!(report.unique_chunks, model.len() as u64);
        prop_assert_eq!(report.unique_bytes, model.keys().map(|no| no + 1).sum::<u64>());
        for class in &report.classes {
            let range = class.copies_min..=class.copies_max;
            let in_class: Vec<_> = model.values().filter(|copies| range.contains(copies)).collect();
            prop_assert_eq!(class.unique_chunks, in_class.len() as u64);
            prop_assert_eq!(class.chunks, in_class.into_iter().sum::<u64>());
        }
        let mut copies: Vec<_> = model.values().copied().collect();
        copies.sort_unstable_by(|a, b| b.cmp(a));
        copies.truncate(5);
        let got: Vec<_> = report.popular.iter().map(|popular| u64::from(popular.copies)).collect();
        prop_assert_eq!(got, copies);
    }
}
