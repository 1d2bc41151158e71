//! Errors that name ext4.

use crate::error::FsError;

/// Damage of the file system.
pub(super) fn corrupt(why: impl Into<String>) -> FsError {
    FsError::corrupt("ext4", why)
}

/// Something that is not read.
pub(super) fn unsupported(feature: impl Into<String>) -> FsError {
    FsError::unsupported("ext4", feature)
}
