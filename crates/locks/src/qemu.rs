//! QEMU's locks on image files: who has a file open, and what for.
//!
//! QEMU and its tools mark each file of an image that they have open with shared open-file-description locks on single
//! bytes: byte 100 + n for each permission n that they use, byte 200 + n for each permission that no other process may
//! use (`raw_check_lock_bytes` in QEMU's `block/file-posix.c`). No byte is ever locked exclusively; somebody has a byte if
//! an exclusive lock of it could not be had. [`claim`] does the same: QEMU refuses what we have open, and we refuse what
//! QEMU has.
//!
//! A claim belongs to the open file and ends when that is closed. It is made before others' are looked for: of two
//! processes that begin at the same time, at least one tries again. Nobody is refused before half a second has passed: a
//! process that has just been forked keeps the claims of files that its parent has closed.

use crate::holder::{process, unknown};
use crate::wait::try_for_a_moment;
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg};
use nix::libc;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Where the bytes of permissions in use begin.
const USES_AT: i64 = 100;
/// Where the bytes of permissions that others must not use begin.
const DENIES_AT: i64 = 200;

/// Permissions, by the numbers of their bytes: consistent read, write, write of what is there already, resize.
const READ: i64 = 0;
const WRITE: i64 = 1;
const REWRITE: i64 = 2;
const RESIZE: i64 = 3;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is read, as by `qemu-img convert`: nobody else writes it, others may read it.
    Read,
    /// It is written, as by a machine that runs on it: nobody else reads or writes it.
    Write,
    /// Its content is lost: nobody else has it open at all.
    Replace,
}

impl Purpose {
    fn uses(self) -> &'static [i64] {
        match self {
            Purpose::Read => &[READ],
            Purpose::Write | Purpose::Replace => &[READ, WRITE, RESIZE],
        }
    }

    fn denies(self) -> &'static [i64] {
        match self {
            Purpose::Read | Purpose::Write => &[WRITE, RESIZE],
            Purpose::Replace => &[READ, WRITE, REWRITE, RESIZE],
        }
    }
}

/// Why a file could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process uses it in a way that does not go with the purpose.
    #[error("is in use by {0}")]
    InUse(String),
    /// The system said no.
    #[error("cannot lock: {0}")]
    Io(#[source] io::Error),
}

/// Claims a file, which this process has not claimed yet, until it is closed. File systems without such locks give nothing to ask or to claim, and the file is used
/// all the same, as QEMU does.
///
/// # Errors
/// `InUse` where another process uses it in a way that does not go with `purpose`.
pub fn claim(file: &File, purpose: Purpose) -> Result<(), ClaimError> {
    let of = |n: &i64| USES_AT + n;
    let against = |n: &i64| DENIES_AT + n;
    let own = purpose.uses().iter().map(of).chain(purpose.denies().iter().map(against));
    let claimed = try_for_a_moment(|| {
        if set(file, own.clone(), libc::F_RDLCK)? && none_taken(file, purpose)? {
            return Ok(Some(()));
        }
        // Nobody is to be refused by one who is refused.
        set(file, own.clone(), libc::F_UNLCK)?;
        Ok(None)
    });
    ended(file, claimed)
}

/// Asks as [`claim`] does, and claims nothing: of a file that another program opened and still has, such as standard input,
/// the claim would stay when this process has ended.
///
/// # Errors
/// As [`claim`].
pub fn check(file: &File, purpose: Purpose) -> Result<(), ClaimError> {
    ended(file, try_for_a_moment(|| Ok(none_taken(file, purpose)?.then_some(()))))
}

fn ended(file: &File, is_free: nix::Result<Option<()>>) -> Result<(), ClaimError> {
    match is_free {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(ClaimError::InUse(holder(file).map_or_else(unknown, process))),
        Err(Errno::ENOLCK | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        Err(e) => Err(ClaimError::Io(io::Error::from(e))),
    }
}

/// Takes shared locks on bytes, or gives them back. Returns `false` where another process has one of them exclusively.
fn set(file: &File, mut bytes: impl Iterator<Item = i64>, kind: i32) -> nix::Result<bool> {
    bytes
        .try_for_each(|at| fcntl(file, FcntlArg::F_OFD_SETLK(&lock_of(at, kind))).map(drop))
        .map(|()| true)
        .or_else(|e| match e {
            Errno::EAGAIN | Errno::EACCES => Ok(false),
            e => Err(e),
        })
}

/// Whether no other process uses what `purpose` denies, or denies what it uses.
fn none_taken(file: &File, purpose: Purpose) -> nix::Result<bool> {
    let against = purpose.uses().iter().map(|n| DENIES_AT + n);
    for at in against.chain(purpose.denies().iter().map(|n| USES_AT + n)) {
        let mut lock = lock_of(at, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        if i32::from(lock.l_type) != libc::F_UNLCK {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lock_of(at: i64, kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: at, l_len: 1, l_pid: 0 }
}

/// The process that has such locks on a file. It is found by its open files in `/proc`; those of other
/// users and containers cannot be seen.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let inode = format!(":{} ", meta.ino());
    let ours = format!("/proc/{}/fdinfo/{}", std::process::id(), file.as_raw_fd());
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(number) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        for open in fs::read_dir(process.path().join("fdinfo")).into_iter().flatten().flatten() {
            if open.path().as_os_str() == ours.as_str() {
                continue;
            }
            let told = fs::read_to_string(open.path()).unwrap_or_default();
            if !told.lines().any(|line| line.contains("OFDLCK") && line.contains(&inode)) {
                continue;
            }
            let same = fs::metadata(process.path().join("fd").join(open.file_name()));
            if same.is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino())) {
                return Some(number);
            }
        }
    }
    None
}
