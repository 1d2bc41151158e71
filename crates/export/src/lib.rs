//! Serving a block device or a tree of files to others.
//!
//! What is served is a [`BlockDevice`], or a [`Tree`] whose files are block devices. What stands behind them (a
//! snapshot, an overlay, a live volume) is not known here.

mod device;
pub mod fuse;
pub mod nbd;
mod tree;

pub use device::{Block, BlockDevice, Extent};
pub use tree::{Attributes, Entry, NodeId, NodeKind, Tree};
