//! What is damaged, forged, changed meanwhile, or cannot be read or written.

use crate::{archived, options, restored, versions, COMPRESSORS, MEMORY};
use archive::mzip::{compress, Archive, Mover, MzipError, Progress, ReadAt, Source};
use format::mzip::{Compressor, Extent, Footer, Head, Index, Page, PlaceSum, FOOTER_BYTES};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every byte belongs to something that has a checksum.
#[test]
fn damage_is_found_wherever_it_is() {
    let input = versions(6, 60, 3);
    for (compressor, delta) in COMPRESSORS.into_iter().map(|c| (c, false)).chain([(Compressor::Zstd, true)]) {
        let mut options = options(compressor, "cdc:2k", 64 << 20);
        options.delta = delta;
        let (archive, done) = archived(&input, &options);
        assert!(done.mover.is_some());
        let step = archive.len() / 400 + 1;
        let places = (0..archive.len()).step_by(step).chain(0..96).chain(archive.len() - 200..archive.len());
        for at in places {
            let mut wrong = archive.clone();
            wrong[at] ^= 1;
            match tested(&wrong) {
                Err(MzipError::Damaged { offset, .. }) => {
                    // The part that it is in begins there.
                    assert!(offset <= at as u64 || at >= archive.len() - 64, "{offset} for {at}");
                }
                // The version is looked at before its checksum.
                Err(MzipError::Newer(_)) => assert!((8..12).contains(&at)),
                other => panic!("{other:?} for byte {at}"),
            }
        }
        for len in (0..archive.len()).step_by(step) {
            assert!(matches!(tested(&archive[..len]), Err(MzipError::Damaged { .. })), "{len}");
        }
        assert!(matches!(tested(&[&archive[..], b"x"].concat()), Err(MzipError::Damaged { .. })));
    }
}

fn tested(archive: &[u8]) -> Result<(), MzipError> {
    Archive::open(&archive, MEMORY)?.test(64 << 20, 2, &Progress::default())
}

/// A file that cannot be read to its end.
struct Failing(u64, io::ErrorKind);

impl ReadAt for Failing {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + bytes.len() as u64 > 3 << 20 {
            return Err(self.1.into());
        }
        Ok(())
    }
}

/// A file of which a byte is another one in some of its readings, counted from 0.
struct Changing<'a> {
    bytes: &'a [u8],
    at: usize,
    readings: Range<usize>,
    seen: AtomicUsize,
}

impl ReadAt for Changing<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_at(bytes, offset)?;
        let range = offset as usize..offset as usize + bytes.len();
        if range.contains(&self.at) && self.readings.contains(&self.seen.fetch_add(1, Ordering::Relaxed)) {
            bytes[self.at - range.start] ^= 1;
        }
        Ok(())
    }
}

/// Else what others are equal to would come back with what it has become, and deltas would belong to what is nowhere.
#[test]
fn what_changes_between_readings_is_refused() {
    let input = versions(3, 60, 3);
    // The last one has nothing to move, and is read again in its own order.
    let noise = testing::noise(9, input.len());
    for (input, mover, delta, least) in [
        (&input, Mover::Chunk, false, 15),
        (&input, Mover::MultiPass, false, 15),
        (&input, Mover::Chunk, true, 15),
        (&noise, Mover::Chunk, false, 60),
    ] {
        let mut options = options(Compressor::Zstd, "cdc:2k", 64 << 20);
        (options.mover, options.delta) = (Some(mover), delta);
        for (readings, is_back) in [(1..usize::MAX, false), (1..2, true)] {
            let mut refused = 0;
            for at in (0..input.len()).step_by(input.len() / 60) {
                let (readings, seen) = (readings.clone(), AtomicUsize::new(0));
                let changing = Changing { bytes: input, at, readings, seen };
                let mut archive = Vec::new();
                match compress(Source::At(&changing), &mut archive, &options, &Progress::default()) {
                    Err(MzipError::Changed) => refused += 1,
                    // What others are equal to is read again, they are not.
                    Ok(_) => {
                        assert!(restored(&archive, None, 64 << 20).unwrap() == *input, "{mover:?}, {at}")
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(refused >= least, "{mover:?}, {delta}, {is_back}: {refused}");
        }
    }
}

/// An archive whose parts are all sound, but not where the original had them.
#[test]
fn a_wrong_recipe_is_found_by_the_sum() {
    let golden = include_bytes!("../../../format/tests/golden/mzip-sum");
    let body = golden.windows(4).position(|bytes| bytes == b"BLCK").unwrap();
    let extents = [
        Extent::Stored { at: 0, bytes: 3 },
        Extent::Zeros { bytes: 5000 },
        Extent::Stored { at: 3, bytes: 3 },
        Extent::Stored { at: 6, bytes: 2 },
    ];
    let page = Page::encode(&extents, false);
    let footer_at = golden.len() - FOOTER_BYTES;
    let mut footer = Footer::decode(golden[footer_at..].try_into().unwrap()).unwrap();
    let index = Index { pages: vec![(page.len() as u32, 5008)], blocks: vec![56] };
    footer.index_checksum = xxhash_rust::xxh3::xxh3_64(&index.encode());
    let index_at = footer_at - 16;
    let (head, blocks) = (&golden[..32], &golden[body..index_at]);
    let archive = [head, &page, blocks, &index.encode(), &footer.encode()].concat();
    let wrong = restored(&archive, None, 64 << 20).unwrap_err();
    assert!(wrong.to_string().contains("the restored file has the sum"), "{wrong}");
    assert!(tested(&archive).is_err());
    // Of a part there is no sum.
    assert_eq!(restored(&archive, Some(5003..5008), 64 << 20).unwrap(), b"bbbcc");
}

/// An archive as a forger makes it: nearly all of it are zeros, of which an index has as many as it likes.
struct Forged {
    head: Vec<u8>,
    footer: Vec<u8>,
    len: u64,
}

impl ReadAt for Forged {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(bytes.len() <= 1 << 20, "{} bytes are read at once", bytes.len());
        bytes.fill(0);
        match offset {
            0 => bytes.copy_from_slice(&self.head[..bytes.len()]),
            _ if offset == self.len - self.footer.len() as u64 => bytes.copy_from_slice(&self.footer),
            _ => {}
        }
        Ok(())
    }
}

/// However many blocks an archive says it has, they take no more memory than is granted.
#[test]
fn an_index_takes_no_more_than_was_granted() {
    let blocks = 150_000_000u64;
    let stored_bytes = blocks * 4096;
    let head = Head {
        compressor: Compressor::Zstd,
        level: 3,
        migrated: false,
        deltas: false,
        far: false,
        summed: false,
        block_bytes: 4096,
    };
    let sum = PlaceSum::default();
    let footer =
        Footer { original_bytes: stored_bytes, stored_bytes, pages: 0, blocks, index_checksum: 0, sum };
    let len = 32 + blocks * 48 + blocks * 4 + 64;
    let forged = Forged { head: head.encode().to_vec(), footer: footer.encode().to_vec(), len };
    let refused = Archive::open(&forged, 32 << 20).map(|_| ()).unwrap_err();
    assert!(matches!(refused, MzipError::Memory(_)), "{refused}");
    let needed = refused.to_string();
    assert!(needed.starts_with("it needs --memory 1"), "{needed}");
}

#[test]
fn what_cannot_be_read_or_written_is_an_error() {
    let options = options(Compressor::Zstd, "cdc:8k", 64 << 20);
    let progress = Progress::default();
    let unread = |kind| {
        compress(Source::At(&Failing(20 << 20, kind)), &mut io::sink(), &options, &progress).unwrap_err()
    };
    assert!(matches!(unread(io::ErrorKind::PermissionDenied), MzipError::Read(_)));
    assert!(matches!(unread(io::ErrorKind::UnexpectedEof), MzipError::Changed), "it has become shorter");
    let mut full = [0; 100];
    let unwritten = compress(Source::At(&versions(1, 60, 2)), &mut &mut full[..], &options, &progress);
    assert!(matches!(unwritten, Err(MzipError::Write(_))));
    let mut elsewhere = options.clone();
    elsewhere.scratch = "/none".into();
    elsewhere.memory = 1 << 20;
    let noise = testing::noise(1, 8 << 20);
    let unkept = compress(Source::Stream(&mut &noise[..]), &mut io::sink(), &elsewhere, &progress);
    assert!(matches!(unkept, Err(MzipError::Scratch(_))));
}
