//! Errors as clients of a served disk see them.

use image::ImageError;
use std::io;
use vault::VaultError;

/// Whether damage of a vault is the cause of an error.
pub fn is_damage(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<VaultError>());
    inner.is_some_and(VaultError::is_damage)
}

/// An error of an image for a client: with the kind of the system's error, if it was one.
pub(super) fn io_error(e: ImageError) -> io::Error {
    let kind = match &e {
        ImageError::Io { source, .. } => source.kind(),
        ImageError::Full { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}
