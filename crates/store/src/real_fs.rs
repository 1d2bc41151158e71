//! The operating system's file system.
//!
//! Everything is relative to the open root directory, so a store keeps working when a directory above
//! it is renamed, and never follows a symbolic link at the end of a path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memmap2::MmapOptions;
use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Statx,
    StatxFlags, CWD,
};
use rustix::io::{retry_on_intr, Errno};

use crate::file_system::{write_full, Access, FileSystem, FsType, Identity, Kind, Lock, Metadata};
use crate::{fs_type, host, Mapped};

/// A directory of the operating system's file system.
#[derive(Clone, Debug)]
pub struct RealFs {
    root: Arc<OwnedFd>,
    path: PathBuf,
}

impl RealFs {
    /// Opens a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))?;
        Ok(Self { root: Arc::new(root), path: path.to_owned() })
    }

    /// Makes a directory, and those above it, where they are missing, durably; then opens it.
    pub fn create(path: &Path) -> io::Result<Self> {
        make_dirs(path)?;
        Self::open(path)
    }

    fn open_dir(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(retry_on_intr(|| rustix::fs::openat(&self.root, here(path), flags, Mode::empty()))?)
    }

    /// For file systems without `RENAME_NOREPLACE` (NFS among them).
    pub(crate) fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::linkat(&self.root, from, &self.root, to, AtFlags::empty())?;
        Ok(rustix::fs::unlinkat(&self.root, from, AtFlags::empty())?)
    }
}

/// Bytes read at a time to see whether a file can be read, and written to take space.
const PIECE_BYTES: usize = 1 << 20;

impl FileSystem for RealFs {
    type File = OwnedFd;
    type Entries = RealEntries;

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn nonce(&self) -> u64 {
        // Only makes two names differ; a system without random numbers still has the time.
        getrandom::u64().unwrap_or_else(|_| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
        })
    }

    fn fs_type(&self) -> io::Result<FsType> {
        fs_type::of(self.root.as_fd())
    }

    fn machine(&self) -> io::Result<Option<[u8; 16]>> {
        host::machine()
    }

    fn map(&self, file: &OwnedFd, len: usize) -> io::Result<Option<Mapped>> {
        // What cannot be read is an error here, and would be the end of the program in the mapping.
        let mut piece = vec![0; PIECE_BYTES.min(len)];
        let mut at = 0;
        while at < len {
            let wanted = piece.len().min(len - at);
            match self.read_at(file, &mut piece[..wanted], at as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => at += n,
            }
        }
        // SAFETY: a mapping must not change while it is read. Objects are never overwritten, only the data objects of
        // containers are ever punched, which nobody maps, and a removed file lives as long as its mapping. Who can cut
        // the file short from outside can take the whole store away; the program then ends with SIGBUS, as if it were
        // killed, which loses nothing.
        let mapped = unsafe { MmapOptions::new().len(len).map(file) }?;
        Ok(Some(Arc::new(mapped)))
    }

    fn open(&self, path: &str, access: Access) -> io::Result<OwnedFd> {
        // NONBLOCK: opening a pipe that somebody put in place of an object must not hang.
        let always = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = |flags| retry_on_intr(|| rustix::fs::openat(&self.root, path, always | flags, FILE_MODE));
        let make = || {
            let file = open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
            set_mode(mode, FILE_MODE, |mode| rustix::fs::fchmod(&file, mode))?;
            Ok(file)
        };
        let opened = match access {
            Access::Read => open(OFlags::RDONLY),
            Access::Write => open(OFlags::RDWR),
            Access::CreateNew => make(),
            Access::Create => loop {
                match open(OFlags::RDWR) {
                    Err(Errno::NOENT) => {}
                    opened => break opened,
                }
                match make() {
                    // Another process was faster.
                    Err(Errno::EXIST) => {}
                    made => break made,
                }
            },
        };
        Ok(opened?)
    }

    fn metadata(&self, file: &OwnedFd) -> io::Result<Metadata> {
        statx(file.as_fd(), "", AtFlags::EMPTY_PATH)
    }

    fn stat(&self, path: &str) -> io::Result<Metadata> {
        statx(self.root.as_fd(), path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn read_at(&self, file: &OwnedFd, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(file, buf, offset)?)
    }

    fn write_at(&self, file: &OwnedFd, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(file, data, offset)?)
    }

    fn set_len(&self, file: &OwnedFd, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
    }

    fn allocate(&self, file: &OwnedFd, len: u64) -> io::Result<()> {
        match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
            // The file system cannot take space that it does not write to.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let zeros = vec![0; len.min(PIECE_BYTES as u64) as usize];
                let mut at = 0;
                while at < len {
                    let piece = &zeros[..zeros.len().min((len - at) as usize)];
                    write_full(self, file, piece, at)?;
                    at += piece.len() as u64;
                }
                Ok(())
            }
            done => Ok(done?),
        }
    }

    fn punch(&self, file: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(retry_on_intr(|| rustix::fs::fallocate(file, how, offset, len))?)
    }

    fn sync(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
    }

    fn start_writeback(&self, file: &OwnedFd, offset: u64, len: u64) {
        // SAFETY: takes no pointers; the descriptor is open as long as `file` is borrowed.
        // The result does not matter: what could not be started is written by the sync.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    fn will_read(&self, file: &OwnedFd, offset: u64, len: u64) {
        // Advice only: a failure costs a wait at the read, nothing else.
        let _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::WillNeed);
    }

    fn lock(&self, file: &OwnedFd, lock: Lock, wait: bool) -> io::Result<bool> {
        let how = match (lock, wait) {
            (Lock::Shared, true) => FlockOperation::LockShared,
            (Lock::Shared, false) => FlockOperation::NonBlockingLockShared,
            (Lock::Exclusive, true) => FlockOperation::LockExclusive,
            (Lock::Exclusive, false) => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| rustix::fs::flock(file, how)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) if !wait => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn lock_holder(&self, file: &OwnedFd) -> String {
        locks::flock_holder(file.as_fd())
    }

    fn unlock(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock))?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.root, from, &self.root, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => self.link_new(from, to),
            done => Ok(done?),
        }
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        Ok(make_dir(self.root.as_fd(), path)?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &str) -> io::Result<Identity> {
        let dir = self.open_dir(path)?;
        retry_on_intr(|| rustix::fs::fsync(&dir))?;
        Ok(statx(dir.as_fd(), "", AtFlags::EMPTY_PATH)?.identity)
    }

    fn entries(&self, path: &str) -> io::Result<RealEntries> {
        Ok(RealEntries { fs: self.clone(), path: path.to_owned(), dir: Dir::new(self.open_dir(path)?)? })
    }

    fn free(&self) -> io::Result<Option<u64>> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(&self.root))?;
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn pause(&self, time: Duration) {
        // XFS hurries up with removed files when it is asked this.
        let _ = self.free();
        std::thread::sleep(time);
    }
}

/// A directory being read.
#[derive(Debug)]
pub struct RealEntries {
    fs: RealFs,
    path: String,
    dir: Dir,
}

impl Iterator for RealEntries {
    type Item = io::Result<(String, Kind)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.dir.next()? {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(e) => return Some(Err(e.into())),
            };
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems leave the type out of their directories.
                FileType::Unknown => match self.fs.stat(&format!("{}/{name}", here(&self.path))) {
                    Ok(metadata) => metadata.kind,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Some(Err(e)),
                },
                known => kind_of(known),
            };
            return Some(Ok((name.to_owned(), kind)));
        }
    }
}

fn here(path: &str) -> &str {
    if path.is_empty() {
        "."
    } else {
        path
    }
}

fn kind_of(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

fn statx(dir: BorrowedFd<'_>, path: &str, flags: AtFlags) -> io::Result<Metadata> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat: Statx = retry_on_intr(|| rustix::fs::statx(dir, path, flags, wanted))?;
    let birth = i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
    let changed = Duration::from_secs(stat.stx_mtime.tv_sec.max(0) as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Metadata {
        kind: kind_of(FileType::from_raw_mode(stat.stx_mode.into())),
        identity: Identity {
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
            birth: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(birth),
        },
        len: stat.stx_size,
        allocated: stat.stx_blocks.saturating_mul(512),
        links: stat.stx_nlink.into(),
        age: now.saturating_sub(changed),
    })
}

/// Permissions of the files and directories that are made, whatever the umask.
const FILE_MODE: Mode = Mode::from_bits_retain(0o640);
const DIR_MODE: Mode = Mode::from_bits_retain(0o750);

fn make_dir(dir: BorrowedFd<'_>, path: impl rustix::path::Arg + Copy) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(dir, path, DIR_MODE)?;
    let made = rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)?;
    set_mode(Mode::from_raw_mode(made.st_mode), DIR_MODE, |mode| {
        rustix::fs::chmodat(dir, path, mode, AtFlags::empty())
    })
}

/// Gives what was just made its permissions, where the umask has taken some of them away. What a directory above hands down
/// (set-group-ID) stays.
fn set_mode(
    made: Mode,
    wanted: Mode,
    set: impl FnOnce(Mode) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let permissions = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    if made & permissions == wanted {
        return Ok(());
    }
    match set((made & !permissions) | wanted) {
        // A file system that has none.
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        done => done,
    }
}

fn make_dirs(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let make = || make_dir(CWD, path);
    let made = match make() {
        Err(Errno::NOENT) if path != parent => {
            make_dirs(parent)?;
            make()
        }
        made => made,
    };
    match made {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let parent = RealFs::open(parent)?;
    Ok(retry_on_intr(|| rustix::fs::fsync(&parent.root))?)
}
