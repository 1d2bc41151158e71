//! A tree of files to serve, read-only.

use crate::device::BlockDevice;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// The number of a node. The root has [`NodeId::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The topmost directory.
    pub const ROOT: NodeId = NodeId(1);
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A symbolic link.
    Link,
}

/// A node and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub id: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// Length in bytes; of a symbolic link, that of where it leads.
    pub size: u64,
    /// Bytes that are no hole, as far as that is known; of a directory, those of all files below it.
    pub data_bytes: u64,
    /// When what it holds changed last.
    pub modified: SystemTime,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Where it leads.
    pub id: NodeId,
    /// What that is.
    pub kind: NodeKind,
}

/// A tree of files, asked by several threads at once. Directories and links may change at any time; a file does not, and
/// a number that was given to a node is never given to another one.
///
/// # Errors
/// `NotFound` where a node does not exist any more: no fault, unlike all other errors.
pub trait Tree: Send + Sync {
    /// What is known of a node.
    fn attributes(&self, id: NodeId) -> io::Result<Attributes>;

    /// What a name in a directory leads to.
    fn lookup(&self, directory: NodeId, name: &str) -> io::Result<Attributes>;

    /// The entries of a directory, without itself and the one above.
    fn entries(&self, directory: NodeId) -> io::Result<Vec<Entry>>;

    /// Where a symbolic link leads, as seen from its directory.
    fn link(&self, id: NodeId) -> io::Result<String>;

    /// Opens a file. What was opened stays readable, whatever becomes of the node, and so do its attributes.
    fn open(&self, id: NodeId) -> io::Result<Arc<dyn BlockDevice>>;

    /// Where a node is in the tree, for messages.
    fn path(&self, id: NodeId) -> String;
}
