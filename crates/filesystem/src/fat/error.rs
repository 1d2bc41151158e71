//! Errors that name FAT.

use crate::error::FsError;

/// Damage of `what`.
pub(super) fn damaged(what: impl AsRef<str>, why: impl Into<String>) -> FsError {
    FsError::corrupt(format!("fat: {}", what.as_ref()), why)
}
