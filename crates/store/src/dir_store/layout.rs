//! The directory of a store: making it, knowing it again, and finding out whether it can keep promises.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::locks::{self, LOCKS};
use super::one_host::{self, ONE_HOST, ONE_HOST_ASIDE};
use super::reserve::RESERVE;
use super::temporary::TEMPORARY;
use super::tree::{Tree, OBJECTS};
use crate::file_system::{read_full, write_full, Access, FileSystem, Kind, Lock};
use crate::{Result, StoreError};

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

/// Writes one of the small files at the root, durably.
pub(super) fn write_text<F: FileSystem>(fs: &F, aside: &str, name: &str, text: &str) -> io::Result<()> {
    // Two processes may do this at once: they write the same bytes, and the first rename wins.
    let file = fs.open(aside, Access::Create)?;
    write_full(fs, &file, text.as_bytes(), 0)?;
    fs.set_len(&file, text.len() as u64)?;
    fs.sync(&file)?;
    match fs.rename(aside, name) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs.sync_dir("").map(drop)
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

/// One of the small files at the root, where it is there.
pub(super) fn read_text<F: FileSystem>(fs: &F, name: &str) -> io::Result<Option<String>> {
    let file = match fs.open(name, Access::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = vec![0; 256];
    let len = read_full(fs, &file, &mut text, 0)?;
    text.truncate(len);
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Accepts a file system that can be written, and has working locks and a rename that never replaces.
///
/// Asked with files that are there: a full file system must not keep a deletion from beginning.
pub(super) fn probe<F: FileSystem>(fs: &F) -> Result<()> {
    let no_locks = |why: &dyn std::fmt::Display| {
        unsuitable(fs, format!("the file system has no working locks ({why}); use a local one"))
    };
    let open = || fs.open(locks::PROBE, Access::Create).map_err(|e| io_error(fs, "write to", e));
    let (first, again) = (open()?, open()?);
    // Where another process is asking, its lock is in the way: so there are locks.
    if fs.lock(&first, Lock::Exclusive, false).map_err(|e| no_locks(&e))? {
        match fs.lock(&again, Lock::Exclusive, false) {
            Ok(false) => {}
            Ok(true) => return Err(no_locks(&"two openings of one file could be locked at once")),
            Err(e) => return Err(no_locks(&e)),
        }
    }
    // A lock file that this should cost is made again.
    let any = locks::path_of(0);
    fs.open(&any, Access::Create).map_err(|e| io_error(fs, "write to", e))?;
    match fs.rename_new(&any, locks::PROBE) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Ok(()) => Err(unsuitable(fs, "its rename replaces files where it must not; use another file system".into())),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::ACCESS) => Err(io_error(fs, "write to", e)),
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
