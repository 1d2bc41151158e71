//! What every command that mounts needs.

use crate::terminal::streams::errln;
use anyhow::Result;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use vault::VaultError;

/// Errors that are told; those that follow are no news.
const ERRORS_MAX: usize = 1000;

/// The place to mount on: an empty directory.
///
/// # Errors
/// Refused, with what to do.
pub fn empty_directory(path: &Path) -> Result<PathBuf> {
    let refused = |why: String| VaultError::Refused(format!("{}: {why}", path.display()));
    let mut entries = std::fs::read_dir(path).map_err(|e| {
        refused(match e.kind() {
            io::ErrorKind::NotFound => "is missing; make an empty directory to mount on".into(),
            io::ErrorKind::NotADirectory => "is not a directory; make an empty one to mount on".into(),
            // Aborted: it is just being taken away.
            io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted => {
                format!("a mount whose process died is there; `fusermount3 -u {}` removes it", path.display())
            }
            _ => e.to_string(),
        })
    })?;
    if entries.next().is_some() {
        return Err(refused("is not empty; what is in it would be hidden".into()).into());
    }
    path.canonicalize().map_err(|e| refused(e.to_string()).into())
}

/// Says each line once.
pub fn each_once() -> impl Fn(&str) {
    let said = Mutex::new(HashSet::new());
    move |line| {
        let mut said = said.lock();
        if said.len() < ERRORS_MAX && said.insert(line.to_owned()) {
            errln!("sapwood: {line}");
        }
    }
}
