//! The directory of a store: making it, knowing it again, and finding out whether it can keep promises.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::locks::LOCKS;
use super::temporary::{Temporary, TEMPORARY};
use super::tree::{Tree, OBJECTS};
use crate::file_system::{read_full, write_full, Access, FileSystem, Kind, Lock};
use crate::{Result, StoreError};

/// The file that makes a directory a store; written last.
const MARKER: &str = "sapwood-store";
const MARKER_TEXT: &str = "sapwood store 1\n";
/// Its name while it is written.
const MARKER_ASIDE: &str = "sapwood-store.new";

/// What else may be in a directory that becomes a store.
const HARMLESS: [&str; 5] = [OBJECTS, TEMPORARY, LOCKS, MARKER_ASIDE, "lost+found"];

/// An empty directory younger than this is left alone: the identities of a removed directory and of
/// the next one in its place must differ in their time of birth, whose clock is coarse.
const EMPTY_DIR_AGE: Duration = Duration::from_secs(3600);

/// Makes what is missing of a store at the root of `fs`.
pub(super) fn create<F: FileSystem>(fs: &F) -> Result<()> {
    let error = |e| io_error(fs, "make a store in", e);
    match marker(fs) {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => {}
        Err(e) => return Err(error(e)),
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
    for dir in [OBJECTS, TEMPORARY, LOCKS] {
        match fs.make_dir(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(error(e)),
            _ => {}
        }
    }
    fs.sync_dir("").map_err(error)?;
    write_marker(fs).map_err(error)
}

fn write_marker<F: FileSystem>(fs: &F) -> io::Result<()> {
    // Two processes may do this at once: they write the same bytes, and the first rename wins.
    let file = fs.open(MARKER_ASIDE, Access::Create)?;
    write_full(fs, &file, MARKER_TEXT.as_bytes(), 0)?;
    fs.set_len(&file, MARKER_TEXT.len() as u64)?;
    fs.sync(&file)?;
    match fs.rename(MARKER_ASIDE, MARKER) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs.sync_dir("").map(drop)
}

/// Accepts a directory that holds a store of a version we know.
pub(super) fn check<F: FileSystem>(fs: &F) -> Result<()> {
    match marker(fs) {
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

fn marker<F: FileSystem>(fs: &F) -> io::Result<Option<String>> {
    let file = match fs.open(MARKER, Access::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = vec![0; 256];
    let len = read_full(fs, &file, &mut text, 0)?;
    text.truncate(len);
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Accepts a file system that has working locks and a rename that never replaces.
pub(super) fn probe<F: FileSystem>(tree: &Arc<Tree<F>>) -> Result<()> {
    let fs = &tree.fs;
    let no_locks = |why: &dyn std::fmt::Display| {
        unsuitable(
            fs,
            format!("the file system has no working locks ({why}); use a local one, or NFS with locks"),
        )
    };
    let first = Temporary::create(tree).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => no_locks(&e),
        _ => io_error(fs, "write to", e),
    })?;
    let again = fs.open(first.path(), Access::Write).map_err(|e| io_error(fs, "write to", e))?;
    match fs.lock(&again, Lock::Exclusive, false) {
        Ok(false) => {}
        Ok(true) => return Err(no_locks(&"two openings of one file could be locked at once")),
        Err(e) => return Err(no_locks(&e)),
    }
    let second = Temporary::create(tree).map_err(|e| io_error(fs, "write to", e))?;
    match fs.rename_new(second.path(), first.path()) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Ok(()) => Err(unsuitable(fs, "its rename replaces files where it must not; use another file system".into())),
        Err(e) => Err(unsuitable(
            fs,
            format!("the file system has neither a rename that never replaces nor hard links ({e}); use another one"),
        )),
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

/// The error for a directory that cannot even be opened.
pub(super) fn unreachable(path: &Path, e: &io::Error) -> StoreError {
    let why = match e.kind() {
        ErrorKind::NotFound => "there is no such directory; check the path".to_owned(),
        ErrorKind::NotADirectory => "it is no directory; check the path".to_owned(),
        ErrorKind::PermissionDenied => format!("{e}; check the permissions of it and the directories above"),
        ErrorKind::ReadOnlyFilesystem => format!("{e}; mount it writable"),
        _ => e.to_string(),
    };
    StoreError::Unsuitable { location: path.display().to_string(), why }
}

fn unsuitable<F: FileSystem>(fs: &F, why: String) -> StoreError {
    StoreError::Unsuitable { location: fs.location(), why }
}

fn io_error<F: FileSystem>(fs: &F, op: &'static str, e: io::Error) -> StoreError {
    match Errno::from_io_error(&e) {
        Some(Errno::ROFS) => unsuitable(fs, "its file system is mounted read-only; mount it writable".into()),
        Some(Errno::ACCESS | Errno::PERM) => {
            unsuitable(fs, format!("{e}; the user who runs this must be able to write there"))
        }
        Some(Errno::NOSPC | Errno::DQUOT) => {
            StoreError::Full { object: fs.location(), location: fs.location() }
        }
        _ => StoreError::Io { object: fs.location(), op, source: e },
    }
}
