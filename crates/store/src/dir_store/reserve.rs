//! The reserve: files whose space is allocated while there is some, for the calls that must work on a full file system.
//!
//! `docs/format/store.md` has their names and lengths. A call that may use the reserve ([`Reserve`]) takes a file
//! out of it by a rename, which needs no inode, and writes into the blocks that the file has already. Where a call needs
//! space for something else (a directory, a block of a directory), a file is removed from the reserve instead, and the
//! call is tried again. What is missing is made again as soon as there is space.
//!
//! A file system may say that a file is removed before its space and its inode are free: XFS frees them in the
//! background, tens of milliseconds later on a busy machine. So where space must have come from a removal, the call is
//! tried again for a while ([`Patience`]).

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::time::Duration;

use parking_lot::Mutex;
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

/// How long a call waits for the space of one removed file, before another one is removed for it.
const PATIENCE_PER_FILE: Duration = Duration::from_millis(100);

/// How long a call waits where no file is left that could be removed for it.
const PATIENCE_AT_LAST: Duration = Duration::from_secs(1);

/// How long one handle of a store waits in vain in all.
const PATIENCE_IN_VAIN: Duration = Duration::from_secs(3);

/// The first pause between two tries. Each is twice as long as the one before it.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Waits for the space of removed files. What was waited in vain is not waited again.
pub(super) struct Patience {
    left: Mutex<Duration>,
}

impl Patience {
    pub fn new() -> Self {
        Self { left: Mutex::new(PATIENCE_IN_VAIN) }
    }

    /// Tries a step again, for `time` at most, as long as there is no space for it; `full` is what it said before.
    pub fn retry<F: FileSystem, T>(
        &self,
        fs: &F,
        time: Duration,
        full: io::Error,
        mut step: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let time = time.min(*self.left.lock());
        let (mut waited, mut pause, mut tried) = (Duration::ZERO, PAUSE_MIN, Err(full));
        while waited < time && matches!(&tried, Err(e) if is_full(e)) {
            pause = pause.min(time - waited);
            fs.pause(pause);
            waited += pause;
            pause *= 2;
            tried = step();
        }
        if tried.is_err() {
            let mut left = self.left.lock();
            *left = left.saturating_sub(waited);
        }
        tried
    }
}

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
/// made until then stays. `patience`: files were removed, whose space it waits for.
pub(super) fn fill<F: FileSystem>(fs: &F, longest: u64, patience: Option<&Patience>) -> io::Result<()> {
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
                made = match (make(fs, &path, bytes), patience) {
                    (Err(e), Some(patience)) if is_full(&e) => {
                        patience.retry(fs, PATIENCE_AT_LAST, e, || make(fs, &path, bytes))
                    }
                    (made, _) => made,
                }
                .map(|()| true);
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
    patience: &Patience,
    reserve: Reserve,
    len: u64,
    to: &str,
) -> io::Result<Option<F::File>> {
    let files = usable(fs, reserve)?;
    let fitting = files.partition_point(|file| file.bytes < len);
    for file in files[fitting..].iter().chain(files[..fitting].iter().rev()) {
        if let Some(taken) = take_one(fs, patience, reserve, &file.path, to)? {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

fn take_one<F: FileSystem>(
    fs: &F,
    patience: &Patience,
    reserve: Reserve,
    path: &str,
    to: &str,
) -> io::Result<Option<F::File>> {
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
    match with_room(fs, patience, reserve, || fs.rename(path, to)) {
        // Removed, to make room.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        renamed => renamed?,
    }
    if fs.stat(to)?.identity != fs.metadata(&file)?.identity {
        // It was removed to make room since it was opened, and another one was made in its place.
        remove(fs, to)?;
        return Ok(None);
    }
    // Before the file gets an object's name: a power cut must not leave it in the reserve as well.
    fs.sync_dir(RESERVE)?;
    Ok(Some(file))
}

/// Runs a step; as long as there is no space for it, and the reserve may be used, removes a file from the reserve and
/// runs it again.
pub(super) fn with_room<F: FileSystem, T>(
    fs: &F,
    patience: &Patience,
    reserve: Reserve,
    mut step: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut tried = step();
    loop {
        match tried {
            Err(e) if is_full(&e) => {
                if !give_back(fs, reserve)? {
                    return wait_at_last(fs, patience, reserve, e, step);
                }
                tried = match step() {
                    Err(e) if is_full(&e) => patience.retry(fs, PATIENCE_PER_FILE, e, &mut step),
                    done => done,
                };
            }
            done => return done,
        }
    }
}

/// Runs a step again that has found no space, and no file of the reserve that it may use. Only what may use all of the
/// reserve waits: it removes files, or follows what did, and fails otherwise.
pub(super) fn wait_at_last<F: FileSystem, T>(
    fs: &F,
    patience: &Patience,
    reserve: Reserve,
    full: io::Error,
    step: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match reserve {
        Reserve::Whole => patience.retry(fs, PATIENCE_AT_LAST, full, step),
        Reserve::None | Reserve::Part => Err(full),
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
