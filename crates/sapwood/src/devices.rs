//! What of a vault is served to others, as block devices.

mod arriving;
mod overlay;
mod snapshot;

pub use arriving::ArrivingDevice;
pub use overlay::OverlayDevice;
pub use snapshot::{Below, SnapshotDevice, SnapshotDisk};

use image::ImageError;
use std::io;

/// An error of an image, for those who are served: what the system said, if it was that.
fn io_error(e: ImageError) -> io::Error {
    let kind = match &e {
        ImageError::Io { source, .. } => source.kind(),
        ImageError::Full { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}
