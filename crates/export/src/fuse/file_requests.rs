//! The kernel's requests to a file system, and how they are answered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::FileType as Type;

use super::requests::{errno_of, BACKGROUND_MAX, BLOCK_BYTES, NAME_BYTES_MAX, TRANSFER_BYTES_MAX};
use super::served::Served;
use super::writers::{Seek, Writers};
use crate::files::{Allocate, Caching, Change, Files, Name, New, Rename, SetAttribute, Stat};
use crate::tree::NodeId;

/// How long the kernel need not ask again: nobody but the kernel changes anything.
const VALID: Duration = Duration::from_secs(3600);
/// The same of a file that is open for writing: the kernel does not know the space of what it has not written yet. It asks
/// before a write where it does not know, so this may not be nothing.
const WRITTEN_VALID: Duration = Duration::from_millis(100);

/// The user that writing takes no rights from files of.
const ROOT: u32 = 0;

type Listing = (Vec<Name>, NodeId);

/// A file system, and what of it is being listed.
pub(super) struct FileService {
    files: Arc<dyn Files>,
    on_error: Box<dyn Fn(&str) + Send + Sync>,
    on_start: Box<dyn Fn() + Send + Sync>,
    listings: Mutex<HashMap<u64, Arc<Listing>>>,
    last_listing: AtomicU64,
    writers: Writers,
}

/// What answers the kernel.
pub(super) struct FileRequests(pub Arc<FileService>);

impl FileService {
    /// `on_start` is called when the kernel has asked for the first time.
    pub fn new(
        files: Arc<dyn Files>,
        on_error: Box<dyn Fn(&str) + Send + Sync>,
        on_start: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let (listings, last_listing) = (Mutex::default(), AtomicU64::new(0));
        FileService { files, on_error, on_start, listings, last_listing, writers: Writers::default() }
    }

    fn reply_offset(&self, id: INodeNo, found: io::Result<u64>, reply: ReplyLseek) {
        match found {
            Ok(found) => reply.offset(found as i64),
            Err(e) => reply.error(self.errno(id, &e)),
        }
    }

    /// The number of an error, after telling of it if it is a fault.
    fn errno(&self, id: INodeNo, error: &io::Error) -> Errno {
        if error.raw_os_error().is_none() {
            self.tell(&format!("node {}: {error}", id.0));
        }
        errno_of(error)
    }

    /// The names of an open directory: from the first one on, those that are there now.
    fn listing(&self, id: INodeNo, handle: FileHandle, from: u64) -> io::Result<Arc<Listing>> {
        if from > 0 {
            if let Some(listing) = self.listings.lock().get(&handle.0) {
                return Ok(Arc::clone(listing));
            }
        }
        let listing = Arc::new(self.files.list(node(id))?);
        self.listings.lock().insert(handle.0, Arc::clone(&listing));
        Ok(listing)
    }
}

impl Served for FileService {
    fn tell(&self, line: &str) {
        (self.on_error)(line);
    }

    fn close_all(&self) {
        self.listings.lock().clear();
    }

    fn write_out(&self) {
        self.writers.write_out_all();
    }

    fn begin(&self, notifier: Notifier) {
        self.writers.begin(notifier.clone());
        // A node that the kernel does not know is no error, and neither is an end of the session.
        self.files.on_change(Box::new(move |id| drop(notifier.inval_inode(INodeNo(id.0), 0, 0))));
    }
}

/// What the kernel is told of an opened file.
fn flags_of(caching: Caching) -> FopenFlags {
    match caching {
        // The kernel knows the node until the file is closed, and what it has read stays true.
        Caching::Keep => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        Caching::Never => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH,
    }
}

fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

fn type_of(mode: u32) -> FileType {
    match Type::from_raw_mode(mode) {
        Type::Directory => FileType::Directory,
        Type::Symlink => FileType::Symlink,
        Type::Fifo => FileType::NamedPipe,
        Type::Socket => FileType::Socket,
        Type::CharacterDevice => FileType::CharDevice,
        Type::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attr(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.id.0),
        size: stat.size,
        blocks: stat.stored.div_ceil(512),
        atime: stat.accessed,
        mtime: stat.modified,
        ctime: stat.changed,
        crtime: UNIX_EPOCH,
        kind: type_of(stat.mode),
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.links,
        uid: stat.user,
        gid: stat.group,
        rdev: stat.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => match UNIX_EPOCH.duration_since(time) {
            // Before 1970 `fuser` takes the nanoseconds the wrong way: they count forward from the second.
            Ok(before) if before.subsec_nanos() > 0 => {
                let nanoseconds = Duration::from_nanos(u64::from(before.subsec_nanos()));
                time + nanoseconds + nanoseconds
            }
            _ => time,
        },
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// What `mknod` and its like make.
fn new_node<'a>(request: &Request, kind: Type, mode: u32, umask: u32) -> New<'a> {
    New {
        mode: kind.as_raw_mode() | (mode & 0o7777 & !umask),
        user: request.uid(),
        group: request.gid(),
        device: 0,
        target: b"",
    }
}

/// Answers with a value of an extended attribute, or with its size.
fn reply_bytes(reply: ReplyXattr, bytes: &[u8], room: u32) {
    if room == 0 {
        reply.size(bytes.len() as u32);
    } else if bytes.len() > room as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(bytes);
    }
}

impl FileRequests {
    fn entry(&self, parent: INodeNo, made: io::Result<Stat>, reply: ReplyEntry) {
        match made {
            Ok(stat) => reply.entry(&self.valid(stat.id), &attr(&stat), Generation(0)),
            Err(e) => reply.error(self.0.errno(parent, &e)),
        }
    }

    /// The permissions of a file that runs as its owner or group, without that right. Who is not of its group takes the
    /// bit also from one that does not run as a group.
    fn unprivileged(&self, request: &Request, ino: INodeNo) -> Option<u32> {
        const SET_USER: u32 = 0o4000;
        const SET_GROUP: u32 = 0o2000;
        const GROUP_RUNS: u32 = 0o0010;
        let stat = self.0.files.stat(node(ino)).ok()?;
        let mut mode = stat.mode & !SET_USER;
        let is_member = request.uid() == ROOT || request.gid() == stat.group;
        if mode & GROUP_RUNS != 0 || !is_member {
            mode &= !SET_GROUP;
        }
        (type_of(mode) != FileType::Directory && mode != stat.mode).then_some(mode)
    }

    /// How long the kernel need not ask again for a node.
    fn valid(&self, id: NodeId) -> Duration {
        if self.0.files.may_change(id) {
            Duration::ZERO
        } else if self.0.writers.has(INodeNo(id.0)) {
            WRITTEN_VALID
        } else {
            VALID
        }
    }

    /// Opens a file. The kernel may keep changes of one that nobody else looks at.
    fn open_file(&self, id: NodeId, flags: OpenFlags) -> io::Result<(FileHandle, FopenFlags)> {
        let caching = self.0.files.open(id, writes(flags))?;
        Ok((self.0.writers.open(INodeNo(id.0), flags), flags_of(caching)))
    }

    fn empty(&self, id: INodeNo, done: io::Result<()>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(self.0.errno(id, &e)),
        }
    }
}

impl Filesystem for FileRequests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that does not have one of these works without.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
        // Else each write asks for an attribute before, to see whether something must be taken from the file.
        let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        (self.0.on_start)();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(parent, self.0.files.lookup(node(parent), name), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.0.files.forget(node(ino), lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.files.stat(node(ino)) {
            Ok(stat) => reply.attr(&self.valid(stat.id), &attr(&stat)),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (accessed.map(time), modified.map(time));
        let changed = changed.map(|changed| time(TimeOrNow::SpecificTime(changed)));
        let mut change = Change { mode, user, group, size, accessed, modified, changed };
        let is_other = user.is_some() || group.is_some() || (size.is_some() && request.uid() != ROOT);
        if is_other && mode.is_none() {
            change.mode = self.unprivileged(request, ino);
        }
        match self.0.files.change(node(ino), &change) {
            Ok(stat) => reply.attr(&self.valid(stat.id), &attr(&stat)),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.files.target(node(ino)) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let new = New { device, ..new_node(request, Type::from_raw_mode(mode), mode, umask) };
        self.entry(parent, self.0.files.make(node(parent), name, &new), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, Type::Directory, mode, umask);
        self.entry(parent, self.0.files.make(node(parent), name, &new), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let new = New { target, ..new_node(request, Type::Symlink, 0o777, 0) };
        self.entry(parent, self.0.files.make(node(parent), name, &new), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(request, Type::RegularFile, mode, umask);
        let made = self.0.files.make(node(parent), name, &new);
        let opened = made.and_then(|stat| Ok((stat, self.open_file(stat.id, OpenFlags(flags))?)));
        match opened {
            Ok((stat, (handle, flags))) => {
                reply.created(&WRITTEN_VALID, &attr(&stat), Generation(0), handle, flags);
            }
            Err(e) => reply.error(self.0.errno(parent, &e)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(parent, self.0.files.unlink(node(parent), name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(parent, self.0.files.remove_directory(node(parent), name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = if flags.is_empty() {
            Rename::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Rename::Keep
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Rename::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let (from, to) = ((node(parent), name), (node(new_parent), new_name));
        self.empty(parent, self.0.files.rename(from, to, how), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(ino, self.0.files.link(node(ino), node(parent), name), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(node(ino), flags) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.writers.release(ino, handle);
        self.0.files.close(node(ino), writes(flags));
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buf| {
            // At a page's start, where files can be read without another copy.
            let page = BLOCK_BYTES as usize;
            buf.resize(buf.len().max(size as usize + page), 0);
            let start = buf.as_ptr().align_offset(page).min(page);
            let buf = &mut buf[start..start + size as usize];
            match self.0.files.read(node(ino), offset, buf) {
                Ok(bytes) => reply.data(&buf[..bytes]),
                Err(e) => reply.error(self.0.errno(ino, &e)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            if let mode @ Some(_) = self.unprivileged(request, ino) {
                let changed = self.0.files.change(node(ino), &Change { mode, ..Change::default() });
                if let Err(e) = changed {
                    return reply.error(self.0.errno(ino, &e));
                }
            }
        }
        // What comes from the kernel's cache was written before; it tells when.
        let write =
            if flags.contains(WriteFlags::FUSE_WRITE_CACHE) { Files::write_back } else { Files::write };
        match write(&*self.0.files, node(ino), offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = self.0.files.sync();
        // The kernel has written all of it before it asks for this.
        self.0.writers.forget(ino);
        self.empty(ino, done, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(ino, self.0.files.sync(), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.0.last_listing.fetch_add(1, Ordering::Relaxed) + 1;
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listing = match self.0.listing(ino, handle, offset) {
            Ok(listing) => listing,
            Err(e) => return reply.error(self.0.errno(ino, &e)),
        };
        let (names, above) = &*listing;
        let dots = [(ino, "."), (INodeNo(above.0), "..")];
        let dots = dots.iter().map(|(id, name)| (*id, FileType::Directory, OsStr::new(*name)));
        let names = names.iter().map(|n| (INodeNo(n.id.0), type_of(n.mode), n.name.as_os_str()));
        for (n, (id, kind, name)) in (1..).zip(dots.chain(names)).skip(offset as usize) {
            if reply.add(id, n, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.listings.lock().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.0.files.space() {
            Ok(space) => {
                let block = u64::from(BLOCK_BYTES);
                let free = space.free_bytes / block;
                let (files, free_files) = (space.files, space.free_files);
                let blocks = space.bytes / block;
                reply.statfs(blocks, free, free, files, free_files, BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES);
            }
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            0 => SetAttribute::Any,
            1 => SetAttribute::Create,
            2 => SetAttribute::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        self.empty(ino, self.0.files.set_attribute(node(ino), name, value, how), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        match self.0.files.attribute(node(ino), name) {
            Ok(value) => reply_bytes(reply, &value, room),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, room: u32, reply: ReplyXattr) {
        match self.0.files.attributes(node(ino)) {
            Ok(names) => reply_bytes(reply, &names, room),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        }
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(ino, self.0.files.remove_attribute(node(ino), name), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const KEEP_SIZE: i32 = 1;
        const PUNCH: i32 = 2;
        const ZERO: i32 = 16;
        let how = match mode {
            0 => Allocate::Extend,
            KEEP_SIZE => Allocate::KeepSize,
            m if m == PUNCH | KEEP_SIZE || m == ZERO | KEEP_SIZE => Allocate::Punch,
            ZERO => Allocate::Zero,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let Some(end) = offset.checked_add(length) else { return reply.error(Errno::EFBIG) };
        self.empty(ino, self.0.files.allocate(node(ino), offset..end, how), reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return reply.error(Errno::EINVAL);
        }
        let seek = Seek { ino, offset, hole: whence == SEEK_HOLE };
        let found = self.0.files.seek(node(ino), offset, seek.hole);
        let Some(unwritten) = self.0.writers.unwritten(&seek, &found) else {
            return self.0.reply_offset(ino, found, reply);
        };
        // Not here: the kernel sends what is unwritten to the threads that answer requests, and waits for them.
        let service = Arc::clone(&self.0);
        // A thread that does not start drops the reply, and the kernel gets an error.
        let _ = std::thread::Builder::new().name("fuse-seek".into()).spawn(move || {
            service.writers.write_out(ino, unwritten);
            let found = service.files.seek(node(ino), seek.offset, seek.hole);
            service.reply_offset(ino, found, reply);
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        bytes: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        /// The answer has 32 bits: what is longer is copied in several requests, whole blocks each.
        const COPY_BYTES_MAX: u64 = 1 << 31;
        let bytes = bytes.min(COPY_BYTES_MAX);
        match self.0.files.copy((node(from), from_offset), (node(to), to_offset), bytes) {
            Ok(copied) => reply.written(copied as u32),
            Err(e) => reply.error(self.0.errno(to, &e)),
        }
    }
}
