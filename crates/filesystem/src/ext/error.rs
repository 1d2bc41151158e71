//! Errors that name ext4.

use crate::error::FsError;

pub(super) fn corrupt(why: impl Into<String>) -> FsError {
    FsError::corrupt("ext4", why)
}

pub(super) fn unsupported(feature: impl Into<String>) -> FsError {
    FsError::unsupported("ext4", feature)
}
