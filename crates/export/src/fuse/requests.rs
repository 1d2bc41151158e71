//! The kernel's requests, and how they are answered.

use super::served::Served;
use crate::device::{Block, BlockDevice};
use crate::tree::{Attributes, Entry, NodeId, NodeKind, Tree};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, Request,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::process::{getgid, getuid};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How long the kernel need not ask again what a name leads to, and what is known of a directory or a link.
const NAMES_VALID: Duration = Duration::from_secs(1);
/// The same for what is known of a file: it never changes.
const FILES_VALID: Duration = Duration::from_secs(24 * 3600);
/// What is read or written in one piece; the kernel's own limit is as high.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Reads ahead, and others that nobody waits for, that the kernel sends at once.
pub(super) const BACKGROUND_MAX: u16 = 64;
/// The unit of the sizes that `statfs` and `stat` tell.
pub(super) const BLOCK_BYTES: u32 = 4096;
pub(super) const NAME_BYTES_MAX: u32 = 255;

/// What answers the kernel, by [`Service`].
pub(super) struct Requests(pub Arc<Service>);

/// A tree, and what of it is open.
pub(super) struct Service {
    tree: Arc<dyn Tree>,
    on_error: Box<dyn Fn(&str) + Send + Sync>,
    user: u32,
    group: u32,
    files: Handles<Arc<dyn BlockDevice>>,
    directories: Handles<Arc<Vec<Entry>>>,
    on_start: Box<dyn Fn() + Send + Sync>,
}

/// What is open, by the numbers that the kernel knows it by.
struct Handles<T>(RwLock<Numbered<T>>);

struct Numbered<T> {
    last: u64,
    open: HashMap<u64, T>,
}

impl<T: Clone> Handles<T> {
    fn new() -> Handles<T> {
        Handles(RwLock::new(Numbered { last: 0, open: HashMap::new() }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Numbered<T>> {
        self.0.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Numbered<T>> {
        self.0.write()
    }

    fn add(&self, open: T) -> FileHandle {
        let mut all = self.write();
        all.last += 1;
        let number = all.last;
        all.open.insert(number, open);
        FileHandle(number)
    }

    fn get(&self, handle: FileHandle) -> io::Result<T> {
        let closed = || io::Error::from(rustix::io::Errno::BADF);
        self.read().open.get(&handle.0).cloned().ok_or_else(closed)
    }

    fn replace(&self, handle: FileHandle, open: T) {
        self.write().open.insert(handle.0, open);
    }

    fn remove(&self, handle: FileHandle) {
        // Dropped when the lock is free again: closing may take its time.
        let removed = self.write().open.remove(&handle.0);
        drop(removed);
    }
}

impl Service {
    /// `on_start` is called when the kernel has asked for the first time.
    pub fn new(
        tree: Arc<dyn Tree>,
        on_error: Box<dyn Fn(&str) + Send + Sync>,
        on_start: Box<dyn Fn() + Send + Sync>,
    ) -> Service {
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        let (files, directories) = (Handles::new(), Handles::new());
        Service { tree, on_error, user, group, files, directories, on_start }
    }

    /// The number of an error, after telling of it.
    fn errno(&self, id: NodeId, e: &io::Error) -> Errno {
        let errno = errno_of(e);
        if errno != Errno::ENOENT && errno != Errno::EBADF {
            self.tell(&format!("{}: {e}", self.tree.path(id)));
        }
        errno
    }

    fn attr(&self, a: &Attributes) -> FileAttr {
        let (kind, perm) = match a.kind {
            NodeKind::Directory => (FileType::Directory, 0o555),
            NodeKind::File => (FileType::RegularFile, 0o444),
            NodeKind::Link => (FileType::Symlink, 0o777),
        };
        FileAttr {
            ino: INodeNo(a.id.0),
            size: a.size,
            blocks: if a.kind == NodeKind::File { a.data_bytes.div_ceil(512) } else { 0 },
            atime: a.modified,
            mtime: a.modified,
            ctime: a.modified,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            // Of directories, 1 says that those below are not counted.
            nlink: 1,
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn lookup(&self, directory: NodeId, name: &OsStr) -> io::Result<Attributes> {
        let name = name.to_str().ok_or(io::ErrorKind::NotFound)?;
        self.tree.lookup(directory, name)
    }

    /// Reads into `buf`, as much as there is.
    fn read(&self, handle: FileHandle, offset: u64, len: u32, buf: &mut Vec<u8>) -> io::Result<()> {
        let file = self.files.get(handle)?;
        let left = file.size().saturating_sub(offset);
        buf.resize(left.min(u64::from(len)) as usize, 0);
        if buf.is_empty() {
            Ok(())
        } else {
            file.read_at(offset, buf)
        }
    }

    /// The entries of an open directory from a number on; from the first one on, those that are there now.
    fn entries(&self, id: NodeId, handle: FileHandle, from: u64) -> io::Result<Arc<Vec<Entry>>> {
        let entries = self.directories.get(handle)?;
        if from > 0 {
            return Ok(entries);
        }
        let entries = Arc::new(self.tree.entries(id)?);
        self.directories.replace(handle, entries.clone());
        Ok(entries)
    }

    fn seek(&self, handle: FileHandle, offset: i64, whence: i32) -> io::Result<i64> {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let device = self.files.get(handle)?;
        let beyond = || io::Error::from(rustix::io::Errno::NXIO);
        let (offset, size) = (u64::try_from(offset).map_err(|_| beyond())?, device.size());
        if offset >= size {
            return Err(beyond());
        }
        let found = match whence {
            SEEK_DATA => find(&*device, offset..size, |b| b != Block::Hole)?.ok_or_else(beyond)?,
            // Behind its end, every file has a hole.
            SEEK_HOLE => find(&*device, offset..size, |b| b == Block::Hole)?.unwrap_or(size),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(found as i64)
    }
}

impl Served for Service {
    fn tell(&self, line: &str) {
        (self.on_error)(line);
    }

    fn close_all(&self) {
        let open = std::mem::take(&mut self.files.write().open);
        drop(open);
    }
}

/// The number that the kernel is told.
pub(super) fn errno_of(e: &io::Error) -> Errno {
    match (e.raw_os_error(), e.kind()) {
        (Some(number), _) => Errno::from_i32(number),
        (_, io::ErrorKind::NotFound) => Errno::ENOENT,
        (_, io::ErrorKind::PermissionDenied) => Errno::EACCES,
        (_, io::ErrorKind::InvalidInput) => Errno::EINVAL,
        (_, io::ErrorKind::OutOfMemory) => Errno::ENOMEM,
        (_, io::ErrorKind::StorageFull) => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

/// Where in a range there is the first block of a kind.
fn find(device: &dyn BlockDevice, range: Range<u64>, wanted: fn(Block) -> bool) -> io::Result<Option<u64>> {
    let mut found = None;
    device.extents(range.clone(), &mut |extent| {
        if wanted(extent.block) {
            found = Some(extent.range.start.max(range.start));
        }
        found.is_none()
    })?;
    Ok(found)
}

fn valid(kind: NodeKind) -> Duration {
    match kind {
        NodeKind::File => FILES_VALID,
        NodeKind::Directory | NodeKind::Link => NAMES_VALID,
    }
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that does not have one of these works without; nothing is ever written, but the most that may be
        // also bounds reads.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        (self.0.on_start)();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.lookup(node(parent), name) {
            Ok(a) => {
                reply.entry_with_ttls(&valid(a.kind), &NAMES_VALID, &self.0.attr(&a), Generation(0));
            }
            Err(e) => reply.error(self.0.errno(node(parent), &e)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.tree.attributes(node(ino)) {
            Ok(a) => reply.attr(&valid(a.kind), &self.0.attr(&a)),
            Err(e) => reply.error(self.0.errno(node(ino), &e)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.tree.link(node(ino)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(self.0.errno(node(ino), &e)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let id = node(ino);
        match self.0.tree.open(id) {
            Ok(device) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.opened(self.0.files.add(device), flags);
            }
            Err(e) => reply.error(self.0.errno(id, &e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buf| match self.0.read(handle, offset, size, buf) {
            Ok(()) => reply.data(buf),
            Err(e) => reply.error(self.0.errno(node(ino), &e)),
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.files.remove(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(self.0.directories.add(Arc::default()), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = match self.0.entries(node(ino), handle, offset) {
            Ok(entries) => entries,
            Err(e) => return reply.error(self.0.errno(node(ino), &e)),
        };
        for (n, entry) in (1..).zip(&entries[..]).skip(offset as usize) {
            let kind = match entry.kind {
                NodeKind::Directory => FileType::Directory,
                NodeKind::File => FileType::RegularFile,
                NodeKind::Link => FileType::Symlink,
            };
            if reply.add(INodeNo(entry.id.0), n, kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.directories.remove(handle);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.0.tree.attributes(NodeId::ROOT) {
            Ok(root) => {
                let blocks = root.data_bytes.div_ceil(u64::from(BLOCK_BYTES));
                reply.statfs(blocks, 0, 0, 0, 0, BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES);
            }
            Err(e) => reply.error(self.0.errno(NodeId::ROOT, &e)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.0.seek(handle, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                reply.error(Errno::ENXIO)
            }
            Err(e) => reply.error(self.0.errno(node(ino), &e)),
        }
    }
}
