//! Errors as those who are served see them.

use image::ImageError;
use std::io;

/// An error of an image, for those who are served: what the system said, if it was that.
pub(super) fn io_error(e: ImageError) -> io::Error {
    let kind = match &e {
        ImageError::Io { source, .. } => source.kind(),
        ImageError::Full { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}
