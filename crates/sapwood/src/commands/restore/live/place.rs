//! Where a disk arrives, and what it is called once it is whole.
//!
//! The map stays until the disk has arrived and nobody uses it any more: up to then the same command goes on with what is
//! there, and never begins anew over what a guest wrote.

use crate::args::Restore;
use anyhow::{Context, Result};
use image::{sync_folder_of, Arriving, ArrivingPaths};
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
    overwrite: bool,
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
        if a.format != "raw" || a.target.as_os_str() == "-" {
            return Err(VaultError::Usage("--live writes raw files and block devices only".into()).into());
        }
        if fs::metadata(&a.target).is_ok_and(|m| m.file_type().is_block_device()) {
            let Some(map) = a.map.clone() else {
                return Err(VaultError::Usage("--live on a device needs --map FILE".into()).into());
            };
            if !a.force && !map.exists() {
                return refused(
                    "is a block device, whose content would be lost; give --force if that is wanted",
                );
            }
            let paths = ArrivingPaths { target: a.target.clone(), map };
            return Ok(Place { paths, kind: Kind::Device, overwrite: true });
        }
        let target = with_suffix(&a.target, ".sapwood-arriving");
        let map = a.map.clone().unwrap_or_else(|| with_suffix(&a.target, ".sapwood-map"));
        if !target.exists() && a.target.exists() && Arriving::has_arrived(&map)? {
            let paths = ArrivingPaths { target: a.target.clone(), map };
            return Ok(Place { paths, kind: Kind::Whole, overwrite: false });
        }
        let paths = ArrivingPaths { target, map };
        if a.target.exists() && !a.force {
            return refused("exists already; choose another name, or give --force");
        }
        Ok(Place { paths, kind: Kind::File(a.target.clone()), overwrite: a.force })
    }

    /// What the map says of a device: on another one nothing of what it names has arrived.
    pub fn device(&self) -> String {
        // As it was given: what it leads to may be called something else after the system has started anew.
        match (&self.kind, std::path::absolute(&self.paths.target)) {
            (Kind::Device, Ok(path)) => format!(" on {}", path.display()),
            _ => String::new(),
        }
    }

    /// The disk is whole and durable: a file gets its name.
    pub fn complete(&self) -> Result<()> {
        let Kind::File(name) = &self.kind else { return Ok(()) };
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

    /// Nobody uses the disk any more: the map goes.
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
