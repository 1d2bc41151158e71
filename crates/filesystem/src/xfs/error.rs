//! Errors that name XFS.

use crate::error::FsError;
use crate::tree::NodeId;

/// Damage of the file system.
pub(super) fn corrupt(why: impl Into<String>) -> FsError {
    FsError::corrupt("xfs", why)
}

/// Something that is not read.
pub(super) fn unsupported(feature: impl Into<String>) -> FsError {
    FsError::unsupported("xfs", feature)
}

/// A node that is not what the caller takes it for.
pub(super) fn wrong(id: NodeId, why: &str) -> FsError {
    FsError::Wrong { what: format!("xfs: inode {}", id.0), why: why.into() }
}
