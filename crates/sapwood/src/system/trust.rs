//! Whether a file is what its user has written: nobody else may change or replace it.

use rustix::process::geteuid;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Others may write, in `st_mode`.
const OTHERS: u32 = 0o002;
/// The group may write.
const GROUP: u32 = 0o020;
/// Of a directory: only the owner of a file may replace it.
const STICKY: u32 = 0o1000;

/// Why somebody else may have written an open file, or may have put it in its place; `None` where only root and the user of
/// this process may.
pub fn doubt(file: &File, path: &Path) -> io::Result<Option<String>> {
    // What is no file cannot be replaced: a pipe of the caller, say.
    let of_file = file.metadata()?;
    if !of_file.is_file() {
        return Ok(None);
    }
    if let Some(why) = doubt_of(&of_file, false) {
        return Ok(Some(format!("{why}: `chown` it to the user that runs it, and `chmod go-w`")));
    }
    for directory in path.canonicalize()?.ancestors().skip(1) {
        if let Some(why) = doubt_of(&directory.metadata()?, true) {
            let directory = directory.display();
            return Ok(Some(format!("others may replace it: the directory {directory} {why}")));
        }
    }
    Ok(None)
}

fn doubt_of(m: &Metadata, is_directory: bool) -> Option<String> {
    let (owner, mode) = (m.uid(), m.permissions().mode());
    let is_ours = owner == 0 || owner == geteuid().as_raw();
    let by_others = if is_directory && mode & STICKY != 0 { 0 } else { mode & (GROUP | OTHERS) };
    match (is_ours, by_others & OTHERS != 0, by_others & GROUP != 0) {
        (false, ..) => Some(format!("belongs to another user (id {owner})")),
        (_, true, _) => Some("may be written by all users".to_owned()),
        (_, _, true) => Some("may be written by its group".to_owned()),
        _ => None,
    }
}
