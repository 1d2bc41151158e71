//! Errors that name NTFS.

use crate::error::FsError;

/// What errors call it.
pub(super) const NAME: &str = "ntfs";

/// What an error is about.
pub(super) trait Subject {
    /// As the error names it.
    fn subject(&self) -> String;
}

impl Subject for &str {
    fn subject(&self) -> String {
        (*self).to_owned()
    }
}

/// Damage of `what`.
pub(super) fn damaged(what: impl Subject, why: impl Into<String>) -> FsError {
    FsError::corrupt(what.subject(), why)
}

/// Something in `what` that is not read.
pub(super) fn unsupported(what: impl Subject, feature: impl Into<String>) -> FsError {
    FsError::unsupported(what.subject(), feature)
}

/// A node that is not what the caller takes it for.
pub(super) fn wrong(what: impl Subject, why: &str) -> FsError {
    FsError::Wrong { what: what.subject(), why: why.into() }
}
