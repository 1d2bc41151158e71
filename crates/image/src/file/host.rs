//! A file or block device of this machine, opened for reading.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{fadvise, seek, Advice, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::error::{ImageError, Result};
use crate::file::bytes::ReadAt;
use crate::file::lock::{claim, Purpose};

/// Identifies a file, whatever path leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    dev: u64,
    inode: u64,
}

/// A regular file or a block device. Its size is fixed when it is opened, and no other process writes it until it is
/// closed, unless the user allowed that.
#[derive(Debug)]
pub(crate) struct HostFile {
    file: File,
    len: u64,
    id: FileId,
    is_device: bool,
    /// Whether the file system tells holes from data.
    has_holes: AtomicBool,
}

/// Why `kind` cannot be read as a disk; `None` for a file and a block device.
fn unfit(kind: fs::FileType) -> Option<&'static str> {
    if kind.is_file() || kind.is_block_device() {
        None
    } else if kind.is_dir() {
        Some("is a directory, not a disk")
    } else if kind.is_fifo() {
        Some("is a pipe; a disk is read from a pipe as standard input, with the path -")
    } else if kind.is_socket() {
        Some("is a socket, not a disk")
    } else if kind.is_char_device() {
        Some("is a character device, not a disk")
    } else {
        Some("is neither a file nor a block device")
    }
}

impl HostFile {
    /// Opens `path`, following symbolic links.
    pub fn open(path: &Path, allow_in_use: bool) -> Result<Self> {
        Self::open_with(path, OFlags::empty(), &path.display().to_string(), allow_in_use)
    }

    /// Opens `path`, whose last part must be no symbolic link; `name` is what errors call it.
    pub fn open_real(path: &Path, name: &str, allow_in_use: bool) -> Result<Self> {
        Self::open_with(path, OFlags::NOFOLLOW, name, allow_in_use)
    }

    fn open_with(path: &Path, flags: OFlags, name: &str, allow_in_use: bool) -> Result<Self> {
        let failed = |op, source| ImageError::io(name, op, source);
        let refuse_unfit = |kind| match unfit(kind) {
            Some(why) => Err(ImageError::refused(name, why)),
            None => Ok(()),
        };
        // Asked before opening, because opening a device or a pipe can have effects; and again after, because the
        // path may lead elsewhere by then. O_NONBLOCK keeps a pipe that slipped in from stopping us.
        refuse_unfit(fs::metadata(path).map_err(|e| failed("open", e))?.file_type())?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((flags | OFlags::NONBLOCK).bits() as i32)
            .open(path)
            .map_err(|e| failed("open", e))?;
        let meta = file.metadata().map_err(|e| failed("open", e))?;
        refuse_unfit(meta.file_type())?;
        // Before the first byte is looked at.
        if !allow_in_use {
            claim(&file, name, Purpose::Read)?;
        }
        let is_device = meta.file_type().is_block_device();
        let (len, id) = if is_device {
            let len =
                seek(&file, SeekFrom::End(0)).map_err(|e| failed("tell the size of the device", e.into()))?;
            let id = FileId { dev: meta.rdev(), inode: 0 };
            (len, id)
        } else {
            let id = FileId { dev: meta.dev(), inode: meta.ino() };
            (meta.len(), id)
        };
        // Advice only: reading works without.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Self { file, len, id, is_device, has_holes: AtomicBool::new(!is_device) })
    }

    /// What tells the file from all others.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    fn check_not_shrunk(&self) -> io::Result<()> {
        if !self.is_device && self.file.metadata()?.len() < self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl ReadAt for HostFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        match self.file.read_at(&mut buf[..wanted], offset)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Ok(n),
        }
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        if from >= self.len {
            return Ok(None);
        }
        if !self.has_holes.load(Ordering::Relaxed) {
            return Ok(Some(from..self.len));
        }
        let start = match seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => {
                self.check_not_shrunk()?;
                return Ok(None);
            }
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.has_holes.store(false, Ordering::Relaxed);
                return Ok(Some(from..self.len));
            }
            Err(e) => return Err(e.into()),
        };
        if start >= self.len {
            return Ok(None);
        }
        let end = seek(&self.file, SeekFrom::Hole(start))?.min(self.len);
        // A file cut short between the two calls would give an empty range, on which callers could not advance.
        Ok(Some(start..end.max(start + 1)))
    }

    fn will_need(&self, range: Range<u64>) {
        if let Some(len) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = fadvise(&self.file, range.start, Some(len), Advice::WillNeed);
        }
    }
}
