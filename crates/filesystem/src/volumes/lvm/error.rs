//! Errors that name LVM.

use crate::error::FsError;

/// Damage of `what`.
pub(super) fn corrupt(what: impl std::fmt::Display, why: impl Into<String>) -> FsError {
    FsError::corrupt(format!("LVM {what}"), why)
}
