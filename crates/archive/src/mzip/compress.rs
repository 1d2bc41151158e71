//! From a file or a stream to an archive.

use super::base::codec::{block_bytes, has_far_matches, working_bytes};
use super::base::delta::delta;
use super::base::error::{MzipError, Result};
use super::base::memory::Memory;
use super::base::parallel::{in_order, Crew};
use super::base::progress::Progress;
use super::base::read_at::ReadAt;
use super::mover::{Content, Disk, Mover, Passes};
use super::plan::{
    blocks, candidates, Candidate, DeltaWriter, Deltas, Found, Migration, Piece, Room, Totals, DELTAS_AT,
};
use super::sample::is_in_vain;
use super::scan::{scan, segment_bytes, Scan};
use super::stored::Stored;
use super::writer::ArchiveWriter;
use crate::stream::fill;
use chunk::{ChunkSpec, Similarity, SimilarityMethod};
use format::mzip::{Compressor, Head, PlaceSum};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Writes an archive of the input. Each byte of it counts twice for `progress`: when it is first read, and when it is packed.
///
/// # Errors
/// If the input cannot be read, or changes between its readings; if the output cannot be written; if a temporary file or a thread
/// is refused; if `progress` is stopped.
pub fn compress(
    source: Source<'_>,
    output: &mut dyn Write,
    options: &Options,
    progress: &Progress,
) -> Result<Compressed> {
    let start = Instant::now();
    let (stored, found) = first_reading(source, options, progress)?;
    let find = start.elapsed();
    let start = Instant::now();
    let totals = found.totals;
    let plan = Plan::new(&stored, &found, options, progress)?;
    drop(found);
    let (plan_time, start) = (start.elapsed(), Instant::now());
    let stored_bytes = plan.stored_bytes(&totals);
    progress.add(totals.original_bytes - stored_bytes);
    let (compressor, level) = (options.compressor, options.level);
    let head = Head {
        compressor,
        level,
        migrated: !matches!(plan, Plan::AsItIs),
        deltas: matches!(plan, Plan::Deltas(_)),
        far: has_far_matches(compressor, level),
        summed: true,
        block_bytes: block_bytes(compressor, level, stored_bytes, options.granted().blocks()),
    };
    let mut to = ArchiveWriter::begin(output, head, progress)?;
    let crew = |mover| crew(&head, stored_bytes, &stored, options, mover);
    let mut mover = None;
    let (sum, planned) = match &plan {
        Plan::AsItIs => {
            let whole = Piece { offset: 0, bytes: stored_bytes };
            let whole = std::iter::once(whole).filter(|piece| piece.bytes > 0).map(Ok);
            let mut blocks = blocks(whole, head.block_bytes.into());
            let sum = to.blocks(crew(Mover::Chunk), || elsewhere(&mut blocks), &stored)?;
            (sum, totals.sum.unwrap_or(sum))
        }
        Plan::Migration(migration) => {
            to.recipe(migration.extents())?;
            let mut blocks = blocks(migration.pieces(), head.block_bytes.into());
            // Blocks of a pass.
            let width = (options.granted().pass() / u64::from(head.block_bytes)).max(1);
            let passes = head.blocks_of(stored_bytes).div_ceil(width);
            let chosen = mover_for(&stored, migration, options, passes);
            mover = Some(chosen);
            let sum = if chosen == Mover::MultiPass {
                let mut passes = Passes::new(&stored, blocks, width as usize);
                to.blocks(crew(chosen), || passes.next(), &stored)?
            } else {
                to.blocks(crew(chosen), || elsewhere(&mut blocks), &stored)?
            };
            (sum, totals.distinct_sum)
        }
        Plan::Deltas(deltas) => {
            to.recipe(deltas.extents())?;
            let mut blocks = blocks(deltas.pieces(), head.block_bytes.into());
            let chosen = if matches!(stored, Stored::Memory { .. }) { Mover::Memory } else { Mover::Chunk };
            mover = Some(chosen);
            let both = WithDeltas { input: &stored, deltas };
            let sum = to.blocks(crew(chosen), || elsewhere(&mut blocks), &both)?;
            (sum, deltas.kept_sum)
        }
    };
    // Where a chunk that others are equal to has changed, these would come back with what it is now.
    if sum != planned {
        return Err(MzipError::Changed);
    }
    let written = to.end(totals.original_bytes, stored_bytes, totals.sum.unwrap_or(sum))?;
    let counted = |bytes: u64| if head.migrated { bytes } else { 0 };
    Ok(Compressed {
        original_bytes: totals.original_bytes,
        archive_bytes: written.bytes,
        stored_bytes,
        duplicate_bytes: counted(totals.duplicate_bytes),
        zero_bytes: counted(totals.zero_bytes),
        similar_bytes: counted(totals.similar_bytes),
        chunks: counted(totals.chunks),
        mover,
        threads: written.threads,
        is_memory_short: written.threads < options.threads.min(written.blocks),
        phases: Phases { find, plan: plan_time, pack: start.elapsed() },
    })
}

/// What is stored, and in which order.
enum Plan {
    AsItIs,
    Migration(Migration),
    Deltas(Deltas),
}

impl Plan {
    fn new(stored: &Stored<'_>, found: &Found, options: &Options, progress: &Progress) -> Result<Plan> {
        Ok(if !found.totals.pays() {
            Plan::AsItIs
        } else if options.delta {
            Plan::Deltas(made_deltas(stored, found, options, progress)?)
        } else {
            Plan::Migration(Migration::new(found, &options.room()).map_err(MzipError::Scratch)?)
        })
    }

    fn stored_bytes(&self, totals: &Totals) -> u64 {
        match self {
            Plan::AsItIs => totals.original_bytes,
            Plan::Migration(_) => totals.distinct_bytes(),
            Plan::Deltas(deltas) => deltas.stored_bytes,
        }
    }
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
    let read = |piece: Piece, sum: PlaceSum| {
        let mut bytes = vec![0; piece.bytes as usize];
        input.read_at(&mut bytes, piece.offset).map_err(MzipError::of_reading)?;
        if PlaceSum::of(piece.offset, &bytes) == sum {
            Ok(bytes)
        } else {
            Err(MzipError::Changed)
        }
    };
    let work = |candidates: Vec<Candidate>| {
        let made = candidates.into_iter().map(|chunk| {
            let Some((base, base_sum)) = chunk.base else { return Ok((chunk, None)) };
            let bytes = read(chunk.own, chunk.sum)?;
            let made = delta(&read(base, base_sum)?, &bytes).map_err(MzipError::Write)?;
            Ok((chunk, Some(made).filter(|made| made.len() < bytes.len())))
        });
        made.collect::<Result<Vec<_>>>()
    };
    let take = |made: Vec<(Candidate, Option<Vec<u8>>)>| {
        made.into_iter()
            .try_for_each(|(chunk, delta)| to.push(&chunk, delta.as_deref()))
            .map_err(MzipError::Scratch)
    };
    in_order(options.granted().scanners(options.threads), next, work, take)?;
    to.finish(found).map_err(MzipError::Scratch)
}

/// The input, and behind it deltas.
struct WithDeltas<'a> {
    input: &'a dyn ReadAt,
    deltas: &'a Deltas,
}

impl ReadAt for WithDeltas<'_> {
    fn len(&self) -> u64 {
        DELTAS_AT + self.deltas.file_bytes
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match offset.checked_sub(DELTAS_AT) {
            Some(offset) => self.deltas.file.read_exact_at(bytes, offset),
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
    let pieces = blocks.next().transpose().map_err(MzipError::Scratch)?;
    Ok(pieces.map(|pieces| Content { pieces, bytes: None }))
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
    let (mut at, mut is_end) = (0u64, false);
    let mut next = || {
        if is_end {
            return Ok(None);
        }
        let mut segment = vec![0; segment_bytes];
        match &mut source {
            Source::At(input) => {
                segment.truncate((input.len() - at).min(segment_bytes as u64) as usize);
                input.read_at(&mut segment, at).map_err(MzipError::of_reading)?;
            }
            Source::Stream(input) => {
                let len = fill(&mut **input, &mut segment).map_err(MzipError::Read)?;
                segment.truncate(len);
            }
        }
        // A pipe could be read on if another program opened it.
        is_end = segment.len() < segment_bytes;
        if segment.is_empty() {
            return Ok(None);
        }
        at += segment.len() as u64;
        let segment = Arc::new(segment);
        stored.push(&segment, in_memory_max, &options.scratch).map_err(MzipError::Scratch)?;
        Ok(Some(segment))
    };
    let found = if options.migrate {
        scan(&how, progress, next)?
    } else {
        while let Some(segment) = next()? {
            progress.check()?;
            progress.add(segment.len() as u64);
        }
        Found::nothing(at)
    };
    progress.set_total(2 * found.totals.original_bytes);
    Ok((stored, found))
}
