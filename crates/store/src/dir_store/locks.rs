//! Locks of objects that are replaced: 256 lock files, chosen by the name's hash, made once.
//!
//! While a swap is between its rename and the directory's sync, its lock file says the object's name.
//! A process that died there leaves the name: the next one to load or lock syncs the directory itself
//! before it relies on what it sees.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::file_system::{read_full, write_full, Access, FileSystem, Lock};
use crate::name::{check_name, NAME_BYTES_MAX};

/// Directory of the lock files.
pub(super) const LOCKS: &str = "locks";

/// Lock files; more than enough that two objects seldom wait for each other.
const LOCK_FILES: u64 = 256;

/// The store's locks.
///
/// The mutex keeps the threads of this process apart (they share the file, and so its lock), the file's
/// lock the processes.
pub(super) struct Locks<F: FileSystem> {
    files: Vec<Mutex<Option<F::File>>>,
}

/// The right to change an object, given back when dropped.
pub(super) struct LockGuard<'a, F: FileSystem> {
    fs: &'a F,
    slot: MutexGuard<'a, Option<F::File>>,
}

impl<F: FileSystem> Locks<F> {
    pub fn new() -> Self {
        Self { files: (0..LOCK_FILES).map(|_| Mutex::new(None)).collect() }
    }

    /// Waits for the lock of an object.
    pub fn lock<'a>(&'a self, fs: &'a F, name: &str) -> io::Result<LockGuard<'a, F>> {
        let number = number_of(name);
        let mut slot = self.files[number].lock().unwrap_or_else(PoisonError::into_inner);
        let path = path_of(number);
        loop {
            let file = match slot.take() {
                Some(file) => file,
                None => fs.open(&path, Access::Create)?,
            };
            fs.lock(&file, Lock::Exclusive, true)?;
            // Somebody may have removed the lock files by hand: a lock on a file that others do not
            // find is none.
            match fs.stat(&path) {
                Ok(now) if now.identity == fs.metadata(&file)?.identity => {
                    *slot = Some(file);
                    return Ok(LockGuard { fs, slot });
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether a swap of this object may have been seen before it was durable. Does not wait for the lock.
    pub fn is_unsettled(&self, fs: &F, name: &str) -> io::Result<bool> {
        match fs.stat(&path_of(number_of(name))) {
            Ok(metadata) => Ok(metadata.len > 0),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl<F: FileSystem> LockGuard<'_, F> {
    /// Says that the object is about to be replaced.
    pub fn announce(&self, name: &str) -> io::Result<()> {
        write_full(self.fs, self.file()?, name.as_bytes(), 0)
    }

    /// Says that what was announced is durable.
    pub fn settle(&self) -> io::Result<()> {
        self.fs.set_len(self.file()?, 0)
    }

    /// The object that a dead process was about to replace.
    ///
    /// After a power cut the lock file may hold anything; then there is nothing to settle either.
    pub fn announced(&self) -> io::Result<Option<String>> {
        let file = self.file()?;
        let mut name = vec![0; NAME_BYTES_MAX];
        let len = read_full(self.fs, file, &mut name, 0)?;
        name.truncate(len);
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

pub(super) fn number_of(name: &str) -> usize {
    // The remainder is below LOCK_FILES, which fits.
    (xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % LOCK_FILES) as usize
}

fn path_of(number: usize) -> String {
    format!("{LOCKS}/{number:02x}")
}
