//! A file that is written at any offset while others read it.

use crate::error::{ImageError, Result};
use crate::file::lock::{claim, Purpose};
use crate::file::zeros;
use rustix::fs::{openat, seek, Mode, OFlags, SeekFrom, CWD};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Permissions of a new file: other users must not read a guest's data. The umask may remove more.
pub(crate) const FILE_MODE: u32 = 0o640;

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

    /// The next range at or after `from` that may hold anything but zeros; the end of the file need not be known. Where holes
    /// are not known, all is such a range.
    fn data_from(&self, from: u64) -> io::Result<Range<u64>> {
        Ok(from..u64::MAX)
    }
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
        if meta.file_type().is_block_device() {
            Ok(seek(self, SeekFrom::End(0))?)
        } else {
            Ok(meta.len())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        zeros::punch(self, range)
    }

    fn data_from(&self, from: u64) -> io::Result<Range<u64>> {
        let start = match seek(self, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(u64::MAX..u64::MAX),
            // A device, or a file system that does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(from..u64::MAX),
            Err(e) => return Err(e.into()),
        };
        match seek(self, SeekFrom::Hole(start)) {
            Ok(end) => Ok(start..end.max(start + 1)),
            // Cut off meanwhile.
            Err(Errno::NXIO) => Ok(start..u64::MAX),
            Err(e) => Err(e.into()),
        }
    }
}

/// Creates a file, and makes its name durable. Other users cannot read it, and no other process writes it until it is
/// closed.
///
/// # Errors
/// `Refused` where it exists.
pub(crate) fn create(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => ImageError::refused(&name, "exists already"),
        _ => ImageError::io(&name, "create", e),
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(path).map_err(failed)?;
    claim(&file, &name, Purpose::Write)?;
    sync_folder_of(path)?;
    Ok(file)
}

/// Makes the name of a file durable.
pub fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|f| f.sync_all());
    synced.map_err(|e| ImageError::io(&folder.display().to_string(), "sync", e))
}

/// Opens an existing file, or a device. No other process writes it until it is closed.
///
/// # Errors
/// `Refused` for a file that other users could have put there or could change.
pub(crate) fn open(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    let expects_device = is_device(path);
    let flags = if expects_device {
        // Nobody has it mounted or made it part of another one.
        OFlags::EXCL
    } else {
        // A link leads anywhere; a pipe would wait for its other end.
        OFlags::NOFOLLOW | OFlags::NONBLOCK
    };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|e| match (e.kind(), Errno::from_io_error(&e)) {
        (io::ErrorKind::ResourceBusy, _) => ImageError::refused(
            &name,
            "is in use: mounted, or part of another device; unmount it, or name another one",
        ),
        (_, Some(Errno::LOOP)) => {
            ImageError::refused(&name, "is a symbolic link, which is not followed; name the file itself")
        }
        (_, Some(Errno::ISDIR | Errno::NXIO)) => ImageError::refused(&name, "is not a regular file"),
        _ => ImageError::io(&name, "open", e),
    })?;
    let meta = file.metadata().map_err(|e| ImageError::io(&name, "look at", e))?;
    match (expects_device, meta.file_type().is_block_device()) {
        (true, true) => {}
        (false, false) => check_is_ours(&meta, &name)?,
        _ => return Err(ImageError::refused(&name, "was replaced while it was opened; try again")),
    }
    claim(&file, &name, Purpose::Write)?;
    Ok(file)
}

/// Refuses a file that is not regular, has another owner or name, or that others may write.
fn check_is_ours(meta: &Metadata, name: &str) -> Result<()> {
    let refuse = |why: String| Err(ImageError::refused(name, why));
    if !meta.file_type().is_file() {
        return refuse("is not a regular file".into());
    }
    let user = geteuid().as_raw();
    if meta.uid() != user {
        return refuse(format!(
            "belongs to user {}, and this runs as user {user}; run it as its owner, or change the owner if you trust what is in it",
            meta.uid()
        ));
    }
    if meta.nlink() > 1 {
        return refuse(format!("has {} names (hard links); remove the others", meta.nlink()));
    }
    if meta.mode() & 0o022 != 0 {
        return refuse(format!(
            "may be written by others (mode {:04o}); if you trust what is in it, chmod go-w it",
            meta.mode() & 0o7777
        ));
    }
    Ok(())
}

/// Whether a path leads to a block device.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Whether a file holds anything but a hole, as far as its file system can tell.
pub(crate) fn has_data(file: &File) -> io::Result<bool> {
    match seek(file, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(false),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(file.metadata()?.len() > 0),
        found => found.map(|_| true).map_err(Into::into),
    }
}

/// A file without a name; it is gone when it is closed.
pub(crate) fn unnamed(directory: &Path) -> Result<Box<dyn RandomFile>> {
    let name = directory.display().to_string();
    let made =
        openat(CWD, directory, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    let file = made.map_err(|e| ImageError::io(&name, "make a scratch file in", e.into()))?;
    Ok(Box::new(File::from(file)))
}
