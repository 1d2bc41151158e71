//! Snapshots of a vault as block devices and as a tree of files.

mod arriving;
mod error;
mod filling;
mod layers;
mod overlay;
mod read_cache;
mod read_vault;
mod snapshot;
pub mod tree;

pub use arriving::ArrivingDevice;
pub use error::is_damage;
pub use filling::FillDevice;
pub use overlay::OverlayDevice;
pub use read_cache::read_cache;
pub use read_vault::ReadVault;
pub use snapshot::{SnapshotBase, SnapshotDevice, SnapshotDisk};
