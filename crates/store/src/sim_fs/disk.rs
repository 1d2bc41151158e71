//! The state of a simulated disk and of the processes that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::directory::Directory;
use super::fault::{stopped, Lack, SimOp};
use super::inode::{identity, Body, InodeNo};
use super::random::Random;
use crate::file_system::{Kind, Lock, Metadata};

const ROOT: InodeNo = InodeNo(1);

/// Simulated directories are always old: their identities never come again.
const AGE: Duration = Duration::from_secs(1 << 30);

/// Inodes between two collections of those that nothing names.
const COLLECT_EVERY: usize = 256;

/// Everything there is. A clone shares nothing with it but sectors, which are copied when one of both writes.
#[derive(Clone)]
pub(super) struct Disk {
    /// The dice for everything that chance decides.
    pub random: Random,
    /// Changing calls so far.
    pub ops: u64,
    /// The changing call at which everything stops.
    pub stop_at: Option<u64>,
    /// Whether that call was reached: all later ones fail.
    pub stopped: bool,
    /// Calls that fail the next time, each with the error of the system.
    pub failures: Vec<(SimOp, i32)>,
    /// What the file system is without.
    pub lacks: Vec<Lack>,
    /// Bytes that all files may take together.
    pub capacity: Option<u64>,
    /// The name of a type that other hosts may see; `None` for a local one.
    pub shared_type: Option<String>,
    /// Files and directories there may be.
    pub inodes_max: Option<usize>,
    /// How long the space of a removed file stays taken.
    pub late: Option<Duration>,
    /// The time that was spent in pauses.
    pub paused: Duration,
    /// Removed files whose space is taken until so much time was spent in pauses.
    removed: BTreeMap<InodeNo, Duration>,
    inodes: BTreeMap<InodeNo, Inode>,
    handles: BTreeMap<u64, Handle>,
    alive: BTreeSet<u64>,
    last_number: u64,
    collect_at: usize,
}

#[derive(Clone)]
struct Inode {
    content: Content,
    /// Names that lead here now.
    links: u64,
}

#[derive(Clone)]
enum Content {
    File(Body),
    Directory(Directory),
}

#[derive(Clone)]
struct Handle {
    inode: InodeNo,
    process: u64,
    lock: Option<Lock>,
}

impl Disk {
    /// An empty disk without processes.
    pub fn new(seed: u64) -> Self {
        let root = Inode { content: Content::Directory(Directory::default()), links: 1 };
        Self {
            random: Random::new(seed),
            ops: 0,
            stop_at: None,
            stopped: false,
            failures: Vec::new(),
            lacks: Vec::new(),
            capacity: None,
            shared_type: None,
            inodes_max: None,
            late: None,
            paused: Duration::ZERO,
            removed: BTreeMap::new(),
            inodes: BTreeMap::from([(ROOT, root)]),
            handles: BTreeMap::new(),
            alive: BTreeSet::new(),
            last_number: ROOT.0,
            collect_at: COLLECT_EVERY,
        }
    }

    // Processes.

    /// Starts a process; returns its number.
    pub fn new_process(&mut self) -> u64 {
        let process = self.number();
        self.alive.insert(process);
        process
    }

    /// Fails where a process was killed or everything has stopped.
    pub fn check_alive(&self, process: u64) -> io::Result<()> {
        if self.stopped || !self.alive.contains(&process) {
            Err(stopped())
        } else {
            Ok(())
        }
    }

    /// The same disk as it is now, without processes and their locks; a stop is taken back.
    pub fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.kill_all();
        copy
    }

    /// Ends a process: its files are closed and its locks go.
    pub fn kill(&mut self, process: u64) {
        self.alive.remove(&process);
        self.handles.retain(|_, handle| handle.process != process);
    }

    /// Ends all processes and takes a stop back.
    pub fn kill_all(&mut self) {
        self.alive.clear();
        self.handles.clear();
        self.stop_at = None;
        self.stopped = false;
    }

    /// Cuts the power: ends all processes, and leaves of each change that was not synced what chance decides.
    pub fn crash(&mut self) {
        self.kill_all();
        self.failures.clear();
        self.removed.clear();
        for inode in self.inodes.values_mut() {
            match &mut inode.content {
                Content::File(body) => body.crash(&mut self.random),
                Content::Directory(directory) => directory.crash(&mut self.random),
            }
        }
        self.collect();
    }

    /// Counts a changing call and decides whether it fails.
    pub fn begin(&mut self, op: SimOp) -> io::Result<()> {
        self.ops += 1;
        if self.stop_at.is_some_and(|at| self.ops >= at) {
            self.stopped = true;
        }
        if let Some(at) = self.failures.iter().position(|(failing, _)| *failing == op) {
            return Err(io::Error::from_raw_os_error(self.failures.remove(at).1));
        }
        match op {
            // There is nothing to sync on a disk that cannot be written, and that is no error.
            SimOp::Sync | SimOp::SyncDir => Ok(()),
            _ => self.check_writable(),
        }
    }

    /// Whether the call that has begun is the one at which everything stops.
    pub fn is_cut(&self) -> bool {
        self.stopped
    }

    /// Fails with `EROFS` where nothing can be written.
    pub fn check_writable(&self) -> io::Result<()> {
        if self.lacks.contains(&Lack::Writing) {
            Err(Errno::ROFS.into())
        } else {
            Ok(())
        }
    }

    /// Now and then reads and writes are interrupted, or do less than they were asked to.
    pub fn interrupt(&mut self, wanted: usize) -> io::Result<usize> {
        match self.random.below(16) {
            0 => Err(Errno::INTR.into()),
            1 if wanted > 1 => Ok(1 + self.random.below(wanted as u64 - 1) as usize),
            _ => Ok(wanted),
        }
    }

    // Handles and locks.

    /// Opens a file for a process; returns the handle.
    pub fn open(&mut self, inode: InodeNo, process: u64) -> u64 {
        let number = self.number();
        self.handles.insert(number, Handle { inode, process, lock: None });
        number
    }

    /// Closes a handle; its lock goes.
    pub fn close(&mut self, handle: u64) {
        self.handles.remove(&handle);
    }

    /// The file behind a handle; fails where its process was killed.
    pub fn inode_of(&self, handle: u64) -> io::Result<InodeNo> {
        self.handles.get(&handle).map(|handle| handle.inode).ok_or_else(stopped)
    }

    /// Takes a lock, in place of the one that the handle has; `false` where another handle's lock is in the way.
    pub fn try_lock(&mut self, handle: u64, lock: Lock) -> io::Result<bool> {
        let inode = self.inode_of(handle)?;
        let taken = self.handles.iter().any(|(number, other)| {
            *number != handle
                && other.inode == inode
                && other.lock.is_some_and(|other| other == Lock::Exclusive || lock == Lock::Exclusive)
        });
        if taken && !self.lacks.contains(&Lack::Locks) {
            return Ok(false);
        }
        self.set_lock(handle, Some(lock))?;
        Ok(true)
    }

    /// Gives the lock of a handle back.
    pub fn unlock(&mut self, handle: u64) -> io::Result<()> {
        self.set_lock(handle, None)
    }

    fn set_lock(&mut self, handle: u64, lock: Option<Lock>) -> io::Result<()> {
        self.handles.get_mut(&handle).ok_or_else(stopped)?.lock = lock;
        Ok(())
    }

    // Files.

    /// What `stat` says; a directory has no length.
    pub fn metadata(&self, number: InodeNo) -> io::Result<Metadata> {
        let inode = self.inodes.get(&number).ok_or(Errno::NOENT)?;
        let (kind, len, allocated) = match &inode.content {
            Content::File(body) => (Kind::File, body.len(), body.allocated()),
            Content::Directory(_) => (Kind::Directory, 0, 0),
        };
        Ok(Metadata { kind, identity: identity(number), len, allocated, links: inode.links, age: AGE })
    }

    /// Whether it is a file or a directory.
    pub fn kind(&self, number: InodeNo) -> io::Result<Kind> {
        Ok(self.metadata(number)?.kind)
    }

    /// The bytes of a file; `EISDIR` for a directory.
    pub fn body(&self, number: InodeNo) -> io::Result<&Body> {
        match self.inodes.get(&number).map(|inode| &inode.content) {
            Some(Content::File(body)) => Ok(body),
            Some(Content::Directory(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Changes a file's bytes in a way that takes no space.
    pub fn resize(&mut self, number: InodeNo, step: impl FnOnce(&mut Body)) -> io::Result<()> {
        match self.inodes.get_mut(&number).map(|inode| &mut inode.content) {
            Some(Content::File(body)) => {
                step(body);
                Ok(())
            }
            Some(Content::Directory(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Writes all of `data`, or fails with `ENOSPC` and writes nothing.
    pub fn write(&mut self, number: InodeNo, data: &[u8], offset: u64) -> io::Result<usize> {
        if let Some(capacity) = self.capacity {
            let growth = self.body(number)?.growth(offset, data.len() as u64);
            if growth > 0 && self.used() + growth > capacity {
                return Err(Errno::NOSPC.into());
            }
        }
        self.resize(number, |body| body.write(data, offset))?;
        Ok(data.len())
    }

    /// Takes the space of a file's first `len` bytes, and lets it grow to so many.
    pub fn allocate(&mut self, number: InodeNo, len: u64) -> io::Result<()> {
        if let Some(capacity) = self.capacity {
            let body = self.body(number)?;
            if self.used() - body.allocated() + len > capacity {
                return Err(Errno::NOSPC.into());
            }
        }
        self.resize(number, |body| body.allocate(len))
    }

    /// Lets time pass: the space of files that were removed long enough ago is free.
    pub fn pause(&mut self, time: Duration) {
        self.paused += time;
        self.removed.retain(|_, until| *until > self.paused);
    }

    /// Files and directories that have a name or are open, or whose space is not free yet.
    fn in_use(&self) -> impl Iterator<Item = &Inode> {
        let open: BTreeSet<InodeNo> = self.handles.values().map(|handle| handle.inode).collect();
        let used = self.inodes.iter().filter(move |(number, inode)| {
            inode.links > 0 || open.contains(number) || self.removed.contains_key(number)
        });
        used.map(|(_, inode)| inode)
    }

    /// Bytes taken by all files that have a name or are open.
    pub fn used(&self) -> u64 {
        let bytes = |inode: &Inode| match &inode.content {
            Content::File(body) => body.allocated(),
            Content::Directory(_) => 0,
        };
        self.in_use().map(bytes).sum()
    }

    /// How many of them there are.
    pub fn used_inodes(&self) -> usize {
        self.in_use().count()
    }

    // Names.

    /// The inode at a path; `ENOENT` where there is none.
    pub fn find(&self, path: &str) -> io::Result<InodeNo> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(ROOT, |dir, part| self.directory(dir)?.get(part).ok_or_else(|| Errno::NOENT.into()))
    }

    /// The names in a directory, sorted.
    pub fn entries(&self, path: &str) -> io::Result<Vec<(String, Kind)>> {
        let directory = self.directory(self.find(path)?)?;
        directory.iter().map(|(name, inode)| Ok((name.clone(), self.kind(inode)?))).collect()
    }

    /// Makes an empty file; `EEXIST` where the name is taken.
    pub fn create_file(&mut self, path: &str) -> io::Result<InodeNo> {
        self.create(path, Content::File(Body::default()))
    }

    /// Makes a directory; `EEXIST` where the name is taken.
    pub fn make_dir(&mut self, path: &str) -> io::Result<()> {
        self.create(path, Content::Directory(Directory::default())).map(drop)
    }

    /// Renames a file. Where the new name is taken: replaces that file, or fails with `EEXIST`.
    pub fn rename(&mut self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        let inode = self.find(from)?;
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        match self.directory(to_dir)?.get(to_name) {
            Some(_) if !replace => return Err(Errno::EXIST.into()),
            Some(there) if self.kind(there)? == Kind::Directory => return Err(Errno::ISDIR.into()),
            // Two names of one file: POSIX says that nothing happens.
            Some(there) if there == inode => return Ok(()),
            _ => {}
        }
        self.set_name(to_dir, to_name, Some(inode))?;
        self.set_name(from_dir, from_name, None)
    }

    /// Removes a name of a file.
    pub fn unlink(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let inode = self.directory(dir)?.get(name).ok_or(Errno::NOENT)?;
        if self.kind(inode)? == Kind::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.set_name(dir, name, None)
    }

    /// Removes a directory; `ENOTEMPTY` where it holds names.
    pub fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let inode = self.directory(dir)?.get(name).ok_or(Errno::NOENT)?;
        if !self.directory(inode)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.set_name(dir, name, None)
    }

    /// Makes a directory's names durable; returns its inode.
    pub fn sync_dir(&mut self, path: &str) -> io::Result<InodeNo> {
        let inode = self.find(path)?;
        self.directory_mut(inode)?.sync();
        Ok(inode)
    }

    fn create(&mut self, path: &str, content: Content) -> io::Result<InodeNo> {
        let (dir, name) = self.parent(path)?;
        if self.directory(dir)?.get(name).is_some() {
            return Err(Errno::EXIST.into());
        }
        if self.inodes.len() >= self.collect_at {
            self.collect();
            self.collect_at = self.inodes.len() + COLLECT_EVERY;
        }
        if self.inodes_max.is_some_and(|max| self.used_inodes() >= max) {
            return Err(Errno::NOSPC.into());
        }
        let inode = InodeNo(self.number());
        self.inodes.insert(inode, Inode { content, links: 0 });
        self.set_name(dir, name, Some(inode))?;
        Ok(inode)
    }

    fn set_name(&mut self, dir: InodeNo, name: &str, inode: Option<InodeNo>) -> io::Result<()> {
        let before = self.directory(dir)?.get(name);
        self.directory_mut(dir)?.set(name, inode);
        if let Some(inode) = before.and_then(|inode| self.inodes.get_mut(&inode)) {
            inode.links -= 1;
        }
        if let Some(inode) = inode.and_then(|inode| self.inodes.get_mut(&inode)) {
            inode.links += 1;
        }
        if let (Some(delay), Some(before)) = (self.late, before) {
            // A rename gives the file its new name first.
            if self.inodes.get(&before).is_some_and(|inode| inode.links == 0) {
                self.removed.insert(before, self.paused + delay);
            }
        }
        Ok(())
    }

    fn parent<'a>(&self, path: &'a str) -> io::Result<(InodeNo, &'a str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(dir)?, name))
    }

    fn directory(&self, number: InodeNo) -> io::Result<&Directory> {
        match self.inodes.get(&number).map(|inode| &inode.content) {
            Some(Content::Directory(directory)) => Ok(directory),
            Some(Content::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn directory_mut(&mut self, number: InodeNo) -> io::Result<&mut Directory> {
        match self.inodes.get_mut(&number).map(|inode| &mut inode.content) {
            Some(Content::Directory(directory)) => Ok(directory),
            Some(Content::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Drops the inodes that nothing names, that no crash could bring back and nobody has open;
    /// counts the names of the others again.
    fn collect(&mut self) {
        let mut reached: BTreeSet<InodeNo> = self.handles.values().map(|handle| handle.inode).collect();
        reached.insert(ROOT);
        reached.extend(self.removed.keys());
        let mut waiting: Vec<InodeNo> = reached.iter().copied().collect();
        let mut links: BTreeMap<InodeNo, u64> = BTreeMap::from([(ROOT, 1)]);
        while let Some(number) = waiting.pop() {
            let Ok(directory) = self.directory(number) else { continue };
            waiting.extend(directory.mentioned().filter(|inode| reached.insert(*inode)));
            for (_, inode) in directory.iter() {
                *links.entry(inode).or_default() += 1;
            }
        }
        self.inodes.retain(|number, inode| {
            inode.links = links.get(number).copied().unwrap_or(0);
            reached.contains(number)
        });
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
