//! Private directories of one process, in places that others use too (such as `/var/tmp`).
//!
//! The name of each begins with one of [`PREFIXES`], and its file `lock` is locked while its process lives. A directory
//! that is not locked was left by a killed process, or is just being created: the next process that creates one in the
//! same place removes it. A process whose directory is removed before it could lock it creates another.
//!
//! A killed live backup leaves QEMU behind, which still listens on the socket in its directory. Such a directory stays
//! until the machine's next backup has ended what is left in QEMU: that backup finds it by the directory.

use rustix::fs::{flock, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What QEMU and we share while a running machine is backed up.
pub const FLEECE: &str = "sapwood-fleece-";
/// The socket of a server.
pub const NBD: &str = "sapwood-nbd-";
/// What libvirt is asked for.
pub const REQUESTS: &str = "sapwood-libvirt-";
const PREFIXES: [&str; 3] = [FLEECE, NBD, REQUESTS];

const LOCK: &str = "lock";
/// QEMU's socket in a directory of [`FLEECE`].
pub const SOCKET: &str = "nbd";
/// The kernel's list of the Unix sockets of this network namespace: a header, and a line for each.
const UNIX_SOCKETS: &str = "/proc/net/unix";
/// Set in the fourth field of a line if the socket listens.
const LISTENS: u32 = 0x10000;
/// How often another process may remove a directory before it is locked.
const TRIES: usize = 100;

/// Where large temporary files go: not where memory may be what holds them.
pub fn scratch(named: Option<&Path>) -> PathBuf {
    let chosen = named.map(Path::to_owned).or_else(|| std::env::var_os("TMPDIR").map(PathBuf::from));
    chosen.unwrap_or_else(|| "/var/tmp".into())
}

/// A directory, removed when this is dropped.
pub struct OwnDirectory {
    dir: TempDir,
    _lock: File,
}

impl OwnDirectory {
    /// Makes one below `parent` that only this user can enter, and removes those that killed processes have left there.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<OwnDirectory> {
        // Otherwise the error would have the random name of what cannot be made in it.
        fs::metadata(parent)?;
        remove_abandoned(parent);
        for _ in 0..TRIES {
            let owner_only = fs::Permissions::from_mode(0o700);
            let dir = tempfile::Builder::new().prefix(prefix).permissions(owner_only).tempdir_in(parent)?;
            if let Some(lock) = lock_new(dir.path())? {
                return Ok(OwnDirectory { dir, _lock: lock });
            }
        }
        Err(io::Error::other("other processes remove what is made there at once"))
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Locks a directory that was just made. `None` where another process has taken it for abandoned.
fn lock_new(dir: &Path) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let lock = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => return Ok(None),
        other => other?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other?,
    }
    // The process that removed it had locked it before.
    let made = lock.metadata()?.ino();
    Ok(fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == made).then_some(lock))
}

/// The process that has made this directory, for messages, if it lives.
pub fn holder(dir: &Path) -> Option<String> {
    match File::open(dir.join(LOCK)) {
        Ok(lock) => {
            let is_held = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err();
            is_held.then(|| locks::flock_holder(lock.as_fd()))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        // One that is another user's may live.
        Err(_) => {
            let user =
                fs::symlink_metadata(dir).map_or("another user".into(), |m| format!("user {}", m.uid()));
            Some(format!("a process of {user} of host {}", locks::host_name()))
        }
    }
}

/// Best effort: what stays takes room, and is removed the next time.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|n| PREFIXES.iter().any(|prefix| n.starts_with(prefix)));
        if ours && entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_if_abandoned(&entry.path());
        }
    }
}

fn remove_if_abandoned(dir: &Path) {
    // Before the lock is taken: a backup that ends what is left in QEMU would find the directory in use.
    if is_listened_to(dir) {
        return;
    }
    let Some(_lock) = lock_abandoned(dir) else { return };
    // Its process may have let QEMU listen, and died, in between.
    if is_listened_to(dir) {
        return;
    }
    // Under another name: when the lock file is gone and the directory is not yet, its maker could make and lock the file
    // anew, and lose that too.
    let removed = dir.with_extension("removed");
    if fs::rename(dir, &removed).is_ok() {
        let _ = fs::remove_dir_all(removed);
    }
}

/// Whether somebody listens on QEMU's socket in a directory, or may do so.
fn is_listened_to(dir: &Path) -> bool {
    if fs::symlink_metadata(dir.join(SOCKET)).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return false;
    }
    // Nobody connects to find out: QEMU 7.2 may abort when a client leaves.
    fs::read(UNIX_SOCKETS).map_or(true, |sockets| has_listener(&sockets, dir))
}

/// Whether the list has a socket of a directory that listens. QEMU may know the directory by another path, through a
/// symbolic link: only the directory's own name, which is random, is compared.
fn has_listener(sockets: &[u8], dir: &Path) -> bool {
    let Some(name) = dir.file_name() else { return true };
    let end = [b"/", name.as_bytes(), b"/", SOCKET.as_bytes()].concat();
    sockets.split(|b| *b == b'\n').filter(|line| line.ends_with(&end)).any(|line| {
        let flags = line.split(|b| *b == b' ').filter(|field| !field.is_empty()).nth(3);
        let flags = flags.and_then(|f| u32::from_str_radix(std::str::from_utf8(f).ok()?, 16).ok());
        flags.is_none_or(|flags| flags & LISTENS != 0)
    })
}

/// Locks a directory that is not locked. If it has no lock file yet it gets one, which its maker notices.
fn lock_abandoned(dir: &Path) -> Option<File> {
    // Another user may have put anything there: no link is followed, and no pipe waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let lock = how.open(dir.join(LOCK)).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A process that was killed between making its directory and locking it left it for ever: one without a lock file
    /// was never removed.
    #[test]
    fn what_a_kill_leaves_at_any_point_is_removed_by_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for prefix in PREFIXES {
            fs::create_dir(at(&format!("{prefix}made"))).unwrap();
            fs::create_dir(at(&format!("{prefix}unlocked"))).unwrap();
            fs::write(at(&format!("{prefix}unlocked/lock")), "").unwrap();
            fs::create_dir(at(&format!("{prefix}half.removed"))).unwrap();
            fs::create_dir(at(&format!("{prefix}in-use"))).unwrap();
            for file in ["lock", "socket", "fleece-0.qcow2"] {
                fs::write(at(&format!("{prefix}in-use/{file}")), "x").unwrap();
            }
        }
        fs::create_dir(at("sapwood-other")).unwrap();
        fs::write(at(&format!("{FLEECE}file")), "").unwrap();
        let own = OwnDirectory::create(parent.path(), NBD).unwrap();
        let mut left: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let name = own.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(left, [&format!("{FLEECE}file"), name, "sapwood-other"]);
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
    }

    /// The directory of a killed backup was removed while QEMU still listened in it, by any other process. The machine's
    /// next backup could not tell whose job it found in QEMU, and was refused.
    #[test]
    fn what_a_kill_leaves_stays_while_somebody_listens_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let name = format!("{FLEECE}{}", parent.path().file_name().unwrap().to_str().unwrap());
        for bound in [&real, &link] {
            let dir = bound.join(&name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(LOCK), "").unwrap();
            let listener = UnixListener::bind(dir.join(SOCKET)).unwrap();
            // One that is connected has the same path and does not listen.
            let _client = UnixStream::connect(dir.join(SOCKET)).unwrap();
            let served = listener.accept().unwrap();
            for below in [&real, &link] {
                OwnDirectory::create(below, NBD).unwrap();
                assert!(dir.join(SOCKET).exists() && holder(&dir).is_none());
            }
            drop(listener);
            OwnDirectory::create(&real, NBD).unwrap();
            assert!(!dir.exists());
            drop(served);
        }
    }

    #[test]
    fn what_somebody_holds_stays() {
        let parent = tempfile::tempdir().unwrap();
        let held = OwnDirectory::create(parent.path(), FLEECE).unwrap();
        let us = format!("process {} (", std::process::id());
        assert!(holder(held.path()).is_some_and(|by| by.starts_with(&us)));
        let other = OwnDirectory::create(parent.path(), NBD).unwrap();
        let path = held.path().to_owned();
        assert!(path.join(LOCK).exists());
        drop((held, other));
        assert!(!path.exists() && holder(&path).is_none());
    }

    /// Only a user with all rights gets at other users' directories: what they put there must not lead elsewhere.
    #[test]
    fn a_lock_that_is_a_link_or_a_pipe_does_no_harm() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = parent.path().join("elsewhere");
        let (link, pipe) =
            (parent.path().join(format!("{FLEECE}link")), parent.path().join(format!("{FLEECE}pipe")));
        for dir in [&link, &pipe] {
            fs::create_dir(dir).unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, link.join(LOCK)).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, pipe.join(LOCK), fifo, mode, 0).unwrap();
        OwnDirectory::create(parent.path(), FLEECE).unwrap();
        assert!(!elsewhere.exists());
    }

    /// Everybody who makes one removes what seems abandoned, and none that is held is ever gone.
    #[test]
    fn many_may_make_them_at_once() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let own = OwnDirectory::create(parent.path(), FLEECE).unwrap();
                        fs::write(own.path().join("socket"), "").unwrap();
                        assert!(holder(own.path()).is_some());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
