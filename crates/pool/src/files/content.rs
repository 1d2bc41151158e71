//! What is in files.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use export::files::{Allocate, Change, Space, Stat};
use export::{Block, NodeId};
use format::pool::{FileKind, VolumeId};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

use super::error::Answer;
use super::node::{file_time, now, Node};
use super::FileSystem;
use crate::error::PoolError;
use crate::pool::FILE_SIZE_MAX;
use crate::volume::Volume;

/// How old a time of the last read may become before it is noted again, in seconds: as Linux's `relatime` has it.
const ACCESSED_EVERY: i64 = 24 * 3600;

/// The volume of a file, with the right to change which one it is.
pub(super) type Alone<'a> = RwLockWriteGuard<'a, Option<Arc<Volume>>>;
/// The same without that right: others have it as well.
type Shared<'a> = RwLockReadGuard<'a, Option<Arc<Volume>>>;

/// When content that is written has changed.
#[derive(Clone, Copy)]
pub(super) enum Times {
    /// Now.
    Now,
    /// Earlier: others tell when.
    Told,
}

impl FileSystem {
    pub(super) fn read_file(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let node = self.file(id)?;
        self.open_content(&node)?;
        let content = node.volume.read();
        let left = node.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..left];
        match &*content {
            Some(volume) => {
                // The length may be beyond a volume that nothing was written to.
                let there = volume.size().saturating_sub(offset).min(left as u64) as usize;
                if there > 0 {
                    // The system keeps it as the mount's own pages.
                    volume.read_past_cache(offset, &mut buf[..there])?;
                }
                buf[there..].fill(0);
            }
            None => buf.fill(0),
        }
        drop(content);
        self.was_read(&node);
        Ok(left)
    }

    fn was_read(&self, node: &Node) {
        let now = now();
        let record = &mut node.state.lock().record;
        if record.accessed <= record.modified || now.seconds - record.accessed.seconds > ACCESSED_EVERY {
            record.accessed = now;
            self.dirty.lock().insert(node.id);
        }
    }

    pub(super) fn write_file(&self, id: NodeId, offset: u64, data: &[u8], times: Times) -> Answer<()> {
        let node = self.file(id)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        self.open_content(&node)?;
        let content = self.content_until(&node, end)?;
        let Some(volume) = &*content else { return Err(Errno::IO.into()) };
        if let Err(error) = volume.write_at(offset, data) {
            // A part of it may have been written.
            if end > node.size() {
                node.is_clear.store(false, Ordering::SeqCst);
            }
            return Err(error.into());
        }
        match times {
            Times::Now => self.was_changed(&node, end),
            Times::Told => self.update(&node, |record| record.size = record.size.max(end)),
        }
        Ok(())
    }

    /// The volume of a file, in which everything up to `end` can be written with it shared.
    fn content_until<'a>(&self, node: &'a Node, end: u64) -> Answer<Shared<'a>> {
        let content = node.volume.read();
        let is_inside = end <= node.size() || node.is_clear.load(Ordering::SeqCst);
        if content.as_ref().is_some_and(|volume| end <= volume.size() && is_inside) {
            return Ok(content);
        }
        drop(content);
        let mut content = node.volume.write();
        let volume = self.content_for(node, &mut content, end)?;
        if end > node.size() {
            self.clear_behind(node, &volume)?;
        }
        Ok(RwLockWriteGuard::downgrade(content))
    }

    /// Notes a change of the content, which makes the file at least `end` bytes long.
    pub(super) fn was_changed(&self, node: &Node, end: u64) {
        self.touch(node, |record| {
            record.modified = record.changed;
            record.size = record.size.max(end);
        });
    }

    /// What lies behind the end of a file is to be zeros: the file is going to grow over it. The caller has the volume alone.
    fn clear_behind(&self, node: &Node, volume: &Volume) -> Answer<()> {
        if !node.is_clear.load(Ordering::SeqCst) {
            let start = node.size().min(volume.size());
            volume.zero(start, volume.size() - start)?;
            node.is_clear.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    pub(super) fn change_node(&self, id: NodeId, change: &Change) -> Answer<Stat> {
        let node = self.node(id)?;
        if let Some(size) = change.size {
            self.set_length(&node, size)?;
        }
        self.touch(&node, |record| {
            if let Some(mode) = change.mode {
                record.mode = (mode & 0o7777) as u16;
            }
            record.user = change.user.unwrap_or(record.user);
            record.group = change.group.unwrap_or(record.group);
            record.accessed = change.accessed.map_or(record.accessed, file_time);
            record.modified = change.modified.map_or(record.modified, file_time);
            record.changed = change.changed.map_or(record.changed, file_time);
        });
        self.stat_node(&node)
    }

    fn set_length(&self, node: &Arc<Node>, size: u64) -> Answer<()> {
        match node.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if size > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.open_content(node)?;
        let mut content = node.volume.write();
        if node.state.lock().users.is_device() {
            return Err(Errno::BUSY.into());
        }
        let before = node.size();
        if let (Some(volume), true) = (&*content, size > before) {
            self.clear_behind(node, volume)?;
        }
        let set = |record: &mut format::pool::FileRecord| {
            record.size = size;
            record.modified = record.changed;
        };
        if size == 0 && content.is_some() {
            // Another volume is made when it is needed. This one goes when that is durable.
            *content = None;
            let before = self.touch(node, |record| {
                set(record);
                std::mem::take(&mut record.volume)
            });
            self.table.lock().let_go(before);
            return Ok(());
        }
        let (Some(volume), true) = (&*content, size < before) else {
            self.touch(node, set);
            return Ok(());
        };
        // Durable before the content goes: else a file of the old length could be found with zeros in it.
        {
            let mut table = self.table.lock();
            self.touch(node, set);
            table.set_trim(node.id, true)?;
        }
        self.make_durable()?;
        if size < volume.size() {
            let was_clear = node.is_clear.swap(false, Ordering::SeqCst);
            volume.zero(size, before.min(volume.size()) - size)?;
            node.is_clear.store(was_clear, Ordering::SeqCst);
        }
        self.table.lock().set_trim(node.id, false)?;
        Ok(())
    }

    pub(super) fn allocate_range(&self, id: NodeId, range: Range<u64>, how: Allocate) -> Answer<()> {
        let node = self.file(id)?;
        if range.is_empty() {
            return Err(Errno::INVAL.into());
        }
        if range.end > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.open_content(&node)?;
        let content = node.volume.write();
        let size = node.size();
        if matches!(how, Allocate::Punch | Allocate::Zero) {
            if let Some(volume) = &*content {
                let end = range.end.min(size).min(volume.size());
                if range.start < end {
                    volume.zero(range.start, end - range.start)?;
                }
            }
        }
        if matches!(how, Allocate::Extend | Allocate::Zero) && range.end > size {
            if let Some(volume) = &*content {
                self.clear_behind(&node, volume)?;
            }
            self.update(&node, |record| record.size = record.size.max(range.end));
        }
        Ok(())
    }

    pub(super) fn seek_file(&self, id: NodeId, offset: u64, hole: bool) -> Answer<u64> {
        let node = self.file(id)?;
        self.open_content(&node)?;
        let content = node.volume.read();
        find_extent(content.as_deref(), node.size(), offset, hole)
    }

    pub(super) fn room(&self) -> Space {
        let stats = self.pool.stats();
        let (files, free_files) = (self.pool.file_volumes().len() as u64, self.pool.vacancies());
        Space { bytes: stats.data_bytes, free_bytes: stats.free_bytes, files: files + free_files, free_files }
    }

    pub(super) fn file(&self, id: NodeId) -> Answer<Arc<Node>> {
        let node = self.node(id)?;
        match node.kind() {
            FileKind::File => Ok(node),
            FileKind::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Opens the volume of a file, if it has one.
    pub(super) fn open_content(&self, node: &Node) -> Answer<()> {
        if node.volume.read().is_some() || node.state.lock().record.volume == 0 {
            return Ok(());
        }
        let mut content = node.volume.write();
        let volume = node.state.lock().record.volume;
        if content.is_none() && volume != 0 {
            *content = Some(self.pool.file_volume(VolumeId(volume))?);
        }
        Ok(())
    }

    /// The volume of a file that is going to have `size` bytes.
    pub(super) fn content_for(&self, node: &Node, content: &mut Alone<'_>, size: u64) -> Answer<Arc<Volume>> {
        if let Some(volume) = &**content {
            if size > volume.size() {
                let id = node.state.lock().record.volume;
                self.pool.grow_file_volume(VolumeId(id), size)?;
            }
            return Ok(Arc::clone(volume));
        }
        let (id, volume) = self.pool.create_file_volume(node.id, size)?;
        node.is_clear.store(true, Ordering::SeqCst);
        self.touch(node, |record| record.volume = id.0);
        **content = Some(Arc::clone(&volume));
        Ok(volume)
    }
}

/// Where in the first `size` bytes of a volume, from `offset` on, the first data is, or the first hole.
pub(super) fn find_extent(volume: Option<&Volume>, size: u64, offset: u64, hole: bool) -> Answer<u64> {
    if offset >= size {
        return Err(Errno::NXIO.into());
    }
    let mut found = None;
    if let Some(volume) = volume.filter(|volume| offset < volume.size()) {
        let range = offset..size.min(volume.size());
        let extents = export::BlockDevice::extents(volume, range, &mut |extent| {
            if (extent.block == Block::Hole) == hole {
                found = Some(extent.range.start.max(offset));
            }
            found.is_none()
        });
        extents.map_err(PoolError::from_io)?;
    } else if hole {
        found = Some(offset);
    }
    match found {
        Some(found) => Ok(found.min(size)),
        None if hole => Ok(size),
        None => Err(Errno::NXIO.into()),
    }
}
