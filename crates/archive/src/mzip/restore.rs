//! From an archive to its file, or to a part of it.
//!
//! The original file is restored in windows. The extents of a window are sorted by the place where they are stored, so that
//! each block is decompressed once for a window, whatever parts of it are needed where. A window for a file is as long as
//! its extents fit into memory: most archives have one. A window for a pipe is in memory itself (the multi-pass mover of
//! Lin 2015, 2.4.1.2, of which a pass reads only the blocks that it needs).

use super::archive::Archive;
use super::base::codec::restoring_bytes;
use super::base::delta::undone;
use super::base::error::{damaged, MzipError, Result};
use super::base::memory::Memory;
use super::base::parallel::{in_order, Crew};
use super::base::progress::Progress;
use super::base::read_at::WriteAt;
use format::mzip::{Extent, Place, PlaceSum, FOOTER_BYTES};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

/// Zeros that are written to a pipe at a time.
const ZEROS_BYTES: u64 = 1 << 20;

/// Where restored bytes go.
pub enum Output<'a> {
    /// In order.
    Stream(&'a mut dyn Write),
    /// To their places, from the begin of the range. What is zero in the original is not written: it must be zero already,
    /// and the length must be set when all is done.
    Places(&'a mut dyn WriteAt),
}

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the original.
    pub bytes: u64,
    /// Blocks that were decompressed, some more than once.
    pub blocks_read: u64,
}

/// A part of a block, and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BlockPart {
    block: u64,
    target: Target,
    /// From the begin of the block.
    from: u32,
    bytes: u32,
}

impl BlockPart {
    fn of(self, content: &[u8]) -> &[u8] {
        debug_assert!(content.len() >= (self.from + self.bytes) as usize);
        &content[self.from as usize..][..self.bytes as usize]
    }
}

/// Where a part of a block goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// To the output, so far from the begin of the range that is restored.
    Output(u64),
    /// To where deltas and their bases are collected.
    Aside(usize),
}

impl Archive<'_> {
    /// Restores a range of the original file.
    ///
    /// # Errors
    /// If the file has no such range; if the archive is damaged or cannot be read; if the output cannot be written; if
    /// `progress` is stopped. What was written until then is as it was in the original, unless the sum of the whole was wrong.
    pub fn restore(
        &self,
        range: Range<u64>,
        output: Output<'_>,
        memory: u64,
        threads: usize,
        progress: &Progress,
    ) -> Result<Restored> {
        if range.end > self.original_bytes() || range.start > range.end {
            return Err(MzipError::Outside(self.original_bytes()));
        }
        progress.set_total(range.end - range.start);
        let memory = Memory::new(memory);
        let is_stream = matches!(output, Output::Stream(_));
        let (crew, mut window_bytes) = self.crew(memory, threads, is_stream || self.has_deltas())?;
        let mut aside_max = 0;
        if self.has_deltas() {
            aside_max = window_bytes / 2;
            window_bytes -= aside_max;
        }
        let window_bytes = if !is_stream {
            u64::MAX
        } else if self.is_migrated() {
            window_bytes
        } else {
            // Nothing is to be gained by a long one where nothing was moved.
            window_bytes.min(4 * crew.threads as u64 * self.block_bytes())
        };
        let mut to = Window {
            archive: self,
            sink: Sink::new(output),
            begin: 0,
            bytes: 0,
            bytes_max: window_bytes.max(ZEROS_BYTES),
            parts: Vec::new(),
            parts_max: (memory.copies() as usize / size_of::<BlockPart>()).max(1),
            crew,
            progress,
            blocks_read: 0,
            sum: self.sum().filter(|_| range == (0..self.original_bytes())).map(|_| PlaceSum::default()),
            aside: Aside::default(),
            aside_max,
        };
        for part in self.recipe_from(range.start) {
            let (mut at, extents) = part?;
            for extent in extents {
                let (begin, end) = (at, at + extent.bytes());
                at = end;
                let (from, until) = (begin.max(range.start), end.min(range.end));
                if from >= until {
                    continue;
                }
                match (extent, extent.places()) {
                    (Extent::Zeros { .. }, _) => to.zeros(until - from)?,
                    (Extent::Delta { bytes, .. }, (delta, Some(base))) => {
                        to.delta(delta, base, bytes as usize, from - begin..until - begin)?;
                    }
                    (_, (stored, _)) => to.stored(stored.at + (from - begin), until - from)?,
                }
            }
            if at >= range.end {
                break;
            }
        }
        to.flush()?;
        let (blocks_read, sum) = (to.blocks_read, to.sum);
        if let Sink::Stream { output, .. } = to.sink {
            output.flush().map_err(MzipError::Write)?;
        }
        match sum.zip(self.sum()) {
            Some((got, expected)) if got != expected => Err(damaged(
                self.summary().archive_bytes - FOOTER_BYTES as u64,
                format!(
                    "the restored file has the sum {:016x}, expected {:016x}: its parts are not where they were",
                    got.value(),
                    expected.value()
                ),
            )),
            _ => Ok(Restored { bytes: range.end - range.start, blocks_read }),
        }
    }

    /// Restores the file to nowhere: what a restore reads is compared with its checksums.
    ///
    /// # Errors
    /// If it is damaged or cannot be read; if `progress` is stopped.
    pub fn test(&self, memory: u64, threads: usize, progress: &Progress) -> Result<()> {
        let whole = 0..self.original_bytes();
        self.restore(whole, Output::Places(&mut Nowhere), memory, threads, progress).map(drop)
    }

    /// Threads that decompress at a time, and bytes of a window that is in memory.
    fn crew(&self, memory: Memory, threads: usize, is_stream: bool) -> Result<(Crew, u64)> {
        let block = self.block_bytes().min(self.summary().stored_bytes);
        let working = restoring_bytes(self.summary().compressor, block);
        let room = memory.blocks().saturating_sub(self.memory());
        let needed = working + if is_stream { ZEROS_BYTES } else { 0 };
        if room < needed {
            return Err(MzipError::Memory(Memory::needed_for_blocks(needed + self.memory())));
        }
        let window = if is_stream { memory.window().min(room - working) } else { 0 };
        Ok((Crew::within(room - window, working, block, threads).unwrap_or(Crew::ONE), window))
    }
}

/// Takes what is only looked at.
struct Nowhere;

impl WriteAt for Nowhere {
    fn write_at(&mut self, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// The part of the file that is being restored.
struct Window<'a, 'b> {
    archive: &'a Archive<'a>,
    sink: Sink<'b>,
    /// Where it begins, and how long it is, from the begin of the range.
    begin: u64,
    bytes: u64,
    bytes_max: u64,
    parts: Vec<BlockPart>,
    parts_max: usize,
    crew: Crew,
    progress: &'a Progress,
    blocks_read: u64,
    /// Of all that was restored, if the whole file is, and the archive has its sum.
    sum: Option<PlaceSum>,
    /// What deltas are made of.
    aside: Aside,
    aside_max: u64,
}

impl Window<'_, '_> {
    fn room(&self) -> u64 {
        self.bytes_max - self.bytes
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let deltas_max = self.parts_max * size_of::<BlockPart>() / size_of::<Delta>();
        let is_full = self.room() == 0 || self.parts.len() >= self.parts_max;
        if is_full || self.aside.deltas.len() > deltas_max {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds zeros.
    fn zeros(&mut self, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            let part = bytes.min(self.room());
            self.bytes += part;
            bytes -= part;
            self.progress.add(part);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Adds stored bytes.
    fn stored(&mut self, mut at: u64, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            let part = self.copy(at, bytes.min(self.room()), Target::Output(self.begin + self.bytes));
            self.bytes += part;
            (at, bytes) = (at + part, bytes - part);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Adds a part of a chunk of so many bytes that is a delta to a base.
    fn delta(&mut self, delta: Place, base: Place, whole: usize, mut part: Range<u64>) -> Result<()> {
        while !part.is_empty() {
            if self.aside.bytes + delta.bytes + base.bytes > self.aside_max && self.aside.bytes > 0 {
                self.flush()?;
            }
            let bytes = (part.end - part.start).min(self.room());
            let base = match self.aside.bases.get(&(base.at, base.bytes)) {
                Some(base) => base.clone(),
                None => {
                    let aside = self.set_aside(base);
                    self.aside.bases.insert((base.at, base.bytes), aside.clone());
                    aside
                }
            };
            let delta = self.set_aside(delta);
            let now = part.start as usize..(part.start + bytes) as usize;
            self.aside.deltas.push(Delta { base, delta, whole, part: now, to: self.begin + self.bytes });
            part.start += bytes;
            self.bytes += bytes;
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Has stored bytes copied aside. Returns where.
    fn set_aside(&mut self, Place { mut at, mut bytes }: Place) -> Range<usize> {
        let begin = self.aside.bytes as usize;
        while bytes > 0 {
            let part = self.copy(at, bytes, Target::Aside(self.aside.bytes as usize));
            self.aside.bytes += part;
            (at, bytes) = (at + part, bytes - part);
        }
        begin..self.aside.bytes as usize
    }

    /// Has stored bytes copied, as many as their block has. Returns how many.
    fn copy(&mut self, at: u64, bytes: u64, target: Target) -> u64 {
        let block_bytes = self.archive.block_bytes();
        let from = at % block_bytes;
        let bytes = bytes.min(block_bytes - from);
        self.parts.push(BlockPart {
            block: at / block_bytes,
            target,
            from: from as u32,
            bytes: bytes as u32,
        });
        bytes
    }

    /// Writes the window, and begins the next one.
    fn flush(&mut self) -> Result<()> {
        let (archive, progress) = (self.archive, self.progress);
        progress.check()?;
        if self.parts.is_empty() {
            self.sink.zeros(self.bytes, progress)?;
        } else {
            self.sink.begin(self.begin, self.bytes);
            self.parts.sort_unstable();
            let mut by_block = self.parts.chunk_by(|a, b| a.block == b.block);
            let next = || {
                progress.check()?;
                Ok(by_block.next())
            };
            let is_summed = self.sum.is_some();
            let mut aside = vec![0; self.aside.bytes as usize];
            in_order(
                self.crew,
                next,
                |parts| read(archive, parts, is_summed),
                |(sum, content, parts)| {
                    self.blocks_read += 1;
                    self.sum.iter_mut().for_each(|all| *all += sum);
                    parts.iter().try_for_each(|part| match (part.target, part.of(&content)) {
                        (Target::Output(to), bytes) => self.sink.put(bytes, to, progress),
                        (Target::Aside(to), bytes) => {
                            aside[to..to + bytes.len()].copy_from_slice(bytes);
                            Ok(())
                        }
                    })
                },
            )?;
            self.aside.decode(&aside, archive, |to, bytes| {
                self.sum.iter_mut().for_each(|all| *all += PlaceSum::of(to, bytes));
                self.sink.put(bytes, to, progress)
            })?;
            self.sink.end()?;
        }
        self.begin += self.bytes;
        self.bytes = 0;
        self.parts.clear();
        self.aside = Aside::default();
        Ok(())
    }
}

/// Reads the block that parts are of, and sums up those that go to the output, if that is wanted.
fn read<'a>(
    archive: &Archive<'_>,
    parts: &'a [BlockPart],
    is_summed: bool,
) -> Result<(PlaceSum, Vec<u8>, &'a [BlockPart])> {
    let content = archive.block(parts[0].block)?;
    let sums = parts.iter().filter(|_| is_summed).map(|part| match part.target {
        Target::Output(to) => PlaceSum::of(to, part.of(&content)),
        Target::Aside(_) => PlaceSum::default(),
    });
    Ok((sums.sum(), content, parts))
}

/// Where windows go: to their places, or, each gathered in memory, to a stream.
enum Sink<'a> {
    Places(&'a mut dyn WriteAt),
    Stream { output: &'a mut dyn Write, begin: u64, window: Vec<u8> },
}

impl<'a> Sink<'a> {
    fn new(output: Output<'a>) -> Self {
        match output {
            Output::Places(places) => Sink::Places(places),
            Output::Stream(output) => Sink::Stream { output, begin: 0, window: Vec::new() },
        }
    }

    /// A window that is zeros, which places have already.
    fn zeros(&mut self, bytes: u64, progress: &Progress) -> Result<()> {
        let Sink::Stream { output, .. } = self else { return Ok(()) };
        let zeros = vec![0; bytes.min(ZEROS_BYTES) as usize];
        let mut left = bytes;
        while left > 0 {
            progress.check()?;
            let len = left.min(ZEROS_BYTES);
            output.write_all(&zeros[..len as usize]).map_err(MzipError::Write)?;
            left -= len;
        }
        Ok(())
    }

    /// A window of so many bytes, which begins at a byte of the range that is restored.
    fn begin(&mut self, at: u64, bytes: u64) {
        if let Sink::Stream { begin, window, .. } = self {
            *begin = at;
            *window = vec![0; bytes as usize];
        }
    }

    /// A part of the window.
    fn put(&mut self, bytes: &[u8], to: u64, progress: &Progress) -> Result<()> {
        match self {
            Sink::Places(places) => places.write_at(bytes, to).map_err(MzipError::Write)?,
            Sink::Stream { begin, window, .. } => {
                window[(to - *begin) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        progress.add(bytes.len() as u64);
        Ok(())
    }

    /// All parts of the window are there.
    fn end(&mut self) -> Result<()> {
        if let Sink::Stream { output, window, .. } = self {
            output.write_all(window).map_err(MzipError::Write)?;
            *window = Vec::new();
        }
        Ok(())
    }
}

/// What the deltas of a window are made of.
#[derive(Default)]
struct Aside {
    /// Bytes of deltas and bases.
    bytes: u64,
    /// Where bases are aside, by where they are stored: many deltas may have the same.
    bases: HashMap<(u64, u64), Range<usize>>,
    deltas: Vec<Delta>,
}

/// A chunk that is made from a delta.
struct Delta {
    /// Where its parts are aside.
    base: Range<usize>,
    delta: Range<usize>,
    /// Its length.
    whole: usize,
    /// What is wanted of it, and where it goes, from the begin of the range that is restored.
    part: Range<usize>,
    to: u64,
}

impl Aside {
    /// Gives the wanted part of each chunk, and its place, to a function.
    fn decode(
        &self,
        aside: &[u8],
        archive: &Archive<'_>,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for delta in &self.deltas {
            let whole = undone(&aside[delta.base.clone()], &aside[delta.delta.clone()], delta.whole);
            let whole = whole.map_err(|e| archive.damaged_delta(&e))?;
            take(delta.to, &whole[delta.part.clone()])?;
        }
        Ok(())
    }
}
