//! Copies that take no time: of files, of volumes and of snapshots.
//!
//! A copy has the same map as its source, and only its length tells how much of it was copied. So a copy in many requests, such
//! as one of the data between holes, is as cheap as one in a single request. What the map has behind that length is removed
//! when the copy is closed, or when the file system is opened again.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use export::files::New;
use export::NodeId;
use format::pool::{FileKind, VolumeId};
use rustix::io::Errno;

use super::content::{find_extent, Alone};
use super::error::{Answer, Refusal};
use super::node::Node;
use super::FileSystem;
use crate::error::{PoolError, Result};
use crate::volume::Volume;

/// A file that was made for a copy: its owner only.
const COPY_MODE: u32 = 0o100_600;

/// What is copied.
struct Source<'a> {
    id: VolumeId,
    /// None of a file that nothing was written to.
    volume: Option<&'a Volume>,
    size: u64,
}

impl FileSystem {
    /// Copies a range of a file to the same place in another one.
    pub(super) fn copy_range(&self, from: NodeId, to: NodeId, offset: u64, bytes: u64) -> Answer<u64> {
        let (source, target) = (self.file(from)?, self.file(to)?);
        if from == to {
            return Err(Errno::XDEV.into());
        }
        self.open_content(&source)?;
        self.open_content(&target)?;
        // In the order of their numbers, as everybody who needs two.
        let (content, mut new) = if from < to {
            let content = source.volume.write();
            (content, target.volume.write())
        } else {
            let new = target.volume.write();
            (source.volume.write(), new)
        };
        let (id, size) = {
            let record = &source.state.lock().record;
            (VolumeId(record.volume), record.size)
        };
        self.share_range(&Source { id, volume: content.as_deref(), size }, &target, &mut new, (offset, bytes))
    }

    /// The same, of a volume or a snapshot.
    pub(super) fn copy_volume(&self, from: VolumeId, to: NodeId, offset: u64, bytes: u64) -> Answer<u64> {
        let (volume, target) = (self.pool.any_volume(from)?, self.file(to)?);
        self.open_content(&target)?;
        let source = Source { id: from, volume: Some(&volume), size: volume.size() };
        let mut new = target.volume.write();
        self.share_range(&source, &target, &mut new, (offset, bytes))
    }

    /// Lets the target have the source's map as far as the range. EXDEV where it has content of its own: the caller copies
    /// with reads and writes, which share blocks as well.
    fn share_range(
        &self,
        source: &Source<'_>,
        target: &Arc<Node>,
        content: &mut Alone<'_>,
        (offset, bytes): (u64, u64),
    ) -> Answer<u64> {
        let end = offset.saturating_add(bytes).min(source.size);
        if offset >= end {
            return Ok(0);
        }
        let before = target.size();
        if before < offset {
            // What is passed over stays a hole, so it must be one in the source.
            match find_extent(source.volume, source.size, before, false) {
                Ok(data) if data < offset => return Err(Errno::XDEV.into()),
                Ok(_) | Err(Refusal::Errno(Errno::NXIO)) => {}
                Err(other) => return Err(other),
            }
        }
        match source.volume {
            None if content.is_some() => return Err(Errno::XDEV.into()),
            None => {}
            Some(volume) if content.as_ref().is_some_and(|content| content.has_same_map(volume)) => {}
            Some(_) if before > 0 => return Err(Errno::XDEV.into()),
            Some(_) => {
                let (id, clone) = self.pool.clone_file_volume(target.id, source.id)?;
                let old = self.touch(target, |record| std::mem::replace(&mut record.volume, id.0));
                **content = Some(clone);
                target.is_clear.store(false, Ordering::SeqCst);
                self.table.lock().let_go(old);
            }
        }
        self.was_changed(target, end);
        self.note_tail(target, source.volume.is_some() && target.size() < source.size)?;
        Ok(end - offset)
    }

    /// Notes whether a file has content of its source behind its end.
    fn note_tail(&self, node: &Node, has_tail: bool) -> Result<()> {
        let had_tail = std::mem::replace(&mut node.state.lock().has_tail, has_tail);
        if had_tail != has_tail {
            self.table.lock().set_trim(node.id, has_tail)?;
        }
        Ok(())
    }

    /// Removes what a copy has behind its end.
    pub(super) fn drop_tail(&self, node: &Node) -> Answer<()> {
        let content = node.volume.write();
        let size = node.size();
        if let Some(volume) = content.as_ref().filter(|volume| size < volume.size()) {
            volume.zero(size, volume.size() - size)?;
            node.is_clear.store(true, Ordering::SeqCst);
        }
        self.note_tail(node, false)?;
        Ok(())
    }

    /// Makes a volume that begins as a file, in no time. It is durable when this returns.
    ///
    /// # Errors
    /// Refused while the file is open for writing: the kernel may have what was written.
    pub fn clone_to_volume(&self, path: &OsStr, name: &str) -> Result<()> {
        self.with_file(path, |node| {
            if node.state.lock().users.is_written_as_file() {
                return Err(PoolError::Refused(format!(
                    "{} is open for writing on the mount: close it first",
                    Path::new(path).display()
                ))
                .into());
            }
            self.open_content(node)?;
            let mut content = node.volume.write();
            let size = self.device_size(node, path)?;
            let volume = self.content_for(node, &mut content, size)?;
            // Nothing of what the file once had there is to be seen if the volume grows.
            volume.zero(size, volume.size() - size)?;
            let id = VolumeId(node.state.lock().record.volume);
            Ok(self.pool.clone_file_to_volume(id, name, size)?)
        })
    }

    /// Makes a file that begins as a volume or a snapshot, in no time. It is durable when this returns.
    pub fn clone_from_volume(&self, name: &str, path: &OsStr) -> Result<()> {
        let volume = self.pool.volume(name)?;
        self.clone_to_new(path, |target| {
            let source = Source { id: volume.id(), volume: Some(&volume), size: volume.size() };
            let mut new = target.volume.write();
            self.share_range(&source, target, &mut new, (0, u64::MAX))
        })
    }

    /// Makes a file that begins as another one, in no time. It is durable when this returns.
    ///
    /// # Errors
    /// As [`Self::clone_to_volume`].
    pub fn clone_file(&self, from: &OsStr, path: &OsStr) -> Result<()> {
        self.with_file(from, |node| {
            if node.state.lock().users.is_written_as_file() {
                return Err(PoolError::Refused(format!(
                    "{} is open for writing on the mount: close it first",
                    Path::new(from).display()
                ))
                .into());
            }
            let copied = self.clone_to_new(path, |target| {
                self.copy_range(NodeId(node.id), NodeId(target.id), 0, u64::MAX)
            });
            Ok(copied?)
        })
    }

    /// Makes a file and fills it; it is gone again if that fails.
    fn clone_to_new(&self, path: &OsStr, fill: impl FnOnce(&Arc<Node>) -> Answer<u64>) -> Result<()> {
        let (above, name) = split(path);
        let done = (|| {
            let directory = {
                let table = self.table.lock();
                NodeId(self.find_path(&table, above)?.id)
            };
            if self.is_volumes(directory, name) {
                return Err(Errno::EXIST.into());
            }
            if name.is_empty() || name == "." || name == ".." {
                return Err(Errno::INVAL.into());
            }
            let (user, group) = self.owner;
            let new = New { mode: COPY_MODE, user, group, device: 0, target: b"" };
            let made = self.make_node(directory, name, &new)?;
            let filled = self.node(made.id).and_then(|node| fill(&node));
            if filled.is_err() {
                self.unlink_name(directory, name)?;
            }
            self.forget_lookups(made.id, 1)?;
            filled?;
            self.make_durable()?;
            self.tell(directory);
            Ok(())
        })();
        done.map_err(|refusal| refused(path, refusal))
    }

    /// Does something with a file that keeps it there meanwhile.
    fn with_file<T>(&self, path: &OsStr, body: impl FnOnce(&Arc<Node>) -> Answer<T>) -> Result<T> {
        let node = self.hold(path)?;
        let done = body(&node);
        self.forget_lookups(NodeId(node.id), 1)?;
        done.map_err(|refusal| refused(path, refusal))
    }

    /// The regular file of a path. It stays until it is forgotten.
    pub(super) fn hold(&self, path: &OsStr) -> Result<Arc<Node>> {
        let found = (|| {
            let table = self.table.lock();
            let node = self.find_path(&table, path)?;
            if node.kind() != FileKind::File {
                return Err(PoolError::Refused(format!(
                    "{} is not a regular file",
                    Path::new(path).display()
                ))
                .into());
            }
            self.seen(&node)?;
            Ok(node)
        })();
        found.map_err(|refusal| refused(path, refusal))
    }

    /// The size of a file as a device.
    pub(super) fn device_size(&self, node: &Node, path: &OsStr) -> Result<u64> {
        let size = node.size();
        if size == 0 || size % 512 != 0 {
            return Err(PoolError::Refused(format!(
                "{} has {size} bytes: only a file of a multiple of 512, and not an empty one, is a disk",
                Path::new(path).display()
            )));
        }
        Ok(size)
    }
}

/// A path without its last part, and that part.
fn split(path: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = path.as_bytes();
    let at = bytes.iter().rposition(|b| *b == b'/');
    let (above, name) = at.map_or((&b""[..], bytes), |at| (&bytes[..at], &bytes[at + 1..]));
    (OsStr::from_bytes(above), OsStr::from_bytes(name))
}

/// Why something was not done with a path.
pub(super) fn refused(path: &OsStr, refusal: Refusal) -> PoolError {
    match refusal {
        Refusal::Pool(error) => error,
        Refusal::Errno(errno) => {
            let why = std::io::Error::from(errno);
            PoolError::Refused(format!("{} in the pool's file system: {why}", Path::new(path).display()))
        }
    }
}
