//! A qcow2 file that takes the writes to a disk in use, over a base that never changes.
//!
//! Clusters of 128 KiB with subclusters of 4 KiB, the blocks of a guest, so that writing one copies nothing of the base.
//! Refcounts are lazy: while the file is open it is marked dirty, and they are written when it is closed. When this
//! module or QEMU opens a dirty file, it rebuilds the refcounts from the tables.
//!
//! What always holds:
//! - An L2 table on the disk names a cluster only after the data in it is durable, an L1 table an L2 table likewise.
//! - A cluster that nothing names any more is used again only after that is durable.
//! - So after a power cut every block holds what it held at the last [`Overlay::flush`] that returned, or something
//!   that was written to it later.

mod layout;
mod space;
mod tables;

#[cfg(test)]
mod tests;

use super::header::BackingName;
use crate::disk::{Base, Layer};
use crate::error::{ImageError, Result};
use crate::file::random_file::{self, RandomFile};
use layout::{Layout, BLOCK_BYTES, CLUSTER_BYTES};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{renameat_with, RenameFlags, CWD};
use space::Space;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::{Dirty, Entry, State, Tables};

/// Locks for writers, by cluster.
const STRIPES: usize = 64;
/// Dirty L2 tables (128 KiB, for 1 GiB of disk each) at most; more of them cause a flush.
const DIRTY_TABLES_MAX: usize = 64;

/// A disk whose changes go into a qcow2 file.
pub struct Overlay {
    name: String,
    file: Box<dyn RandomFile>,
    base: Box<dyn Base>,
    layout: Layout,
    tables: RwLock<Tables>,
    space: Mutex<Space>,
    /// Held while blocks are written or freed: one writer for a cluster at a time.
    stripes: [Mutex<()>; STRIPES],
    flushing: Mutex<()>,
    /// Held while a table is loaded.
    loading: Mutex<()>,
    /// A write of the file failed: its content is unknown from then on.
    failed: AtomicBool,
}

impl Overlay {
    /// Creates the file at `path` with `backing` as its backing file, for a disk of `size` bytes, rounded up to whole
    /// sectors.
    pub fn create(path: &Path, size: u64, backing: &BackingName, base: Box<dyn Base>) -> Result<Overlay> {
        let name = path.display().to_string();
        if path.exists() {
            return Err(ImageError::refused(&name, "exists already"));
        }
        // Another name until it is whole: a process that is killed leaves no half-made overlay under the right name.
        let mut making = OsString::from(path);
        making.push(".sapwood-new");
        if Path::new(&making).exists() {
            let _nobody_has_it = random_file::open(Path::new(&making))?;
            fs::remove_file(&making).map_err(|e| ImageError::io(&name, "make anew", e))?;
        }
        let file = random_file::create(Path::new(&making))?;
        let made = Self::create_in(Box::new(file), &name, size, Some(backing), base).and_then(|overlay| {
            // Another one may have come to that name meanwhile.
            let named = renameat_with(CWD, &making, CWD, path, RenameFlags::NOREPLACE);
            named.map_err(|e| ImageError::io(&name, "name", e.into()))?;
            random_file::sync_folder_of(path).map(|()| overlay)
        });
        if made.is_err() {
            drop(fs::remove_file(&making));
        }
        made
    }

    /// Opens an existing file; `base` is called with the size of the disk and the backing file that the header names.
    pub fn open(
        path: &Path,
        base: impl FnOnce(u64, Option<&BackingName>) -> Result<Box<dyn Base>>,
    ) -> Result<Overlay> {
        Self::open_in(Box::new(random_file::open(path)?), &path.display().to_string(), base)
    }

    /// An overlay in a file without a name in `directory`; it is gone when this is dropped.
    pub fn scratch(directory: &Path, size: u64, base: Box<dyn Base>) -> Result<Overlay> {
        let file = random_file::unnamed(directory)?;
        Self::create_in(file, &format!("a scratch file in {}", directory.display()), size, None, base)
    }

    fn create_in(
        file: Box<dyn RandomFile>,
        name: &str,
        size: u64,
        backing: Option<&BackingName>,
        base: Box<dyn Base>,
    ) -> Result<Overlay> {
        let layout = Layout::new(name, size)?;
        let mut space = Space::default();
        space.take(0..layout.first_free());
        let overlay = Self::with(file, name, base, layout, Tables::new(layout.l1_entries()), space);
        overlay.write(0, &layout.header(name, backing)?)?;
        overlay.write_refcounts()?;
        overlay.mark_dirty()?;
        Ok(overlay)
    }

    fn open_in(
        file: Box<dyn RandomFile>,
        name: &str,
        base: impl FnOnce(u64, Option<&BackingName>) -> Result<Box<dyn Base>>,
    ) -> Result<Overlay> {
        let (layout, backing) = Layout::read(&*file, name)?;
        let (tables, space) = tables::load(&*file, name, &layout)?;
        let base = base(layout.size, backing.as_ref())?;
        let overlay = Self::with(file, name, base, layout, tables, space);
        overlay.mark_dirty()?;
        Ok(overlay)
    }

    fn with(
        file: Box<dyn RandomFile>,
        name: &str,
        base: Box<dyn Base>,
        layout: Layout,
        tables: Tables,
        space: Space,
    ) -> Overlay {
        Overlay {
            name: name.to_owned(),
            file,
            base,
            layout,
            tables: RwLock::new(tables),
            space: Mutex::new(space),
            stripes: std::array::from_fn(|_| Mutex::new(())),
            flushing: Mutex::new(()),
            loading: Mutex::new(()),
            failed: AtomicBool::new(false),
        }
    }

    /// Size of the disk in bytes, whole sectors of 512.
    pub fn size(&self) -> u64 {
        self.layout.size
    }

    /// Fills `buf` from `offset` on.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let len = (buf.len() - done).min((CLUSTER_BYTES - at % CLUSTER_BYTES) as usize);
            self.read_cluster(at, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    /// Reads within one cluster.
    fn read_cluster(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let cluster = offset / CLUSTER_BYTES;
        let mut from_base = Vec::new();
        {
            // Held while data is read: a cluster that is given up is not used again meanwhile.
            let tables = self.tables_with(cluster)?;
            let entry = tables.get(cluster);
            let mut done = 0;
            while done < buf.len() {
                let at = offset % CLUSTER_BYTES + done as u64;
                let (state, end) = entry.run(at);
                let len = ((end - at) as usize).min(buf.len() - done);
                let part = &mut buf[done..done + len];
                match state {
                    State::Data => self.read(entry.host + at, part)?,
                    State::Zeros => part.fill(0),
                    State::Base => from_base.push(done..done + len),
                }
                done += len;
            }
        }
        for range in from_base {
            let at = offset + range.start as u64;
            self.base.read_at(at, &mut buf[range]).map_err(|e| self.base_failed(e))?;
        }
        Ok(())
    }

    /// Which layer holds a range: runs in order, without gaps, until `each` returns `false` or the range is covered.
    pub fn layers(&self, range: Range<u64>, each: &mut dyn FnMut(Range<u64>, Layer) -> bool) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let cluster = at / CLUSTER_BYTES;
            let (state, end) = {
                let tables = self.tables_with(cluster)?;
                match tables.absent_until(cluster) {
                    Some(next) => (State::Base, next * CLUSTER_BYTES),
                    None => {
                        let (state, end) = tables.get(cluster).run(at % CLUSTER_BYTES);
                        (state, cluster * CLUSTER_BYTES + end)
                    }
                }
            };
            let layer = match state {
                State::Base => Layer::Base,
                State::Zeros => Layer::Zeros,
                State::Data => Layer::Data,
            };
            let end = end.min(range.end);
            if !each(at..end, layer) {
                break;
            }
            at = end;
        }
        Ok(())
    }

    /// Writes.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let len = (data.len() - done).min((CLUSTER_BYTES - at % CLUSTER_BYTES) as usize);
            self.write_cluster(at, &data[done..done + len])?;
            done += len;
        }
        self.relieve()
    }

    /// Zeroes a range, and frees the space of its blocks.
    pub fn zero(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / CLUSTER_BYTES + 1) * CLUSTER_BYTES);
            // The disk may end within a block, whose rest is unused.
            let last = if end == self.layout.size { end.next_multiple_of(BLOCK_BYTES) } else { end };
            let blocks = at.next_multiple_of(BLOCK_BYTES)..last / BLOCK_BYTES * BLOCK_BYTES;
            if blocks.start >= blocks.end {
                self.write_cluster(at, &vec![0; (end - at) as usize])?;
            } else {
                if at < blocks.start {
                    self.write_cluster(at, &vec![0; (blocks.start - at) as usize])?;
                }
                self.zero_blocks(&blocks)?;
                if blocks.end < end {
                    self.write_cluster(blocks.end, &vec![0; (end - blocks.end) as usize])?;
                }
            }
            at = end;
        }
        self.relieve()
    }

    /// Makes durable what was written before.
    pub fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        self.check_whole()?;
        let (dirty, freed) = {
            let mut tables = self.tables_mut();
            (tables.take_dirty(self.layout.l1_offset), self.space().take_freed())
        };
        let written = self.write_tables(&dirty);
        self.tables_mut().written(&dirty, written.is_ok());
        match written {
            Ok(()) => self.space().give_back(&freed),
            Err(_) => freed.iter().for_each(|c| self.space().free(*c)),
        }
        written
    }

    /// Data first, then L2 tables, which name it, then the L1 table, which names them.
    fn write_tables(&self, dirty: &Dirty) -> Result<()> {
        self.sync()?;
        if !dirty.l2.is_empty() {
            dirty.l2.iter().try_for_each(|(at, bytes)| self.write(*at, bytes))?;
            self.sync()?;
        }
        if let Some((at, bytes)) = &dirty.l1 {
            self.write(*at, bytes)?;
            self.sync()?;
        }
        Ok(())
    }

    /// Makes everything durable, and the refcounts correct. Nothing more can be written.
    pub fn close(&self) -> Result<()> {
        self.flush()?;
        let closed = self.write_refcounts();
        self.failed.store(true, Ordering::Release);
        closed
    }

    /// Writes within one cluster.
    fn write_cluster(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_whole()?;
        let cluster = offset / CLUSTER_BYTES;
        let _writer = self.stripe(cluster);
        let entry = self.tables_with(cluster)?.get(cluster);
        let host = match entry.host {
            0 => self.space().allocate() * CLUSTER_BYTES,
            host => host,
        };
        let at = offset % CLUSTER_BYTES;
        let (first, last) = (at / BLOCK_BYTES, (at + data.len() as u64 - 1) / BLOCK_BYTES);
        let written = self.write_blocks(cluster, &entry, host, at, data);
        if let Err(e) = written {
            if entry.host == 0 {
                self.space().free(host / CLUSTER_BYTES);
            }
            return Err(e);
        }
        if entry.host == 0 || !entry.are_data(first, last) {
            let mut tables = self.tables_mut_with(cluster)?;
            tables.set_data(cluster, host, first, last);
        }
        Ok(())
    }

    /// Writes data to blocks of a cluster. A block that is written only in part and is not in the overlay yet is completed
    /// from the base.
    fn write_blocks(&self, cluster: u64, entry: &Entry, host: u64, at: u64, data: &[u8]) -> Result<()> {
        let end = at + data.len() as u64;
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        let in_disk = self.layout.size - cluster * CLUSTER_BYTES;
        let to = end.next_multiple_of(BLOCK_BYTES).min(in_disk);
        let fill = |block: u64| !entry.are_data(block, block);
        let head = from < at && fill(from / BLOCK_BYTES);
        let tail = end < to && fill(end / BLOCK_BYTES);
        if !head && !tail {
            return self.write(host + at, data);
        }
        let from = if head { from } else { at };
        let to = if tail { to } else { end };
        let mut all = vec![0; (to - from) as usize];
        let mut fill_up = |range: Range<u64>| {
            let into = (range.start - from) as usize..(range.end - from) as usize;
            match entry.run(range.start).0 {
                State::Base => {
                    let guest = cluster * CLUSTER_BYTES + range.start;
                    self.base.read_at(guest, &mut all[into]).map_err(|e| self.base_failed(e))
                }
                _ => Ok(()),
            }
        };
        if head {
            fill_up(from..at)?;
        }
        if tail {
            fill_up(end..to)?;
        }
        all[(at - from) as usize..(end - from) as usize].copy_from_slice(data);
        self.write(host + from, &all)
    }

    /// Makes zeros of whole blocks of one cluster.
    fn zero_blocks(&self, blocks: &Range<u64>) -> Result<()> {
        self.check_whole()?;
        let cluster = blocks.start / CLUSTER_BYTES;
        let _writer = self.stripe(cluster);
        let within = |at: u64| (at - cluster * CLUSTER_BYTES) / BLOCK_BYTES;
        let mut tables = self.tables_mut_with(cluster)?;
        if let Some(host) = tables.set_zeros(cluster, within(blocks.start), within(blocks.end) - 1) {
            self.space().free(host / CLUSTER_BYTES);
        }
        Ok(())
    }

    /// The tables, with that of a cluster in memory if there is one.
    fn tables_with(&self, cluster: u64) -> Result<RwLockReadGuard<'_, Tables>> {
        loop {
            let tables = self.tables();
            if tables.to_load(cluster).is_none() {
                return Ok(tables);
            }
            drop(tables);
            self.load_table(cluster)?;
        }
    }

    /// The tables, to be changed: there is one for the cluster, and it is in memory.
    fn tables_mut_with(&self, cluster: u64) -> Result<RwLockWriteGuard<'_, Tables>> {
        loop {
            let mut tables = self.tables_mut();
            if tables.to_load(cluster).is_none() {
                if tables.absent_until(cluster).is_some() {
                    let host = self.space().allocate();
                    // Written now: later there may be no room for it, and a flush could not be carried out.
                    if let Err(e) = self.write(host * CLUSTER_BYTES, &[0; CLUSTER_BYTES as usize]) {
                        self.space().free(host);
                        return Err(e);
                    }
                    tables.add(cluster, host * CLUSTER_BYTES);
                }
                return Ok(tables);
            }
            drop(tables);
            self.load_table(cluster)?;
        }
    }

    /// Brings the L2 table of a cluster into memory.
    fn load_table(&self, cluster: u64) -> Result<()> {
        let _one = self.loading.lock();
        let Some(at) = self.tables().to_load(cluster) else { return Ok(()) };
        let mut bytes = vec![0; CLUSTER_BYTES as usize];
        // Only the loading of a table changes this, and `loading` is held.
        self.read(at, &mut bytes)?;
        self.tables_mut().loaded(cluster, &bytes);
        Ok(())
    }

    /// Flushes where much waits for it.
    fn relieve(&self) -> Result<()> {
        let waiting = self.tables().dirty_tables();
        if waiting > DIRTY_TABLES_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn mark_dirty(&self) -> Result<()> {
        self.write(layout::FEATURES_AT, &layout::DIRTY_FEATURES)?;
        self.sync()
    }

    /// Writes refcounts for all that is in use, then a header that is not dirty and names them.
    fn write_refcounts(&self) -> Result<()> {
        let mut space = self.space();
        let (counts, table) = space.refcounts();
        for (at, bytes) in counts {
            self.write(at, &bytes)?;
        }
        self.file.set_len(space.end() * CLUSTER_BYTES).map_err(|e| self.broke("set the size of", e))?;
        self.sync()?;
        self.write(layout::REFCOUNT_TABLE_AT, &layout::clean(table))?;
        self.sync()
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read()
    }

    fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write()
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock()
    }

    fn stripe(&self, cluster: u64) -> MutexGuard<'_, ()> {
        self.stripes[cluster as usize % STRIPES].lock()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(at, buf).map_err(|e| ImageError::read(&self.name, "read", e))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.file.write_at(at, data).map_err(|e| match e.kind() {
            // A full file system loses nothing: the data is unwritten, and the guest gets the error.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ImageError::io(&self.name, "write", e)
            }
            _ => self.broke("write", e),
        })
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.broke("sync", e))
    }

    fn broke(&self, op: &'static str, e: io::Error) -> ImageError {
        self.failed.store(true, Ordering::Release);
        ImageError::io(&self.name, op, e)
    }

    fn base_failed(&self, e: io::Error) -> ImageError {
        ImageError::io(&self.name, "read what lies below", e)
    }

    fn check_whole(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let why =
            "it is closed, or an earlier write or sync failed: nothing more is written to it; open it again";
        Err(ImageError::refused(&self.name, why))
    }
}
