//! Files that are compressed, and archives that are restored. The first byte chooses; a page's checksums are made right.
#![no_main]

use archive::mzip::{
    compress, Archive, ChunkSpec, Compressor, Disk, Mover, MzipError, Options, Output, Progress,
    SimilarityMethod, Source,
};
use format::mzip::{BlockHead, Body, Footer, Head, Index, Page, PageHead, PlaceSum, PAGE_HEAD_BYTES};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are restored at most: a recipe may name more than any file has.
const RESTORED_MAX: usize = 4 << 20;
/// Enough for the largest blocks.
const MEMORY: u64 = 320 << 20;
const COMPRESSORS: [Compressor; 5] = Compressor::ALL;

fuzz_target!(|bytes: &[u8]| {
    let Some((what, rest)) = bytes.split_first() else { return };
    match what % 4 {
        0 => comes_back(rest, what / 4),
        1 => drop(restored(rest)),
        2 if what & 128 != 0 => far(rest),
        2 => block(Body::Packed, rest, COMPRESSORS[usize::from(what / 4) % COMPRESSORS.len()]),
        _ => recipe(rest, usize::from(what / 8), what & 4 != 0),
    }
});

fn comes_back(file: &[u8], how: u8) {
    let options = Options {
        compressor: COMPRESSORS[usize::from(how) % COMPRESSORS.len()],
        level: 1,
        chunk: if how & 4 == 0 { ChunkSpec::Fixed { bytes: 512 } } else { ChunkSpec::content_defined(256) },
        similarity: if how & 8 == 0 { SimilarityMethod::Odess } else { SimilarityMethod::Rabin },
        migrate: true,
        delta: how / 16 == 3,
        mover: [None, Some(Mover::Chunk), Some(Mover::MultiPass)][usize::from(how / 16 % 3)],
        disk: Disk::SOLID,
        memory: 1 << 20,
        threads: 1,
        scratch: std::env::temp_dir(),
    };
    let mut archive = Vec::new();
    let progress = Progress::default();
    compress(Source::At(&file), &mut archive, &options, &progress).expect("any file is compressed");
    assert_eq!(restored(&archive).expect("what was compressed is restored"), file);
}

/// What is restored is kept up to a limit, beyond which the output is full.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > RESTORED_MAX {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whatever an archive holds, it is restored or refused.
fn restored(archive: &[u8]) -> Option<Vec<u8>> {
    let progress = Progress::default();
    let mut to = Limited(Vec::new());
    let opened = Archive::open(&archive, MEMORY);
    let is_refused = opened.is_err();
    let tested = opened.as_ref().map_or(Ok(()), |open| open.test(MEMORY, 1, &progress));
    let done = opened.and_then(|open| {
        let len = open.summary().original_bytes;
        open.restore(0..len, Output::Stream(&mut to), MEMORY, 1, &progress)
    });
    match done {
        Ok(done) => {
            assert_eq!(done.bytes, to.0.len() as u64);
            Some(to.0)
        }
        Err(MzipError::Damaged { offset, .. }) => {
            assert!(offset <= archive.len() as u64);
            assert!(is_refused || tested.is_err(), "a test finds what a restore finds");
            None
        }
        Err(MzipError::Newer(_) | MzipError::Write(_)) => None,
        Err(e) => panic!("{e}"),
    }
}

/// A block whose body has these matches, and literals as they are.
fn far(bytes: &[u8]) {
    let [count, literal_bytes, rest @ ..] = bytes else { return };
    let (raw, literals) = rest.split_at(rest.len().saturating_sub(usize::from(*literal_bytes)));
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
    zstd_safe::compress(&mut packed, raw, 1).expect("a buffer of the bound's length");
    let fields = [u32::from(*count), raw.len() as u32, packed.len() as u32, literals.len() as u32];
    let fields = fields.map(u32::to_le_bytes).concat();
    block(Body::Far, &[&fields[..], &packed, literals].concat(), Compressor::Gzip);
}

/// An archive whose only block has this body.
fn block(kind: Body, body: &[u8], compressor: Compressor) {
    if body.is_empty() {
        return;
    }
    let content_bytes = body.len() as u32 + 1000;
    let head = BlockHead {
        number: 0,
        body: kind,
        content_bytes,
        body_bytes: body.len() as u32,
        body_checksum: xxh3_64(body),
        content_checksum: 0,
    };
    let block = [&head.encode()[..], body].concat();
    drop(restored(&archive(compressor, &[], false, &block, content_bytes.into(), content_bytes.into())));
}

/// An archive whose only page has this body, and whose only block has what is behind it.
fn recipe(bytes: &[u8], extents: usize, deltas: bool) {
    let (raw, content) = bytes.split_at(bytes.len() / 2);
    if content.is_empty() {
        return;
    }
    let mut body = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
    zstd_safe::compress(&mut body, raw, 1).expect("a buffer of the bound's length");
    let mut head = PageHead {
        body_bytes: body.len() as u32,
        raw_bytes: raw.len() as u32,
        extents: extents as u32,
        original_bytes: 0,
        checksum: xxh3_64(&body),
    };
    // The sum of what the page says, so that it is believed.
    let sum = |head: &PageHead| {
        Page::decode(head, &body, deltas).map(|all| all.iter().map(|e| e.bytes()).sum::<u64>())
    };
    let why = sum(&head).err().map(|e| e.why).unwrap_or_default();
    let said = why.strip_prefix("a recipe page gives ").and_then(|why| why.split(' ').next());
    head.original_bytes = said.and_then(|sum| sum.parse().ok()).unwrap_or(0);
    let block = BlockHead {
        number: 0,
        body: Body::Raw,
        content_bytes: content.len() as u32,
        body_bytes: content.len() as u32,
        body_checksum: xxh3_64(content),
        content_checksum: xxh3_64(content),
    };
    let block = [&block.encode()[..], content].concat();
    // What a program writes comes back as it was.
    if let Ok(extents) = Page::decode(&head, &body, deltas) {
        let again = Page::encode(&extents, deltas);
        let (again_head, again_body) = again.split_at(PAGE_HEAD_BYTES);
        let again_head = PageHead::decode(again_head.try_into().expect("of its length")).expect("just made");
        assert_eq!(Page::decode(&again_head, again_body, deltas).expect("just made"), extents);
    }
    let page = [&head.encode()[..], &body].concat();
    let len = content.len() as u64;
    drop(restored(&archive(
        Compressor::Zstd,
        &[(page, head.original_bytes)],
        deltas,
        &block,
        head.original_bytes,
        len,
    )));
}

fn archive(
    compressor: Compressor,
    pages: &[(Vec<u8>, u64)],
    deltas: bool,
    block: &[u8],
    original_bytes: u64,
    stored_bytes: u64,
) -> Vec<u8> {
    let head = Head {
        compressor,
        level: 1,
        migrated: !pages.is_empty(),
        deltas,
        far: true,
        summed: false,
        block_bytes: 1 << 20,
    };
    let mut archive = head.encode().to_vec();
    pages.iter().for_each(|(page, _)| archive.extend_from_slice(page));
    archive.extend_from_slice(block);
    let index = Index {
        pages: pages.iter().map(|(page, bytes)| (page.len() as u32, *bytes)).collect(),
        blocks: vec![block.len() as u32],
    };
    let bytes = index.encode();
    let footer = Footer {
        original_bytes,
        stored_bytes,
        pages: pages.len() as u32,
        blocks: 1,
        index_checksum: xxh3_64(&bytes),
        sum: PlaceSum::default(),
    };
    archive.extend_from_slice(&bytes);
    archive.extend_from_slice(&footer.encode());
    archive
}
