//! Where a pool's blocks live.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use locks::{ClaimError, Purpose};
use rustix::fs::{flock, FlockOperation};
use store::file_system::FileSystem;

/// A block device. What was written before a [`Device::sync`] began is durable when it returns.
pub trait Device: Send + Sync {
    /// Where it is, for messages.
    fn location(&self) -> String;
    /// Its size in bytes. It does not change.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset` on.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync(&self) -> io::Result<()>;
}

/// A file or a real block device. It is locked: a second opening fails, and so does one by QEMU, or of what QEMU has open.
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: u64,
}

impl FileDevice {
    /// Makes a sparse file of so many bytes that nothing has the name of yet.
    pub fn create(path: &Path, size: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o640).open(path)?;
        file.set_len(size)?;
        // The name must survive a power cut as well as what will be written.
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()?;
        }
        Self::lock(file, path, Purpose::Write)
    }

    /// Opens what is there.
    ///
    /// # Errors
    /// `ResourceBusy` without a number of the system's where another process has it open; the error says which.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_for(path, Purpose::Write)
    }

    /// Opens what is there, and is going to be lost.
    ///
    /// # Errors
    /// As [`FileDevice::open`], where another process only reads it, too.
    pub fn open_to_replace(path: &Path) -> io::Result<Self> {
        Self::open_for(path, Purpose::Replace)
    }

    fn open_for(path: &Path, purpose: Purpose) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if std::fs::metadata(path)?.file_type().is_block_device() {
            // The kernel then refuses a device that is mounted or in a volume group.
            options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
        }
        Self::lock(options.open(path)?, path, purpose)
    }

    fn lock(file: File, path: &Path, purpose: Purpose) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => busy(&locks::flock_holder(file.as_fd())),
            other => other.into(),
        })?;
        locks::claim(&file, purpose).map_err(|e| match e {
            ClaimError::InUse(by) => busy(&by),
            ClaimError::Io(e) => e,
        })?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(FileDevice { file, path: path.to_owned(), size })
    }
}

fn busy(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("is in use by {by}"))
}

impl Device for FileDevice {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A file of any file system that `store` knows: of its simulated disk, above all.
pub struct FsDevice<F: FileSystem> {
    fs: F,
    file: F::File,
    size: u64,
}

impl<F: FileSystem> FsDevice<F> {
    /// A file that is already open.
    pub fn new(fs: F, file: F::File, size: u64) -> Self {
        FsDevice { fs, file, size }
    }
}

impl<F: FileSystem> Device for FsDevice<F> {
    fn location(&self) -> String {
        self.fs.location()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.fs.read_at(&self.file, &mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.fs.write_at(&self.file, &data[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.sync(&self.file)
    }
}
