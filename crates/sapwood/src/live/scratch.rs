//! The scratch directory of a live backup, with the old data that the guest overwrites.
//!
//! Each backup has its own ([`OwnDirectory`]). It contains `fleece-N.qcow2` for each disk, and QEMU's NBD socket.

use crate::system::own_directory::{self, OwnDirectory};
use anyhow::{bail, ensure, Context as _, Result};
use image::{create_target, TargetFormat, TargetOptions};
use std::fs::File;
use std::os::unix::fs::{fchown, lchown};
use std::path::{Path, PathBuf};

/// Paths of sockets have so many bytes at most.
const SOCKET_PATH_BYTES: usize = 107;
/// A backup does not begin with less room than this.
const LEAST_BYTES: u64 = 64 << 20;
/// Room that stays free: the point in time is given up before QEMU has to fail a write of the guest.
const RESERVE_BYTES: u64 = 1 << 30;

/// The directory. It goes when it is dropped.
pub struct Scratch {
    dir: OwnDirectory,
    reserve_bytes: u64,
}

impl Scratch {
    /// Makes one below `parent`, where there is room.
    pub fn create(parent: &Path) -> Result<Self> {
        let cannot = || format!("{}: cannot keep the guest's old data there", parent.display());
        let dir = OwnDirectory::create(parent, own_directory::FLEECE).with_context(cannot)?;
        let scratch = Scratch { dir, reserve_bytes: 0 };
        let free = scratch.free_bytes().with_context(cannot)?;
        ensure!(
            free >= LEAST_BYTES,
            "{}: only {} MiB are free for what the guest overwrites during the backup; name a directory with more room \
             (--scratch)",
            parent.display(),
            free >> 20
        );
        ensure!(
            scratch.socket().as_os_str().len() <= SOCKET_PATH_BYTES,
            "{}: is too long for the path of a socket; name a shorter directory (--scratch)",
            parent.display()
        );
        Ok(Scratch { reserve_bytes: RESERVE_BYTES.min(free / 8), ..scratch })
    }

    /// Makes the image that keeps a disk's old data, and gives it to the user and group `owner`.
    pub fn add_image(&self, number: usize, size: u64, owner: Option<(u32, u32)>) -> Result<PathBuf> {
        let path = self.dir.path().join(format!("fleece-{number}.qcow2"));
        let how = TargetOptions { size, format: TargetFormat::Qcow2, ..TargetOptions::default() };
        create_target(&path, &how)?.finish()?;
        if let Some((user, group)) = owner {
            let given = File::open(&path).and_then(|f| fchown(&f, Some(user), Some(group)));
            given.with_context(|| format!("{}: cannot give it to QEMU", path.display()))?;
        }
        Ok(path)
    }

    /// Lets QEMU, which is `owner`'s where that is not us, make its socket there. Nothing of ours is made in it from then
    /// on.
    pub fn open_to(&self, owner: Option<(u32, u32)>) -> Result<()> {
        let Some((user, group)) = owner else { return Ok(()) };
        lchown(self.dir.path(), Some(user), Some(group))
            .with_context(|| format!("{}: cannot give it to QEMU", self.dir.path().display()))
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(own_directory::SOCKET)
    }

    /// Whether there is room for more of the guest's old data.
    pub fn check(&self) -> Result<()> {
        let free = self.free_bytes()?;
        if free < self.reserve_bytes {
            bail!(
                "{}: what the guest overwrites during the backup has filled it; name a directory with more room (--scratch)",
                self.dir.path().display()
            );
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64> {
        let fs = rustix::fs::statvfs(self.dir.path())?;
        Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
    }
}

/// Whether a file is in a directory that a backup made for itself.
pub fn is_ours(file: &Path) -> bool {
    let dir = file.parent().and_then(Path::file_name);
    dir.and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(own_directory::FLEECE))
}

/// The process of the backup that made the directory of `file`, for messages, if it lives.
pub fn holder(file: &Path) -> Option<String> {
    file.parent().and_then(own_directory::holder)
}
