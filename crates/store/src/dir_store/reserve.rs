//! The reserve: files whose space is allocated while there is some, for the calls that must work on a full file system.
//!
//! `docs/format/store.md` has their names and lengths. A call that may use the reserve ([`Reserve`]) takes a file
//! out of it by a rename, which needs no inode, and writes into the blocks that the file has already. Where a call needs
//! space for something else (a directory, a block of a directory), a file is removed from the reserve instead, and the
//! call is tried again. What is missing is made again as soon as there is space.

use std::collections::HashSet;
use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::file_system::{Access, FileSystem, Kind, Lock};
use crate::Reserve;

/// Directory of the reserve.
pub(super) const RESERVE: &str = "reserve";

/// Lengths of the files in bytes, and how many there are of each.
const FILES: [(u64, usize); 2] = [(64 << 10, 56), (1 << 20, 4)];

/// Files of the length that the longest replaceable object needs, where that is more than the longest of [`FILES`].
const LONG_FILES: usize = 4;

/// Files that are left to [`Reserve::Whole`]: readers must not use up what a deletion needs.
const LEFT_TO_WHOLE: usize = 40;

/// Whether an error says that there is no space: no byte, no inode, or no more of them for this user.
pub(super) fn is_full(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOSPC | Errno::DQUOT))
}

/// A file of the reserve, as its name says.
struct Entry {
    bytes: u64,
    path: String,
}

/// The files there are, the shortest first.
fn files<F: FileSystem>(fs: &F) -> io::Result<Vec<Entry>> {
    let entries = match fs.entries(RESERVE) {
        // A store of before.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let (name, kind) = entry?;
        let bytes = name.split_once('-').and_then(|(bytes, _)| bytes.parse().ok());
        if let (Some(bytes), Kind::File) = (bytes, kind) {
            files.push(Entry { bytes, path: format!("{RESERVE}/{name}") });
        }
    }
    files.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
    Ok(files)
}

/// Makes what is missing of the reserve, long enough for objects of `longest` bytes. Stops at the first error: what was
/// made until then stays.
pub(super) fn fill<F: FileSystem>(fs: &F, longest: u64) -> io::Result<()> {
    match fs.make_dir(RESERVE) {
        Ok(()) => fs.sync_dir("").map(drop)?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let mut there = HashSet::new();
    for file in files(fs)? {
        match fs.stat(&file.path) {
            Ok(found) if found.links == 1 && found.allocated >= file.bytes => {
                there.insert(file.path);
            }
            // Cut off while it was made, by a power cut perhaps.
            Ok(_) => remove(fs, &file.path)?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    let long = longest.next_power_of_two();
    let long = (FILES.iter().all(|(bytes, _)| *bytes < long)).then_some((long, LONG_FILES));
    let mut made = Ok(false);
    for (bytes, count) in FILES.into_iter().chain(long) {
        for n in 0..count {
            let path = format!("{RESERVE}/{bytes}-{n:02}");
            if made.is_ok() && !there.contains(&path) {
                made = make(fs, &path, bytes).map(|()| true);
            }
        }
    }
    if !matches!(made, Ok(false)) {
        fs.sync_dir(RESERVE)?;
    }
    made.map(drop)
}

/// Makes one file. It is locked while it is, so that nobody takes it before it has its blocks.
fn make<F: FileSystem>(fs: &F, path: &str, bytes: u64) -> io::Result<()> {
    let file = match fs.open(path, Access::CreateNew) {
        // Another process is at it.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(()),
        file => file?,
    };
    if !is_ours(fs, path, &file)? {
        return Ok(());
    }
    fs.allocate(&file, bytes).inspect_err(|_| {
        // What cannot be removed now is found too short by the next filling.
        let _ = remove(fs, path);
    })
}

/// Locks a file of the reserve. `false`: somebody else has it, or has taken it away.
fn is_ours<F: FileSystem>(fs: &F, path: &str, file: &F::File) -> io::Result<bool> {
    if !fs.lock(file, Lock::Exclusive, false)? {
        return Ok(false);
    }
    match fs.stat(path) {
        Ok(named) => Ok(named.identity == fs.metadata(file)?.identity),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The files that a call may use, the shortest first.
fn usable<F: FileSystem>(fs: &F, reserve: Reserve) -> io::Result<Vec<Entry>> {
    let left = match reserve {
        Reserve::None => return Ok(Vec::new()),
        Reserve::Part => LEFT_TO_WHOLE,
        Reserve::Whole => 0,
    };
    files(fs).map(|files| if files.len() > left { files } else { Vec::new() })
}

/// Takes a file with room for `len` bytes out of the reserve, or the longest there is, and names it `to`. It is locked.
/// `None` where there is none that may be used.
pub(super) fn take<F: FileSystem>(
    fs: &F,
    reserve: Reserve,
    len: u64,
    to: &str,
) -> io::Result<Option<F::File>> {
    let files = usable(fs, reserve)?;
    let fitting = files.partition_point(|file| file.bytes < len);
    for file in files[fitting..].iter().chain(files[..fitting].iter().rev()) {
        if let Some(taken) = take_one(fs, reserve, &file.path, to)? {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

fn take_one<F: FileSystem>(fs: &F, reserve: Reserve, path: &str, to: &str) -> io::Result<Option<F::File>> {
    let file = match fs.open(path, Access::Write) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !is_ours(fs, path, &file)? {
        return Ok(None);
    }
    if fs.metadata(&file)?.links != 1 {
        // A power cut has left it this name beside another one: it may be an object by now.
        remove(fs, path)?;
        return Ok(None);
    }
    match with_room(fs, reserve, || fs.rename(path, to)) {
        // Removed, to make room.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        renamed => renamed?,
    }
    // Before the file gets an object's name: a power cut must not leave it in the reserve as well.
    fs.sync_dir(RESERVE)?;
    Ok(Some(file))
}

/// Runs a step; as long as there is no space for it, and the reserve may be used, removes a file from the reserve and
/// runs it again.
pub(super) fn with_room<F: FileSystem, T>(
    fs: &F,
    reserve: Reserve,
    mut step: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match step() {
            Err(e) if is_full(&e) => {
                if !give_back(fs, reserve)? {
                    return Err(e);
                }
            }
            done => return done,
        }
    }
}

/// Removes the shortest file. `false` where there is none that may be used.
fn give_back<F: FileSystem>(fs: &F, reserve: Reserve) -> io::Result<bool> {
    for file in usable(fs, reserve)? {
        match fs.unlink(&file.path) {
            Ok(()) => {
                // File systems with a journal give blocks to others only after their removal is durable.
                fs.sync_dir(RESERVE)?;
                return Ok(true);
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

fn remove<F: FileSystem>(fs: &F, path: &str) -> io::Result<()> {
    match fs.unlink(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
