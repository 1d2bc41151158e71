//! The input of a command: a file, a device, or a stream.

use super::claim::claim_input;
use crate::system::own_directory::scratch;
use crate::terminal::streams::{check_in, Waiting};
use anyhow::{Context as _, Result};
use archive::mzip::{Disk, MzipError};
use std::fs::{File, Metadata};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use vault::VaultError;

/// An input that is open.
pub struct Input {
    /// Its path; `None` for standard input.
    path: Option<PathBuf>,
    file: File,
    /// As it was when it was opened.
    was: Metadata,
    /// Its length, if it can be read at any place.
    len: Option<u64>,
}

impl Input {
    /// Opens a file; without a path, standard input.
    ///
    /// # Errors
    /// If it cannot be opened, or is a directory.
    pub fn open(path: Option<&Path>) -> Result<Input> {
        let file = match path {
            Some(path) => File::open(path).with_context(|| format!("{}: cannot open", path.display()))?,
            None => {
                check_in()?;
                if std::io::stdin().is_terminal() {
                    let why = "no file is named, and standard input is a terminal";
                    return Err(VaultError::Usage(why.into()).into());
                }
                File::from(std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?)
            }
        };
        let mut input = Input { path: path.map(Path::to_owned), was: file.metadata()?, file, len: None };
        if input.was.is_dir() {
            return Err(VaultError::Refused(format!("{}: is a directory; tar packs it", input.name())).into());
        }
        // Something else may have read the beginning of standard input. Devices are read once, as streams are: whether one
        // has changed since cannot be seen. So are files that do not know how long they are, as in /proc.
        let is_at_begin = input.file.stream_position().is_ok_and(|at| at == 0);
        if is_at_begin && input.was.is_file() && input.was.len() > 0 {
            input.len = input.file.seek(SeekFrom::End(0)).ok();
            if input.len.is_some() {
                // Read from its end, it would be an empty one.
                input.file.rewind().with_context(|| format!("{}: cannot read", input.name()))?;
            }
        }
        Ok(input)
    }

    /// Keeps others from writing it until it is closed, or from having it open at all, if it is going to be removed.
    ///
    /// # Errors
    /// Refused, where another process, such as a running machine, has it open so.
    pub fn claim(&self, is_removed: bool) -> Result<()> {
        claim_input(&self.file, self.path.as_deref().unwrap_or(Path::new("-")), is_removed)
    }

    /// What it is called in messages.
    pub fn name(&self) -> String {
        self.path.as_deref().map_or_else(|| "standard input".into(), |path| path.display().to_string())
    }

    /// Its path, if it is a regular file that has one.
    pub fn regular(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.was.is_file())
    }

    /// The file and its length, if it can be read at any place.
    pub fn at(&self) -> Option<(&File, u64)> {
        self.len.map(|len| (&self.file, len))
    }

    /// To be read in order.
    pub fn stream(&self) -> impl Read + '_ {
        Waiting(&self.file)
    }

    /// The kind of disk that it is on, or that a stream's temporary file is on.
    pub fn disk(&self) -> Disk {
        let device = match self.len {
            Some(_) => Some(self.was.dev()),
            None => scratch(None).metadata().ok().map(|directory| directory.dev()),
        };
        let is_spinning = device.is_some_and(|device| {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let known = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
            // Of a partition, its disk says it.
            let files = ["queue/rotational", "../queue/rotational"].map(|name| known.join(name));
            files
                .iter()
                .find_map(|file| std::fs::read_to_string(file).ok())
                .is_some_and(|said| said.trim() == "1")
        });
        if is_spinning {
            Disk::SPINNING
        } else {
            Disk::SOLID
        }
    }

    /// As it was when it was opened.
    pub fn was(&self) -> &Metadata {
        &self.was
    }

    /// An error if an output of this name is the input: what is written would be read, and never end.
    ///
    /// # Errors
    /// Refused, if it is.
    pub fn differs_from(&self, output: &Metadata, name: &Path) -> Result<()> {
        let both = [output, &self.was];
        let is_same_file = self.was.is_file() && is_same(output, &self.was);
        let is_same_device =
            both.iter().all(|m| m.file_type().is_block_device()) && output.rdev() == self.was.rdev();
        if is_same_file || is_same_device {
            let why = format!("{}: is the input itself; name another result", name.display());
            return Err(VaultError::Refused(why).into());
        }
        Ok(())
    }

    /// An error if a file was changed since it was opened.
    ///
    /// # Errors
    /// If it was.
    pub fn is_unchanged(&self) -> Result<()> {
        let of = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec());
        let is = self.file.metadata().with_context(|| self.name())?;
        if self.was.is_file() && of(&is) != of(&self.was) {
            return Err(anyhow::Error::from(MzipError::Changed).context(self.name()));
        }
        Ok(())
    }

    /// An error if [`Input::remove`] would not remove what was read.
    ///
    /// # Errors
    /// Refused for links and files with several names.
    pub fn is_removable(&self) -> Result<()> {
        let Some(path) = self.regular() else { return Ok(()) };
        let there = path.symlink_metadata().with_context(|| format!("{}: cannot open", path.display()))?;
        let why = if there.is_symlink() {
            "is a link"
        } else if self.was.nlink() > 1 {
            "has other names"
        } else {
            return Ok(());
        };
        let why = format!("{}: {why}; --rm would not free its space", path.display());
        Err(VaultError::Refused(why).into())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// Refused, if anything about it was changed since it was opened, or if its name is another file's by now; if it cannot be
    /// removed.
    pub fn remove(&self) -> Result<()> {
        let Some(path) = self.regular() else { return Ok(()) };
        let cannot = || format!("{}: cannot remove", path.display());
        let is = path.symlink_metadata().with_context(cannot)?;
        // Other times can be set back.
        let changed = |m: &Metadata| (m.len(), m.ctime(), m.ctime_nsec());
        if !is_same(&is, &self.was) || changed(&is) != changed(&self.was) {
            let why = format!("{}: was changed meanwhile, and is not removed", path.display());
            return Err(VaultError::Refused(why).into());
        }
        std::fs::remove_file(path).with_context(cannot)
    }
}

/// Whether both are one file.
pub fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
