//! Copying a snapshot to its disk while the disk is in use.

use crate::devices::{is_damage, SnapshotDevice};
use crate::terminal::streams::errln;
use anyhow::{bail, Context, Result};
use export::{Block, BlockDevice};
use image::{ArrivingDisk, ImageError, Pace};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are copied at a time.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes that are copied between two flushes.
const FLUSH_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u64 = ArrivingDisk::BLOCK_BYTES;
/// How long to wait between two tries when the file system is full.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Copies a snapshot to its disk while the disk is in use.
pub struct Arrival<'a> {
    pub arriving: &'a ArrivingDisk,
    pub snapshot: &'a SnapshotDevice,
    /// Bytes a second.
    pub limit: Option<u64>,
    pub stop: &'a AtomicBool,
    /// The file system is full, and may have room later.
    pub is_waiting: &'a AtomicBool,
}

/// The next part of the disk.
enum Next {
    /// A step, or less.
    Data(Range<u64>),
    /// A hole of any length.
    Hole(Range<u64>),
    /// A step whose extents cannot be read.
    Unknown(Range<u64>),
}

impl Arrival<'_> {
    /// Copies all of it, in the order of the disk. Damaged parts are skipped, and are an error in the end.
    pub fn run(&self) -> Result<()> {
        let mut damage = None;
        let mut pace = self.limit.map(Pace::new);
        let step_bytes = pace.as_ref().map_or(STEP_BYTES, |p| p.piece_bytes() / BLOCK_BYTES * BLOCK_BYTES);
        let mut since_flush = 0;
        let mut at = 0;
        let bytes = self.arriving.size();
        while at < bytes {
            if self.stop.load(Ordering::Acquire) {
                bail!("stopped; run it again to go on");
            }
            let next = self.next(at..bytes.min(at + step_bytes))?;
            let (Next::Data(range) | Next::Hole(range) | Next::Unknown(range)) = &next;
            let is_free = matches!(next, Next::Hole(_)) || self.arriving.has(range);
            if let Err(e) = self.bring(&next, &mut damage) {
                self.wait_for_room(e)?;
                continue;
            }
            self.is_waiting.store(false, Ordering::Release);
            if let Some(pace) = pace.as_mut().filter(|_| !is_free) {
                pace.pay(range.end - range.start);
            }
            since_flush += range.end - range.start;
            at = range.end;
            if since_flush >= FLUSH_BYTES {
                self.arriving.flush()?;
                since_flush = 0;
            }
        }
        self.arriving.flush()?;
        damage.map_or(Ok(()), |e: ImageError| Err(e.into()))
    }

    fn next(&self, step: Range<u64>) -> Result<Next> {
        let mut found = None;
        let all = step.start..self.arriving.size();
        let looked = self.snapshot.extents(all, &mut |extent| {
            found = Some(extent);
            false
        });
        match looked {
            Err(e) if is_damage(&e) => return Ok(Next::Unknown(step)),
            other => other?,
        }
        let found = found.context("cannot find the next data of the snapshot")?;
        Ok(match found.block {
            Block::Data => Next::Data(step.start..step.end.min(found.range.end)),
            Block::Hole | Block::Zeros => Next::Hole(found.range),
        })
    }

    /// Copies a step except for its damaged parts, which are reported and counted in `damage`.
    fn bring(&self, next: &Next, damage: &mut Option<ImageError>) -> image::Result<()> {
        match next {
            Next::Hole(range) => self.arriving.fetch_zeros(range.clone()),
            Next::Data(range) => self.bring_data(range.clone(), BLOCK_BYTES, damage),
            Next::Unknown(range) => self.bring_data(range.clone(), STEP_BYTES, damage),
        }
    }

    /// Copies a range in halves where it is damaged, down to pieces of `least` bytes.
    fn bring_data(
        &self,
        range: Range<u64>,
        least: u64,
        damage: &mut Option<ImageError>,
    ) -> image::Result<()> {
        let middle = (range.start + (range.end - range.start) / 2).next_multiple_of(BLOCK_BYTES);
        let can_split = range.end - range.start > least && middle < range.end;
        match self.arriving.fetch(range.clone()) {
            Err(ImageError::Io { source, .. }) if is_damage(&source) && can_split => {
                self.bring_data(range.start..middle, least, damage)?;
                self.bring_data(middle..range.end, least, damage)
            }
            Err(e) if matches!(&e, ImageError::Io { source, .. } if is_damage(source)) => {
                // Many pieces of it have the same damage.
                if damage.as_ref().is_none_or(|before| before.to_string() != e.to_string()) {
                    errln!("sapwood: {e}");
                }
                *damage = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Waits a while when the file system was full, as long as the disk is in use: others may free space.
    fn wait_for_room(&self, e: ImageError) -> Result<()> {
        let is_full = matches!(&e, ImageError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded));
        if !is_full {
            return Err(e.into());
        }
        if !self.is_waiting.swap(true, Ordering::AcqRel) {
            errln!("sapwood: {e}; the rest arrives when there is room");
        }
        let start = Instant::now();
        while start.elapsed() < TRY_AGAIN {
            if self.stop.load(Ordering::Acquire) {
                return Err(e.into());
            }
            std::thread::sleep(TRY_AGAIN / 20);
        }
        Ok(())
    }
}
