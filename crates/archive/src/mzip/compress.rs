//! From a file or a stream to an archive.

use super::base::codec::{block_bytes, compressed, work_bytes};
use super::base::error::{MzipError, Result};
use super::base::parallel::in_order;
use super::base::progress::Progress;
use super::base::read_at::ReadAt;
use super::mover::{Content, Disk, Mover, Passes};
use super::plan::{blocks, Piece, Plan};
use super::sample::is_in_vain;
use super::scan::{scan, segment_bytes};
use super::stored::Stored;
use crate::stream::fill;
use chunk::{ChunkSpec, Similarity, SimilarityMethod};
use format::mzip::{BlockHead, Compressor, Extent, Footer, Head, Index, Page, PAGE_EXTENTS_MAX};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

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
    /// How chunks are moved; `None` chooses by the memory, and by what is cheaper on the disk.
    pub mover: Option<Mover>,
    /// What holds the input, or the temporary file of a stream.
    pub disk: Disk,
    /// Bytes of memory for the input, tables, and blocks that are compressed, about.
    pub memory: u64,
    /// Threads that compute.
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
    let (stored, plan) = first_reading(source, options, progress)?;
    let original = plan.original_bytes;
    let mut to = ArchiveWriter { output, written: 0, index: Index::default() };
    let migrated = plan.pays();
    let mut mover = None;
    let stored_bytes = if migrated { plan.stored_bytes } else { original };
    progress.add(original - stored_bytes);
    let head = Head {
        compressor: options.compressor,
        level: options.level,
        migrated,
        block_bytes: block_bytes(options.compressor, options.level, stored_bytes),
    };
    to.put(&head.encode())?;
    if migrated {
        to.recipe(&plan)?;
        let mut blocks = blocks(plan.pieces(), head.block_bytes.into());
        // Blocks of a pass: those that fit into a quarter of the memory.
        let width = (options.memory / 4 / u64::from(head.block_bytes)).max(1);
        let chosen = mover_for(&stored, &plan, options, head.blocks_of(stored_bytes).div_ceil(width));
        mover = Some(chosen);
        if chosen == Mover::MultiPass {
            let mut passes = Passes::new(&stored, blocks, width as usize);
            to.blocks(&head, || passes.next(), &stored, options, progress)?;
        } else {
            to.blocks(&head, || Ok(blocks.next().map(Content::Elsewhere)), &stored, options, progress)?;
        }
    } else {
        let whole = std::iter::once(Piece { offset: 0, bytes: original }).filter(|piece| piece.bytes > 0);
        let mut blocks = blocks(whole, head.block_bytes.into());
        to.blocks(&head, || Ok(blocks.next().map(Content::Elsewhere)), &stored, options, progress)?;
    }
    to.end(original, stored_bytes)?;
    Ok(Compressed {
        original_bytes: original,
        archive_bytes: to.written,
        stored_bytes,
        duplicate_bytes: if migrated { plan.duplicate_bytes } else { 0 },
        zero_bytes: if migrated { plan.zero_bytes } else { 0 },
        similar_bytes: if migrated { plan.similar_bytes } else { 0 },
        chunks: if migrated { plan.chunks() } else { 0 },
        mover,
    })
}

/// How the chunks are moved that are to be stored.
fn mover_for(stored: &Stored<'_>, plan: &Plan, options: &Options, passes: u64) -> Mover {
    match (stored, options.mover) {
        (Stored::Memory { .. }, _) => Mover::Memory,
        (_, Some(mover)) => mover,
        (_, None) => Mover::cheaper(options.disk, stored.len(), plan.pieces().count() as u64, passes),
    }
}

/// Reads the input, keeps it for the second reading, and plans where its chunks go.
fn first_reading<'a>(
    source: Source<'a>,
    options: &Options,
    progress: &Progress,
) -> Result<(Stored<'a>, Plan)> {
    let segment_bytes = segment_bytes(options.chunk);
    let similarity = Similarity::new(options.similarity, options.chunk.average_bytes());
    let tables = (options.memory / 4) as usize;
    let in_memory_max = match options.mover {
        Some(Mover::Memory) => u64::MAX,
        Some(Mover::Chunk | Mover::MultiPass) => 0,
        None => options.memory / 2,
    };
    let mut stored = match &source {
        Source::At(input) => {
            let len = input.len();
            progress.set_total(2 * len);
            if is_in_vain(*input, options.chunk, &similarity, options.threads, tables, progress)? {
                progress.add(len);
                return Ok((Stored::Input(*input), Plan::of_whole(len)));
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
    let plan = scan(options.threads, options.chunk, &similarity, tables, progress, next)?;
    progress.set_total(2 * plan.original_bytes);
    Ok((stored, plan))
}

/// The archive that is being written.
struct ArchiveWriter<'a> {
    output: &'a mut dyn Write,
    written: u64,
    index: Index,
}

impl ArchiveWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes).map_err(MzipError::Write)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the restore recipe.
    fn recipe(&mut self, plan: &Plan) -> Result<()> {
        let mut extents = plan.extents().peekable();
        while extents.peek().is_some() {
            let page: Vec<Extent> = extents.by_ref().take(PAGE_EXTENTS_MAX).collect();
            let bytes = Page::encode(&page);
            self.put(&bytes)?;
            self.index.pages.push((bytes.len() as u32, page.iter().map(|e| e.bytes()).sum()));
        }
        Ok(())
    }

    /// Compresses blocks on all cores, and writes them.
    fn blocks(
        &mut self,
        head: &Head,
        mut next: impl FnMut() -> Result<Option<Content>>,
        input: &dyn ReadAt,
        options: &Options,
        progress: &Progress,
    ) -> Result<()> {
        // Of each block there may be two contents and two results.
        let each = 4 * u64::from(head.block_bytes) + work_bytes(head.compressor, head.level);
        let threads = (options.memory / 2 / each).clamp(1, options.threads as u64) as usize;
        let mut number = 0u64..;
        in_order(
            threads,
            || {
                progress.check()?;
                Ok(number.next().zip(next()?))
            },
            |(number, content)| {
                let content = content.gathered(input).map_err(MzipError::Read)?;
                block(head, number, content)
            },
            |(head, body)| {
                progress.check()?;
                self.index.blocks.push((head.encode().len() + body.len()) as u32);
                self.put(&head.encode())?;
                self.put(&body)?;
                progress.add(head.content_bytes.into());
                Ok(())
            },
        )
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
fn block(head: &Head, number: u64, content: Vec<u8>) -> Result<(BlockHead, Vec<u8>)> {
    let content_checksum = xxh3_64(&content);
    let content_bytes = content.len() as u32;
    let packed = compressed(head.compressor, head.level, &content).map_err(MzipError::Write)?;
    let raw = packed.is_none();
    let body = packed.unwrap_or(content);
    let head = BlockHead {
        number,
        raw,
        content_bytes,
        body_bytes: body.len() as u32,
        body_checksum: xxh3_64(&body),
        content_checksum,
    };
    Ok((head, body))
}
