//! From an archive to its file, or to a part of it.
//!
//! The original file is restored in windows. The extents of a window are sorted by the place where they are stored, so that
//! each block is decompressed once for a window, whatever parts of it are needed where. A window for a file is as long as
//! its extents fit into memory: most archives have one. A window for a pipe is in memory itself (the multi-pass mover of
//! Lin 2015, 2.4.1.2, of which a pass reads only the blocks that it needs).

use super::archive::Archive;
use super::base::codec::restoring_bytes;
use super::base::delta::undone;
use super::base::error::{MzipError, Result};
use super::base::memory::Memory;
use super::base::parallel::{in_order, Crew};
use super::base::progress::Progress;
use super::base::read_at::WriteAt;
use format::mzip::{Extent, Place};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

/// In [`Copy::to`]: it goes aside, to where deltas and their bases are collected.
const ASIDE: u64 = 1 << 63;
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

/// A part of a block that goes to a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    block: u64,
    /// From the begin of the range that is restored.
    to: u64,
    /// From the begin of the block.
    from: u32,
    bytes: u32,
}

impl Archive<'_> {
    /// Restores a range of the original file.
    ///
    /// # Errors
    /// If the file has no such range; if the archive is damaged or cannot be read; if the output cannot be written; if
    /// `progress` is stopped. What was written until then is as it was in the original.
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
            output,
            begin: 0,
            bytes: 0,
            bytes_max: window_bytes.max(ZEROS_BYTES),
            copies: Vec::new(),
            copies_max: (memory.copies() as usize / size_of::<Copy>()).max(1),
            crew,
            progress,
            blocks_read: 0,
            aside: Aside::default(),
            aside_max,
        };
        for part in self.recipe_from(range.start) {
            let (mut at, extents) = part?;
            for extent in extents {
                let (begin, end) = (at, at + extent.bytes());
                at = end;
                let (from, until) = (begin.max(range.start), end.min(range.end));
                if from < until {
                    match extent {
                        Extent::Delta { .. } => to.delta(extent, from - begin, until - from)?,
                        _ => to.extent(extent, from - begin, until - from)?,
                    }
                }
            }
            if at >= range.end {
                break;
            }
        }
        to.flush()?;
        let blocks_read = to.blocks_read;
        if let Output::Stream(output) = to.output {
            output.flush().map_err(MzipError::Write)?;
        }
        Ok(Restored { bytes: range.end - range.start, blocks_read })
    }

    /// Reads all of the archive, and compares it with its checksums.
    ///
    /// # Errors
    /// If it is damaged or cannot be read; if `progress` is stopped.
    pub fn test(&self, memory: u64, threads: usize, progress: &Progress) -> Result<()> {
        if self.has_deltas() {
            // Whether deltas are sound is seen when they are undone.
            let len = self.original_bytes();
            self.restore(0..len, Output::Places(&mut Nowhere), memory, threads, progress)?;
        }
        self.recipe_from(0).try_for_each(|part| part.map(drop))?;
        let (crew, _) = self.crew(Memory::new(memory), threads, false)?;
        progress.set_total(self.summary().stored_bytes);
        let mut numbers = 0..self.blocks();
        let next = || {
            progress.check()?;
            Ok(numbers.next())
        };
        in_order(
            crew,
            next,
            |number| Ok(self.block(number)?.len()),
            |bytes| {
                progress.add(bytes as u64);
                Ok(())
            },
        )
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
    output: Output<'b>,
    /// Where it begins, and how long it is, from the begin of the range.
    begin: u64,
    bytes: u64,
    bytes_max: u64,
    copies: Vec<Copy>,
    copies_max: usize,
    crew: Crew,
    progress: &'a Progress,
    blocks_read: u64,
    /// What deltas are made of.
    aside: Aside,
    aside_max: u64,
}

impl Window<'_, '_> {
    /// Adds a part of an extent that is a delta.
    fn delta(&mut self, extent: Extent, mut skip: u64, mut bytes: u64) -> Result<()> {
        let (own, Some(base)) = extent.places() else { return Ok(()) };
        while bytes > 0 {
            if self.aside.bytes + own.bytes + base.bytes > self.aside_max && self.aside.bytes > 0 {
                self.flush()?;
            }
            let part = bytes.min(self.bytes_max - self.bytes);
            let base_at = match self.aside.bases.get(&(base.at, base.bytes)) {
                Some(at) => *at,
                None => {
                    let at = self.set_aside(base);
                    self.aside.bases.insert((base.at, base.bytes), at);
                    at
                }
            };
            let delta = Delta {
                base: base_at..base_at + base.bytes as usize,
                delta: self.set_aside(own)..self.aside.bytes as usize,
                whole: extent.bytes() as usize,
                part: skip as usize..(skip + part) as usize,
                to: self.begin + self.bytes,
            };
            self.aside.deltas.push(delta);
            (skip, bytes) = (skip + part, bytes - part);
            self.bytes += part;
            if self.bytes == self.bytes_max || self.copies.len() >= self.copies_max {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Has stored bytes copied aside. Returns where.
    fn set_aside(&mut self, Place { mut at, mut bytes }: Place) -> usize {
        let (begin, block_bytes) = (self.aside.bytes, self.archive.block_bytes());
        while bytes > 0 {
            let from = at % block_bytes;
            let part = bytes.min(block_bytes - from);
            let to = ASIDE | self.aside.bytes;
            self.copies.push(Copy { block: at / block_bytes, to, from: from as u32, bytes: part as u32 });
            self.aside.bytes += part;
            (at, bytes) = (at + part, bytes - part);
        }
        begin as usize
    }

    /// Adds a part of an extent of zeros, or of bytes that are stored as they are.
    fn extent(&mut self, extent: Extent, skip: u64, mut bytes: u64) -> Result<()> {
        let mut at = match extent {
            Extent::Zeros { .. } => None,
            Extent::Stored { at, .. } | Extent::Delta { at, .. } => Some(at + skip),
        };
        let block_bytes = self.archive.block_bytes();
        while bytes > 0 {
            let mut part = bytes.min(self.bytes_max - self.bytes);
            if let Some(at) = &mut at {
                let from = *at % block_bytes;
                part = part.min(block_bytes - from);
                let (block, to) = (*at / block_bytes, self.begin + self.bytes);
                self.copies.push(Copy { block, to, from: from as u32, bytes: part as u32 });
                *at += part;
            }
            self.bytes += part;
            bytes -= part;
            if self.bytes == self.bytes_max || self.copies.len() == self.copies_max {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the window, and begins the next one.
    fn flush(&mut self) -> Result<()> {
        self.progress.check()?;
        self.copies.sort_unstable();
        let mut by_block = self.copies.chunk_by(|a, b| a.block == b.block);
        let (archive, progress, begin) = (self.archive, self.progress, self.begin);
        let next = || {
            progress.check()?;
            Ok(by_block.next())
        };
        let work = |copies: &[Copy]| Ok((archive.block(copies[0].block)?, copies.to_vec()));
        let blocks_read = &mut self.blocks_read;
        let mut aside = vec![0; self.aside.bytes as usize];
        let part = |content: &[u8], copy: &Copy| -> Range<usize> {
            debug_assert!(content.len() >= (copy.from + copy.bytes) as usize);
            copy.from as usize..(copy.from + copy.bytes) as usize
        };
        match &mut self.output {
            Output::Places(output) => in_order(self.crew, next, work, |(content, copies)| {
                *blocks_read += 1;
                for copy in &copies {
                    let bytes = &content[part(&content, copy)];
                    if put_aside(&mut aside, copy, bytes) {
                        continue;
                    }
                    output.write_at(bytes, copy.to).map_err(MzipError::Write)?;
                    progress.add(copy.bytes.into());
                }
                Ok(())
            })
            .and_then(|()| {
                self.aside.decode(&aside, archive, |to, bytes| {
                    output.write_at(bytes, to).map_err(MzipError::Write)?;
                    progress.add(bytes.len() as u64);
                    Ok(())
                })
            })?,
            Output::Stream(output) if self.copies.is_empty() && self.aside.deltas.is_empty() => {
                let zeros = vec![0; self.bytes.min(ZEROS_BYTES) as usize];
                let mut left = self.bytes;
                while left > 0 {
                    let len = left.min(ZEROS_BYTES);
                    output.write_all(&zeros[..len as usize]).map_err(MzipError::Write)?;
                    left -= len;
                    progress.check()?;
                }
                progress.add(self.bytes);
            }
            Output::Stream(output) => {
                let mut window = vec![0; self.bytes as usize];
                in_order(self.crew, next, work, |(content, copies)| {
                    *blocks_read += 1;
                    for copy in &copies {
                        let bytes = &content[part(&content, copy)];
                        if !put_aside(&mut aside, copy, bytes) {
                            let to = (copy.to - begin) as usize;
                            window[to..to + bytes.len()].copy_from_slice(bytes);
                        }
                    }
                    Ok(())
                })?;
                self.aside.decode(&aside, archive, |to, bytes| {
                    let to = (to - begin) as usize;
                    window[to..to + bytes.len()].copy_from_slice(bytes);
                    Ok(())
                })?;
                output.write_all(&window).map_err(MzipError::Write)?;
                progress.add(window.len() as u64);
            }
        }
        self.begin += self.bytes;
        self.bytes = 0;
        self.copies.clear();
        self.aside = Aside::default();
        Ok(())
    }
}

/// What the deltas of a window are made of.
#[derive(Default)]
struct Aside {
    /// Bytes of deltas and bases.
    bytes: u64,
    /// Where bases are aside, by where they are stored: many deltas may have the same.
    bases: HashMap<(u64, u64), usize>,
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

/// Puts a part of a block aside, if that is where it goes.
fn put_aside(aside: &mut [u8], copy: &Copy, bytes: &[u8]) -> bool {
    let is_aside = copy.to & ASIDE != 0;
    if is_aside {
        let to = (copy.to & !ASIDE) as usize;
        aside[to..to + bytes.len()].copy_from_slice(bytes);
    }
    is_aside
}
