//! Errors that name XFS.

use crate::error::FsError;
use crate::tree::NodeId;

pub(super) fn corrupt(why: impl Into<String>) -> FsError {
    FsError::corrupt("xfs", why)
}

pub(super) fn unsupported(feature: impl Into<String>) -> FsError {
    FsError::unsupported("xfs", feature)
}

pub(super) fn wrong(id: NodeId, why: &str) -> FsError {
    FsError::Wrong { what: format!("xfs: inode {}", id.0), why: why.into() }
}
