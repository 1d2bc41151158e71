//! Snapshots of a vault as block devices and as a tree of files.

mod arriving;
mod error;
mod overlay;
mod snapshot;
pub mod tree;

pub use arriving::ArrivingDevice;
pub use overlay::OverlayDevice;
pub use snapshot::{SnapshotBase, SnapshotDevice, SnapshotDisk};
