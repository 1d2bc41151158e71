//! What can be made to go wrong.

use std::io;

/// A kind of call that changes something, for [`SimFs::fail_next`](super::SimFs::fail_next).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimOp {
    /// Making a file.
    Create,
    /// Writing bytes.
    Write,
    /// Setting a length.
    SetLen,
    /// Punching a hole.
    Punch,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming, with or without replacing.
    Rename,
    /// Removing a name.
    Unlink,
    /// Making a directory.
    MakeDir,
    /// Removing a directory.
    RemoveDir,
}

/// Something that a file system may lack, for [`SimFs::lack`](super::SimFs::lack).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Locks are given to everybody.
    Locks,
    /// There is no rename that never replaces.
    RenameNew,
    /// Holes cannot be punched.
    Punch,
    /// Nothing can be written.
    Writing,
}

/// The error of every call after a stop.
pub(super) fn stopped() -> io::Error {
    io::Error::other("stopped")
}
