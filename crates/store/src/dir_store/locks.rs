//! Locks of objects that are replaced: 256 lock files, chosen by the name's hash, made with the store.
//!
//! While a swap is between its rename and the directory's sync, its lock file says the object's name. The file keeps the
//! block that the name is in: a swap on a full file system must not need one for it.
//! A process that died there leaves the name: the next one to load or lock syncs the directory itself
//! before it relies on what it sees.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::file_system::{read_full, write_full, Access, FileSystem, Lock};
use crate::name::{check_name, NAME_BYTES_MAX};
use crate::notice::notice;

/// Directory of the lock files.
pub(super) const LOCKS: &str = "locks";

/// The file by which a handle finds out whether locks work.
pub(super) const PROBE: &str = "locks/probe";

/// What stands behind a name in a lock file; in the first place, it says that nothing is announced.
const END: u8 = 0;

/// Lock files; more than enough that two objects seldom wait for each other.
const LOCK_FILES: u64 = 256;

/// The store's locks.
///
/// The mutex keeps the threads of this process apart (they share the file, and so its lock), the file's
/// lock the processes.
pub(super) struct Locks<F: FileSystem> {
    files: Vec<Mutex<Option<F::File>>>,
    /// How long is waited for a lock that another process has.
    wait: Duration,
}

/// Why there is no lock.
pub(super) enum NotLocked {
    /// Another process has had it for as long as was waited.
    Taken { holder: String, waited: Duration },
    /// The system said no.
    Failed(io::Error),
}

impl From<io::Error> for NotLocked {
    fn from(e: io::Error) -> Self {
        NotLocked::Failed(e)
    }
}

/// After so long a wait people are told who has the lock.
const QUIET: Duration = Duration::from_secs(5);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The right to change an object, given back when dropped.
pub(super) struct LockGuard<'a, F: FileSystem> {
    fs: &'a F,
    slot: MutexGuard<'a, Option<F::File>>,
}

impl<F: FileSystem> Locks<F> {
    /// No lock is held yet. `wait` is how long a change waits for another process.
    pub fn new(wait: Duration) -> Self {
        Self { files: (0..LOCK_FILES).map(|_| Mutex::new(None)).collect(), wait }
    }

    /// Makes the lock files that are missing, each with a block. Not for their content, but for their inodes and blocks,
    /// a power cut should leave them.
    pub fn make_all(&self, fs: &F) -> io::Result<()> {
        let there = fs.entries(LOCKS)?.filter(|entry| entry.as_ref().is_ok_and(|(name, _)| name.len() == 2));
        if there.count() as u64 >= LOCK_FILES {
            return Ok(());
        }
        for number in 0..self.files.len() {
            let file = fs.open(&path_of(number), Access::Create)?;
            // Only where nobody can have announced anything: a swap may be at it.
            if fs.metadata(&file)?.len == 0
                && fs.lock(&file, Lock::Exclusive, false)?
                && fs.metadata(&file)?.len == 0
            {
                write_full(fs, &file, &[END], 0)?;
            }
        }
        fs.sync_dir(LOCKS).map(drop)
    }

    /// Waits for the lock of an object.
    pub fn lock<'a>(&'a self, fs: &'a F, name: &str) -> Result<LockGuard<'a, F>, NotLocked> {
        // From before the mutex: threads that queue for it wait no longer than one of them.
        let start = Instant::now();
        let number = number_of(name);
        let mut slot = self.files[number].lock();
        let path = path_of(number);
        loop {
            let file = match slot.take() {
                Some(file) => file,
                None => fs.open(&path, Access::Create)?,
            };
            self.wait_for(fs, &file, name, start)?;
            // Somebody may have removed the lock files by hand: a lock on a file that others do not
            // find is none.
            match fs.stat(&path) {
                Ok(now) if now.identity == fs.metadata(&file)?.identity => {
                    *slot = Some(file);
                    return Ok(LockGuard { fs, slot });
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for the lock of an open lock file, not for ever: a process that is stopped keeps its locks.
    fn wait_for(&self, fs: &F, file: &F::File, name: &str, start: Instant) -> Result<(), NotLocked> {
        let mut pause = Duration::from_micros(50);
        let mut is_told = false;
        while !fs.lock(file, Lock::Exclusive, false)? {
            let waited = start.elapsed();
            if waited >= self.wait {
                return Err(NotLocked::Taken { holder: fs.lock_holder(file), waited });
            }
            if waited >= QUIET && !is_told {
                is_told = true;
                let (holder, most) = (fs.lock_holder(file), self.wait.as_secs());
                notice(&format!("{name}: waiting for {holder}, which has locked it, for {most} s at most"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Whether a swap of this object may have been seen before it was durable. Does not wait for the lock.
    pub fn is_unsettled(&self, fs: &F, name: &str) -> io::Result<bool> {
        let mut first = [END];
        match fs.open(&path_of(number_of(name)), Access::Read) {
            Ok(file) => read_full(fs, &file, &mut first, 0).map(|_| first != [END]),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl<F: FileSystem> LockGuard<'_, F> {
    /// Says that the object is about to be replaced.
    pub fn announce(&self, name: &str) -> io::Result<()> {
        write_full(self.fs, self.file()?, &[name.as_bytes(), &[END]].concat(), 0)
    }

    /// Says that what was announced is durable.
    pub fn settle(&self) -> io::Result<()> {
        write_full(self.fs, self.file()?, &[END], 0)
    }

    /// The object that a dead process was about to replace.
    ///
    /// After a power cut the lock file may hold anything; then there is nothing to settle either.
    pub fn announced(&self) -> io::Result<Option<String>> {
        let file = self.file()?;
        let mut name = vec![0; NAME_BYTES_MAX];
        let len = read_full(self.fs, file, &mut name, 0)?;
        name.truncate(name[..len].iter().position(|byte| *byte == END).unwrap_or(len));
        if name.is_empty() {
            return Ok(None);
        }
        match String::from_utf8(name) {
            Ok(name) if check_name(&name).is_ok() => Ok(Some(name)),
            _ => {
                self.settle()?;
                Ok(None)
            }
        }
    }

    fn file(&self) -> io::Result<&F::File> {
        self.slot.as_ref().ok_or_else(|| io::Error::other("the lock file is closed"))
    }
}

impl<F: FileSystem> Drop for LockGuard<'_, F> {
    fn drop(&mut self) {
        let unlocked = self.slot.as_ref().map(|file| self.fs.unlock(file));
        if !matches!(unlocked, Some(Ok(()))) {
            // Closing it unlocks it too.
            *self.slot = None;
        }
    }
}

/// The number of the lock file that stands for an object.
pub(super) fn number_of(name: &str) -> usize {
    // The remainder is below LOCK_FILES, which fits.
    (xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % LOCK_FILES) as usize
}

/// The path of the lock file of this number.
pub(super) fn path_of(number: usize) -> String {
    format!("{LOCKS}/{number:02x}")
}
