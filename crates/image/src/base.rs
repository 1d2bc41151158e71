//! What lies below: a disk that does not change.

use std::io;
use std::ops::Range;

/// A disk that others are laid over, or that is still on its way to another place.
pub trait Base: Send + Sync {
    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The next range at or after `from` that may hold anything but zeros; `None`: zeros up to the end.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        Ok(Some(from..u64::MAX))
    }
}
