//! The directory tree of a store: where an object's file is, and how it gets there.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::locks::{LockGuard, Locks, NotLocked};
use super::one_host;
use super::probe;
use super::refusal;
use super::reserve::{self, with_room, Patience};
use crate::file_system::{FileSystem, Identity, Kind, Metadata};
use crate::{Reserve, Result, StoreError};

/// Directory of the objects' files.
pub(super) const OBJECTS: &str = "objects";

/// Directories known to be durable that are remembered.
const DURABLE_DIRS_MAX: usize = 4096;

/// Steps that concern one object, of a store that has been found to be usable.
const OF_ONE_OBJECT: [&str; 6] =
    ["open", "open for writing", "look up", "read", "map", "look for the holder of"];

/// Steps that a user who may only read is refused.
const WRITING: [&str; 8] =
    ["create", "write", "make the directory of", "lock", "swap", "delete", "punch holes into", "fill"];

/// What the system says of one file that it cannot read, while others can be read: no permission, a bad sector, damage that
/// the file system found in itself.
const UNREADABLE: [Errno; 7] =
    [Errno::ACCESS, Errno::PERM, Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA, Errno::REMOTEIO];

/// What all handles of one open store share.
pub(super) struct Tree<F: FileSystem> {
    /// The file system whose root is the store.
    pub fs: F,
    /// The locks that changes of objects take.
    pub locks: Locks<F>,
    /// Files of objects that were read last.
    pub descriptors: Descriptors<F>,
    /// Temporary files made so far: a part of the next one's name.
    pub temporaries: AtomicU64,
    durable_dirs: Mutex<HashSet<Identity>>,
    poisoned: AtomicBool,
    /// Whether this handle may change the store, once that has been asked.
    checked: Mutex<bool>,
    /// How long changes wait for the space of removed files.
    pub patience: Patience,
    /// Whether an object was removed since the reserve was last made complete, as far as there was space.
    removed: AtomicBool,
    /// Length of the longest object that this handle has replaced.
    longest_swapped: AtomicU64,
}

impl<F: FileSystem> Tree<F> {
    /// The tree of a directory that is a store. `lock_wait` is how long a change waits for another process.
    pub fn new(fs: F, lock_wait: Duration) -> Self {
        Self {
            fs,
            locks: Locks::new(lock_wait),
            descriptors: Descriptors::new(),
            temporaries: AtomicU64::new(0),
            durable_dirs: Mutex::new(HashSet::new()),
            poisoned: AtomicBool::new(false),
            checked: Mutex::new(false),
            patience: Patience::new(),
            removed: AtomicBool::new(false),
            longest_swapped: AtomicU64::new(0),
        }
    }

    /// What stands before every change: whether this host may write here and the store can keep its promises, asked once
    /// by each handle. Then the reserve is made complete.
    pub fn check_usable(&self, name: &str) -> Result<()> {
        self.check_poisoned(name)?;
        let mut checked = self.checked.lock();
        if !*checked {
            one_host::check(&self.fs)?;
            probe::probe(&self.fs)?;
            *checked = true;
            self.fill_reserve()?;
        }
        Ok(())
    }

    /// Makes what is missing of the reserve and of the lock files, as far as there is space.
    pub fn fill_reserve(&self) -> Result<()> {
        let longest = self.longest_swapped.load(Ordering::Relaxed);
        let patience = self.removed.swap(false, Ordering::Relaxed).then_some(&self.patience);
        match self.locks.make_all(&self.fs).and_then(|()| reserve::fill(&self.fs, longest, patience)) {
            Err(e) if reserve::is_full(&e) => Ok(()),
            filled => filled.map_err(|e| self.error(reserve::RESERVE, "fill", e)),
        }
    }

    /// Remembers that an object was removed: its space may be free a little later only.
    pub fn removed(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    /// Remembers how long an object is that was replaced: the reserve must have files for its next value.
    pub fn swapped(&self, len: usize) {
        self.longest_swapped.fetch_max(len as u64, Ordering::Relaxed);
    }

    /// Refuses everything after a failed sync of a directory.
    fn check_poisoned(&self, name: &str) -> Result<()> {
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
        let lock = self.locks.lock(&self.fs, name).map_err(|e| match e {
            NotLocked::Taken { holder, waited } => {
                StoreError::Locked { object: name.to_owned(), holder, seconds: waited.as_secs() }
            }
            NotLocked::Failed(e) => self.error(name, "lock", e),
        })?;
        // The last holder of the lock may have died between a rename and its sync.
        if let Some(unsettled) = lock.announced().map_err(|e| self.error(name, "lock", e))? {
            self.sync_parents(&unsettled)?;
            lock.settle().map_err(|e| self.error(name, "lock", e))?;
        }
        Ok(lock)
    }

    /// Makes the directories above an object's file, as far as they are missing.
    pub fn make_parents(&self, name: &str, reserve: Reserve) -> Result<()> {
        for (slash, _) in name.match_indices('/') {
            let dir = object_path(&name[..slash]);
            match with_room(&self.fs, &self.patience, reserve, || self.fs.make_dir(&dir)) {
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
        self.check_poisoned(name)?;
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
        let known = |leaf| self.durable_dirs.lock().contains(leaf);
        if leaf.as_ref().is_some_and(known) {
            return Ok(());
        }
        for dir in dirs {
            self.fs.sync_dir(dir).map_err(|e| self.poison(name, e))?;
        }
        if let Some(leaf) = leaf.filter(|leaf| leaf.birth.is_some()) {
            let mut durable = self.durable_dirs.lock();
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
        if is_absent(e.kind()) && (op.starts_with("open") || op == "look up") {
            return StoreError::NotFound { object };
        }
        match Errno::from_io_error(&e) {
            Some(Errno::NOSPC | Errno::DQUOT) => StoreError::Full { object, location: location() },
            Some(Errno::ROFS) => refusal::read_only(location()),
            Some(Errno::ACCESS | Errno::PERM) if WRITING.contains(&op) => {
                refusal::not_permitted(location(), &e)
            }
            Some(Errno::OPNOTSUPP) if op == "punch holes into" => {
                let why = "its file system cannot punch holes; use ext4, XFS, Btrfs or another one that can";
                StoreError::Unsuitable { location: location(), why: why.to_owned() }
            }
            // A symbolic link is not followed, a socket cannot be opened.
            Some(Errno::LOOP | Errno::NXIO) if op.starts_with("open") => not_regular(&object),
            Some(e) if OF_ONE_OBJECT.contains(&op) && UNREADABLE.contains(&e) => {
                StoreError::Unreadable { object, op, source: e.into() }
            }
            _ => StoreError::Io { object, op, source: e },
        }
    }
}

/// Where an object's file is.
pub(super) fn object_path(name: &str) -> String {
    format!("{OBJECTS}/{name}")
}

/// Whether an error says that the object is not there: a name above it may be an object itself, and the
/// name itself may be a directory.
pub(super) fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory)
}

/// The error for what cannot be an object's file.
pub(super) fn not_regular(name: &str) -> StoreError {
    let source = io::Error::new(ErrorKind::InvalidData, "it is not a regular file");
    StoreError::Unreadable { object: name.to_owned(), op: "open", source }
}
