//! Snapshots of a vault as block devices and as a tree of files.

mod arriving;
mod error;
mod filling;
mod overlay;
mod snapshot;
pub mod tree;

pub use arriving::ArrivingDevice;
pub use error::is_damage;
pub use filling::FillDevice;
pub use overlay::OverlayDevice;
pub use snapshot::{SnapshotBase, SnapshotDevice, SnapshotDisk};
