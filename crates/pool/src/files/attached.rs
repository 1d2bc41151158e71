//! Files as devices: what NBD serves of the file system.
//!
//! The kernel keeps content of files in its memory, so only a file that nobody has open can become a device. While it is one,
//! it can be opened for reading, past the kernel's memory; it cannot be opened for writing or get another length.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use export::{BlockDevice, Extent, NodeId};

use super::clones::refused;
use super::error::Answer;
use super::node::Node;
use super::FileSystem;
use crate::error::{PoolError, Result};
use crate::pool::{CLOSE_PAUSE, CLOSE_TIME};
use crate::volume::Volume;

/// A file that is served as a device. Dropped, it is a file only.
pub struct AttachedFile {
    system: Arc<FileSystem>,
    node: Arc<Node>,
    volume: Arc<Volume>,
    size: u64,
}

impl FileSystem {
    /// Makes a device of a file. It stays, without a name if need be, until the device is dropped.
    ///
    /// # Errors
    /// Refused while somebody has it open, and if its length is no multiple of 512.
    pub fn attach(self: &Arc<Self>, path: &OsStr) -> Result<AttachedFile> {
        let node = self.hold(path)?;
        match self.begin_device(&node, path) {
            Ok((volume, size)) => {
                // The kernel must ask for its content from now on.
                self.tell(NodeId(node.id));
                Ok(AttachedFile { system: Arc::clone(self), node, volume, size })
            }
            Err(error) => {
                self.forget_lookups(NodeId(node.id), 1)?;
                Err(error)
            }
        }
    }

    fn begin_device(&self, node: &Arc<Node>, path: &OsStr) -> Result<(Arc<Volume>, u64)> {
        let since = Instant::now();
        while !node.state.lock().users.attach_alone() {
            if since.elapsed() > CLOSE_TIME {
                return Err(PoolError::Refused(format!(
                    "{} is open on the mount: a file is served as a disk, or used as a file; close it first",
                    Path::new(path).display()
                )));
            }
            std::thread::sleep(CLOSE_PAUSE);
        }
        let prepared = self.prepare_device(node, path).map_err(|refusal| refused(path, refusal));
        if prepared.is_err() {
            node.state.lock().users.detach();
        }
        prepared
    }

    fn prepare_device(&self, node: &Arc<Node>, path: &OsStr) -> Answer<(Arc<Volume>, u64)> {
        self.open_content(node)?;
        let (volume, size) = {
            let mut content = node.volume.write();
            let size = self.device_size(node, path)?;
            (self.content_for(node, &mut content, size)?, size)
        };
        // What a client flushes is found again only if the name leads to its volume.
        self.make_durable()?;
        Ok((volume, size))
    }
}

impl Drop for AttachedFile {
    fn drop(&mut self) {
        self.node.state.lock().users.detach();
        let id = NodeId(self.node.id);
        // What the kernel knew before is not true any more.
        self.system.tell(id);
        // Nobody waits for an answer; the next sync tells that the table failed.
        let _ = self.system.forget_lookups(id, 1);
    }
}

impl BlockDevice for AttachedFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        BlockDevice::read_at(&self.volume, offset, buf)
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.volume.read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.volume.extents(range, each)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.system.with_space(|| Ok(Volume::write_at(&self.volume, offset, data)?))?;
        self.system.was_changed(&self.node, 0);
        Ok(())
    }

    fn zero(&self, range: Range<u64>, _release: bool) -> io::Result<()> {
        self.system.with_space(|| Ok(Volume::zero(&self.volume, range.start, range.end - range.start)?))?;
        self.system.was_changed(&self.node, 0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        BlockDevice::flush(&self.volume)
    }
}
