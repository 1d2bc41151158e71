//! What of a vault is served to others, as block devices.

mod arriving;
mod error;
mod overlay;
mod snapshot;
pub mod tree;

pub use arriving::ArrivingDevice;
pub use overlay::OverlayDevice;
pub use snapshot::{Below, SnapshotDevice, SnapshotDisk};
