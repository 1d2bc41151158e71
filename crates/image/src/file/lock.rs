//! Claims on image files ([`locks`]), with the errors of this crate: what to do when another process has the file open.
//!
//! A claim belongs to the open file and ends when that is closed.

use crate::error::{ImageError, Result};
use locks::ClaimError;
use std::fs::File;
use std::os::fd::AsFd;

pub(crate) use locks::Purpose;

/// What to do where another process has a file open.
pub(crate) fn hint(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Read => {
            "back up the running machine (qmp:SOCKET#NODE or libvirt:DOMAIN), or end it first; with --unsafe the \
             file is read all the same, and the snapshot may be torn"
        }
        Purpose::Write => "end that first",
        Purpose::Replace => {
            "end that first, or choose another target; with --unsafe it is overwritten all the same"
        }
    }
}

/// Claims a file until it is closed; `name` is what errors call it.
///
/// # Errors
/// `InUse` where another process uses it in a way that does not go with `purpose`.
pub(crate) fn claim(file: &File, name: &str, purpose: Purpose) -> Result<()> {
    claim_with(file, name, purpose, hint(purpose))
}

/// The same for commands that advise something else.
pub(crate) fn claim_with(file: &File, name: &str, purpose: Purpose, hint: &'static str) -> Result<()> {
    locks::claim(file, purpose).map_err(|e| of(e, name, hint))
}

/// Claims a file that is read as it is, not as an image, until it is closed.
///
/// # Errors
/// `InUse` where another process writes it.
pub fn claim_source(file: &File, name: &str) -> Result<()> {
    claim(file, name, Purpose::Read)
}

/// Asks whether a stream, which another program has opened, is a file that may be read; nothing is claimed.
///
/// # Errors
/// `InUse` where another process writes it.
pub fn check_stream(stream: &impl AsFd, name: &str) -> Result<()> {
    let file = stream.as_fd().try_clone_to_owned().map_err(|e| ImageError::io(name, "open", e))?;
    locks::check(&File::from(file), Purpose::Read).map_err(|e| of(e, name, hint(Purpose::Read)))
}

fn of(e: ClaimError, name: &str, hint: &'static str) -> ImageError {
    match e {
        ClaimError::InUse(by) => ImageError::InUse { path: name.to_owned(), by, hint },
        ClaimError::Io(e) => ImageError::io(name, "lock", e),
    }
}
