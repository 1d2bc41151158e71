//! Whether a file system can keep what a store promises.

use std::io::ErrorKind;

use rustix::io::Errno;

use super::locks;
use super::refusal::{io_error, unsuitable};
use crate::file_system::{Access, FileSystem, Lock};
use crate::Result;

/// What systems answer where a file system has no such call.
const UNSUPPORTED: [Errno; 4] = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::PERM];

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
        Err(e) if Errno::from_io_error(&e).is_some_and(|e| UNSUPPORTED.contains(&e)) => Err(unsuitable(
            fs,
            format!("the file system has neither a rename that never replaces nor hard links ({e}); use another one"),
        )),
        // That says nothing of the file system's kind.
        Err(e) => Err(io_error(fs, "write to", e)),
    }
}
