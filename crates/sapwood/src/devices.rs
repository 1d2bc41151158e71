//! Snapshots of a vault as block devices and as a tree of files.

mod arriving;
mod damage_met;
mod error;
mod filling;
mod layers;
mod open_vault;
mod overlay;
mod read_cache;
mod snapshot;
pub mod tree;

pub use arriving::ArrivingDevice;
pub use error::is_damage;
pub use filling::FillDevice;
pub use open_vault::OpenVault;
pub use overlay::OverlayDevice;
pub use read_cache::read_cache;
pub use snapshot::{SnapshotBase, SnapshotDevice, SnapshotDisk};
