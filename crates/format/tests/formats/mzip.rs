//! An mzip archive that was written once is read for ever.
//!
//! `SAPWOOD_BLESS=1 cargo test -p format --test formats mzip` writes the file anew: only before a version is released.

use format::mzip::{
    BlockHead, Body, Compressor, Extent, FarBody, FarMatch, FarMatches, Footer, Head, Index, Page, PageHead,
    PlaceSum, BLOCK_HEAD_BYTES, DELTA_PAGE_EXTENTS_MAX, FOOTER_BYTES, HEAD_BYTES, PAGE_EXTENTS_MAX,
    PAGE_HEAD_BYTES,
};
use proptest::prelude::*;
use std::path::PathBuf;
use xxhash_rust::xxh3::xxh3_64;

const EXTENTS: [Extent; 4] = [
    Extent::Stored { at: 0, bytes: 3 },
    Extent::Zeros { bytes: 5000 },
    Extent::Stored { at: 6, bytes: 2 },
    Extent::Stored { at: 3, bytes: 3 },
];

fn page(bytes: &[u8], deltas: bool) -> Result<(PageHead, Vec<Extent>), format::Malformed> {
    let (head, body) = bytes.split_at(PAGE_HEAD_BYTES);
    let head = PageHead::decode(head.try_into().unwrap())?;
    let extents = Page::decode(&head, body, deltas)?;
    Ok((head, extents))
}

/// What the page says is the original: aaa, zeros, cc, bbb.
#[test]
fn an_archive_is_read_as_it_was_written() {
    written_and_read("mzip", false);
}

/// The same with the sum of the original.
#[test]
fn an_archive_with_a_sum_is_read_as_it_was_written() {
    written_and_read("mzip-sum", true);
}

fn written_and_read(name: &str, summed: bool) {
    let head = Head {
        compressor: Compressor::Xz,
        level: 6,
        migrated: true,
        deltas: false,
        far: false,
        summed,
        block_bytes: 4096,
    };
    let original = [&b"aaa"[..], &[0; 5000], b"cc", b"bbb"].concat();
    let sum = PlaceSum::of(0, &original);
    assert_eq!(sum.value(), 10_880_572_210_400_919_668);
    let content = b"aaabbbcc";
    let block = BlockHead {
        number: 0,
        body: Body::Raw,
        content_bytes: 8,
        body_bytes: 8,
        body_checksum: xxh3_64(content),
        content_checksum: xxh3_64(content),
    };
    let page_bytes = Page::encode(&EXTENTS, false);
    let index = Index {
        pages: vec![(page_bytes.len() as u32, 5008)],
        blocks: vec![(BLOCK_HEAD_BYTES + content.len()) as u32],
    };
    let index_bytes = index.encode();
    let footer = Footer {
        original_bytes: 5008,
        stored_bytes: 8,
        pages: 1,
        blocks: 1,
        index_checksum: xxh3_64(&index_bytes),
        sum: if summed { sum } else { PlaceSum::default() },
    };
    let parts: [&[u8]; 6] =
        [&head.encode(), &page_bytes, &block.encode(), content, &index_bytes, &footer.encode()];
    let archive = parts.concat();

    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, &archive).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    // What zstd makes of a page may be another frame one day.
    assert!(golden == archive, "written differently");
    assert_eq!(Head::decode(golden[..HEAD_BYTES].try_into().unwrap()), Ok(head));
    let footer_at = golden.len() - FOOTER_BYTES;
    assert_eq!(Footer::decode(golden[footer_at..].try_into().unwrap()), Ok(footer));
    let index_at = footer_at - footer.index_bytes().unwrap() as usize;
    assert_eq!(Index::decode(&footer, &golden[index_at..footer_at]), Ok(index));
    let block_at = HEAD_BYTES + page_bytes.len();
    let (page_head, extents) = page(&golden[HEAD_BYTES..block_at], false).unwrap();
    assert_eq!((extents.as_slice(), page_head.original_bytes), (&EXTENTS[..], 5008));
    let at = block_at + BLOCK_HEAD_BYTES;
    assert_eq!(BlockHead::decode(golden[block_at..at].try_into().unwrap()), Ok(block));
}

#[test]
fn what_no_program_writes_is_refused() {
    let head = Head {
        compressor: Compressor::Gzip,
        level: 9,
        migrated: false,
        deltas: false,
        far: false,
        summed: false,
        block_bytes: 1 << 20,
    };
    let mut newer = head.encode();
    newer[8] = 5;
    assert!(Head::decode(&newer).unwrap_err().newer);
    for block_bytes in [0, 4095, (64 << 20) + 1] {
        assert!(Head::decode(&Head { block_bytes, ..head }.encode()).is_err(), "{block_bytes}");
    }
    let block = BlockHead {
        number: 7,
        body: Body::Packed,
        content_bytes: 9,
        body_bytes: 8,
        body_checksum: 1,
        content_checksum: 2,
    };
    assert_eq!(BlockHead::decode(&block.encode()), Ok(block));
    for wrong in [
        BlockHead { content_bytes: 0, body_bytes: 0, ..block },
        BlockHead { content_bytes: (64 << 20) + 1, ..block },
        BlockHead { body_bytes: 10, ..block },
        BlockHead { body: Body::Raw, ..block },
    ] {
        assert!(BlockHead::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
    let footer = Footer {
        original_bytes: 0,
        stored_bytes: 0,
        pages: u32::MAX,
        blocks: u64::MAX / 4,
        index_checksum: 0,
        sum: PlaceSum::default(),
    };
    assert_eq!(footer.index_bytes(), None);
    let longest = Footer { original_bytes: i64::MAX as u64, ..footer };
    assert_eq!(Footer::decode(&longest.encode()), Ok(longest));
    assert!(Footer::decode(&Footer { original_bytes: 1 << 63, ..footer }.encode()).is_err());
    let extents = [
        (Extent::Zeros { bytes: 0 }, false),
        (Extent::Stored { at: 5, bytes: 0 }, false),
        (Extent::Delta { at: 9, delta_bytes: 0, base_at: 5, base_bytes: 1, bytes: 7 }, true),
        (Extent::Delta { at: 9, delta_bytes: 1, base_at: 5, base_bytes: 0, bytes: 7 }, true),
        (Extent::Delta { at: 9, delta_bytes: 1, base_at: 5, base_bytes: 1, bytes: 0 }, true),
    ];
    for (extent, deltas) in extents {
        assert!(page(&Page::encode(&[extent], deltas), deltas).is_err(), "{extent:?}");
    }
    assert!(Compressor::ALL.iter().all(|c| Compressor::named(c.name()) == Some(*c)));
    assert_eq!(Compressor::named("lz4"), None);
}

fn extents(deltas: bool) -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0u8..if deltas { 3 } else { 2 }, 0u64..1 << 50, 1u64..1 << 40);
    let extent = extent.prop_map(|(kind, at, bytes)| match kind {
        0 => Extent::Zeros { bytes },
        1 => Extent::Stored { at, bytes },
        _ => Extent::Delta {
            at,
            delta_bytes: 1 + bytes % 5000,
            base_at: at >> 7,
            base_bytes: 1 + bytes % (1 << 20),
            bytes: 1 + bytes % 70_000,
        },
    });
    proptest::collection::vec(extent, 0..300)
}

proptest! {
    #[test]
    fn pages_come_back(plain in extents(false), with_deltas in extents(true)) {
        for (extents, deltas) in [(plain, false), (with_deltas, true)] {
            prop_assert_eq!(page(&Page::encode(&extents, deltas), deltas).unwrap().1, extents);
        }
    }

    /// With checksums that are right, whatever the body is.
    #[test]
    fn no_page_panics(raw in proptest::collection::vec(any::<u8>(), 0..200), extents in 0u32..100) {
        let mut body = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        zstd_safe::compress(&mut body, &raw, 1).unwrap();
        let head = PageHead {
            body_bytes: body.len() as u32,
            raw_bytes: raw.len() as u32,
            extents,
            original_bytes: 0,
            checksum: xxh3_64(&body),
        };
        let _ = (Page::decode(&head, &body, false), Page::decode(&head, &body, true));
    }
}

#[test]
fn the_largest_page_is_within_its_limits() {
    let far = |n: u64| Extent::Stored { at: if n % 2 == 0 { 0 } else { 1 << 62 }, bytes: 1 << 47 };
    let extents: Vec<Extent> = (0..PAGE_EXTENTS_MAX as u64).map(far).collect();
    assert_eq!(page(&Page::encode(&extents, false), false).unwrap().1, extents);
    let delta = |n: u64| Extent::Delta {
        at: if n % 2 == 0 { 0 } else { 1 << 62 },
        delta_bytes: 1 << 20,
        base_at: 1 << 61,
        base_bytes: 1 << 20,
        bytes: 1 << 20,
    };
    let extents: Vec<Extent> = (0..DELTA_PAGE_EXTENTS_MAX as u64).map(delta).collect();
    assert_eq!(page(&Page::encode(&extents, true), true).unwrap().1, extents);
}

/// abcdefgh…, and the same with a change, as a delta.
#[test]
fn an_archive_with_deltas_is_read_as_it_was_written() {
    let head = Head {
        compressor: Compressor::Zstd,
        level: 3,
        migrated: true,
        deltas: true,
        far: false,
        summed: false,
        block_bytes: 4096,
    };
    let (base, changed) = delta_of_golden();
    let mut delta = Vec::with_capacity(1000);
    let mut context = zstd_safe::CCtx::create();
    context.ref_prefix(&base).unwrap();
    context.compress2(&mut delta, &changed).unwrap();
    let content = [&base[..], &delta].concat();
    let extents = [
        Extent::Stored { at: 0, bytes: base.len() as u64 },
        Extent::Delta {
            at: base.len() as u64,
            delta_bytes: delta.len() as u64,
            base_at: 0,
            base_bytes: base.len() as u64,
            bytes: changed.len() as u64,
        },
    ];
    let block = BlockHead {
        number: 0,
        body: Body::Raw,
        content_bytes: content.len() as u32,
        body_bytes: content.len() as u32,
        body_checksum: xxh3_64(&content),
        content_checksum: xxh3_64(&content),
    };
    let original_bytes = (base.len() + changed.len()) as u64;
    let page_bytes = Page::encode(&extents, true);
    let index = Index {
        pages: vec![(page_bytes.len() as u32, original_bytes)],
        blocks: vec![(BLOCK_HEAD_BYTES + content.len()) as u32],
    };
    let index_bytes = index.encode();
    let footer = Footer {
        original_bytes,
        stored_bytes: content.len() as u64,
        pages: 1,
        blocks: 1,
        index_checksum: xxh3_64(&index_bytes),
        sum: PlaceSum::default(),
    };
    let parts: [&[u8]; 6] =
        [&head.encode(), &page_bytes, &block.encode(), &content, &index_bytes, &footer.encode()];
    let archive = parts.concat();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mzip-deltas");
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, &archive).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == archive, "written differently");
    assert_eq!(Head::decode(golden[..HEAD_BYTES].try_into().unwrap()), Ok(head));
    let page_end = HEAD_BYTES + page_bytes.len();
    assert_eq!(page(&golden[HEAD_BYTES..page_end], true).unwrap().1, extents);
    // Without its flag, or of the first version, there is no such head.
    for (at, wrong) in [(14, 1), (14, 2), (8, 1)] {
        let mut bytes = head.encode();
        bytes[at] = wrong;
        let seal = xxh3_64(&bytes[..24]).to_le_bytes();
        bytes[24..].copy_from_slice(&seal);
        assert!(Head::decode(&bytes).is_err(), "{at}");
    }
    let long = Extent::Delta { at: 0, delta_bytes: 1, base_at: 5, base_bytes: (1 << 20) + 1, bytes: 7 };
    assert!(page(&Page::encode(&[long], true), true).is_err());
}

/// abcdabcd…, and three such letters again behind others.
#[test]
fn an_archive_with_far_matches_is_read_as_it_was_written() {
    let head = Head {
        compressor: Compressor::Gzip,
        level: 10,
        migrated: false,
        deltas: false,
        far: true,
        summed: false,
        block_bytes: 1 << 20,
    };
    let content = [&b"abcd".repeat(100)[..], b"efghijkl", &b"bcda".repeat(300)].concat();
    let found = [
        FarMatch { literals: 4, bytes: 396, distance: 4 },
        FarMatch { literals: 8, bytes: 398, distance: 407 },
        FarMatch { literals: 0, bytes: 802, distance: 4 },
    ];
    let mut matches = FarMatches::default();
    found.into_iter().for_each(|found| matches.push(found));
    let body = [&matches.encode(12)[..], b"abcdefghijkl"].concat();
    let block = BlockHead {
        number: 0,
        body: Body::Far,
        content_bytes: content.len() as u32,
        body_bytes: body.len() as u32,
        body_checksum: xxh3_64(&body),
        content_checksum: xxh3_64(&content),
    };
    let index = Index { pages: Vec::new(), blocks: vec![(BLOCK_HEAD_BYTES + body.len()) as u32] };
    let index_bytes = index.encode();
    let footer = Footer {
        original_bytes: content.len() as u64,
        stored_bytes: content.len() as u64,
        pages: 0,
        blocks: 1,
        index_checksum: xxh3_64(&index_bytes),
        sum: PlaceSum::default(),
    };
    let parts: [&[u8]; 5] = [&head.encode(), &block.encode(), &body, &index_bytes, &footer.encode()];
    let archive = parts.concat();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mzip-far");
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, &archive).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == archive, "written differently");
    assert_eq!(Head::decode(golden[..HEAD_BYTES].try_into().unwrap()), Ok(head));
    let body_at = HEAD_BYTES + BLOCK_HEAD_BYTES;
    let read = &golden[body_at..body_at + body.len()];
    let (read, literals) = FarBody::decode(read, content.len() as u32).unwrap();
    assert_eq!((read.literal_bytes, literals), (12, &b"abcdefghijkl"[..]));
    assert_eq!(read.matches().unwrap().collect::<Vec<_>>(), found);
    for (migrated, deltas) in [(true, false), (true, true)] {
        for (far, summed) in [(true, false), (true, true), (false, true)] {
            let head = Head { migrated, deltas, far, summed, ..head };
            assert_eq!(Head::decode(&head.encode()), Ok(head));
        }
    }
    // Deltas are in pages; and an older version has no such flag.
    for (at, wrong) in [(14, 6), (14, 12), (14, 20), (8, 1), (8, 2)] {
        let mut bytes = head.encode();
        bytes[at] = wrong;
        let seal = xxh3_64(&bytes[..24]).to_le_bytes();
        bytes[24..].copy_from_slice(&seal);
        assert!(Head::decode(&bytes).is_err(), "{at}");
    }
}

fn delta_of_golden() -> (Vec<u8>, Vec<u8>) {
    let base: Vec<u8> = (0..400u32).map(|n| (n * n * 7 % 251) as u8).collect();
    let mut changed = base.clone();
    changed[200] ^= 1;
    changed.extend_from_slice(b"more");
    (base, changed)
}
