//! Live restore: a disk that is in use while its content still arrives.
//!
//! The target (a file or a block device) holds what has arrived and what was written; the rest is read from the base, a
//! disk that does not change. A map says which blocks have arrived (docs/format/arriving.md).
//!
//! What always holds:
//! - A block has arrived as soon as it is written, by the guest or by the restore; data of the base never overwrites
//!   it later.
//! - A durable bit of the map is written only after its block is durable, so after a power cut every block holds what it
//!   held at the last [`ArrivingDisk::flush`] that returned, or data that was written to it later.
//! - A program that is killed loses nothing: its writes are in the system's cache, and the map's first bits count for as
//!   long as the system runs.
//! - Readers never see the remains of a failed or interrupted write in a block that has not arrived.

mod arrived;
mod bits;
mod header;
mod id;
mod identity;
mod layout;
mod map;
mod mark;
mod recognize;
mod saved;

#[cfg(test)]
mod tests;

use crate::disk::{Base, Layer};
use crate::error::{ImageError, Result};
use crate::file::random_file::{self, RandomFile};
use header::{Header, State};
use id::{BootId, MapId};
use identity::{Attachment, TargetId};
use layout::{BLOCK_BYTES, SECTOR_BYTES, SIZE_MAX};
use map::{Map, Sectors};
use mark::{Mark, MarkedTarget};
use parking_lot::{Mutex, MutexGuard};
use recognize::TargetFacts;
use saved::SavedMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// What is locked together: no write is longer than it has to be split.
const REGION_BYTES: u64 = 1 << 20;
const STRIPES: usize = 64;
/// Zeros that arrive at once: no write begins meanwhile.
const ZEROS_BYTES: u64 = 4 << 30;

/// A disk whose content arrives.
pub struct ArrivingDisk {
    name: String,
    target: MarkedTarget,
    map: Map,
    base: Box<dyn Base>,
    size: u64,
    /// Held while blocks of a region are written.
    stripes: [Mutex<()>; STRIPES],
    flushing: Mutex<()>,
    /// A write or sync failed: the content of the target is unknown from then on.
    failed: AtomicBool,
    /// Blocks of the target that have not arrived are zeros: it is new, and no write to it has failed.
    is_fresh: AtomicBool,
}

/// Where an arriving disk is kept.
#[derive(Clone, Debug)]
pub struct ArrivingPaths {
    /// The file or block device that it is written to.
    pub target: PathBuf,
    /// The map.
    pub map: PathBuf,
}

/// What is restored.
#[derive(Clone, Copy, Debug)]
pub struct ArrivingOptions<'a> {
    /// Bytes of the disk.
    pub size: u64,
    /// The name of the snapshot; a map with another name is refused.
    pub of: &'a [u8],
    /// Whether a hold was put on the snapshot for this restore; recorded in a new map.
    pub holds: bool,
    /// The content of a device may be lost when it is begun.
    pub overwrite: bool,
}

impl ArrivingDisk {
    /// Bytes of a block, the unit of what has arrived.
    pub const BLOCK_BYTES: u64 = BLOCK_BYTES;

    /// Begins a restore, or resumes the one that the map belongs to.
    ///
    /// # Errors
    /// `Refused` where the map is damaged, or belongs to another restore or another target, and for disks of more than 64 TiB;
    /// nothing was written then.
    pub fn open(
        paths: &ArrivingPaths,
        options: &ArrivingOptions,
        base: Box<dyn Base>,
    ) -> Result<ArrivingDisk> {
        if options.size > SIZE_MAX {
            let target = paths.target.display().to_string();
            let why =
                "a disk of more than 64 TiB cannot be used while it is restored; restore it without --live";
            return Err(ImageError::refused(&target, why));
        }
        let name = paths.map.display().to_string();
        let is_there = paths.map.exists();
        // Locked from here on: no other process makes this target or resumes its restore.
        let file = if is_there { random_file::open(&paths.map)? } else { random_file::create(&paths.map)? };
        let file: Arc<dyn RandomFile> = Arc::new(file);
        if SavedMap::is_begun(&*file, &name, options.size)? {
            return Self::resume(paths, options, SavedMap::read(file, &name)?, base);
        }
        let made = open_target(&paths.target, &name, options);
        if made.is_err() && !is_there {
            drop(fs::remove_file(&paths.map));
        }
        let (target, is_fresh) = made?;
        let known = identify(&target, &paths.target)?;
        let id = MapId::random().map_err(|e| ImageError::io(&name, "find a random number for", e))?;
        let new = NewMap { file, name, id, known, boot: BootId::current() };
        Self::begin(&paths.target.display().to_string(), Box::new(target), is_fresh, new, options, base)
    }

    /// Whether a map says that all of its disk has arrived. It stays beside the disk for as long as that is served.
    pub fn has_arrived(map: &Path) -> Result<bool> {
        if !map.exists() {
            return Ok(false);
        }
        let name = map.display().to_string();
        let file = random_file::open(map)?;
        Ok(SavedMap::is_map(&file, &name)? && SavedMap::read(Arc::new(file), &name)?.state.is_whole)
    }

    /// Marks a target and makes its map.
    fn begin(
        name: &str,
        target: Box<dyn RandomFile>,
        is_fresh: bool,
        new: NewMap,
        options: &ArrivingOptions,
        base: Box<dyn Base>,
    ) -> Result<ArrivingDisk> {
        let (id, of, holds, size) = (new.id, options.of.to_vec(), options.holds, options.size);
        let (target_id, attachment) = new.known;
        let is_device = matches!(target_id, TargetId::Device { .. });
        let header = Header { id, size, of, holds, target: target_id };
        let state = State { boot: new.boot, generation: 0, is_whole: false, durable_count: 0, attachment };
        let target = MarkedTarget::new(target, new.file.clone(), id, size);
        let mark = || {
            target.displace([0; SECTOR_BYTES as usize]);
            let marked = target.set_mark(Mark { generation: 0, is_settled: true });
            marked.and_then(|()| target.sync()).map_err(|e| ImageError::io(name, "write", e))
        };
        // A device with a map has its mark: nothing else tells it from others for certain. A file is known by its inode,
        // and one with data has a map.
        if is_device {
            mark()?;
        }
        let map = Map::create(new.file, &new.name, header, state)?;
        if !is_device {
            mark()?;
        }
        Ok(Self::with(name, target, map, size, base, is_fresh))
    }

    /// Goes on with a target, if it is the one of the map.
    fn resume(
        paths: &ArrivingPaths,
        options: &ArrivingOptions,
        saved: SavedMap,
        base: Box<dyn Base>,
    ) -> Result<ArrivingDisk> {
        let name = paths.target.display().to_string();
        saved.check_is_of(options.of, options.size)?;
        if !paths.target.exists() {
            let why = format!(
                "is gone, or not there yet; {} says what of it had arrived: remove that to begin anew",
                saved.name
            );
            return Err(ImageError::refused(&name, why));
        }
        let target = random_file::open(&paths.target)?;
        check_room(&target, &name, options.size)?;
        let known = identify(&target, &paths.target)?;
        Self::resume_with(&name, Box::new(target), known, saved, BootId::current(), base)
    }

    fn resume_with(
        name: &str,
        target: Box<dyn RandomFile>,
        (id, attachment): (TargetId, Attachment),
        saved: SavedMap,
        boot: BootId,
        base: Box<dyn Base>,
    ) -> Result<ArrivingDisk> {
        let size = saved.header.size;
        let target = MarkedTarget::new(target, saved.file.clone(), saved.header.id, size);
        let mark = target.mark().map_err(|e| ImageError::read(name, "read", e))?;
        let can_be_marked = target.can_be_marked();
        recognize::check(&saved, name, &TargetFacts { id, attachment, mark, can_be_marked, boot })?;
        let is_whole = saved.state.is_whole;
        if mark.is_some() || !is_whole {
            target.displace(saved.displaced()?);
        }
        let map = saved.take_up(boot, attachment)?;
        let io = |e| ImageError::io(name, "write", e);
        if is_whole {
            target.take_mark_off().map_err(io)?;
        } else if mark.is_none() {
            target.set_mark(Mark { generation: map.generation(), is_settled: true }).map_err(io)?;
        }
        Ok(Self::with(name, target, map, size, base, false))
    }

    fn with(
        name: &str,
        target: MarkedTarget,
        map: Map,
        size: u64,
        base: Box<dyn Base>,
        is_fresh: bool,
    ) -> ArrivingDisk {
        ArrivingDisk {
            name: name.to_owned(),
            target,
            is_fresh: AtomicBool::new(is_fresh),
            map,
            base,
            size,
            stripes: std::array::from_fn(|_| Mutex::new(())),
            flushing: Mutex::new(()),
            failed: AtomicBool::new(false),
        }
    }

    /// Whether a hold was put on the snapshot for this restore.
    pub fn holds(&self) -> bool {
        self.map.holds()
    }

    /// Size of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that have arrived, whole blocks.
    pub fn arrived_bytes(&self) -> u64 {
        (self.map.count() * BLOCK_BYTES).min(self.size)
    }

    /// Whether a range needs the base no more.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.map.run(range).is_none_or(|(arrived, end)| arrived && end >= range.end)
    }

    /// Fills `buf` from `offset` on.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        let mut at = offset;
        while let Some((arrived, end)) = self.map.run(&(at..range.end)) {
            let part = &mut buf[(at - offset) as usize..(end - offset) as usize];
            if arrived {
                self.target.read_at(at, part).map_err(|e| ImageError::read(&self.name, "read", e))?
            } else {
                self.base.read_at(at, part).map_err(|e| self.base_failed(e))?
            }
            at = end;
        }
        Ok(())
    }

    /// What a range holds: parts in order, until `each` returns `false`. No data is read.
    pub fn layers(&self, range: Range<u64>, each: &mut dyn FnMut(Range<u64>, Layer) -> bool) -> Result<()> {
        let mut at = range.start;
        // The next data of the target, as long as it lies behind `at`.
        let mut data = 0..0;
        while let Some((arrived, end)) = self.map.run(&(at..range.end)) {
            if arrived && data.end <= at {
                data = self.target.data_from(at).map_err(|e| ImageError::read(&self.name, "read", e))?;
            }
            let (layer, end) = match arrived {
                false => (Layer::Base, end),
                true if data.start > at => (Layer::Zeros, end.min(data.start)),
                true => (Layer::Data, end.min(data.end)),
            };
            if !each(at..end, layer) {
                return Ok(());
            }
            at = end;
        }
        Ok(())
    }

    /// Writes.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        for range in regions(offset..offset + data.len() as u64) {
            let of_data = (range.start - offset) as usize..(range.end - offset) as usize;
            let _writer = self.stripe(&range);
            self.check_whole()?;
            let blocks = self.complete_edges(&range)?;
            self.write(range.start, &data[of_data])?;
            self.map.set(&blocks)?;
        }
        Ok(())
    }

    /// Zeroes a range.
    pub fn zero(&self, range: Range<u64>) -> Result<()> {
        for range in regions(range) {
            let _writer = self.stripe(&range);
            self.check_whole()?;
            let blocks = self.complete_edges(&range)?;
            self.target.zero(range).map_err(|e| self.failed("write zeros to", e))?;
            self.map.set(&blocks)?;
        }
        Ok(())
    }

    /// Copies a range from the base, except for blocks that have arrived.
    pub fn fetch(&self, range: Range<u64>) -> Result<()> {
        let mut buf = Vec::new();
        for range in regions(whole_blocks(&range, self.size)) {
            let mut at = range.start;
            while let Some((arrived, end)) = self.map.run(&(at..range.end)) {
                if !arrived {
                    buf.resize((end - at) as usize, 0);
                    self.base.read_at(at, &mut buf).map_err(|e| self.base_failed(e))?;
                    self.arrive(&(at..end), Some(&buf))?;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// The same for a range that is zeros in the base.
    pub fn fetch_zeros(&self, range: Range<u64>) -> Result<()> {
        // Blocks at its edges may have data of its neighbours.
        let last_block = range.end / BLOCK_BYTES * BLOCK_BYTES;
        let end = if range.end == self.size { self.size } else { last_block };
        let mut at = range.start.next_multiple_of(BLOCK_BYTES);
        while at < end {
            let part = at..end.min(at + ZEROS_BYTES);
            if !self.skip_zeros(&part)? {
                let mut missing = regions(part.clone()).filter(|r| !self.has(r));
                missing.try_for_each(|range| self.arrive(&range, None))?;
            }
            at = part.end;
        }
        Ok(())
    }

    /// Counts blocks that are zeros in the base as arrived, if they are zeros in the target as well. Returns whether they are.
    fn skip_zeros(&self, range: &Range<u64>) -> Result<bool> {
        // Who writes holds one of them.
        let _no_writer: Vec<_> = self.stripes.iter().map(|stripe| stripe.lock()).collect();
        self.check_whole()?;
        let is_fresh = self.is_fresh.load(Ordering::Acquire);
        if is_fresh {
            self.map.set(range)?;
        }
        Ok(is_fresh)
    }

    /// Makes durable what was written and what has arrived before.
    pub fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        self.check_whole()?;
        let sectors = self.map.take_dirty();
        let written = self.flush_bits(&sectors);
        if written.is_err() {
            self.map.put_back(&sectors);
        }
        written
    }

    fn flush_bits(&self, sectors: &Sectors) -> Result<()> {
        let sync = || self.target.sync().map_err(|e| self.broke("sync", e));
        if sectors.is_empty() {
            return sync();
        }
        // The mark gets ahead of the map, then says that the map has got there: an older map is known by that.
        let generation = self.map.generation().wrapping_add(1);
        let mark = |is_settled| {
            let set = self.target.set_mark(Mark { generation, is_settled });
            set.map_err(|e| self.failed("write", e))
        };
        mark(false)?;
        sync()?;
        self.map.write_durable(sectors)?;
        mark(true)
    }

    /// Ends the restore when all has arrived: makes it durable and takes the mark off the target, which is then the plain
    /// disk. Reads and writes go on as before.
    pub fn complete(&self) -> Result<()> {
        if self.arrived_bytes() < self.size {
            return Err(ImageError::refused(&self.name, "has not arrived whole"));
        }
        self.flush()?;
        let _no_flush = self.flushing.lock();
        self.map.set_whole()?;
        self.target.take_mark_off().map_err(|e| self.broke("write", e))
    }

    /// Writes data, or zeros, to the blocks of a range that have not arrived.
    fn arrive(&self, range: &Range<u64>, data: Option<&[u8]>) -> Result<()> {
        let _writer = self.stripe(range);
        self.check_whole()?;
        let mut at = range.start;
        while let Some((arrived, end)) = self.map.run(&(at..range.end)) {
            if !arrived {
                let within = (at - range.start) as usize..(end - range.start) as usize;
                match data {
                    Some(data) => self.write(at, &data[within])?,
                    None => self.target.zero(at..end).map_err(|e| self.failed("write zeros to", e))?,
                }
                self.map.set(&(at..end))?;
            }
            at = end;
        }
        Ok(())
    }

    /// Copies from the base what a write does not cover of its first and last block. Returns the range of whole blocks.
    fn complete_edges(&self, range: &Range<u64>) -> Result<Range<u64>> {
        let blocks = whole_blocks(range, self.size);
        for edge in [blocks.start..range.start, range.end..blocks.end] {
            if !edge.is_empty() && !self.has(&edge) {
                let mut buf = vec![0; (edge.end - edge.start) as usize];
                self.base.read_at(edge.start, &mut buf).map_err(|e| self.base_failed(e))?;
                self.write(edge.start, &buf)?;
            }
        }
        Ok(blocks)
    }

    fn stripe(&self, range: &Range<u64>) -> MutexGuard<'_, ()> {
        let region = range.start / REGION_BYTES;
        self.stripes[region as usize % STRIPES].lock()
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.target.write_at(at, data).map_err(|e| self.failed("write", e))
    }

    /// A write failed. A full file system loses nothing: the guest gets the error.
    fn failed(&self, op: &'static str, e: io::Error) -> ImageError {
        self.is_fresh.store(false, Ordering::Release);
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImageError::io(&self.name, op, e),
            _ => self.broke(op, e),
        }
    }

    fn broke(&self, op: &'static str, e: io::Error) -> ImageError {
        self.failed.store(true, Ordering::Release);
        // What the system has not written, it may have forgotten.
        self.map.distrust();
        ImageError::io(&self.name, op, e)
    }

    fn base_failed(&self, e: io::Error) -> ImageError {
        ImageError::io(&self.name, "read the snapshot for", e)
    }

    fn check_whole(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(ImageError::refused(&self.name, "an earlier write or sync failed; run it again to go on"))
    }
}

/// A range cut where regions end.
fn regions(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((at / REGION_BYTES + 1) * REGION_BYTES);
        let region = at..end;
        at = end;
        (!region.is_empty()).then_some(region)
    })
}

/// The blocks that a range touches; the last one of the disk may be shorter.
fn whole_blocks(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start / BLOCK_BYTES * BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES).min(size)
}

/// The file of a map that is to be made, and its target.
struct NewMap {
    file: Arc<dyn RandomFile>,
    name: String,
    id: MapId,
    known: (TargetId, Attachment),
    boot: BootId,
}

fn identify(target: &File, path: &Path) -> Result<(TargetId, Attachment)> {
    TargetId::of(target).map_err(|e| ImageError::io(&path.display().to_string(), "look at", e))
}

/// Makes the file of a disk, or opens a device. Returns whether it holds nothing but zeros.
fn open_target(path: &Path, map: &str, options: &ArrivingOptions) -> Result<(File, bool)> {
    let name = path.display().to_string();
    if random_file::is_device(path) {
        if !options.overwrite {
            let why = "is a block device, whose content would be lost; give --force if that is wanted";
            return Err(ImageError::refused(&name, why));
        }
        let device = random_file::open(path)?;
        check_room(&device, &name, options.size)?;
        return Ok((device, false));
    }
    let file = if path.exists() {
        // Killed before there was a map: then nothing has arrived.
        let file = random_file::open(path)?;
        if random_file::has_data(&file).map_err(|e| ImageError::io(&name, "look for data in", e))? {
            let why = format!("holds data of an earlier restore, but {map} does not tell which; give its map with --map, or remove it");
            return Err(ImageError::refused(&name, why));
        }
        file
    } else {
        random_file::create(path)?
    };
    file.set_len(options.size).map_err(|e| ImageError::io(&name, "set the size of", e))?;
    // Before there is a map, which says that it has that size.
    file.sync_all().map_err(|e| ImageError::io(&name, "sync", e))?;
    Ok((file, true))
}

fn check_room(target: &File, name: &str, size: u64) -> Result<()> {
    let room = RandomFile::len(target).map_err(|e| ImageError::io(name, "tell the size of", e))?;
    if room < size {
        return Err(ImageError::refused(name, format!("has {room} bytes, and the disk has {size}")));
    }
    Ok(())
}
