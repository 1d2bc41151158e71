//! From a file or a stream to an archive.

use super::base::codec::{block_bytes, has_far_matches, working_bytes};
use super::base::delta::delta;
use super::base::error::{MzipError, Result};
use super::base::memory::Memory;
use super::base::packing::{packed, Packed};
use super::base::parallel::{in_order, Crew};
use super::base::progress::Progress;
use super::base::read_at::ReadAt;
use super::mover::{Content, Disk, Mover, Passes};
use super::plan::{
    blocks, candidates, Candidate, DeltaWriter, Deltas, Found, Migration, Piece, Room, DELTAS_AT,
};
use super::sample::is_in_vain;
use super::scan::{scan, segment_bytes, Scan};
use super::stored::Stored;
use crate::stream::fill;
use chunk::{ChunkSpec, Similarity, SimilarityMethod};
use format::mzip::{
    BlockHead, Compressor, Extent, Footer, Head, Index, Page, BLOCK_HEAD_BYTES, DELTA_PAGE_EXTENTS_MAX,
    PAGE_EXTENTS_MAX,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::{xxh3_64, Xxh3Default};

/// Chunks that a thread is given at a time to encode them as deltas.
const CANDIDATES: usize = 128;

/// How an archive is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What blocks are compressed with.
    pub compressor: Compressor,
    /// Its level, one of [`levels`](super::levels).
    pub level: u8,
    /// How the input is cut.
    pub chunk: ChunkSpec,
    /// How similar chunks are found.
    pub similarity: SimilarityMethod,
    /// Whether equal and similar chunks are looked for; if not, the blocks hold the input as it is.
    pub migrate: bool,
    /// Similar chunks are stored as deltas, where they are, instead of being moved.
    pub delta: bool,
    /// How chunks are moved; `None` chooses by the memory, and by what is cheaper on the disk.
    pub mover: Option<Mover>,
    /// What holds the input, or the temporary file of a stream.
    pub disk: Disk,
    /// Bytes of memory for all of it. Where a block that is compressed takes more, blocks are shorter.
    pub memory: u64,
    /// Threads that compute, at most: fewer, if the memory does not suffice.
    pub threads: usize,
    /// Directory for a temporary file, if a stream is too long for memory.
    pub scratch: PathBuf,
}

/// What is compressed.
pub enum Source<'a> {
    /// Something that can be read twice.
    At(&'a dyn ReadAt),
    /// Something that can be read once. What does not fit into memory is kept in a temporary file.
    Stream(&'a mut dyn Read),
}

/// How long the parts of the work took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// The first reading: chunks, fingerprints and features.
    pub find: Duration,
    /// The order of chunks, or deltas.
    pub plan: Duration,
    /// The second reading: chunks are moved, compressed and written.
    pub pack: Duration,
}

/// What was compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Bytes of the input.
    pub original_bytes: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Bytes that blocks hold, before they are compressed.
    pub stored_bytes: u64,
    /// Bytes of chunks that another one is equal to.
    pub duplicate_bytes: u64,
    /// Zeros that are not stored.
    pub zero_bytes: u64,
    /// Bytes of chunks that stand beside an older similar one.
    pub similar_bytes: u64,
    /// Chunks that are stored; 0 if none were moved.
    pub chunks: u64,
    /// How chunks were moved; `None` if none were.
    pub mover: Option<Mover>,
    /// Threads that compressed.
    pub threads: usize,
    /// Whether more threads would have had work, if there were more memory.
    pub is_memory_short: bool,
    /// How long it took.
    pub phases: Phases,
}

/// Writes an archive of the input. Each byte of it counts twice for `progress`, once for each reading.
///
/// # Errors
/// If the input cannot be read or the output cannot be written; if a temporary file or a thread is refused; if `progress` is
/// stopped.
pub fn compress(
    source: Source<'_>,
    output: &mut dyn Write,
    options: &Options,
    progress: &Progress,
) -> Result<Compressed> {
    let start = Instant::now();
    let (stored, found) = first_reading(source, options, progress)?;
    let find = start.elapsed();
    if options.delta && found.totals.pays() {
        return with_deltas(&stored, &found, output, options, progress, find);
    }
    let start = Instant::now();
    let totals = found.totals;
    let original = totals.original_bytes;
    let migration = totals.pays().then(|| Migration::new(&found, &options.room()));
    let migration = migration.transpose().map_err(MzipError::Scratch)?;
    drop(found);
    let plan = start.elapsed();
    let start = Instant::now();
    let stored_bytes = if migration.is_some() { totals.distinct_bytes() } else { original };
    progress.add(original - stored_bytes);
    let (compressor, level) = (options.compressor, options.level);
    let block_bytes = block_bytes(compressor, level, stored_bytes, options.granted().blocks());
    let far = has_far_matches(compressor, level);
    let head = Head { compressor, level, migrated: migration.is_some(), deltas: false, far, block_bytes };
    let mut to = ArchiveWriter { output, written: 0, index: Index::default(), head, progress, threads: 0 };
    to.put(&head.encode())?;
    let mut mover = None;
    if let Some(migration) = &migration {
        to.recipe(migration.extents())?;
        let mut blocks = blocks(migration.pieces(), head.block_bytes.into());
        // Blocks of a pass.
        let width = (options.granted().pass() / u64::from(head.block_bytes)).max(1);
        let passes = head.blocks_of(stored_bytes).div_ceil(width);
        let chosen = mover_for(&stored, migration, options, passes);
        mover = Some(chosen);
        let crew = crew(&head, stored_bytes, &stored, options, chosen);
        if chosen == Mover::MultiPass {
            let mut passes = Passes::new(&stored, blocks, width as usize);
            to.blocks(crew, || passes.next(), &stored)?;
        } else {
            to.blocks(crew, || elsewhere(&mut blocks), &stored)?;
        }
    } else {
        let whole = std::iter::once(Piece { offset: 0, bytes: original }).filter(|piece| piece.bytes > 0);
        let mut blocks = blocks(whole.map(Ok), head.block_bytes.into());
        let crew = crew(&head, stored_bytes, &stored, options, Mover::Chunk);
        to.blocks(crew, || elsewhere(&mut blocks), &stored)?;
    }
    to.end(original, stored_bytes)?;
    let counted = |bytes: u64| if migration.is_some() { bytes } else { 0 };
    Ok(Compressed {
        original_bytes: original,
        archive_bytes: to.written,
        stored_bytes,
        duplicate_bytes: counted(totals.duplicate_bytes),
        zero_bytes: counted(totals.zero_bytes),
        similar_bytes: counted(totals.similar_bytes),
        chunks: counted(totals.chunks),
        mover,
        threads: to.threads,
        is_memory_short: to.is_memory_short(options),
        phases: Phases { find, plan, pack: start.elapsed() },
    })
}

/// Writes an archive in which deltas take the place of similar chunks.
fn with_deltas(
    stored: &Stored<'_>,
    found: &Found,
    output: &mut dyn Write,
    options: &Options,
    progress: &Progress,
    find: Duration,
) -> Result<Compressed> {
    let start = Instant::now();
    let totals = found.totals;
    let deltas = made_deltas(stored, found, options, progress)?;
    let plan = start.elapsed();
    let start = Instant::now();
    progress.add(totals.original_bytes - deltas.stored_bytes);
    let (compressor, level) = (options.compressor, options.level);
    let block_bytes = block_bytes(compressor, level, deltas.stored_bytes, options.granted().blocks());
    let far = has_far_matches(compressor, level);
    let head = Head { compressor, level, migrated: true, deltas: true, far, block_bytes };
    let mut to = ArchiveWriter { output, written: 0, index: Index::default(), head, progress, threads: 0 };
    to.put(&head.encode())?;
    to.recipe(deltas.extents())?;
    let mut blocks = blocks(deltas.pieces(), head.block_bytes.into());
    let mover = if matches!(stored, Stored::Memory { .. }) { Mover::Memory } else { Mover::Chunk };
    let both = WithDeltas { input: stored, deltas: &deltas.file };
    let crew = crew(&head, deltas.stored_bytes, stored, options, mover);
    to.blocks(crew, || elsewhere(&mut blocks), &both)?;
    to.end(totals.original_bytes, deltas.stored_bytes)?;
    Ok(Compressed {
        original_bytes: totals.original_bytes,
        archive_bytes: to.written,
        stored_bytes: deltas.stored_bytes,
        duplicate_bytes: totals.duplicate_bytes,
        zero_bytes: totals.zero_bytes,
        similar_bytes: totals.similar_bytes,
        chunks: totals.chunks,
        mover: Some(mover),
        threads: to.threads,
        is_memory_short: to.is_memory_short(options),
        phases: Phases { find, plan, pack: start.elapsed() },
    })
}

/// Encodes similar chunks as deltas, where these are shorter.
fn made_deltas(input: &Stored<'_>, found: &Found, options: &Options, progress: &Progress) -> Result<Deltas> {
    let room = options.room();
    let mut candidates = candidates(found, &room).map_err(MzipError::Scratch)?;
    let mut to = DeltaWriter::new(&room).map_err(MzipError::Scratch)?;
    let next = || {
        progress.check()?;
        let some: io::Result<Vec<Candidate>> = candidates.by_ref().take(CANDIDATES).collect();
        Ok(Some(some.map_err(MzipError::Scratch)?).filter(|some| !some.is_empty()))
    };
    let read = |piece: Piece| {
        let mut bytes = vec![0; piece.bytes as usize];
        input.read_at(&mut bytes, piece.offset).map(|()| bytes).map_err(MzipError::Read)
    };
    let work = |candidates: Vec<Candidate>| {
        let made = candidates.into_iter().map(|Candidate { own, base }| {
            let Some(base) = base else { return Ok((own, None)) };
            let made = delta(&read(base)?, &read(own)?).map_err(MzipError::Write)?;
            Ok((own, Some(made).filter(|made| (made.len() as u64) < own.bytes)))
        });
        made.collect::<Result<Vec<_>>>()
    };
    let take = |made: Vec<(Piece, Option<Vec<u8>>)>| {
        made.into_iter()
            .try_for_each(|(own, delta)| to.push(own, delta.as_deref()))
            .map_err(MzipError::Scratch)
    };
    in_order(options.granted().scanners(options.threads), next, work, take)?;
    to.finish(found).map_err(MzipError::Scratch)
}

/// The input, and behind it deltas.
struct WithDeltas<'a> {
    input: &'a dyn ReadAt,
    deltas: &'a File,
}

impl ReadAt for WithDeltas<'_> {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match offset.checked_sub(DELTAS_AT) {
            Some(offset) => self.deltas.read_exact_at(bytes, offset),
            None => self.input.read_at(bytes, offset),
        }
    }
}

impl Options {
    fn granted(&self) -> Memory {
        Memory::new(self.memory)
    }

    fn room(&self) -> Room {
        Room { table_bytes: self.granted().table(), scratch: self.scratch.clone() }
    }
}

/// How the chunks are moved that are to be stored.
fn mover_for(stored: &Stored<'_>, migration: &Migration, options: &Options, passes: u64) -> Mover {
    match (stored, options.mover) {
        (Stored::Memory { .. }, _) => Mover::Memory,
        (_, Some(mover)) => mover,
        (_, None) => Mover::cheaper(options.disk, stored.len(), migration.pieces_len(), passes),
    }
}

/// Threads that compress at a time, in the memory that the input and the mover leave.
fn crew(head: &Head, stored_bytes: u64, stored: &Stored<'_>, options: &Options, mover: Mover) -> Crew {
    let granted = options.granted();
    let taken = match (stored, mover) {
        (Stored::Memory { len, .. }, _) => *len,
        (_, Mover::MultiPass) => granted.pass(),
        _ => 0,
    };
    let (room, block) = (granted.blocks().saturating_sub(taken), stored_bytes.min(head.block_bytes.into()));
    let working = working_bytes(head.compressor, head.level, block);
    Crew::within(room, working, block, options.threads).unwrap_or(Crew::ONE)
}

fn elsewhere(blocks: &mut impl Iterator<Item = io::Result<Vec<Piece>>>) -> Result<Option<Content>> {
    Ok(blocks.next().transpose().map_err(MzipError::Scratch)?.map(Content::Elsewhere))
}

/// Reads the input, keeps it for the second reading, and finds what is equal or similar in it.
fn first_reading<'a>(
    source: Source<'a>,
    options: &Options,
    progress: &Progress,
) -> Result<(Stored<'a>, Found)> {
    let memory = options.granted();
    let how = Scan {
        spec: options.chunk,
        similarity: Similarity::new(options.similarity, options.chunk.average_bytes()),
        memory,
        threads: options.threads,
        scratch: &options.scratch,
    };
    let segment_bytes = segment_bytes(how.spec, memory);
    // All cores are to have a block beside it.
    let (compressor, level) = (options.compressor, options.level);
    let block = block_bytes(compressor, level, u64::MAX, memory.blocks()).into();
    let of_blocks = options.threads as u64 * (working_bytes(compressor, level, block) + block);
    let in_memory_max = match options.mover {
        Some(Mover::Memory) => u64::MAX,
        Some(Mover::Chunk | Mover::MultiPass) => 0,
        None => memory.input(of_blocks),
    };
    let mut stored = match &source {
        Source::At(input) => {
            let len = input.len();
            progress.set_total(2 * len);
            if !options.migrate || is_in_vain(*input, &how, progress)? {
                progress.add(len);
                return Ok((Stored::Input(*input), Found::nothing(len)));
            }
            if len <= in_memory_max {
                Stored::new()
            } else {
                Stored::Input(*input)
            }
        }
        Source::Stream(_) => Stored::new(),
    };
    let mut source = source;
    let mut at = 0u64;
    let next = || {
        let mut segment = vec![0; segment_bytes];
        match &mut source {
            Source::At(input) => {
                segment.truncate((input.len() - at).min(segment_bytes as u64) as usize);
                input.read_at(&mut segment, at).map_err(MzipError::Read)?;
            }
            Source::Stream(input) => {
                let len = fill(&mut **input, &mut segment).map_err(MzipError::Read)?;
                segment.truncate(len);
            }
        }
        if segment.is_empty() {
            return Ok(None);
        }
        at += segment.len() as u64;
        let segment = Arc::new(segment);
        stored.push(&segment, in_memory_max, &options.scratch).map_err(MzipError::Scratch)?;
        Ok(Some(segment))
    };
    let mut found = scan(&how, progress, next)?;
    progress.set_total(2 * found.totals.original_bytes);
    if !options.migrate {
        // A stream is kept on the way.
        found = Found::nothing(found.totals.original_bytes);
    }
    Ok((stored, found))
}

/// The archive that is being written.
struct ArchiveWriter<'a> {
    output: &'a mut dyn Write,
    written: u64,
    index: Index,
    head: Head,
    progress: &'a Progress,
    /// Threads that compressed.
    threads: usize,
}

impl ArchiveWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes).map_err(MzipError::Write)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the restore recipe.
    fn recipe(&mut self, extents: impl Iterator<Item = io::Result<Extent>>) -> Result<()> {
        let deltas = self.head.deltas;
        let most = if deltas { DELTA_PAGE_EXTENTS_MAX } else { PAGE_EXTENTS_MAX };
        let mut extents = extents.peekable();
        while extents.peek().is_some() {
            let page: io::Result<Vec<Extent>> = extents.by_ref().take(most).collect();
            let page = page.map_err(MzipError::Scratch)?;
            let bytes = Page::encode(&page, deltas);
            self.put(&bytes)?;
            self.index.pages.push((bytes.len() as u32, page.iter().map(|e| e.bytes()).sum()));
        }
        Ok(())
    }

    /// Compresses blocks, and writes them.
    fn blocks(
        &mut self,
        crew: Crew,
        mut next: impl FnMut() -> Result<Option<Content>>,
        input: &dyn ReadAt,
    ) -> Result<()> {
        let (head, progress) = (self.head, self.progress);
        self.threads = crew.threads;
        let mut number = 0u64..;
        in_order(
            crew,
            || {
                progress.check()?;
                Ok(number.next().zip(next()?))
            },
            |(number, content)| {
                let content = content.gathered(input).map_err(MzipError::Read)?;
                block(&head, number, content, progress)
            },
            |(head, packed)| {
                progress.check()?;
                self.index.blocks.push((BLOCK_HEAD_BYTES + packed.len()) as u32);
                self.put(&head.encode())?;
                self.put(&packed.begin)?;
                self.put(&packed.rest)?;
                progress.add(head.content_bytes.into());
                Ok(())
            },
        )
    }

    fn is_memory_short(&self, options: &Options) -> bool {
        self.threads < options.threads.min(self.index.blocks.len())
    }

    fn end(&mut self, original_bytes: u64, stored_bytes: u64) -> Result<()> {
        let index = self.index.encode();
        let footer = Footer {
            original_bytes,
            stored_bytes,
            pages: self.index.pages.len() as u32,
            blocks: self.index.blocks.len() as u64,
            index_checksum: xxh3_64(&index),
        };
        self.put(&index)?;
        self.put(&footer.encode())?;
        self.output.flush().map_err(MzipError::Write)
    }
}

/// A block, compressed if that makes it shorter.
fn block(head: &Head, number: u64, content: Vec<u8>, progress: &Progress) -> Result<(BlockHead, Packed)> {
    let content_checksum = xxh3_64(&content);
    let content_bytes = content.len() as u32;
    let packed = packed(head.compressor, head.level, content, progress)?;
    let mut body_checksum = Xxh3Default::new();
    body_checksum.update(&packed.begin);
    body_checksum.update(&packed.rest);
    let head = BlockHead {
        number,
        body: packed.kind,
        content_bytes,
        body_bytes: packed.len() as u32,
        body_checksum: body_checksum.digest(),
        content_checksum,
    };
    Ok((head, packed))
}
