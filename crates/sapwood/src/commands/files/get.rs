//! Copying files out.
//!
//! Every directory is held open and everything is made in it by its own name, never following a link: what a hostile file
//! system calls its files leads nowhere else.

use super::{printable, Disk, Found};
use crate::args::Args;
use crate::output::{print_json, size};
use anyhow::{Context, Result};
use filesystem::{FileSystem, Node, NodeId, NodeKind, Place};
use rustix::fs::{
    chmodat, chownat, fchmod, fchown, fsetxattr, linkat, makedev, mkdirat, mknodat, open, openat, symlinkat,
    utimensat, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use vault::VaultError;

/// What is read at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Copies what was named into the directory `to`; with `-` one file to standard output.
pub fn run(args: &Args, mut disk: Disk, paths: &[OsString], to: Option<&Path>) -> Result<ExitCode> {
    let found = disk.find_all(paths)?;
    if to.is_some_and(|to| to.as_os_str() == "-") {
        return to_stdout(&found);
    }
    let to = to.unwrap_or(Path::new("."));
    std::fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    let directory = open(to, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("opening {}", to.display()))?;
    let mut counts = Counts::default();
    for f in &found {
        let is_root = rustix::process::geteuid().is_root();
        let mut copy = Copy { fs: &*f.fs, links: HashMap::new(), way: HashSet::new(), is_root, counts };
        let name = match f.name() {
            [] => f.volume.replace('/', "-").into_bytes(),
            name => name.to_vec(),
        };
        copy.node(directory.as_fd(), &name, f.id, &f.path)?;
        counts = copy.counts;
    }
    let Counts { files, bytes, left_out } = counts;
    if args.json {
        let to = to.to_string_lossy();
        print_json(
            &json!({ "snapshot": disk.name, "target": to, "files": files, "bytes": bytes, "left_out": left_out }),
        );
    } else if !args.quiet {
        let left = if left_out > 0 { format!(", {left_out} special files left out") } else { String::new() };
        println!("{} to {}: {files} files, {}{left}", disk.name, to.display(), size(bytes));
    }
    Ok(ExitCode::SUCCESS)
}

fn to_stdout(found: &[Found]) -> Result<ExitCode> {
    let [one] = found else {
        return Err(VaultError::Usage("only one file can go to standard output; give --to DIR".into()).into());
    };
    let node = one.fs.node(one.id)?;
    if node.kind != NodeKind::File {
        let what = format!("{} is no file; give --to DIR, or take it as a tar", printable(&one.path));
        return Err(VaultError::Usage(what).into());
    }
    let mut out = std::io::stdout().lock();
    let (mut buf, mut at) = (vec![0; STEP_BYTES as usize], 0);
    while at < node.size {
        let got = one.fs.read_at(one.id, at, &mut buf)?;
        if got == 0 {
            break;
        }
        out.write_all(&buf[..got]).context("writing to standard output")?;
        at += got as u64;
    }
    out.flush().context("writing to standard output")?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Default)]
struct Counts {
    files: u64,
    bytes: u64,
    /// Devices, which only root can make, and sockets.
    left_out: u64,
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    /// Where nodes with several names have been copied to: a directory that is held, and the name in it.
    links: HashMap<NodeId, (OwnedFd, Vec<u8>)>,
    /// Directories from the first one to where we are.
    way: HashSet<NodeId>,
    is_root: bool,
    counts: Counts,
}

impl Copy<'_> {
    fn node(&mut self, into: BorrowedFd, name: &[u8], id: NodeId, path: &[u8]) -> Result<()> {
        let node = self.fs.node(id)?;
        let os_name = OsStr::from_bytes(name);
        let said = || format!("making {}", printable(path));
        if node.links > 1 && node.kind != NodeKind::Directory {
            if let Some((directory, first)) = self.links.get(&id) {
                let first = OsStr::from_bytes(first);
                return linkat(directory, first, into, os_name, AtFlags::empty()).with_context(said);
            }
            let held = into.try_clone_to_owned().with_context(said)?;
            self.links.insert(id, (held, name.to_vec()));
        }
        match node.kind {
            NodeKind::Directory => return self.directory(into, os_name, id, &node, path),
            NodeKind::File => self.file(into, os_name, id, &node, path)?,
            NodeKind::Link => {
                let target = self.fs.link(id)?;
                symlinkat(OsStr::from_bytes(&target), into, os_name).with_context(said)?;
                if self.is_root {
                    let owner = (Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)));
                    let _ = chownat(into, os_name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
                }
                self.times(into, os_name, &node);
            }
            NodeKind::Fifo => self.special(into, os_name, &node, (FileType::Fifo, 0)).with_context(said)?,
            NodeKind::CharDevice { major, minor } if self.is_root => {
                let device = (FileType::CharacterDevice, makedev(major, minor));
                self.special(into, os_name, &node, device).with_context(said)?;
            }
            NodeKind::BlockDevice { major, minor } if self.is_root => {
                let device = (FileType::BlockDevice, makedev(major, minor));
                self.special(into, os_name, &node, device).with_context(said)?;
            }
            NodeKind::CharDevice { .. } | NodeKind::BlockDevice { .. } | NodeKind::Socket => {
                self.counts.left_out += 1;
                return Ok(());
            }
        }
        self.counts.files += 1;
        Ok(())
    }

    fn directory(
        &mut self,
        into: BorrowedFd,
        name: &OsStr,
        id: NodeId,
        node: &Node,
        path: &[u8],
    ) -> Result<()> {
        let said = || format!("making {}", printable(path));
        if !self.way.insert(id) {
            anyhow::bail!(filesystem::FsError::corrupt(
                self.fs.kind(),
                format!("{} is in itself", printable(path))
            ));
        }
        mkdirat(into, name, Mode::RWXU).with_context(said)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(into, name, flags, Mode::empty()).with_context(said)?;
        for entry in self.fs.entries(id)? {
            self.node(made.as_fd(), &entry.name, entry.id, &[path, b"/", &entry.name].concat())?;
        }
        self.way.remove(&id);
        self.attributes(made.as_fd(), id, node);
        self.times(into, name, node);
        Ok(())
    }

    /// A pipe or a device.
    fn special(
        &self,
        into: BorrowedFd,
        name: &OsStr,
        node: &Node,
        (kind, device): (FileType, u64),
    ) -> rustix::io::Result<()> {
        mknodat(into, name, kind, Mode::from_raw_mode(0o600), device)?;
        if self.is_root {
            let owner = (Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)));
            let _ = chownat(into, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
        }
        // Nobody else writes here: it is what was just made.
        let _ = chmodat(into, name, Mode::from_raw_mode(u32::from(node.mode & 0o777)), AtFlags::empty());
        self.times(into, name, node);
        Ok(())
    }

    fn file(&mut self, into: BorrowedFd, name: &OsStr, id: NodeId, node: &Node, path: &[u8]) -> Result<()> {
        let said = || format!("writing {}", printable(path));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(into, name, flags, Mode::from_raw_mode(0o600)).with_context(said)?);
        file.set_len(node.size).with_context(said)?;
        let mut buf = vec![0; STEP_BYTES as usize];
        for extent in self.fs.extents(id)?.iter().filter(|e| e.place != Place::Zeros) {
            let (mut at, end) = (extent.offset, (extent.offset + extent.len).min(node.size));
            while at < end {
                let len = (end - at).min(STEP_BYTES) as usize;
                let got = self.fs.read_at(id, at, &mut buf[..len])?;
                file.write_all_at(&buf[..got], at).with_context(said)?;
                if got < len {
                    break;
                }
                at += len as u64;
                self.counts.bytes += len as u64;
            }
        }
        self.attributes(file.as_fd(), id, node);
        self.times(into, name, node);
        Ok(())
    }

    /// Owner (for root), permissions, and what extended attributes this file system takes.
    fn attributes(&self, of: BorrowedFd, id: NodeId, node: &Node) {
        let mut mode = node.mode;
        if self.is_root {
            let _ = fchown(of, Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)));
        } else {
            // Who would run with the rights of somebody else, would run with ours.
            mode &= 0o1777;
        }
        let _ = fchmod(of, Mode::from_raw_mode(u32::from(mode)));
        for (name, value) in self.fs.attributes(id).unwrap_or_default() {
            let _ = fsetxattr(of, OsStr::from_bytes(&name), &value, XattrFlags::empty());
        }
    }

    fn times(&self, into: BorrowedFd, name: &OsStr, node: &Node) {
        let time = Timespec { tv_sec: node.modified.seconds, tv_nsec: node.modified.nanos.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        let _ = utimensat(into, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}
