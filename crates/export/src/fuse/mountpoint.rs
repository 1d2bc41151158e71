//! A directory that a tree is mounted on: by the system call where that is allowed, or else by `fusermount3`.

use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{getgid, getuid};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// What mounts are called in the table of mounts.
const NAME: &str = "sapwood";

/// A directory that a tree is mounted on.
pub(super) struct Mountpoint {
    path: PathBuf,
    id: MountId,
}

/// Tells a mount from another one at the same place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MountId {
    /// The file system's device: given to another one when this one is gone.
    device: (u32, u32),
    /// Never given again; Linux has it since 6.8.
    unique: Option<u64>,
}

/// How busy a file system may be to be unmounted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// Not at all.
    No,
    /// It is detached at once, and ends when its last open file is closed.
    Yes,
}

/// What may be done with what is mounted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is read.
    Read,
    /// It is read and written.
    Write,
}

impl Mountpoint {
    /// Mounts. Returns the descriptor from which the kernel's requests are read; when that is closed, the mount is dead.
    pub fn attach(path: &Path, access: Access, allow_other: bool) -> io::Result<(Mountpoint, OwnedFd)> {
        let path = path.canonicalize()?;
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::NotFound => {
                    "; load the kernel's module (modprobe fuse), or give the container the device"
                }
                _ => "",
            };
            io::Error::new(e.kind(), format!("{DEVICE}: {e}{hint}"))
        })?;
        let mut options = "default_permissions".to_owned();
        if allow_other {
            options.push_str(",allow_other");
        }
        let device = match attach_ourselves(&path, device.into(), access, &options) {
            Ok(device) => device,
            Err(Errno::PERM) => ask_helper(&path, access, &options)?,
            Err(e) => return Err(e.into()),
        };
        // At once, before another process can mount something else over it.
        let id = id(&path).inspect_err(|_| {
            let _ = unmount(&path, UnmountFlags::DETACH);
        })?;
        Ok((Mountpoint { path, id }, device))
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what we mounted is what is there now. Where it may be `gone`, that must be certain.
    pub fn is_ours(&self, gone: bool) -> bool {
        id(&self.path).is_ok_and(|there| there == self.id && (there.unique.is_some() || !gone))
    }

    /// Unmounts. `ResourceBusy` where it is more busy than it may be.
    pub fn detach(&self, busy: Busy) -> io::Result<()> {
        let flags = match busy {
            Busy::No => UnmountFlags::NOFOLLOW,
            Busy::Yes => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        };
        match unmount(&self.path, flags) {
            Err(Errno::PERM) => {}
            done => return Ok(done?),
        }
        let mut command = Command::new(HELPER);
        command.arg("-u").args((busy == Busy::Yes).then_some("-z")).arg("--").arg(&self.path);
        let out = command.stdin(Stdio::null()).output().map_err(helper_failed)?;
        if out.status.success() {
            Ok(())
        } else if self.is_ours(false) {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, said(&out.stderr)))
        } else {
            Err(io::Error::other(said(&out.stderr)))
        }
    }
}

/// The mount that a path is on.
///
/// The file system is not asked: a process that is killed while it waits for its own answer waits for ever.
fn id(path: &Path) -> io::Result<MountId> {
    /// Not known to rustix.
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted)?;
    let unique = (found.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id);
    Ok(MountId { device: (found.stx_dev_major, found.stx_dev_minor), unique })
}

fn attach_ourselves(
    path: &Path,
    device: OwnedFd,
    access: Access,
    options: &str,
) -> rustix::io::Result<OwnedFd> {
    let (fd, user, group) = (device.as_raw_fd(), getuid().as_raw(), getgid().as_raw());
    let options = format!("fd={fd},rootmode=40000,user_id={user},group_id={group},{options}");
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if access == Access::Read {
        flags |= MountFlags::RDONLY;
    }
    mount(NAME, path, format!("fuse.{NAME}"), flags, options.as_c_str())?;
    Ok(device)
}

/// Lets the helper mount: it has the right where we have not. It opens the device and sends us the descriptor.
fn ask_helper(path: &Path, access: Access, options: &str) -> io::Result<OwnedFd> {
    let (ours, its) = UnixStream::pair()?;
    let mut command = Command::new(HELPER);
    let access = if access == Access::Read { "ro" } else { "rw" };
    command.arg("-o").arg(format!("{access},nosuid,nodev,fsname={NAME},subtype={NAME},{options}"));
    command.arg("--").arg(path);
    // It takes the number of a descriptor, and standard input is one that every child has.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(its));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(helper_failed)?;
    // Holds the helper's end of the socket: open, a helper that has failed would be waited for.
    drop(command);
    let received = receive(&ours);
    let out = child.wait_with_output()?;
    match received {
        Ok(Some(device)) if out.status.success() => Ok(device),
        Err(e) if out.status.success() => Err(e),
        _ => Err(io::Error::other(said(&out.stderr))),
    }
}

fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    while let Err(e) = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
        if e != Errno::INTR {
            return Err(e.into());
        }
    }
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.and_then(|mut d| d.next()))
}

fn helper_failed(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            e.kind(),
            format!("{HELPER} is missing, which mounts for users; it is in the package fuse3"),
        ),
        _ => io::Error::new(e.kind(), format!("running {HELPER}: {e}")),
    }
}

/// What the helper said, as one line.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr).trim().replace('\n', "; ");
    if text.is_empty() {
        format!("{HELPER} failed without a word")
    } else {
        text
    }
}
