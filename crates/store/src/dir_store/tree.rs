//! The directory tree of a store: where an object's file is, and how it gets there.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::is_absent;
use super::locks::{LockGuard, Locks};
use super::temporary::Temporary;
use crate::file_system::{FileSystem, Identity, Kind, Metadata};
use crate::{Result, StoreError};

/// Directory of the objects' files.
pub(super) const OBJECTS: &str = "objects";

/// Directories known to be durable that are remembered.
const DURABLE_DIRS_MAX: usize = 4096;

/// Tries to make the directories of a new file before giving up; a sweep may remove them in between.
const PARENT_TRIES: usize = 16;

/// What all handles of one open store share.
pub(super) struct Tree<F: FileSystem> {
    pub fs: F,
    pub locks: Locks<F>,
    pub descriptors: Descriptors<F>,
    pub temporaries: AtomicU64,
    durable_dirs: Mutex<HashSet<Identity>>,
    poisoned: AtomicBool,
}

impl<F: FileSystem> Tree<F> {
    pub fn new(fs: F) -> Self {
        Self {
            fs,
            locks: Locks::new(),
            descriptors: Descriptors::new(),
            temporaries: AtomicU64::new(0),
            durable_dirs: Mutex::new(HashSet::new()),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Refuses changes after a failed sync of a directory.
    pub fn check_usable(&self, name: &str) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            Err(StoreError::Poisoned { object: name.to_owned() })
        } else {
            Ok(())
        }
    }

    /// What is known of an object's file.
    pub fn stat(&self, name: &str) -> Result<Metadata> {
        let metadata = self.fs.stat(&object_path(name)).map_err(|e| self.error(name, "look up", e))?;
        match metadata.kind {
            Kind::File => Ok(metadata),
            Kind::Directory => Err(StoreError::NotFound { object: name.to_owned() }),
            Kind::Other => Err(not_regular(name)),
        }
    }

    /// Waits until no other process or thread changes the object.
    pub fn lock(&self, name: &str) -> Result<LockGuard<'_, F>> {
        let lock = self.locks.lock(&self.fs, name).map_err(|e| self.error(name, "lock", e))?;
        // Whoever had the lock before may have died between a rename and its sync.
        if let Some(unsettled) = lock.announced().map_err(|e| self.error(name, "lock", e))? {
            self.sync_parents(&unsettled)?;
            lock.settle().map_err(|e| self.error(name, "lock", e))?;
        }
        Ok(lock)
    }

    /// Gives a temporary file an object's name, which must be free. Durable after [`Self::sync_parents`].
    pub fn rename_new(&self, temporary: Temporary<F>, name: &str) -> Result<Arc<F::File>> {
        let target = object_path(name);
        self.rename(temporary, name, |from| self.fs.rename_new(from, &target))
    }

    /// Lets a temporary file take an object's place. Durable after [`Self::sync_parents`].
    pub fn rename_over(&self, temporary: Temporary<F>, name: &str) -> Result<Arc<F::File>> {
        let target = object_path(name);
        self.rename(temporary, name, |from| self.fs.rename(from, &target))
    }

    fn rename(
        &self,
        temporary: Temporary<F>,
        name: &str,
        step: impl Fn(&str) -> io::Result<()>,
    ) -> Result<Arc<F::File>> {
        for _ in 0..PARENT_TRIES {
            match step(temporary.path()) {
                Ok(()) => return Ok(temporary.renamed()),
                Err(e) if e.kind() == ErrorKind::NotFound => self.make_parents(name)?,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    // Who hears "exists" may rely on it, so it must be durable.
                    self.sync_parents(name)?;
                    return Err(StoreError::AlreadyExists { object: name.to_owned() });
                }
                Err(e) => return Err(self.error(name, "create", e)),
            }
        }
        Err(StoreError::Io { object: name.to_owned(), op: "create", source: ErrorKind::NotFound.into() })
    }

    fn make_parents(&self, name: &str) -> Result<()> {
        for (slash, _) in name.match_indices('/') {
            match self.fs.make_dir(&object_path(&name[..slash])) {
                Ok(()) => {}
                // Not found: removed by a sweep again; the caller tries once more.
                Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                Err(e) => return Err(self.error(name, "make the directory of", e)),
            }
        }
        Ok(())
    }

    /// Makes the presence or absence of an object's name durable.
    ///
    /// The directory's identity decides whether those above must be synced: another process may have
    /// removed the one we knew and be about to make it again.
    pub fn sync_parents(&self, name: &str) -> Result<()> {
        self.check_usable(name)?;
        let path = object_path(name);
        let mut dirs = path.match_indices('/').rev().map(|(slash, _)| &path[..slash]);
        let leaf = loop {
            // `objects` is never removed.
            let Some(dir) = dirs.next() else { break None };
            match self.fs.sync_dir(dir) {
                Ok(identity) => break Some(identity),
                // Its own removal must be durable, or its old contents come back.
                Err(e) if is_absent(e.kind()) && dir != OBJECTS => {}
                Err(e) => return Err(self.poison(name, e)),
            }
        };
        let known = |leaf| self.durable_dirs.lock().unwrap_or_else(PoisonError::into_inner).contains(leaf);
        if leaf.as_ref().is_some_and(known) {
            return Ok(());
        }
        for dir in dirs {
            self.fs.sync_dir(dir).map_err(|e| self.poison(name, e))?;
        }
        if let Some(leaf) = leaf.filter(|leaf| leaf.birth.is_some()) {
            let mut durable = self.durable_dirs.lock().unwrap_or_else(PoisonError::into_inner);
            if durable.len() >= DURABLE_DIRS_MAX {
                durable.clear();
            }
            durable.insert(leaf);
        }
        Ok(())
    }

    fn poison(&self, name: &str, e: io::Error) -> StoreError {
        self.poisoned.store(true, Ordering::Release);
        self.error(name, "sync the directory of", e)
    }

    /// The store's error for one of the file system's.
    pub fn error(&self, object: &str, op: &'static str, e: io::Error) -> StoreError {
        let location = || self.fs.location();
        let object = object.to_owned();
        if is_absent(e.kind()) && matches!(op, "open" | "look up") {
            return StoreError::NotFound { object };
        }
        match Errno::from_io_error(&e) {
            Some(Errno::NOSPC | Errno::DQUOT) => StoreError::Full { object, location: location() },
            Some(Errno::ROFS) => {
                let why = "its file system is mounted read-only; mount it writable".to_owned();
                StoreError::Unsuitable { location: location(), why }
            }
            Some(Errno::OPNOTSUPP) if op == "punch holes into" => {
                let why = "its file system cannot punch holes; use ext4, XFS, Btrfs or another one that can";
                StoreError::Unsuitable { location: location(), why: why.to_owned() }
            }
            _ => StoreError::Io { object, op, source: e },
        }
    }
}

/// Where an object's file is.
pub(super) fn object_path(name: &str) -> String {
    format!("{OBJECTS}/{name}")
}

pub(super) fn not_regular(name: &str) -> StoreError {
    let source = io::Error::new(ErrorKind::InvalidData, "neither a file nor a directory");
    StoreError::Io { object: name.to_owned(), op: "open", source }
}
