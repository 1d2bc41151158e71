//! Serving a block device or a tree of files to others.
//!
//! It serves a [`BlockDevice`], a [`Tree`] whose files are block devices, or a file system ([`files::Files`]). What implements them (a snapshot, an
//! overlay, a live volume) is not known here.

#![deny(missing_docs)]

mod device;
mod exports;
pub mod files;
pub mod fuse;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod memory_device;
pub mod nbd;
mod tree;
mod unix_socket;
pub mod vhost;

pub use device::{Block, BlockDevice, Extent};
pub use exports::{Exports, SingleExport};
pub use tree::{Attributes, Entry, NodeId, NodeKind, Tree};
