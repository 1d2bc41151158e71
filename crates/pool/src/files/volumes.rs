//! The pool's volumes as files, in the directory `.volumes` of the root.
//!
//! That directory is reached by its name and not listed, so that a program that copies or removes everything does not meet it. Nodes
//! in it have numbers that no other node gets. What may be done with such a file is what may be done with a disk.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::time::UNIX_EPOCH;

use export::files::{Allocate, Caching, Change, Name, Stat};
use export::NodeId;
use format::pool::VolumeId;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::content::find_extent;
use super::error::Answer;
use super::node::VOLUMES_NAME;
use super::FileSystem;
use crate::pool::VolumeFile;

/// The directory; the node of a volume has the volume's id added.
const VOLUMES: u64 = 1 << 62;

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A node of the file system.
    Own,
    /// The directory of volumes.
    Volumes,
    /// A volume or a snapshot.
    Volume(VolumeId),
}

impl Place {
    pub fn of(id: NodeId) -> Self {
        match id.0.checked_sub(VOLUMES) {
            None => Place::Own,
            Some(0) => Place::Volumes,
            Some(id) => Place::Volume(VolumeId(id as u32)),
        }
    }
}

/// Fails for nodes of volumes: commands on volumes change those.
pub(super) fn own(id: NodeId) -> Result<(), Errno> {
    match Place::of(id) {
        Place::Own => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// A volume's name as one part of a path: names of volumes may have slashes, and never a percent sign.
fn file_name(name: &str) -> OsString {
    name.replace('/', "%2F").into()
}

impl FileSystem {
    /// Whether a name in a directory is that of the directory of volumes.
    pub(super) fn is_volumes(&self, directory: NodeId, name: &OsStr) -> bool {
        self.has_volumes && directory == NodeId::ROOT && name == VOLUMES_NAME
    }

    /// What a name leads to, if it leads to the volumes.
    pub(super) fn look_up_volume(&self, directory: NodeId, name: &OsStr) -> Answer<Option<Stat>> {
        match Place::of(directory) {
            Place::Own if self.is_volumes(directory, name) => Ok(Some(self.volumes_stat())),
            Place::Own => Ok(None),
            Place::Volume(_) => Err(Errno::NOTDIR.into()),
            Place::Volumes => {
                let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::NOENT)?;
                let plain = name.replace("%2F", "/");
                let named = Some(&plain).filter(|plain| file_name(plain) == name);
                let file = named.and_then(|name| self.pool.volume_file_named(name)).ok_or(Errno::NOENT)?;
                Ok(Some(self.volume_stat(&file)))
            }
        }
    }

    pub(super) fn volumes_stat(&self) -> Stat {
        self.stat_of((NodeId(VOLUMES), FileType::Directory, 0o700), 0)
    }

    fn volume_stat(&self, file: &VolumeFile) -> Stat {
        let mode = if file.is_snapshot { 0o400 } else { 0o600 };
        let id = NodeId(VOLUMES + u64::from(file.id.0));
        Stat {
            stored: file.stored,
            accessed: file.created,
            modified: file.created,
            changed: file.created,
            ..self.stat_of((id, FileType::RegularFile, mode), file.size)
        }
    }

    fn stat_of(&self, (id, kind, mode): (NodeId, FileType, u32), size: u64) -> Stat {
        let (user, group) = self.owner;
        Stat {
            id,
            mode: kind.as_raw_mode() | mode,
            links: if kind == FileType::Directory { 2 } else { 1 },
            user,
            group,
            device: 0,
            size,
            stored: 0,
            accessed: UNIX_EPOCH,
            modified: UNIX_EPOCH,
            changed: UNIX_EPOCH,
        }
    }

    /// What is known of a volume.
    pub(super) fn stat_volume(&self, id: VolumeId) -> Answer<Stat> {
        let file = self.pool.volume_file(id).ok_or(Errno::STALE)?;
        Ok(self.volume_stat(&file))
    }

    /// A volume has its size and its owner until a command changes them; times are not kept.
    pub(super) fn change_volume(&self, id: VolumeId, change: &Change) -> Answer<Stat> {
        let stat = self.stat_volume(id)?;
        let is_same = change.size.is_none_or(|size| size == stat.size);
        if !is_same || change.mode.is_some() || change.user.is_some() || change.group.is_some() {
            return Err(Errno::PERM.into());
        }
        Ok(stat)
    }

    /// All volumes and snapshots.
    pub(super) fn list_volumes(&self) -> (Vec<Name>, NodeId) {
        let name = |file: &VolumeFile| {
            let stat = self.volume_stat(file);
            Name { name: file_name(&file.name), id: stat.id, mode: stat.mode }
        };
        (self.pool.volume_files().iter().map(name).collect(), NodeId::ROOT)
    }

    /// A volume is read and written past the kernel's memory: others may do the same.
    pub(super) fn open_volume(&self, id: VolumeId, write: bool) -> Answer<Caching> {
        let file = self.pool.volume_file(id).ok_or(Errno::STALE)?;
        if write && file.is_snapshot {
            return Err(Errno::ROFS.into());
        }
        self.pool.open_as_file(id, write)?.ok_or(Errno::BUSY)?;
        Ok(Caching::Never)
    }

    pub(super) fn read_volume(&self, id: VolumeId, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let volume = self.pool.any_volume(id)?;
        let left = volume.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        volume.read_at(offset, &mut buf[..left])?;
        Ok(left)
    }

    /// Writes within the size; no byte of what reaches beyond it, as a disk does.
    pub(super) fn write_volume(&self, id: VolumeId, offset: u64, data: &[u8]) -> Answer<()> {
        let volume = self.pool.any_volume(id)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > volume.size()) {
            return Err(Errno::NOSPC.into());
        }
        Ok(volume.write_at(offset, data)?)
    }

    pub(super) fn allocate_volume(&self, id: VolumeId, range: Range<u64>, how: Allocate) -> Answer<()> {
        let volume = self.pool.any_volume(id)?;
        let end = range.end.min(volume.size());
        if matches!(how, Allocate::Extend | Allocate::Zero) && range.end > end {
            return Err(Errno::NOSPC.into());
        }
        if matches!(how, Allocate::Punch | Allocate::Zero) && range.start < end {
            volume.zero(range.start, end - range.start)?;
        }
        Ok(())
    }

    pub(super) fn seek_volume(&self, id: VolumeId, offset: u64, hole: bool) -> Answer<u64> {
        let volume = self.pool.any_volume(id)?;
        find_extent(Some(&*volume), volume.size(), offset, hole)
    }
}
