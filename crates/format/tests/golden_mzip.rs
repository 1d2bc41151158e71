//! An mzip archive that was written once is read for ever.
//!
//! `SAPWOOD_BLESS=1 cargo test -p format --test golden_mzip` writes the file anew: only before a version is released.
#![allow(clippy::unwrap_used)]

use format::mzip::{
    BlockHead, Compressor, Extent, Footer, Head, Index, Page, PageHead, BLOCK_HEAD_BYTES, FOOTER_BYTES,
    HEAD_BYTES, PAGE_EXTENTS_MAX, PAGE_HEAD_BYTES,
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

fn page(bytes: &[u8]) -> Result<(PageHead, Vec<Extent>), format::Malformed> {
    let (head, body) = bytes.split_at(PAGE_HEAD_BYTES);
    let head = PageHead::decode(head.try_into().unwrap())?;
    let extents = Page::decode(&head, body)?;
    Ok((head, extents))
}

/// What the page says is the original: aaa, zeros, cc, bbb.
#[test]
fn an_archive_is_read_as_it_was_written() {
    let head = Head { compressor: Compressor::Xz, level: 6, migrated: true, block_bytes: 4096 };
    let content = b"aaabbbcc";
    let block = BlockHead {
        number: 0,
        raw: true,
        content_bytes: 8,
        body_bytes: 8,
        body_checksum: xxh3_64(content),
        content_checksum: xxh3_64(content),
    };
    let page_bytes = Page::encode(&EXTENTS);
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
    };
    let parts: [&[u8]; 6] =
        [&head.encode(), &page_bytes, &block.encode(), content, &index_bytes, &footer.encode()];
    let archive = parts.concat();

    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mzip");
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
    let (page_head, extents) = page(&golden[HEAD_BYTES..block_at]).unwrap();
    assert_eq!((extents.as_slice(), page_head.original_bytes), (&EXTENTS[..], 5008));
    let at = block_at + BLOCK_HEAD_BYTES;
    assert_eq!(BlockHead::decode(golden[block_at..at].try_into().unwrap()), Ok(block));
}

#[test]
fn what_no_program_writes_is_refused() {
    let head = Head { compressor: Compressor::Gzip, level: 9, migrated: false, block_bytes: 1 << 20 };
    let mut newer = head.encode();
    newer[8] = 2;
    assert!(Head::decode(&newer).unwrap_err().newer);
    for block_bytes in [0, 4095, (64 << 20) + 1] {
        assert!(Head::decode(&Head { block_bytes, ..head }.encode()).is_err(), "{block_bytes}");
    }
    let block = BlockHead {
        number: 7,
        raw: false,
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
        BlockHead { raw: true, ..block },
    ] {
        assert!(BlockHead::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
    let footer = Footer {
        original_bytes: 0,
        stored_bytes: 0,
        pages: u32::MAX,
        blocks: u64::MAX / 4,
        index_checksum: 0,
    };
    assert_eq!(footer.index_bytes(), None);
    let compressors = [Compressor::Gzip, Compressor::Bzip2, Compressor::Zstd, Compressor::Xz];
    assert!(compressors.iter().all(|c| Compressor::named(c.name()) == Some(*c)));
    assert_eq!(Compressor::named("lz4"), None);
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (any::<bool>(), 0u64..1 << 50, 0u64..1 << 40);
    let extent = extent.prop_map(
        |(zeros, at, bytes)| {
            if zeros {
                Extent::Zeros { bytes }
            } else {
                Extent::Stored { at, bytes }
            }
        },
    );
    proptest::collection::vec(extent, 0..300)
}

proptest! {
    #[test]
    fn pages_come_back(extents in extents()) {
        prop_assert_eq!(page(&Page::encode(&extents)).unwrap().1, extents);
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
        let _ = Page::decode(&head, &body);
    }
}

#[test]
fn the_largest_page_is_within_its_limits() {
    let far = |n: u64| Extent::Stored { at: if n % 2 == 0 { 0 } else { 1 << 62 }, bytes: 1 << 47 };
    let extents: Vec<Extent> = (0..PAGE_EXTENTS_MAX as u64).map(far).collect();
    assert_eq!(page(&Page::encode(&extents)).unwrap().1, extents);
}
