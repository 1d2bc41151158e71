//! The directory that is copied into.
//!
//! Every file is created relative to the open handle of its directory, and links are never followed, so names in a
//! hostile file system cannot lead outside. One directory of a path is open at a time, however deep it is.

use crate::commands::files::attributes;
use crate::terminal::escape::escaped;
use anyhow::{bail, Context, Result};
use filesystem::{DirectoryNo, FileSystem, FsError, Node, NodeId, NodeKind, Place, Walk};
use rustix::fs::{
    chmodat, chownat, fchmod, fchown, fsetxattr, fstat, futimens, linkat, lsetxattr, makedev, mkdirat,
    mknodat, open, openat, symlinkat, unlinkat, utimensat, AtFlags, FileType, Gid, Mode, OFlags, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is read at a time.
pub(super) const STEP_BYTES: usize = 1 << 20;

/// What was copied.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub files: u64,
    pub bytes: u64,
    /// Devices, which only root can make, and sockets.
    pub left_out: u64,
    /// Nodes with attributes that could not be set.
    pub incomplete: u64,
    /// Nodes that could not be made, or have lost attributes that anybody may set.
    pub failed: u64,
}

/// The attributes that a copy lacks.
#[derive(Debug, Default)]
pub struct LostAttributes {
    /// What could not be set, and why: owner, permissions, times, or the name of an extended attribute.
    pub failed: Vec<String>,
    /// Extended attributes that only root may set, where this process is not root: like the owner, they are not copied
    /// then, and that is no failure.
    pub only_root: Vec<Vec<u8>>,
}

impl LostAttributes {
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.only_root.is_empty()
    }

    fn note(&mut self, what: &str, set: rustix::io::Result<()>) {
        if let Err(why) = set {
            self.failed.push(format!("{what}: {why}"));
        }
    }
}

/// Where a tree is copied to.
pub struct Target<'a> {
    fs: &'a dyn FileSystem,
    /// The directory that was named.
    top: OwnedFd,
    /// The current directory; `None`: `top`.
    here: Option<OwnedFd>,
    /// Device and number of the directories above it.
    above: Vec<(u64, u64)>,
    /// Nodes with several names that have been made: directory and name of the first copy.
    links: HashMap<NodeId, (Option<DirectoryNo>, Vec<u8>)>,
    is_root: bool,
    buf: Vec<u8>,
}

impl<'a> Target<'a> {
    /// Opens a directory to copy files of `fs` into.
    pub fn open(fs: &'a dyn FileSystem, to: &Path) -> Result<Self> {
        // Only the directory that the user named may be a symbolic link.
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        let top = open(to, flags, Mode::empty()).with_context(|| format!("opening {}", to.display()))?;
        let is_root = rustix::process::geteuid().is_root();
        let (links, buf) = (HashMap::new(), vec![0; STEP_BYTES]);
        Ok(Target { fs, top, here: None, above: Vec::new(), links, is_root, buf })
    }

    fn here(&self) -> &OwnedFd {
        self.here.as_ref().unwrap_or(&self.top)
    }

    /// Makes a directory and enters it. Others get access only when it is complete.
    pub fn enter(&mut self, name: &[u8]) -> Result<()> {
        let name = OsStr::from_bytes(name);
        mkdirat(self.here(), name, Mode::RWXU)?;
        let above = fstat(self.here())?;
        let made = openat(self.here(), name, DIRECTORY, Mode::empty())?;
        self.above.push((above.st_dev, above.st_ino));
        self.here = Some(made);
        Ok(())
    }

    /// Sets the attributes of the current directory, which is complete now, and returns to its parent.
    pub fn leave(&mut self, id: NodeId, node: &Node) -> Result<LostAttributes> {
        let (Some(full), Some(expected)) = (self.here.take(), self.above.pop()) else {
            return Ok(LostAttributes::default());
        };
        if !self.above.is_empty() {
            let above = openat(&full, "..", DIRECTORY, Mode::empty())?;
            let found = fstat(&above)?;
            if (found.st_dev, found.st_ino) != expected {
                bail!("somebody moved it meanwhile");
            }
            self.here = Some(above);
        }
        self.attributes(&full, id, node)
    }

    /// Copies a node that is not a directory.
    pub fn copy(
        &mut self,
        walk: &mut Walk,
        name: &[u8],
        (id, node): (NodeId, &Node),
        counts: &mut Counts,
    ) -> Result<LostAttributes> {
        if node.links > 1 && self.link(walk, name, id)? {
            return Ok(LostAttributes::default());
        }
        let os_name = OsStr::from_bytes(name);
        let lost = match node.kind {
            NodeKind::Directory => return Ok(LostAttributes::default()),
            NodeKind::File => self.file(os_name, id, node, counts)?,
            NodeKind::Link => {
                let to = self.fs.link(id)?;
                if to.is_empty() {
                    return Err(FsError::corrupt(self.fs.kind(), "the symbolic link leads nowhere").into());
                }
                symlinkat(OsStr::from_bytes(&to), self.here(), os_name)?;
                self.attributes_by_name(os_name, id, node)?
            }
            kind => {
                if self.special(os_name, kind)? {
                    self.attributes_by_name(os_name, id, node)?
                } else {
                    counts.left_out += 1;
                    return Ok(LostAttributes::default());
                }
            }
        };
        if node.links > 1 {
            self.links.insert(id, (walk.directory(), name.to_vec()));
        }
        counts.files += 1;
        Ok(lost)
    }

    /// Makes a hard link to a node that was copied under another name. If it returns false, the node must be copied
    /// again.
    fn link(&mut self, walk: &mut Walk, name: &[u8], id: NodeId) -> Result<bool> {
        let Some((directory, first)) = self.links.get(&id) else { return Ok(false) };
        let (first, name) = (OsStr::from_bytes(first), OsStr::from_bytes(name));
        let linked = if *directory == walk.directory() {
            linkat(self.here(), first, self.here(), name, AtFlags::empty())
        } else {
            self.reopen(&walk.names(*directory))
                .and_then(|other| linkat(other, first, self.here(), name, AtFlags::empty()))
        };
        match linked {
            Ok(()) => Ok(true),
            // The target takes no more links, or none at all, or the mode of the other directory denies us access.
            Err(Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a directory that was made before.
    fn reopen(&self, names: &[&[u8]]) -> rustix::io::Result<OwnedFd> {
        let mut at = openat(&self.top, ".", DIRECTORY, Mode::empty())?;
        for name in names {
            at = openat(&at, OsStr::from_bytes(name), DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    /// Makes a pipe or a device. Returns false for a socket, which cannot be made, and for a device without the right
    /// to make it.
    fn special(&self, name: &OsStr, kind: NodeKind) -> Result<bool> {
        let (kind, device) = match kind {
            NodeKind::Fifo => (FileType::Fifo, 0),
            NodeKind::CharDevice { major, minor } => (FileType::CharacterDevice, makedev(major, minor)),
            NodeKind::BlockDevice { major, minor } => (FileType::BlockDevice, makedev(major, minor)),
            _ => return Ok(false),
        };
        match mknodat(self.here(), name, kind, Mode::RUSR | Mode::WUSR, device) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn file(&mut self, name: &OsStr, id: NodeId, node: &Node, counts: &mut Counts) -> Result<LostAttributes> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(self.here(), name, flags, Mode::RUSR | Mode::WUSR)?);
        let written = self.content(&file, id, node);
        // An incomplete copy is removed: nobody must take it for a complete file.
        if written.is_err() {
            let _ = unlinkat(self.here(), name, AtFlags::empty());
        }
        counts.bytes += written?;
        self.attributes(&OwnedFd::from(file), id, node)
    }

    /// Writes a file's data and leaves its holes. Returns the bytes written.
    fn content(&mut self, file: &File, id: NodeId, node: &Node) -> Result<u64> {
        file.set_len(node.size)?;
        let mut bytes = 0;
        for extent in self.fs.extents(id)?.iter().filter(|e| e.place != Place::Zeros) {
            let (mut at, end) = (extent.offset, (extent.offset + extent.len).min(node.size));
            while at < end {
                let len = (end - at).min(STEP_BYTES as u64) as usize;
                let got = self.fs.read_at(id, at, &mut self.buf[..len])?;
                if got < len {
                    return Err(FsError::corrupt(self.fs.kind(), "the file ends before its size").into());
                }
                file.write_all_at(&self.buf[..len], at)?;
                at += len as u64;
                bytes += len as u64;
            }
        }
        Ok(bytes)
    }

    /// Sets owner (as root), extended attributes, permissions and times.
    ///
    /// The order matters: a change of the owner clears capabilities and the set-user-id bit, and attributes can be set
    /// only while the permissions allow writing.
    fn attributes(&self, of: &OwnedFd, id: NodeId, node: &Node) -> Result<LostAttributes> {
        let mut lost = LostAttributes::default();
        self.owner(node, &mut lost, |uid, gid| fchown(of, Some(uid), Some(gid)));
        self.each_attribute(id, &mut lost, |name, value| fsetxattr(of, name, value, XattrFlags::empty()))?;
        lost.note("permissions", fchmod(of, self.mode(node)));
        lost.note("times", futimens(of, &times(node)));
        Ok(lost)
    }

    /// The same for a node that must not be opened: a symbolic link, a pipe, a device.
    fn attributes_by_name(&self, name: &OsStr, id: NodeId, node: &Node) -> Result<LostAttributes> {
        let (here, nofollow) = (self.here(), AtFlags::SYMLINK_NOFOLLOW);
        let mut lost = LostAttributes::default();
        self.owner(node, &mut lost, |uid, gid| chownat(here, name, Some(uid), Some(gid), nofollow));
        // No call sets extended attributes relative to an open directory.
        let path = Path::new("/proc/self/fd").join(here.as_raw_fd().to_string()).join(name);
        self.each_attribute(id, &mut lost, |name, value| lsetxattr(&path, name, value, XattrFlags::empty()))?;
        if node.kind != NodeKind::Link {
            // This call follows symbolic links. The node is none: we have just made it, in a directory of ours.
            lost.note("permissions", chmodat(here, name, self.mode(node), AtFlags::empty()));
        }
        lost.note("times", utimensat(here, name, &times(node), nofollow));
        Ok(lost)
    }

    fn owner(
        &self,
        node: &Node,
        lost: &mut LostAttributes,
        set: impl Fn(Uid, Gid) -> rustix::io::Result<()>,
    ) {
        match owner(node) {
            _ if !self.is_root => {}
            Some((uid, gid)) => lost.note("owner", set(uid, gid)),
            None => lost.failed.push(format!("owner: {}:{} is nobody", node.uid, node.gid)),
        }
    }

    fn each_attribute(
        &self,
        id: NodeId,
        lost: &mut LostAttributes,
        set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let (attributes, unread) = attributes::read(self.fs, id)?;
        lost.failed.extend(unread);
        for (name, value) in attributes {
            let set = set(OsStr::from_bytes(&name), &value);
            let is_roots = name.starts_with(b"trusted.") || name.starts_with(b"security.");
            match set {
                Err(Errno::PERM | Errno::ACCESS) if is_roots && !self.is_root => {
                    lost.only_root.push(name);
                }
                set => lost.note(&escaped(&name), set),
            }
        }
        Ok(())
    }

    /// A copy that does not get its owner belongs to the user who copies. It gets no set-user-id and set-group-id bits,
    /// so that nobody can run it with that user's rights.
    fn mode(&self, node: &Node) -> Mode {
        let is_whose = self.is_root && owner(node).is_some();
        let mode = if is_whose { node.mode } else { node.mode & 0o1777 };
        Mode::from_raw_mode(mode.into())
    }
}

/// Owner and group; `None` if one is 2^32 - 1, which tells chown to leave it as it is.
fn owner(node: &Node) -> Option<(Uid, Gid)> {
    let is_somebody = node.uid != u32::MAX && node.gid != u32::MAX;
    is_somebody.then(|| (Uid::from_raw(node.uid), Gid::from_raw(node.gid)))
}

fn times(node: &Node) -> Timestamps {
    let time = Timespec { tv_sec: node.modified.seconds, tv_nsec: node.modified.nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}
