//! Reading the file systems of a guest's disk, without mounting it and without rights.
//!
//! A [`Disk`] is cut into volumes by partition tables and LVM; a volume holds a [`FileSystem`], a tree of [`Node`]s.
//! Nothing is ever written. Everything read is taken for hostile: a damaged file system gives
//! [`FsError::Corrupt`], never a panic, an endless loop, or memory beyond what its size explains.

mod bytes;
mod cache;
mod disk;
mod error;
pub mod ext;
pub mod fat;
#[cfg(test)]
mod memory;
pub mod ntfs;
mod tree;
mod volumes;
mod wtf8;
pub mod xfs;

pub use disk::{Disk, Part, Piece};
pub use error::{FsError, Result};
pub use tree::{
    resolve, Attributes, Change, Comparison, Content, Difference, Directory, DirectoryNo, Entry, Extent,
    FileSystem, Node, NodeId, NodeKind, Order, Place, Step, Time, Unread, Walk,
};
pub use volumes::{volumes, Volume};
