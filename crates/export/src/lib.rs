//! Serving a block device or a tree of files to others.
//!
//! It serves a [`BlockDevice`], a [`Tree`] whose files are block devices, or a file system ([`files::Files`]). What implements them (a snapshot, an
//! overlay, a live volume) is not known here.

#![deny(missing_docs)]

mod device;
pub mod files;
pub mod fuse;
pub mod nbd;
mod tree;

pub use device::{Block, BlockDevice, Extent};
pub use tree::{Attributes, Entry, NodeId, NodeKind, Tree};
