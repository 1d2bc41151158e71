//! Where a pool's blocks live.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
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
    /// The same, past the system's page cache where that is possible: for callers that keep what they read.
    fn read_past_cache(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)
    }
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync(&self) -> io::Result<()>;
}

/// From this length on, reads go past the system's page cache if that is asked for, and the memory that they fill begins with a
/// page. Only what a mount reads ahead does: the system keeps that as the mount's own pages, so each byte is copied once less,
/// and kept once. Others are served faster from the page cache, which also reads ahead for them.
const DIRECT_BYTES: usize = 256 << 10;
/// What devices and file systems ask of direct reads, of the place and of the memory.
const ALIGNMENT: usize = 4096;

/// A file or a real block device. It is locked: a second opening fails, and so does one by QEMU, or of what QEMU has open.
pub struct FileDevice {
    file: File,
    /// For reads past the page cache, where the file system allows them. The system writes out before what is newer in it.
    direct: Option<File>,
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
        let file = options.open(path).map_err(|e| held_device(path).unwrap_or(e))?;
        Self::lock(file, path, purpose)
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
        // The same file, whatever the path leads to by now.
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(same).ok();
        Ok(FileDevice { file, direct, path: path.to_owned(), size })
    }

    /// Where a read is to go past the page cache.
    fn direct_for(&self, buf: &[u8], offset: u64) -> Option<&File> {
        let is_aligned = buf.as_ptr().align_offset(ALIGNMENT) == 0
            && buf.len() % ALIGNMENT == 0
            && offset % ALIGNMENT as u64 == 0;
        self.direct.as_ref().filter(|_| is_aligned && buf.len() >= DIRECT_BYTES)
    }
}

/// Whether another process has a pool on a device that could not be opened: the system does not tell that from a mount.
fn held_device(path: &Path) -> Option<io::Error> {
    let file = File::open(path).ok()?;
    let locked = flock(&file, FlockOperation::NonBlockingLockShared);
    (locked == Err(rustix::io::Errno::WOULDBLOCK)).then(|| busy(&locks::flock_holder(file.as_fd())))
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

    fn read_past_cache(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.direct_for(buf, offset).map(|direct| direct.read_exact_at(buf, offset)) {
            // Some devices want more than that.
            None | Some(Err(_)) => self.read_at(buf, offset),
            Some(Ok(())) => Ok(()),
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What was written and is not on the device yet is read past the page cache as well.
    #[test]
    fn reads_past_the_cache_see_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&dir.path().join("pool"), 4 << 20).unwrap();
        if device.direct.is_none() {
            return testing::skip(
                "a file system with direct reads for temporary files",
                "it refuses O_DIRECT",
            );
        }
        let mut memory = vec![0; (2 << 20) + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let mut expected = vec![0; 4 << 20];
        for round in 1..20_u8 {
            let at = usize::from(round) * 77_777;
            device.write_at(&vec![round; 400_000], at as u64).unwrap();
            expected[at..at + 400_000].fill(round);
            for (offset, len, shift, is_direct) in [
                (0, 2 << 20, 0, true),
                (1 << 20, 1 << 20, 0, true),
                (4096, DIRECT_BYTES - ALIGNMENT, 0, false),
                (512, 1 << 20, 0, false),
                (0, 1 << 20, 1, false),
                (0, (1 << 20) + 1, 0, false),
            ] {
                let buf = &mut memory[start + shift..][..len];
                let goes_direct = device.direct_for(buf, offset as u64).is_some();
                assert_eq!(goes_direct, is_direct, "{offset} {len}");
                device.read_past_cache(buf, offset as u64).unwrap();
                assert!(buf == &expected[offset..offset + len], "round {round}, {len} bytes at {offset}");
            }
        }
        let beyond = &mut memory[start..][..1 << 20];
        assert_eq!(
            device.read_past_cache(beyond, (4 << 20) - 4096).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
