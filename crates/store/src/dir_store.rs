//! A store in a directory: an object is a file.
//!
//! `docs/format/store.md` has the layout, the order of writes and what each crash leaves. What holds here:
//! - A file appears under `objects/` by a rename, after its bytes are durable.
//! - A call returns after the names it changed are durable, those of new directories above included.
//! - A directory whose sync failed poisons the handle: what it would say about later syncs is worth nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::file_system::{read_full, Access, FileSystem, Kind, Lock};
use crate::name::{check_name, check_prefix};
use crate::notice::notice;
use crate::real_fs::RealFs;
use crate::{Entry, Lease, Mapped, ObjectStore, ObjectWriter, Reserve, Result, StoreError, Tag};

mod descriptors;
mod layout;
mod lease;
mod locks;
mod one_host;
mod probe;
mod refusal;
mod reserve;
mod temporary;
mod text_file;
mod tree;
mod writer;

#[cfg(test)]
mod tests;

use lease::FileLease;
use reserve::with_room;
use temporary::Temporary;
use tree::{is_absent, object_path, Tree, OBJECTS};
use writer::FileWriter;

/// Longest replaceable object in bytes: it is read into memory whole, whatever stands in its place.
pub const REPLACEABLE_BYTES_MAX: u64 = (32 << 20) + 4096;

/// How long a change waits for one of another process, where nothing else is said. Each takes milliseconds.
pub const LOCK_WAIT: Duration = Duration::from_secs(120);

/// A store in a directory of a file system. Clones are handles on the same store.
pub struct DirStore<F: FileSystem> {
    tree: Arc<Tree<F>>,
    /// What the changes of this handle may use of the reserve.
    reserve: Reserve,
}

/// A store in a directory of this machine.
pub type LocalStore = DirStore<RealFs>;

impl DirStore<RealFs> {
    /// Makes a store at `path`, and the directory where it is missing. Opens the store if there is one.
    ///
    /// [`StoreError::Unsuitable`] where the directory holds other things, or its file system lacks
    /// something that a store needs or may be seen by other hosts.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_with(path, &StoreOptions::default())
    }

    /// The same with options.
    pub fn create_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        let path = path.as_ref();
        if !options.one_host {
            // Asked before directories are made, so that a refusal leaves nothing.
            let above = path.ancestors().skip(1).find_map(|above| RealFs::open(here(above)).ok());
            if let Some(above) = above.filter(|_| !path.exists()) {
                one_host::check_type(&above)?;
            }
        }
        let fs = RealFs::create(path).map_err(|e| refusal::unreachable(path, &e))?;
        layout::create(&fs, options.one_host)?;
        Self::open_fs(fs, options)
    }

    /// Opens the store at `path`; [`StoreError::Unsuitable`] where there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &StoreOptions::default())
    }

    /// The same with options.
    pub fn open_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        let path = path.as_ref();
        let fs = RealFs::open(path).map_err(|e| refusal::unreachable(path, &e))?;
        Self::open_fs(fs, options)
    }
}

/// How a store is made or opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// When it is made, or is there already: this host is recorded as the only one that writes, and may do so where other
    /// hosts may see the file system.
    pub one_host: bool,
    /// How long a change waits for one of another process.
    pub lock_wait: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { one_host: false, lock_wait: LOCK_WAIT }
    }
}

impl<F: FileSystem> DirStore<F> {
    /// Makes a store at the root of a file system; opens the store if there is one.
    pub fn create_on(fs: F) -> Result<Self> {
        layout::create(&fs, false)?;
        Self::open_to_write(fs)
    }

    /// The same, and records this host as the only one that writes.
    pub fn create_on_one_host(fs: F) -> Result<Self> {
        layout::create(&fs, true)?;
        Self::open_to_write(fs)
    }

    fn open_to_write(fs: F) -> Result<Self> {
        let store = Self::open_on(fs)?;
        store.tree.check_usable(&store.location())?;
        Ok(store)
    }

    /// Opens the store at the root of a file system. Nothing is written: whether it can keep a store's promises is
    /// asked before the first change.
    pub fn open_on(fs: F) -> Result<Self> {
        Self::open_fs(fs, &StoreOptions::default())
    }

    fn open_fs(fs: F, options: &StoreOptions) -> Result<Self> {
        layout::check(&fs)?;
        Ok(Self { tree: Arc::new(Tree::new(fs, options.lock_wait)), reserve: Reserve::None })
    }

    /// Another handle, whose changes may use so much of the reserve.
    pub fn using(&self, reserve: Reserve) -> Self {
        Self { tree: Arc::clone(&self.tree), reserve }
    }

    /// The file system below.
    pub fn file_system(&self) -> &F {
        &self.tree.fs
    }

    /// Opens an object's file and tells its length.
    fn open_object(&self, name: &str, access: Access) -> Result<(F::File, u64)> {
        let fs = &self.tree.fs;
        let op = match access {
            Access::Read => "open",
            _ => "open for writing",
        };
        let file = fs.open(&object_path(name), access).map_err(|e| self.tree.error(name, op, e))?;
        let metadata = fs.metadata(&file).map_err(|e| self.tree.error(name, "open", e))?;
        match metadata.kind {
            Kind::File => Ok((file, metadata.len)),
            Kind::Directory => Err(StoreError::NotFound { object: name.to_owned() }),
            Kind::Other => Err(tree::not_regular(name)),
        }
    }

    /// The object's file, from the cache of open ones where it is there.
    fn cached_object(&self, name: &str) -> Result<Arc<F::File>> {
        let fs = &self.tree.fs;
        if let Some(file) = self.tree.descriptors.get(fs, name) {
            return Ok(file);
        }
        let file = Arc::new(self.open_object(name, Access::Read)?.0);
        self.tree.descriptors.insert(fs, name, &file);
        Ok(file)
    }

    /// The bytes under `name`, read without the cache; `None` where there is no object.
    fn contents(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let (file, size) = match self.open_object(name, Access::Read) {
            Ok(opened) => opened,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let too_long = || StoreError::TooLong { object: name.to_owned(), size, max };
        if size > max {
            return Err(too_long());
        }
        let size_here = usize::try_from(size).map_err(|_| too_long())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size_here).map_err(|_| too_long())?;
        bytes.resize(size_here, 0);
        let got =
            read_full(&self.tree.fs, &file, &mut bytes, 0).map_err(|e| self.tree.error(name, "read", e))?;
        if got < size_here {
            return Err(out_of_range(name, 0, size, got as u64));
        }
        Ok(Some(bytes))
    }

    /// Whether what stands in an object's place is neither a file nor a directory.
    fn is_other(&self, name: &str) -> bool {
        self.tree.fs.stat(&object_path(name)).is_ok_and(|m| m.kind == Kind::Other)
    }

    /// What is in the directory of the objects `prefix…`, each once; nothing where there is none.
    ///
    /// All of it before anything else is done: a directory that changes meanwhile may tell entries twice. That of a
    /// tmpfs begins anew where the entry that it would tell next has been removed.
    fn entries_below(&self, prefix: &str) -> Result<BTreeMap<String, Kind>> {
        let dir = format!("{OBJECTS}/{prefix}");
        let entries = self.tree.fs.entries(dir.trim_end_matches('/')).and_then(Iterator::collect);
        match entries {
            Err(e) if is_absent(e.kind()) => Ok(BTreeMap::new()),
            entries => entries.map_err(|e| self.tree.error(prefix, "list", e)),
        }
    }

    /// Walks the directory of the objects `prefix…`.
    fn list_below(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        for (part, kind) in self.entries_below(prefix)? {
            let name = format!("{prefix}{part}");
            if check_name(&name).is_err() {
                continue;
            }
            match kind {
                Kind::Directory => self.list_below(&format!("{name}/"), each)?,
                Kind::File => match self.tree.stat(&name) {
                    Ok(stat) => each(Entry { name, len: stat.len, allocated: stat.allocated })?,
                    Err(StoreError::NotFound { .. }) => {}
                    Err(StoreError::Unreadable { .. }) => each(Entry { name, len: 0, allocated: 0 })?,
                    Err(e) => return Err(e),
                },
                Kind::Other => each(Entry { name, len: 0, allocated: 0 })?,
            }
        }
        Ok(())
    }

    /// The same without a look at each file.
    fn names_below(&self, prefix: &str, each: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
        for (part, kind) in self.entries_below(prefix)? {
            let name = format!("{prefix}{part}");
            match kind {
                _ if check_name(&name).is_err() => {}
                Kind::Directory => self.names_below(&format!("{name}/"), each)?,
                Kind::File | Kind::Other => each(name)?,
            }
        }
        Ok(())
    }

    /// Writes an object's bytes to a temporary file and makes them durable.
    fn write_aside(&self, name: &str, data: &[u8]) -> Result<Temporary<F>> {
        self.tree.check_usable(name)?;
        Temporary::leased(&self.tree, data, self.reserve).map_err(|e| self.tree.error(name, "write", e))
    }
}

impl<F: FileSystem> ObjectStore for DirStore<F> {
    fn location(&self) -> String {
        self.tree.fs.location()
    }

    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        check_name(name)?;
        self.tree.check_usable(name)?;
        if self.tree.fs.stat(&object_path(name)).is_ok() {
            // The file may stand there since an instant only: who hears "exists" may rely on it.
            self.tree.sync_parents(name)?;
            return Err(StoreError::AlreadyExists { object: name.to_owned() });
        }
        let mut writer = FileWriter::new(&self.tree, name, self.reserve)?;
        for part in parts {
            writer.append(part)?;
        }
        writer.publish()
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        check_name(name)?;
        Ok(Box::new(FileWriter::new(&self.tree, name, self.reserve)?))
    }

    fn len(&self, name: &str) -> Result<u64> {
        check_name(name)?;
        Ok(self.tree.stat(name)?.len)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_name(name)?;
        let file = self.cached_object(name)?;
        let fs = &self.tree.fs;
        let size = || fs.metadata(&file).map(|m| m.len).map_err(|e| self.tree.error(name, "read", e));
        let wanted = buf.len() as u64;
        if wanted == 0 || offset.checked_add(wanted).is_none_or(|end| end > i64::MAX as u64) {
            // No system call can be asked these; the length decides.
            let size = size()?;
            return if wanted == 0 && offset <= size {
                Ok(())
            } else {
                Err(out_of_range(name, offset, wanted, size))
            };
        }
        let got = read_full(fs, &file, buf, offset).map_err(|e| self.tree.error(name, "read", e))?;
        if got == buf.len() {
            Ok(())
        } else {
            Err(out_of_range(name, offset, wanted, size()?))
        }
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        check_name(name)?;
        self.contents(name, max)?.ok_or_else(|| StoreError::NotFound { object: name.to_owned() })
    }

    fn map(&self, name: &str, max: u64) -> Result<Mapped> {
        check_name(name)?;
        let (file, size) = self.open_object(name, Access::Read)?;
        let len = usize::try_from(size).ok().filter(|len| size <= max && *len > 0);
        let mapped = len.map_or(Ok(None), |len| self.tree.fs.map(&file, len));
        match mapped.map_err(|e| self.tree.error(name, "map", e))? {
            Some(mapped) => Ok(mapped),
            None => Ok(Arc::new(self.read(name, max)?)),
        }
    }

    fn will_read(&self, name: &str, offset: u64, len: u64) {
        if len == 0 || check_name(name).is_err() {
            return;
        }
        if let Ok(file) = self.cached_object(name) {
            self.tree.fs.will_read(&file, offset, len);
        }
    }

    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        check_name(name)?;
        let found = self.contents(name, REPLACEABLE_BYTES_MAX)?;
        // A swap or a deletion may have been killed before its sync: nobody acts on what a power cut
        // could still take back.
        // A lock file that cannot be read tells nothing.
        if found.is_none() || self.tree.locks.is_unsettled(&self.tree.fs, name).unwrap_or(true) {
            match self.tree.sync_parents(name) {
                Ok(()) | Err(StoreError::Poisoned { .. }) => {}
                // Reading goes on.
                Err(e) => notice(&format!("{e}; this process changes nothing in the store from now on")),
            }
        }
        Ok(found.map(|bytes| {
            let tag = tag_of(&bytes);
            (bytes, tag)
        }))
    }

    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        check_name(name)?;
        self.tree.check_usable(name)?;
        let conflict = || StoreError::Conflict { object: name.to_owned() };
        if data.len() as u64 > REPLACEABLE_BYTES_MAX {
            let size = data.len() as u64;
            return Err(StoreError::TooLong { object: name.to_owned(), size, max: REPLACEABLE_BYTES_MAX });
        }
        let lock = self.tree.lock(name)?;
        let found = self.contents(name, REPLACEABLE_BYTES_MAX)?.map(|bytes| tag_of(&bytes));
        if found != expected {
            return Err(conflict());
        }
        let temporary = self.write_aside(name, data)?;
        // Lock files that were made by hand, or by a version of before, have no block for it.
        with_room(&self.tree.fs, &self.tree.patience, self.reserve, || lock.announce(name))
            .map_err(|e| self.tree.error(name, "swap", e))?;
        if expected.is_none() {
            match temporary.rename_new(name) {
                Err(StoreError::AlreadyExists { .. }) => return Err(conflict()),
                renamed => renamed?,
            };
        } else {
            temporary.rename_over(name)?;
        }
        // The new value is visible: no error from here on may read as if nothing had happened.
        self.tree.sync_parents(name).map_err(|e| match e {
            StoreError::Full { object, .. } => {
                StoreError::Io { object, op: "sync", source: std::io::ErrorKind::StorageFull.into() }
            }
            StoreError::Unsuitable { .. } => StoreError::Io {
                object: name.to_owned(),
                op: "sync",
                source: std::io::ErrorKind::ReadOnlyFilesystem.into(),
            },
            e => e,
        })?;
        // Where this fails, the next one that takes the lock settles.
        let _ = lock.settle();
        self.tree.swapped(data.len());
        Ok(tag_of(data))
    }

    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        check_name(name)?;
        self.tree.check_usable(name)?;
        let (file, size) = self.open_object(name, Access::Write)?;
        for &(offset, len) in holes {
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(out_of_range(name, offset, len, size));
            }
        }
        let fs = &self.tree.fs;
        let mut holes = holes.iter().filter(|h| h.1 > 0).peekable();
        if holes.peek().is_none() {
            return Ok(());
        }
        holes
            .try_for_each(|&(offset, len)| {
                with_room(&self.tree.fs, &self.tree.patience, self.reserve, || fs.punch(&file, offset, len))
            })
            .and_then(|()| fs.sync(&file))
            .map_err(|e| self.tree.error(name, "punch holes into", e))
    }

    fn delete(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.tree.check_usable(name)?;
        let removed = {
            // Against a swap that has read the object and not yet replaced it.
            let _lock = self.tree.lock(name)?;
            self.tree.fs.unlink(&object_path(name))
        };
        self.tree.descriptors.remove(name);
        let removed = match removed {
            Ok(()) => {
                self.tree.removed();
                true
            }
            Err(e) if is_absent(e.kind()) => false,
            Err(e) => return Err(self.tree.error(name, "delete", e)),
        };
        // Also where it was gone before: the process that removed it may have ended before the sync.
        self.tree.sync_parents(name)?;
        Ok(removed)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        check_prefix(prefix)?;
        self.list_below(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
        check_prefix(prefix)?;
        self.names_below(prefix, each)
    }

    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        check_prefix(prefix)?;
        for (part, kind) in self.entries_below(prefix)? {
            if kind == Kind::Directory && check_name(&format!("{prefix}{part}")).is_ok() {
                each(&part)?;
            }
        }
        Ok(())
    }

    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        check_name(name)?;
        let temporary = self.write_aside(name, data)?;
        Ok(Box::new(FileLease::publish(&self.tree, name, temporary)?))
    }

    fn is_leased(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let fs = &self.tree.fs;
        loop {
            let file = match self.open_object(name, Access::Read) {
                Ok((file, _)) => file,
                Err(StoreError::NotFound { .. }) => return Ok(false),
                // Only a regular file can be held.
                Err(StoreError::Unreadable { .. }) if self.is_other(name) => return Ok(false),
                Err(e) => return Err(e),
            };
            let error = |e| self.tree.error(name, "look for the holder of", e);
            if !fs.lock(&file, Lock::Shared, false).map_err(error)? {
                return Ok(true);
            }
            // Its holder may have replaced the file meanwhile: then the lock says nothing.
            let opened = fs.metadata(&file).map_err(error)?;
            match self.tree.stat(name) {
                Ok(now) if now.identity == opened.identity => return Ok(false),
                Ok(_) => {}
                Err(StoreError::NotFound { .. }) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    fn allocated(&self, name: &str) -> Result<u64> {
        check_name(name)?;
        Ok(self.tree.stat(name)?.allocated)
    }

    fn free(&self) -> Result<Option<u64>> {
        self.tree.descriptors.drop_removed(&self.tree.fs);
        self.tree.fs.free().map_err(|e| self.tree.error(&self.location(), "ask for free space", e))
    }

    fn with_reserve(&self, reserve: Reserve) -> Option<Arc<dyn ObjectStore>> {
        Some(Arc::new(self.using(reserve)))
    }

    fn fill_reserve(&self) -> Result<()> {
        self.tree.check_usable(&self.location())?;
        self.tree.fill_reserve()
    }

    fn sweep(&self) -> Result<u64> {
        self.tree.check_usable(OBJECTS)?;
        let freed = temporary::sweep(&self.tree)?;
        layout::remove_empty_dirs(&self.tree, OBJECTS)?;
        Ok(freed)
    }
}

impl<F: FileSystem> Clone for DirStore<F> {
    fn clone(&self) -> Self {
        Self { tree: Arc::clone(&self.tree), reserve: self.reserve }
    }
}

impl<F: FileSystem> std::fmt::Debug for DirStore<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirStore").field("location", &self.location()).finish()
    }
}

/// The path of a directory that may be named by nothing.
fn here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn tag_of(bytes: &[u8]) -> Tag {
    Tag(xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes())
}

fn out_of_range(name: &str, offset: u64, len: u64, size: u64) -> StoreError {
    StoreError::OutOfRange { object: name.to_owned(), offset, len, size }
}
