//! A file system to serve, as POSIX has it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::time::SystemTime;

use crate::tree::NodeId;

/// What `stat` tells of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub id: NodeId,
    /// Its type and its permissions, as in `st_mode`.
    pub mode: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Of a device: its number.
    pub device: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that are stored for it, as far as that is known.
    pub stored: u64,
    /// When it was read last.
    pub accessed: SystemTime,
    /// When its content changed last.
    pub modified: SystemTime,
    /// When anything of it changed last.
    pub changed: SystemTime,
}

/// What is to be different of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Its permissions; the type in it does not count.
    pub mode: Option<u32>,
    /// Its owner.
    pub user: Option<u32>,
    /// Its group.
    pub group: Option<u32>,
    /// Its length.
    pub size: Option<u64>,
    /// When it was read last.
    pub accessed: Option<SystemTime>,
    /// When its content changed last.
    pub modified: Option<SystemTime>,
    /// When anything of it changed last; else it is now.
    pub changed: Option<SystemTime>,
}

/// A node to make.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Its type and its permissions.
    pub mode: u32,
    /// Its owner.
    pub user: u32,
    /// Its group; a directory with set-group-id gives its own instead.
    pub group: u32,
    /// Of a device: its number.
    pub device: u32,
    /// Of a symbolic link: where it leads.
    pub target: &'a [u8],
}

/// What a rename does where the new name is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// What has it goes.
    Replace,
    /// It fails.
    Keep,
    /// Both change their names.
    Exchange,
}

/// What is done to a range of a file, as `fallocate` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// The length grows if the range is behind it.
    Extend,
    /// Nothing that one can see.
    KeepSize,
    /// It reads as zeros, and takes no space.
    Punch,
    /// It reads as zeros, and the length grows if the range is behind it.
    Zero,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAttribute {
    /// Whether it is there or not.
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

/// What the kernel may keep of the content of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Everything: nobody else changes it.
    Keep,
    /// Nothing: others may change it, or look at it.
    Never,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: OsString,
    /// Where it leads.
    pub id: NodeId,
    /// The type of that, as in `st_mode`.
    pub mode: u32,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Files in all.
    pub files: u64,
    /// Files that can be made.
    pub free_files: u64,
}

/// A file system, asked by several threads at once. A node stays while it has a name, or somebody has looked it up and not
/// yet forgotten it: [`Files::lookup`], [`Files::make`] and [`Files::link`] count.
///
/// # Errors
/// Those of the system calls, as [`io::Error::from_raw_os_error`] makes them; others are faults.
pub trait Files: Send + Sync {
    /// What a name in a directory leads to.
    fn lookup(&self, directory: NodeId, name: &OsStr) -> io::Result<Stat>;
    /// So many lookups do not count any more.
    fn forget(&self, id: NodeId, lookups: u64);
    /// What is known of a node.
    fn stat(&self, id: NodeId) -> io::Result<Stat>;
    /// Changes a node.
    fn change(&self, id: NodeId, change: &Change) -> io::Result<Stat>;
    /// Makes a node.
    fn make(&self, directory: NodeId, name: &OsStr, new: &New<'_>) -> io::Result<Stat>;
    /// Takes the name of what is no directory away.
    fn unlink(&self, directory: NodeId, name: &OsStr) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, directory: NodeId, name: &OsStr) -> io::Result<()>;
    /// Gives a node another name.
    fn rename(&self, from: (NodeId, &OsStr), to: (NodeId, &OsStr), how: Rename) -> io::Result<()>;
    /// Gives a node one more name.
    fn link(&self, id: NodeId, directory: NodeId, name: &OsStr) -> io::Result<Stat>;
    /// Where a symbolic link leads.
    fn target(&self, id: NodeId) -> io::Result<Vec<u8>>;
    /// A file is opened, for writing too or for reading only. [`Files::close`] follows.
    fn open(&self, _id: NodeId, _write: bool) -> io::Result<Caching> {
        Ok(Caching::Keep)
    }
    /// A file that was opened like this is closed.
    fn close(&self, _id: NodeId, _write: bool) {}
    /// Whether something else than the kernel may change a node, so that the kernel must ask each time.
    fn may_change(&self, _id: NodeId) -> bool {
        false
    }
    /// `tell` is to be called whenever something else than the kernel has changed a node of which the kernel may know.
    fn on_change(&self, _tell: Box<dyn Fn(NodeId) + Send + Sync>) {}
    /// The names in a directory, without `.` and `..`; and the directory above.
    fn list(&self, directory: NodeId) -> io::Result<(Vec<Name>, NodeId)>;
    /// Fills `buf` from `offset` on; returns how many bytes there were.
    fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()>;
    /// The same for what was changed earlier: [`Files::change`] tells when.
    fn write_back(&self, id: NodeId, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Gives or takes the space of a range. [`Files::change`] tells when.
    fn allocate(&self, id: NodeId, range: Range<u64>, how: Allocate) -> io::Result<()>;
    /// Where from `offset` on the first data is, or the first hole.
    fn seek(&self, id: NodeId, offset: u64, hole: bool) -> io::Result<u64>;
    /// Copies a range without reading it; [`Files::change`] tells when. Returns how many bytes were copied; `EOPNOTSUPP`
    /// where that cannot be done.
    fn copy(&self, from: (NodeId, u64), to: (NodeId, u64), bytes: u64) -> io::Result<u64>;
    /// An extended attribute.
    fn attribute(&self, id: NodeId, name: &OsStr) -> io::Result<Vec<u8>>;
    /// The names of the extended attributes, each with a zero byte behind it.
    fn attributes(&self, id: NodeId) -> io::Result<Vec<u8>>;
    /// Sets an extended attribute.
    fn set_attribute(&self, id: NodeId, name: &OsStr, value: &[u8], how: SetAttribute) -> io::Result<()>;
    /// Removes an extended attribute.
    fn remove_attribute(&self, id: NodeId, name: &OsStr) -> io::Result<()>;
    /// Makes durable all that was done before.
    fn sync(&self) -> io::Result<()>;
    /// How much space there is.
    fn space(&self) -> io::Result<Space>;
}
