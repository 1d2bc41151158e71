//! The target of a live restore, and its final name when it is complete.
//!
//! The map stays until the disk is complete and not in use any more. Until then the same command resumes the restore,
//! and never starts again over a guest's writes.

use crate::args::Restore;
use anyhow::{Context, Result};
use image::{sync_folder_of, ArrivingDisk, ArrivingPaths, ReplacedFile};
use parking_lot::Mutex;
use rustix::fs::{renameat_with, RenameFlags, CWD};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use vault::VaultError;

/// Where a disk arrives.
pub struct Place {
    pub paths: ArrivingPaths,
    kind: Kind,
    /// What is there may be replaced.
    pub overwrite: bool,
    /// The file that has the name now, locked; `None` where the user allows to overwrite a file in use.
    replaced: Option<Mutex<ReplacedFile>>,
}

enum Kind {
    Device,
    /// A file that gets this name.
    File(PathBuf),
    /// A file that has its name: all has arrived.
    Whole,
}

impl Place {
    /// Where the disk is to arrive, or has begun to.
    pub fn of(a: &Restore) -> Result<Place> {
        let refused = |why: &str| Err(VaultError::Refused(format!("{}: {why}", a.target.display())).into());
        if a.format.as_deref().is_some_and(|f| f != "raw") || a.target.as_os_str() == "-" {
            return Err(VaultError::Usage("--live writes raw files and block devices only".into()).into());
        }
        if fs::metadata(&a.target).is_ok_and(|m| m.file_type().is_block_device()) {
            let Some(map) = a.map.clone() else {
                return Err(VaultError::Usage(
                    "--live on a device needs --map FILE, where it records what has arrived".into(),
                )
                .into());
            };
            if !a.allow_in_use {
                // Only a check: the file is locked when it is opened for writing.
                drop(ReplacedFile::claim(&a.target)?);
            }
            let paths = ArrivingPaths { target: a.target.clone(), map };
            return Ok(Place { paths, kind: Kind::Device, overwrite: a.force, replaced: None });
        }
        let target = with_suffix(&a.target, ".sapwood-arriving");
        let map = a.map.clone().unwrap_or_else(|| with_suffix(&a.target, ".sapwood-map"));
        if !target.exists() && a.target.exists() && ArrivingDisk::has_arrived(&map)? {
            let paths = ArrivingPaths { target: a.target.clone(), map };
            return Ok(Place { paths, kind: Kind::Whole, overwrite: false, replaced: None });
        }
        let paths = ArrivingPaths { target, map };
        if a.target.exists() && !a.force {
            return refused("exists already; choose another name, or give --force");
        }
        let is_claimed = a.force && !a.allow_in_use;
        let replaced = is_claimed.then(|| ReplacedFile::claim(&a.target)).transpose()?.map(Mutex::new);
        Ok(Place { paths, kind: Kind::File(a.target.clone()), overwrite: a.force, replaced })
    }

    /// The disk is whole and durable: a file gets its name.
    pub fn complete(&self) -> Result<()> {
        let Kind::File(name) = &self.kind else { return Ok(()) };
        if let Some(replaced) = &self.replaced {
            replaced.lock().claim_again()?;
        }
        let flags = if self.overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.paths.target, CWD, name, flags) {
            Err(Errno::EXIST) => {
                let disk = self.paths.target.display();
                let why = format!("{}: exists now; the disk is in {disk}", name.display());
                return Err(VaultError::Refused(why).into());
            }
            other => other.with_context(|| format!("naming {}", name.display()))?,
        }
        Ok(sync_folder_of(name)?)
    }

    /// Removes the map when the disk is not in use any more.
    pub fn leave(&self) -> Result<()> {
        fs::remove_file(&self.paths.map).with_context(|| format!("removing {}", self.paths.map.display()))?;
        Ok(sync_folder_of(&self.paths.map)?)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
