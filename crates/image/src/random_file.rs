//! A file that is written at any offset while others read it.

use crate::{ImageError, Result};
use rustix::fs::{flock, openat, seek, FlockOperation, Mode, OFlags, SeekFrom, CWD};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes that are read and written at any offset; what is written is durable after the next sync.
pub trait RandomFile: Send + Sync {
    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`; the file becomes longer where needed.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes durable what was written before.
    fn sync(&self) -> io::Result<()>;

    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes it shorter, or longer by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes zeros of a range within it, without taking space for them where that is possible.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;
}

impl RandomFile for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        let meta = self.metadata()?;
        match meta.file_type().is_block_device() {
            true => Ok(seek(self, SeekFrom::End(0))?),
            false => Ok(meta.len()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        crate::zeros::punch(self, range)
    }
}

/// Makes a file that must not be there, and its name durable.
pub(crate) fn create(path: &Path) -> Result<Box<dyn RandomFile>> {
    let name = path.display().to_string();
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => ImageError::refused(&name, "exists already"),
        _ => ImageError::io(&name, "create", e),
    };
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
    lock(&file, &name)?;
    sync_folder_of(path)?;
    Ok(Box::new(file))
}

/// Makes the name of a file durable.
pub fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|f| f.sync_all());
    synced.map_err(|e| ImageError::io(&folder.display().to_string(), "sync", e))
}

/// Opens a file that is there.
pub(crate) fn open(path: &Path) -> Result<Box<dyn RandomFile>> {
    let name = path.display().to_string();
    // Of a device: nobody has it mounted or made it part of another one.
    let flags = if is_device(path) { OFlags::EXCL.bits() as i32 } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = file.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => {
            ImageError::refused(&name, "is in use: mounted, or part of another device")
        }
        _ => ImageError::io(&name, "open", e),
    })?;
    lock(&file, &name)?;
    Ok(Box::new(file))
}

/// Whether a path leads to a block device.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Whether a file holds anything but a hole, as far as its file system can tell.
pub(crate) fn has_data(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    match seek(&file, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(false),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(file.metadata()?.len() > 0),
        found => found.map(|_| true).map_err(Into::into),
    }
}

/// A file without a name, which goes when it is closed.
pub(crate) fn unnamed(directory: &Path) -> Result<Box<dyn RandomFile>> {
    let name = directory.display().to_string();
    let made =
        openat(CWD, directory, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    let file = made.map_err(|e| ImageError::io(&name, "make a scratch file in", e.into()))?;
    Ok(Box::new(File::from(file)))
}

fn lock(file: &File, name: &str) -> Result<()> {
    // File systems without locks are written all the same.
    if flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(ImageError::refused(name, "is in use by another process"));
    }
    Ok(())
}
