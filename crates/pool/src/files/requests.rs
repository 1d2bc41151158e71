//! The file system as others see it.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;

use export::files::{Allocate, Caching, Change, Files, Name, New, Rename, SetAttribute, Space, Stat};
use export::NodeId;
use rustix::io::Errno;

use super::content::Times;
use super::volumes::{own, Place};
use super::FileSystem;

impl Files for FileSystem {
    fn lookup(&self, directory: NodeId, name: &OsStr) -> io::Result<Stat> {
        match self.look_up_volume(directory, name)? {
            Some(stat) => Ok(stat),
            None => Ok(self.look_up(directory, name)?),
        }
    }

    fn forget(&self, id: NodeId, lookups: u64) {
        if Place::of(id) == Place::Own {
            // Nobody waits for an answer; the next sync tells that the table failed.
            let _ = self.forget_lookups(id, lookups);
        }
    }

    fn stat(&self, id: NodeId) -> io::Result<Stat> {
        match Place::of(id) {
            Place::Own => Ok(self.stat_node(&*self.node(id)?)?),
            Place::Volumes => Ok(self.volumes_stat()),
            Place::Volume(volume) => Ok(self.stat_volume(volume)?),
        }
    }

    fn change(&self, id: NodeId, change: &Change) -> io::Result<Stat> {
        match Place::of(id) {
            Place::Own => Ok(self.change_node(id, change)?),
            Place::Volumes => Err(Errno::PERM.into()),
            Place::Volume(volume) => Ok(self.change_volume(volume, change)?),
        }
    }

    fn make(&self, directory: NodeId, name: &OsStr, new: &New<'_>) -> io::Result<Stat> {
        own(directory)?;
        if self.is_volumes(directory, name) {
            return Err(Errno::EXIST.into());
        }
        Ok(self.with_space(|| self.make_node(directory, name, new))?)
    }

    fn unlink(&self, directory: NodeId, name: &OsStr) -> io::Result<()> {
        own(directory)?;
        if self.is_volumes(directory, name) {
            return Err(Errno::ISDIR.into());
        }
        Ok(self.unlink_name(directory, name)?)
    }

    fn remove_directory(&self, directory: NodeId, name: &OsStr) -> io::Result<()> {
        own(directory)?;
        if self.is_volumes(directory, name) {
            return Err(Errno::BUSY.into());
        }
        Ok(self.remove_empty(directory, name)?)
    }

    fn rename(&self, from: (NodeId, &OsStr), to: (NodeId, &OsStr), how: Rename) -> io::Result<()> {
        own(from.0)?;
        own(to.0)?;
        if self.is_volumes(from.0, from.1) || self.is_volumes(to.0, to.1) {
            return Err(Errno::BUSY.into());
        }
        Ok(self.with_space(|| self.rename_node(from, to, how))?)
    }

    fn link(&self, id: NodeId, directory: NodeId, name: &OsStr) -> io::Result<Stat> {
        own(id)?;
        own(directory)?;
        if self.is_volumes(directory, name) {
            return Err(Errno::EXIST.into());
        }
        Ok(self.with_space(|| self.link_node(id, directory, name))?)
    }

    fn target(&self, id: NodeId) -> io::Result<Vec<u8>> {
        own(id).map_err(|_| Errno::INVAL)?;
        let node = self.node(id)?;
        let state = node.state.lock();
        if state.record.kind != format::pool::FileKind::Link {
            return Err(Errno::INVAL.into());
        }
        Ok(state.record.target.clone())
    }

    fn list(&self, directory: NodeId) -> io::Result<(Vec<Name>, NodeId)> {
        match Place::of(directory) {
            Place::Own => Ok(self.list_names(directory)?),
            Place::Volumes => Ok(self.list_volumes()),
            Place::Volume(_) => Err(Errno::NOTDIR.into()),
        }
    }

    fn open(&self, id: NodeId, write: bool) -> io::Result<Caching> {
        match Place::of(id) {
            Place::Own => Ok(self.open_file(id, write)?),
            Place::Volumes => Err(Errno::ISDIR.into()),
            Place::Volume(volume) => Ok(self.open_volume(volume, write)?),
        }
    }

    fn close(&self, id: NodeId, write: bool) {
        match Place::of(id) {
            Place::Own => self.close_file(id, write),
            Place::Volumes => {}
            Place::Volume(volume) => self.pool.close_as_file(volume, write),
        }
    }

    fn may_change(&self, id: NodeId) -> bool {
        match Place::of(id) {
            Place::Own => {
                let node = self.nodes.lock().get(&id.0).cloned();
                node.is_some_and(|node| node.state.lock().users.is_device())
            }
            _ => true,
        }
    }

    fn on_change(&self, tell: Box<dyn Fn(NodeId) + Send + Sync>) {
        // A file system is mounted once.
        let _ = self.on_change.set(tell);
    }

    fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match Place::of(id) {
            Place::Volume(volume) => Ok(self.read_volume(volume, offset, buf)?),
            _ => Ok(self.read_file(id, offset, buf)?),
        }
    }

    fn write(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.with_space(|| match Place::of(id) {
            Place::Volume(volume) => self.write_volume(volume, offset, data),
            _ => self.write_file(id, offset, data, Times::Now),
        })?)
    }

    fn write_back(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.with_space(|| match Place::of(id) {
            Place::Volume(volume) => self.write_volume(volume, offset, data),
            _ => self.write_file(id, offset, data, Times::Told),
        })?)
    }

    fn allocate(&self, id: NodeId, range: Range<u64>, how: Allocate) -> io::Result<()> {
        match Place::of(id) {
            Place::Volume(volume) => Ok(self.allocate_volume(volume, range, how)?),
            _ => Ok(self.allocate_range(id, range, how)?),
        }
    }

    fn seek(&self, id: NodeId, offset: u64, hole: bool) -> io::Result<u64> {
        match Place::of(id) {
            Place::Volume(volume) => Ok(self.seek_volume(volume, offset, hole)?),
            _ => Ok(self.seek_file(id, offset, hole)?),
        }
    }

    fn copy(&self, from: (NodeId, u64), to: (NodeId, u64), bytes: u64) -> io::Result<u64> {
        if from.1 != to.1 || Place::of(to.0) != Place::Own {
            return Err(Errno::XDEV.into());
        }
        Ok(self.with_space(|| match Place::of(from.0) {
            Place::Volume(volume) => self.copy_volume(volume, to.0, to.1, bytes),
            // Behind the length that is known here there may be pages that the kernel has not sent.
            _ => match self.copy_range(from.0, to.0, to.1, bytes)? {
                0 => Err(Errno::XDEV.into()),
                copied => Ok(copied),
            },
        })?)
    }

    fn attribute(&self, id: NodeId, name: &OsStr) -> io::Result<Vec<u8>> {
        own(id).map_err(|_| Errno::NODATA)?;
        Ok(self.get_attribute(id, name)?)
    }

    fn attributes(&self, id: NodeId) -> io::Result<Vec<u8>> {
        if own(id).is_err() {
            return Ok(Vec::new());
        }
        Ok(self.list_attributes(id)?)
    }

    fn set_attribute(&self, id: NodeId, name: &OsStr, value: &[u8], how: SetAttribute) -> io::Result<()> {
        own(id)?;
        Ok(self.with_space(|| self.put_attribute(id, name, value, how))?)
    }

    fn remove_attribute(&self, id: NodeId, name: &OsStr) -> io::Result<()> {
        own(id)?;
        Ok(self.drop_attribute(id, name)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.make_durable()?)
    }

    fn space(&self) -> io::Result<Space> {
        Ok(self.room())
    }
}
