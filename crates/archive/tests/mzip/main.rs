//! Whatever is compressed comes back byte for byte; what is damaged says so, and where.
#![allow(clippy::unwrap_used)]

mod wrong;

use archive::mzip::{
    compress, levels, Archive, Compressed, Disk, Kept, Mover, MzipError, Options, Output, Progress, ReadAt,
    Source, WriteAt,
};
use chunk::SimilarityMethod;
use format::mzip::Compressor;
use proptest::prelude::*;
use std::io;
use std::ops::Range;

const COMPRESSORS: [Compressor; 5] = Compressor::ALL;
/// For archives that are opened.
const MEMORY: u64 = 1 << 30;

fn options(compressor: Compressor, chunk: &str, memory: u64) -> Options {
    Options {
        compressor,
        level: if compressor == Compressor::Xz { 1 } else { levels(compressor).1 },
        chunk: chunk.parse().unwrap(),
        similarity: SimilarityMethod::Odess,
        migrate: true,
        delta: false,
        mover: None,
        disk: Disk::SOLID,
        memory,
        threads: 3,
        scratch: std::env::temp_dir(),
    }
}

fn archived(input: &[u8], options: &Options) -> (Vec<u8>, Compressed) {
    let (mut archive, mut again) = (Vec::new(), Vec::new());
    let done = compress(Source::At(&input), &mut archive, options, &Progress::default()).unwrap();
    assert_eq!((done.original_bytes, done.archive_bytes), (input.len() as u64, archive.len() as u64));
    compress(Source::Stream(&mut &*input), &mut again, options, &Progress::default()).unwrap();
    assert!(archive == again, "a file and a stream give the same archive");
    (archive, done)
}

/// A file in memory that is zero where nothing was written.
struct Sparse(Vec<u8>);

impl WriteAt for Sparse {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// With more memory, where it does not suffice for a block: the error says how much.
fn restored(archive: &[u8], range: Option<Range<u64>>, memory: u64) -> Result<Vec<u8>, MzipError> {
    match restored_within(archive, range.clone(), memory) {
        Err(MzipError::Memory(needed)) => restored_within(archive, range, needed),
        other => other,
    }
}

fn restored_within(archive: &[u8], range: Option<Range<u64>>, memory: u64) -> Result<Vec<u8>, MzipError> {
    let open = Archive::open(&archive, MEMORY)?;
    let range = range.unwrap_or(0..open.summary().original_bytes);
    let mut sparse = Sparse(vec![0; (range.end - range.start) as usize]);
    let progress = Progress::default();
    open.restore(range.clone(), Output::Places(&mut sparse), memory, 2, &progress)?;
    let mut stream = Vec::new();
    // A window takes more than a file does.
    let done = match open.restore(range.clone(), Output::Stream(&mut stream), memory, 2, &progress) {
        Err(MzipError::Memory(needed)) => {
            open.restore(range.clone(), Output::Stream(&mut stream), needed, 2, &progress)?
        }
        other => other?,
    };
    assert_eq!(done.bytes, range.end - range.start);
    assert!(stream == sparse.0, "a stream and a file are restored alike");
    Ok(stream)
}

/// Pages that come again with changes, as in versions of an image: similar, equal and zero chunks, far apart.
fn versions(seed: u64, pages: usize, versions: usize) -> Vec<u8> {
    let mut text: Vec<u8> = testing::noise(seed, pages * 8192).iter().map(|b| b & 0x1f | 0x40).collect();
    for page in text.chunks_mut(8192).skip(3).step_by(7) {
        page.fill(0);
    }
    let mut all = text.clone();
    for version in 1..versions {
        for (n, page) in text.chunks_mut(8192).enumerate() {
            if (n + version) % 3 == 0 {
                page[n * 31 % 8000..][..40].fill(version as u8);
            }
        }
        all.extend_from_slice(&text);
        // What follows is not where it was, modulo the chunks.
        all.extend_from_slice(&testing::noise(seed + version as u64, version * 331));
    }
    all
}

#[test]
fn versions_become_smaller_than_by_the_compressor_alone() {
    let input = versions(1, 150, 4);
    for compressor in COMPRESSORS {
        for chunk in ["cdc:8k", "4k", "cdc:2k", "32k", "fixed:12k"] {
            let options = options(compressor, chunk, 64 << 20);
            let (archive, done) = archived(&input, &options);
            assert!(done.mover.is_some(), "{compressor:?}, {chunk}: {done:?}");
            assert!(restored(&archive, None, 64 << 20).unwrap() == input, "{compressor:?}, {chunk}");
            let open = Archive::open(&archive, MEMORY).unwrap();
            open.test(64 << 20, 2, &Progress::default()).unwrap();
            let summary = open.summary();
            assert_eq!(
                (summary.original_bytes, summary.stored_bytes),
                (done.original_bytes, done.stored_bytes)
            );
            assert_eq!(done.stored_bytes + done.duplicate_bytes + done.zero_bytes, done.original_bytes);
            if chunk == "cdc:8k" {
                assert!(done.similar_bytes > input.len() as u64 / 10, "{done:?}");
                // A quarter is new, the rest only differs.
                let most = if compressor == Compressor::None { input.len() } else { input.len() / 3 };
                assert!(archive.len() < most, "{compressor:?}: {done:?}");
            }
        }
    }
}

#[test]
fn what_has_no_similar_chunks_is_stored_as_it_is() {
    let input = testing::noise(5, 5 << 20);
    for compressor in COMPRESSORS {
        let (archive, done) = archived(&input, &options(compressor, "cdc:8k", 64 << 20));
        assert_eq!(done.mover, None);
        assert!(archive.len() < input.len() + 1000, "{}", archive.len());
        assert!(restored(&archive, None, 64 << 20).unwrap() == input);
    }
    // Nor what has them, where nobody asks for them.
    let input = versions(1, 150, 4);
    let mut options = options(Compressor::Zstd, "cdc:8k", 64 << 20);
    options.migrate = false;
    let (archive, done) = archived(&input, &options);
    assert_eq!((done.mover, done.stored_bytes), (None, input.len() as u64));
    assert!(restored(&archive, None, 64 << 20).unwrap() == input);
    for short in [&[][..], &[7], &[0; 100], &[0; 10_000]] {
        options.migrate = true;
        let (archive, _) = archived(short, &options);
        assert_eq!(restored(&archive, None, 64 << 20).unwrap(), short);
    }
}

#[test]
fn ranges_read_the_blocks_that_they_need() {
    let input = versions(3, 3000, 3);
    // Little memory makes short blocks.
    let mut options = options(Compressor::Zstd, "cdc:8k", 32 << 20);
    options.level = 1;
    let (archive, _) = archived(&input, &options);
    let len = input.len() as u64;
    for range in [0..0, 0..1, len - 1..len, len..len, 5_000_000..5_000_001, 1000..1_000_000, 0..len] {
        let expected = &input[range.start as usize..range.end as usize];
        assert!(restored(&archive, Some(range.clone()), 64 << 20).unwrap() == expected, "{range:?}");
    }
    let open = Archive::open(&archive, MEMORY).unwrap();
    let blocks = open.summary().blocks;
    assert!(blocks > 5, "{blocks}");
    let mut to = Vec::new();
    let progress = Progress::default();
    let done = open.restore(1000..9000, Output::Stream(&mut to), 64 << 20, 2, &progress).unwrap();
    assert!(done.blocks_read <= 4, "{} of {blocks} blocks", done.blocks_read);
    for wrong in [0..len + 1, len + 1..len + 1] {
        let refused = open.restore(wrong, Output::Stream(&mut to), 64 << 20, 2, &progress);
        assert!(matches!(refused, Err(MzipError::Outside(n)) if n == len));
    }
    progress.stop();
    let stopped = open.restore(0..len, Output::Stream(&mut to), 64 << 20, 2, &progress);
    assert!(matches!(stopped, Err(MzipError::Stopped)));
    let stopped = compress(Source::At(&input), &mut to, &options, &progress);
    assert!(matches!(stopped, Err(MzipError::Stopped)));
}

/// With little memory a file goes through a temporary file, and comes back in many windows.
#[test]
fn memory_changes_no_byte_of_what_comes_back() {
    let input = versions(4, 1200, 3);
    let (large, _) = archived(&input, &options(Compressor::Zstd, "cdc:4k", 256 << 20));
    for memory in [1 << 16, 1 << 20, 16 << 20] {
        let (archive, _) = archived(&input, &options(Compressor::Zstd, "cdc:4k", memory));
        assert!(restored(&archive, None, memory).unwrap() == input);
        assert!(restored(&large, None, memory).unwrap() == input);
    }
    let too_little = restored_within(&large, None, 1 << 16).unwrap_err();
    assert!(too_little.to_string().contains("needs --memory "), "{too_little}");
}

/// Every mover moves the same chunks to the same places.
#[test]
fn movers_give_the_same_archive() {
    let input = versions(7, 300, 4);
    for compressor in COMPRESSORS {
        let mut options = options(compressor, "cdc:8k", 4 << 20);
        options.level = 1;
        let mut archives = Vec::new();
        for mover in [Mover::Memory, Mover::Chunk, Mover::MultiPass] {
            options.mover = Some(mover);
            let (archive, done) = archived(&input, &options);
            assert_eq!(done.mover, Some(mover));
            archives.push(archive);
        }
        assert!(archives.iter().all(|archive| *archive == archives[0]), "{compressor:?}");
        assert!(restored(&archives[0], None, 4 << 20).unwrap() == input);
        options.mover = None;
        for (disk, memory, mover) in [
            (Disk::SOLID, 4 << 20, Mover::Chunk),
            (Disk::SPINNING, 4 << 20, Mover::MultiPass),
            (Disk::SPINNING, 512 << 20, Mover::Memory),
        ] {
            (options.disk, options.memory) = (disk, memory);
            assert_eq!(archived(&input, &options).1.mover, Some(mover), "{disk:?}, {memory}");
        }
    }
}

/// What a vault has: chunks of many disks in containers, which a reader strings together as one input, and reads them again
/// by ranges of the archive.
struct Containers(Vec<Vec<u8>>);

impl ReadAt for Containers {
    fn len(&self) -> u64 {
        self.0.iter().map(|container| container.len() as u64).sum()
    }

    fn read_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        for container in &self.0 {
            let len = container.len() as u64;
            if offset < len && !bytes.is_empty() {
                let part = &container[offset as usize..];
                let taken = part.len().min(bytes.len());
                bytes[..taken].copy_from_slice(&part[..taken]);
                bytes = &mut bytes[taken..];
                offset = len;
            }
            offset -= len.min(offset);
        }
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

#[test]
fn containers_are_compressed_as_one_and_read_one_by_one() {
    // Distinct chunks, of which many resemble one of another container.
    let versions = versions(11, 250, 4);
    let chunks: Vec<&[u8]> = versions.chunks(8192).collect();
    let containers = Containers(
        (0..9).map(|n| chunks[n..].iter().step_by(9).copied().collect::<Vec<_>>().concat()).collect(),
    );
    let whole = containers.0.concat();
    let options = options(Compressor::Zstd, "8k", 16 << 20);
    let (mut archive, mut alone) = (Vec::new(), 0);
    let done = compress(Source::At(&containers), &mut archive, &options, &Progress::default()).unwrap();
    assert!(done.similar_bytes > whole.len() as u64 / 10, "{done:?}");
    for container in &containers.0 {
        let mut one = Vec::new();
        compress(Source::At(container), &mut one, &options, &Progress::default()).unwrap();
        alone += one.len();
    }
    assert!(archive.len() < alone * 3 / 4, "{} of {alone}", archive.len());
    let mut at = 0;
    for container in &containers.0 {
        let end = at + container.len() as u64;
        assert!(restored(&archive, Some(at..end), 16 << 20).unwrap() == *container);
        at = end;
    }
    assert_eq!(at, ReadAt::len(&containers));
}

/// How much is read, and whether it was read to its end.
struct Counted<'a>(&'a Vec<u8>, std::sync::atomic::AtomicU64);

impl ReadAt for Counted<'_> {
    fn len(&self) -> u64 {
        self.0.as_slice().len() as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.0.read_at(bytes, offset)
    }
}

/// A sample tells that a long file has nothing in common with itself, and does not miss what is far apart.
#[test]
fn a_long_file_is_sampled() {
    let mut options = options(Compressor::Zstd, "cdc:8k", 16 << 20);
    options.level = 1;
    let mut input = testing::noise(8, 80 << 20);
    let read = |input: &Vec<u8>| {
        let counted = Counted(input, 0.into());
        let done = compress(Source::At(&counted), &mut io::sink(), &options, &Progress::default()).unwrap();
        (done.mover, counted.1.into_inner() as f64 / input.as_slice().len() as f64)
    };
    let (mover, times) = read(&input);
    assert_eq!(mover, None);
    assert!(times < 1.2, "read {times} times");
    // The second half is the first one again, a little changed, and moved by some bytes.
    let again: Vec<u8> =
        input[1000..40 << 20].iter().enumerate().map(|(n, b)| b ^ u8::from(n % 9000 == 7)).collect();
    let at = input.len() - again.len();
    input[at..].copy_from_slice(&again);
    let (mover, _) = read(&input);
    assert_eq!(mover, Some(Mover::Chunk));
}

/// The archive that the format's test keeps.
#[test]
fn an_old_archive_is_restored() {
    let archive = include_bytes!("../../../format/tests/golden/mzip").to_vec();
    let expected = [&b"aaa"[..], &[0; 5000], b"cc", b"bbb"].concat();
    assert_eq!(restored(&archive, None, 64 << 20).unwrap(), expected);
    assert_eq!(restored(&archive, Some(5002..5006), 64 << 20).unwrap(), expected[5002..5006]);
    let summed = include_bytes!("../../../format/tests/golden/mzip-sum").to_vec();
    assert_eq!(restored(&summed, None, 64 << 20).unwrap(), expected);
    let far = include_bytes!("../../../format/tests/golden/mzip-far").to_vec();
    let expected = [&b"abcd".repeat(100)[..], b"efghijkl", &b"bcda".repeat(300)].concat();
    assert_eq!(restored(&far, None, 64 << 20).unwrap(), expected);
    assert_eq!(restored(&far, Some(405..420), 64 << 20).unwrap(), expected[405..420]);
    // Matches where the head says that there are none.
    let mut wrong = far;
    (wrong[8], wrong[14]) = (1, 0);
    let seal = xxhash_rust::xxh3::xxh3_64(&wrong[..24]).to_le_bytes();
    wrong[24..32].copy_from_slice(&seal);
    assert!(matches!(restored(&wrong, None, 64 << 20), Err(MzipError::Damaged { offset: 32, .. })));
}

/// Similar chunks as deltas: shorter than the compressor alone, whole and in parts, with much memory and little.
#[test]
fn deltas_come_back() {
    let input = versions(9, 150, 4);
    for compressor in COMPRESSORS {
        for (chunk, memory) in [("cdc:8k", 64 << 20), ("4k", 1 << 20)] {
            let mut options = options(compressor, chunk, memory);
            options.delta = true;
            let (archive, done) = archived(&input, &options);
            assert!(done.similar_bytes > input.len() as u64 / 10, "{done:?}");
            let most = if compressor == Compressor::None { input.len() } else { input.len() / 3 };
            assert!(archive.len() < most, "{compressor:?}, {chunk}: {done:?}");
            let open = Archive::open(&archive, MEMORY).unwrap();
            assert!(open.summary().deltas);
            open.test(256 << 20, 2, &Progress::default()).unwrap();
            for memory in [256 << 20, 1 << 16] {
                assert!(restored(&archive, None, memory).unwrap() == input, "{compressor:?}, {chunk}");
            }
            let len = input.len() as u64;
            for range in [0..1, len / 2..len / 2 + 1, len - 70_000..len, 3_000_001..3_500_000] {
                let expected = &input[range.start as usize..range.end as usize];
                assert!(restored(&archive, Some(range.clone()), 64 << 20).unwrap() == expected, "{range:?}");
            }
        }
    }
    let golden = include_bytes!("../../../format/tests/golden/mzip-deltas").to_vec();
    let base: Vec<u8> = (0..400u32).map(|n| (n * n * 7 % 251) as u8).collect();
    let mut changed = base.clone();
    changed[200] ^= 1;
    assert_eq!(restored(&golden, None, 64 << 20).unwrap(), [&base[..], &changed, b"more"].concat());
}

/// A pipe ends once: another program may open it again, and what it writes is another stream.
#[test]
fn a_stream_ends_where_it_ends() {
    struct Again(Vec<&'static [u8]>);
    impl io::Read for Again {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.0.first_mut() else { return Ok(0) };
            let len = part.len().min(bytes.len());
            bytes[..len].copy_from_slice(&part[..len]);
            *part = &part[len..];
            if len == 0 {
                self.0.remove(0);
            }
            Ok(len)
        }
    }
    let mut options = options(Compressor::Zstd, "2k", 64 << 20);
    for memory in [64 << 20, 1 << 20] {
        options.memory = memory;
        let mut archive = Vec::new();
        let mut stream = Again(vec![b"the first one", b"another one"]);
        compress(Source::Stream(&mut stream), &mut archive, &options, &Progress::default()).unwrap();
        assert_eq!(restored(&archive, None, 64 << 20).unwrap(), b"the first one");
        let kept = Kept::new(&mut Again(vec![b"abc", b"def"]), memory, &std::env::temp_dir()).unwrap();
        assert_eq!(kept.len(), 3);
    }
}

/// Parts of all kinds in any order, some of them again with changes.
fn structured() -> impl Strategy<Value = Vec<u8>> {
    let part = (0u64..6, 1usize..40_000, any::<u16>(), 0u8..4).prop_map(|(seed, len, at, kind)| {
        let mut bytes = testing::noise(seed, len);
        match kind {
            0 => bytes.fill(0),
            1 => bytes.iter_mut().for_each(|b| *b &= 3),
            2 => {
                let at = usize::from(at) % len;
                bytes[at] ^= 0xff;
            }
            _ => {}
        }
        bytes
    });
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn anything_comes_back(
        input in structured(),
        compressor in 0..COMPRESSORS.len(),
        (spec, method, delta) in (0usize..5, 0usize..3, any::<bool>()),
        memory in 14u32..26,
        mover in 0usize..4,
        ends in (0.0f64..1.0, 0.0f64..1.0),
    ) {
        let mut options = options(COMPRESSORS[compressor], ["2k", "8k", "32k", "cdc:2k", "cdc:8k"][spec], 1 << memory);
        options.level = 1;
        options.similarity =
            [SimilarityMethod::Odess, SimilarityMethod::Finesse, SimilarityMethod::Rabin][method];
        options.delta = delta;
        let (archive, _) = archived(&input, &options);
        // Whichever moves the chunks, it is the same archive.
        options.mover = [None, Some(Mover::Memory), Some(Mover::Chunk), Some(Mover::MultiPass)][mover];
        prop_assert!(archived(&input, &options).0 == archive);
        prop_assert!(restored(&archive, None, 1 << memory).unwrap() == input);
        let (a, b) = ((ends.0 * input.len() as f64) as usize, (ends.1 * input.len() as f64) as usize);
        let part = a.min(b)..a.max(b);
        let range = part.start as u64..part.end as u64;
        prop_assert!(restored(&archive, Some(range), 1 << memory).unwrap() == input[part]);
    }

    #[test]
    fn noise_is_no_archive(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Archive::open(&bytes, MEMORY).is_err());
    }
}
