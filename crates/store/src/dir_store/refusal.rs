//! Why a directory is no store, or cannot be changed.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

use crate::file_system::FileSystem;
use crate::StoreError;

/// The error for a directory that cannot even be opened.
pub(super) fn unreachable(path: &Path, e: &io::Error) -> StoreError {
    let why = match e.kind() {
        ErrorKind::NotFound => "there is no such directory; check the path".to_owned(),
        ErrorKind::NotADirectory => "it is not a directory; check the path".to_owned(),
        ErrorKind::PermissionDenied => format!("{e}; check the permissions of it and the directories above"),
        ErrorKind::ReadOnlyFilesystem => format!("{e}; mount it writable"),
        _ => e.to_string(),
    };
    StoreError::Unsuitable { location: path.display().to_string(), why }
}

/// The error for a directory or file system that does not serve.
pub(super) fn unsuitable<F: FileSystem>(fs: &F, why: String) -> StoreError {
    StoreError::Unsuitable { location: fs.location(), why }
}

/// The error for a change on a read-only mount.
pub(super) fn read_only(location: String) -> StoreError {
    let why = "its file system is mounted read-only; mount it writable".to_owned();
    StoreError::Unwritable { location, why }
}

/// The error for a change by a user who may only read.
pub(super) fn not_permitted(location: String, e: &io::Error) -> StoreError {
    StoreError::Unwritable {
        location,
        why: format!("{e}; the user who runs this must be able to write there"),
    }
}

/// The error for a step on the store as a whole that failed.
pub(super) fn io_error<F: FileSystem>(fs: &F, op: &'static str, e: io::Error) -> StoreError {
    match Errno::from_io_error(&e) {
        Some(Errno::ROFS) => read_only(fs.location()),
        Some(Errno::ACCESS | Errno::PERM) if op != "open" => not_permitted(fs.location(), &e),
        Some(Errno::ACCESS | Errno::PERM) => {
            unsuitable(fs, format!("{e}; the user who runs this must be able to read there"))
        }
        Some(Errno::NOSPC | Errno::DQUOT) => {
            StoreError::Full { object: fs.location(), location: fs.location() }
        }
        _ => StoreError::Io { object: fs.location(), op, source: e },
    }
}
