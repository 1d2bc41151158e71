//! A file whose place another one is going to take.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::{ImageError, Result};
use crate::file::lock::{claim_with, hint, Purpose};

/// The file at a path, locked: no QEMU has it open, and none opens it before this is dropped. There may be no file.
#[derive(Debug)]
pub struct ReplacedFile {
    path: PathBuf,
    file: Option<File>,
    hint: &'static str,
}

impl ReplacedFile {
    /// Claims the file at `path`, if there is one.
    ///
    /// # Errors
    /// `InUse` where another process has it open.
    pub fn claim(path: &Path) -> Result<Self> {
        Self::claim_with(path, hint(Purpose::Replace))
    }

    /// The same for commands that advise something else where another process has it open.
    ///
    /// # Errors
    /// As [`ReplacedFile::claim`].
    pub fn claim_with(path: &Path, hint: &'static str) -> Result<Self> {
        let name = path.display().to_string();
        // A pipe that has come to that name must not stop us.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => Some(file),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(ImageError::io(&name, "ask whether another process has open", e)),
        };
        if let Some(file) = &file {
            claim_with(file, &name, Purpose::Replace, hint)?;
        }
        Ok(Self { path: path.to_owned(), file, hint })
    }

    /// Just before the new file takes the name: claims what has it now, if that is another file than before.
    ///
    /// # Errors
    /// As [`ReplacedFile::claim`].
    pub fn claim_again(&mut self) -> Result<()> {
        let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let before = self.file.as_ref().and_then(|file| file.metadata().ok()).map(id);
        if self.path.metadata().ok().map(id) != before {
            *self = Self::claim_with(&self.path, self.hint)?;
        }
        Ok(())
    }
}
