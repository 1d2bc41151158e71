//! The file system as others see it.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;

use export::files::{Allocate, Change, Files, Name, New, Rename, SetAttribute, Space, Stat};
use export::NodeId;
use rustix::io::Errno;

use super::content::Times;
use super::FileSystem;

impl Files for FileSystem {
    fn lookup(&self, directory: NodeId, name: &OsStr) -> io::Result<Stat> {
        Ok(self.look_up(directory, name)?)
    }

    fn forget(&self, id: NodeId, lookups: u64) {
        // Nobody waits for an answer; the next sync tells that the table failed.
        let _ = self.forget_lookups(id, lookups);
    }

    fn stat(&self, id: NodeId) -> io::Result<Stat> {
        Ok(self.node(id)?.stat())
    }

    fn change(&self, id: NodeId, change: &Change) -> io::Result<Stat> {
        Ok(self.change_node(id, change)?)
    }

    fn make(&self, directory: NodeId, name: &OsStr, new: &New<'_>) -> io::Result<Stat> {
        Ok(self.with_space(|| self.make_node(directory, name, new))?)
    }

    fn unlink(&self, directory: NodeId, name: &OsStr) -> io::Result<()> {
        Ok(self.unlink_name(directory, name)?)
    }

    fn remove_directory(&self, directory: NodeId, name: &OsStr) -> io::Result<()> {
        Ok(self.remove_empty(directory, name)?)
    }

    fn rename(&self, from: (NodeId, &OsStr), to: (NodeId, &OsStr), how: Rename) -> io::Result<()> {
        Ok(self.with_space(|| self.rename_node(from, to, how))?)
    }

    fn link(&self, id: NodeId, directory: NodeId, name: &OsStr) -> io::Result<Stat> {
        Ok(self.with_space(|| self.link_node(id, directory, name))?)
    }

    fn target(&self, id: NodeId) -> io::Result<Vec<u8>> {
        let node = self.node(id)?;
        let state = node.state.lock();
        if state.record.kind != format::pool::FileKind::Link {
            return Err(Errno::INVAL.into());
        }
        Ok(state.record.target.clone())
    }

    fn list(&self, directory: NodeId) -> io::Result<(Vec<Name>, NodeId)> {
        Ok(self.list_names(directory)?)
    }

    fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_file(id, offset, buf)?)
    }

    fn write(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.with_space(|| self.write_file(id, offset, data, Times::Now))?)
    }

    fn write_back(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.with_space(|| self.write_file(id, offset, data, Times::Told))?)
    }

    fn allocate(&self, id: NodeId, range: Range<u64>, how: Allocate) -> io::Result<()> {
        Ok(self.allocate_range(id, range, how)?)
    }

    fn seek(&self, id: NodeId, offset: u64, hole: bool) -> io::Result<u64> {
        Ok(self.seek_file(id, offset, hole)?)
    }

    fn copy(&self, from: (NodeId, u64), to: (NodeId, u64), bytes: u64) -> io::Result<u64> {
        Ok(self.with_space(|| self.copy_file(from, to, bytes))?)
    }

    fn attribute(&self, id: NodeId, name: &OsStr) -> io::Result<Vec<u8>> {
        Ok(self.get_attribute(id, name)?)
    }

    fn attributes(&self, id: NodeId) -> io::Result<Vec<u8>> {
        Ok(self.list_attributes(id)?)
    }

    fn set_attribute(&self, id: NodeId, name: &OsStr, value: &[u8], how: SetAttribute) -> io::Result<()> {
        Ok(self.with_space(|| self.put_attribute(id, name, value, how))?)
    }

    fn remove_attribute(&self, id: NodeId, name: &OsStr) -> io::Result<()> {
        Ok(self.drop_attribute(id, name)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.make_durable()?)
    }

    fn space(&self) -> io::Result<Space> {
        Ok(self.room())
    }
}
