//! What lies below: a disk that does not change.

use std::io;

/// A disk that others are laid over, or that is still on its way to another place.
pub trait Base: Send + Sync {
    /// Fills `buf` from `offset` on; with zeros behind the end of the disk.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}
