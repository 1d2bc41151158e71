//! The file system as a [`DirStore`](crate::DirStore) sees it: some twenty calls, so that a simulated
//! one can stand in for the real one and be stopped, torn and cut off at every call.
//!
//! Paths are relative to the store's root, `/`-separated, and never contain `..`. Errors are those of
//! the system (`ENOENT`, `EEXIST`, …), so that both kinds are handled by the same code.

use std::io;
use std::time::Duration;

use crate::Mapped;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a pipe, …; never an object.
    Other,
}

/// What tells one file from every other one, one that was made later with the same inode number included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// When it was made, in nanoseconds; `None` where the file system does not say.
    pub birth: Option<i128>,
}

/// What the file system knows of a file or directory.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Which one it is.
    pub identity: Identity,
    /// Its length in bytes.
    pub len: u64,
    /// Bytes it takes on the device.
    pub allocated: u64,
    /// Names it has; 0 when it was removed while open.
    pub links: u64,
    /// Time since it was last changed.
    pub age: Duration,
}

/// The type of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsType {
    /// What the system calls it.
    pub name: String,
    /// Whether one host alone can have it mounted, so that its locks hold for all who see it.
    pub is_local: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading a file that is there.
    Read,
    /// Reading and writing a file that is there.
    Write,
    /// Reading and writing a file that is made if it is not there.
    Create,
    /// Reading and writing a file that must not be there yet.
    CreateNew,
}

/// A lock on an open file, which goes when the file is closed or its process dies.
/// Two openings of one file exclude each other, within a process too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Beside other shared locks.
    Shared,
    /// Alone.
    Exclusive,
}

/// A file system, rooted at a directory. What a call changed is durable only after the matching sync.
pub trait FileSystem: Send + Sync + 'static {
    /// An open file; closed when dropped.
    type File: Send + Sync + 'static;
    /// A directory being read: names and what they lead to. Names that are no UTF-8 are left out.
    type Entries: Iterator<Item = io::Result<(String, Kind)>>;

    /// Where the root is, for messages.
    fn location(&self) -> String;
    /// A number that no other call got, in this process or another.
    fn nonce(&self) -> u64;
    /// Its type.
    fn fs_type(&self) -> io::Result<FsType>;
    /// What tells this host from every other one; `None` where nothing does.
    fn machine(&self) -> io::Result<Option<[u8; 16]>>;

    /// Opens a file, without waiting; symbolic links are not followed. One that is made is readable by its owner and its
    /// group, and writable by its owner, whatever the umask.
    fn open(&self, path: &str, access: Access) -> io::Result<Self::File>;
    /// What is known of an open file.
    fn metadata(&self, file: &Self::File) -> io::Result<Metadata>;
    /// What is known of a path; symbolic links are not followed.
    fn stat(&self, path: &str) -> io::Result<Metadata>;
    /// Reads up to `buf.len()` bytes; 0 at the end of the file.
    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes up to `data.len()` bytes.
    fn write_at(&self, file: &Self::File, data: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts a file or lets it grow by zeros.
    fn set_len(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Lets a file grow to `len` bytes and take their space now, so that writing them later needs none. They read as
    /// zeros.
    fn allocate(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Gives the space of a range back; it reads as zeros from then on, the length stays.
    fn punch(&self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;
    /// Makes a file's bytes and length durable (not its name).
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Starts writing a range to the device; waits for nothing, promises nothing.
    fn start_writeback(&self, file: &Self::File, offset: u64, len: u64);
    /// A file's first `len` bytes, mapped into memory; `None` where that cannot be done. The file never changes.
    fn map(&self, _file: &Self::File, _len: usize) -> io::Result<Option<Mapped>> {
        Ok(None)
    }
    /// Tells that a range will be read soon.
    fn will_read(&self, file: &Self::File, offset: u64, len: u64);

    /// Locks an open file, waiting for others if `wait`. Returns whether it is locked now.
    fn lock(&self, file: &Self::File, lock: Lock, wait: bool) -> io::Result<bool>;
    /// Who has the lock of an open file that could not be locked, for messages.
    fn lock_holder(&self, file: &Self::File) -> String;
    /// Gives the lock of an open file back.
    fn unlock(&self, file: &Self::File) -> io::Result<()>;

    /// Gives a file another name in one step, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file another name in one step; `EEXIST` where something has it.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name of a file.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Makes a directory, for its owner, and for its group to read, whatever the umask.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory durable (not the directory's own). Tells which directory it was.
    fn sync_dir(&self, path: &str) -> io::Result<Identity>;
    /// Reads a directory, without `.` and `..`. Each entry made or removed meanwhile may be seen or not.
    fn entries(&self, path: &str) -> io::Result<Self::Entries>;
    /// Bytes that can still be written; `None` where there is no limit.
    fn free(&self) -> io::Result<Option<u64>>;
    /// Lets so much time pass, in which the file system may make the space of removed files free.
    fn pause(&self, time: Duration);
}

/// Reads until `buf` is full or the file ends. Returns the bytes read.
pub(crate) fn read_full<F: FileSystem>(
    fs: &F,
    file: &F::File,
    buf: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match fs.read_at(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all of `data`.
pub(crate) fn write_full<F: FileSystem>(fs: &F, file: &F::File, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match fs.write_at(file, &data[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
