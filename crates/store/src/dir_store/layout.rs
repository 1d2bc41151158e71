//! The directory of a store: making it, and knowing it again.

use std::io::ErrorKind;
use std::time::Duration;

use super::locks::LOCKS;
use super::one_host::{self, ONE_HOST, ONE_HOST_ASIDE};
use super::refusal::{io_error, unsuitable};
use super::reserve::RESERVE;
use super::temporary::TEMPORARY;
use super::text_file::{read_text, write_text};
use super::tree::{Tree, OBJECTS};
use crate::file_system::{FileSystem, Kind};
use crate::Result;

/// The file that makes a directory a store; written last.
const MARKER: &str = "sapwood-store";
const MARKER_TEXT: &str = "sapwood store 1\n";
/// Its name while it is written.
const MARKER_ASIDE: &str = "sapwood-store.new";

/// What else may be in a directory that becomes a store.
const HARMLESS: [&str; 8] =
    [OBJECTS, TEMPORARY, LOCKS, RESERVE, MARKER_ASIDE, ONE_HOST, ONE_HOST_ASIDE, "lost+found"];

/// An empty directory younger than this is left alone: the identities of a removed directory and of
/// the next one in its place must differ in their time of birth, whose clock is coarse.
const EMPTY_DIR_AGE: Duration = Duration::from_secs(3600);

/// Makes what is missing of a store at the root of `fs`. With `one_host` this host is recorded as the only one that writes.
pub(super) fn create<F: FileSystem>(fs: &F, one_host: bool) -> Result<()> {
    let error = |e| io_error(fs, "make a store in", e);
    let there = read_text(fs, MARKER).map_err(error)?;
    if there.is_some() {
        check(fs)?;
        return if one_host { one_host::record(fs) } else { Ok(()) };
    }
    if !one_host {
        one_host::check(fs)?;
    }
    for entry in fs.entries("").map_err(error)? {
        let (name, _) = entry.map_err(error)?;
        if !HARMLESS.contains(&name.as_str()) && name != MARKER {
            let why = format!(
                "the directory is not empty and holds no store (there is {name:?}); use an empty one"
            );
            return Err(unsuitable(fs, why));
        }
    }
    for dir in [OBJECTS, TEMPORARY, LOCKS, RESERVE] {
        match fs.make_dir(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(error(e)),
            _ => {}
        }
    }
    if one_host {
        one_host::record(fs)?;
    }
    fs.sync_dir("").map_err(error)?;
    write_text(fs, MARKER_ASIDE, MARKER, MARKER_TEXT).map_err(error)
}

/// Accepts a directory that holds a store of a version we know.
pub(super) fn check<F: FileSystem>(fs: &F) -> Result<()> {
    match read_text(fs, MARKER) {
        Ok(Some(text)) if text == MARKER_TEXT => Ok(()),
        Ok(Some(text)) => {
            let found = text.lines().next().unwrap_or_default();
            let why = format!(
                "{MARKER} says {found:?}, this version knows {:?}; use a newer version",
                MARKER_TEXT.trim_end()
            );
            Err(unsuitable(fs, why))
        }
        Ok(None) => Err(unsuitable(fs, format!("there is no store (no file {MARKER:?}); check the path"))),
        Err(e) => Err(io_error(fs, "open", e)),
    }
}

/// Removes empty directories below `dir`, so that deleted disks leave nothing.
///
/// Not synced: a directory that comes back is still empty.
pub(super) fn remove_empty_dirs<F: FileSystem>(tree: &Tree<F>, dir: &str) -> Result<()> {
    let fs = &tree.fs;
    let error = |e| tree.error(dir, "sweep", e);
    let entries = match fs.entries(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(error)?,
    };
    for entry in entries {
        let (name, kind) = entry.map_err(error)?;
        if kind != Kind::Directory {
            continue;
        }
        let path = format!("{dir}/{name}");
        remove_empty_dirs(tree, &path)?;
        if fs.stat(&path).is_ok_and(|metadata| metadata.age >= EMPTY_DIR_AGE) {
            match fs.remove_dir(&path) {
                Ok(()) => {}
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {}
                Err(e) => return Err(error(e)),
            }
        }
    }
    Ok(())
}
