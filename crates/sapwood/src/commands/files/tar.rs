//! Files as a tar archive.

use super::attributes;
use super::damage::Damage;
use super::disk::{printable, Disk, NamedNode};
use crate::args::Args;
use crate::tar::{Kind, Member, Tar};
use crate::terminal::outcome;
use crate::terminal::streams::{check_out, errln, Out};
use anyhow::{Context, Result};
use filesystem::{DirectoryNo, FileSystem, FsError, Node, NodeId, NodeKind, Order, Place, Step, Walk};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use vault::VaultError;

const STEP_BYTES: usize = 1 << 20;
/// A file whose holes are shorter than this in all is written with zeros: sparse members take more space in the
/// headers, and not every reader supports them.
const HOLES_BYTES_MIN: u64 = 64 << 10;

/// Writes files and directories to standard output, as an archive.
pub fn run(_: &Args, mut disk: Disk, paths: &[OsString]) -> Result<ExitCode> {
    check_out()?;
    if io::stdout().is_terminal() {
        return Err(VaultError::Usage("a tar archive is not text: send it to a file or a pipe".into()).into());
    }
    let found = disk.find_all(paths)?;
    let tar = Tar::new(BufWriter::with_capacity(STEP_BYTES, Out));
    let mut archive =
        Archive { tar, buf: vec![0; STEP_BYTES], left_out: 0, incomplete: 0, damage: Damage::default() };
    found.iter().try_for_each(|f| archive.tree(f))?;
    let Archive { tar, left_out, incomplete, damage, .. } = archive;
    tar.finish().context("writing to standard output")?;
    if left_out > 0 {
        errln!("sapwood: {}: {left_out} sockets left out, which a tar cannot hold", disk.name);
    }
    if incomplete > 0 {
        errln!("sapwood: {}: {incomplete} files without all of their extended attributes", disk.name);
    }
    Ok(damage.exit_code(incomplete))
}

/// The path without its leading `/`; `.` for the root.
fn member_path(path: &[u8]) -> &[u8] {
    match path.get(1..) {
        None | Some([]) => b".",
        Some(path) => path,
    }
}

/// Nodes with several names that are in the archive: directory and name of the first member.
type Links = HashMap<NodeId, (Option<DirectoryNo>, Vec<u8>)>;

struct Archive<W: Write> {
    tar: Tar<W>,
    buf: Vec<u8>,
    left_out: u64,
    /// Nodes with extended attributes that could not be read.
    incomplete: u64,
    damage: Damage,
}

impl<W: Write> Archive<W> {
    /// Adds a node and all below it.
    fn tree(&mut self, found: &NamedNode) -> Result<()> {
        let mut walk = Walk::new(&*found.fs, &found.path, found.id, Order::Number);
        let mut links = Links::new();
        while let Some(step) = walk.next() {
            let mut lost = Vec::new();
            let added = match step {
                Ok(Step::Node(id, node)) => {
                    self.node(&*found.fs, &mut walk, &mut links, (id, &node), &mut lost)
                }
                Ok(Step::Left(..)) => continue,
                Err(e) => Err(e.into()),
            };
            if !lost.is_empty() {
                self.incomplete += 1;
                let (volume, path) = (&found.volume, printable(walk.path()));
                errln!("sapwood: {volume}:{path}: its copy has lost: {}", lost.join("; "));
            }
            added.or_else(|e| self.damage.tell(e, &found.volume, || printable(walk.path())))?;
        }
        Ok(())
    }

    /// Adds a node. `lost` gets the extended attributes that cannot be read, and why. The archive stays well-formed even if
    /// this returns damage.
    fn node(
        &mut self,
        fs: &dyn FileSystem,
        walk: &mut Walk,
        links: &mut Links,
        (id, node): (NodeId, &Node),
        lost: &mut Vec<String>,
    ) -> Result<()> {
        if node.kind == NodeKind::Socket {
            self.left_out += 1;
            return Ok(());
        }
        let (attributes, unread) = attributes::read(fs, id)?;
        let has_names = node.links > 1 && node.kind != NodeKind::Directory;
        if let Some((directory, name)) = links.get(&id).filter(|_| has_names) {
            let mut first = walk.names(*directory);
            first.push(name);
            let first = first.join(&b'/');
            let kind = Kind::HardLink(member_path(&first));
            return written(self.tar.add(&member(walk.path(), node, &attributes, kind)));
        }
        *lost = unread;
        let link = if node.kind == NodeKind::Link { fs.link(id)? } else { Vec::new() };
        let kind = match node.kind {
            NodeKind::Directory => Kind::Directory,
            NodeKind::Link => Kind::SymbolicLink(&link),
            NodeKind::CharDevice { major, minor } => Kind::CharDevice(major, minor),
            NodeKind::BlockDevice { major, minor } => Kind::BlockDevice(major, minor),
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::File | NodeKind::Socket => Kind::File,
        };
        let member = member(walk.path(), node, &attributes, kind);
        let mut failed = None;
        match node.kind {
            NodeKind::File => {
                let data = data(fs, id, node.size)?;
                let mut copy = Copy { fs, id, buf: &mut self.buf, failed: None };
                self.tar.add_file(&member, node.size, &data, |range, out| copy.range(range, out))?;
                failed = copy.failed;
            }
            _ => written(self.tar.add(&member))?,
        }
        if has_names {
            let name = walk.path().rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
            links.insert(id, (walk.directory(), name));
        }
        match failed {
            Some(why) => Err(why).context("zeros are in the archive for a part of it"),
            None => Ok(()),
        }
    }
}

/// The ranges of a file that are written: its data, or all of it if the holes are shorter than [`HOLES_BYTES_MIN`].
fn data(fs: &dyn FileSystem, id: NodeId, size: u64) -> Result<Vec<Range<u64>>> {
    let mut data: Vec<Range<u64>> = Vec::new();
    for e in fs.extents(id)?.iter().filter(|e| e.place != Place::Zeros) {
        let range = e.offset..(e.offset + e.len).min(size);
        match data.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => data.push(range),
        }
    }
    let bytes: u64 = data.iter().map(|r| r.end - r.start).sum();
    Ok(if size - bytes.min(size) >= HOLES_BYTES_MIN || size == 0 {
        data
    } else {
        std::iter::once(0..size).collect()
    })
}

fn written(result: io::Result<()>) -> Result<()> {
    result.context("writing to standard output")
}

fn member<'a>(
    path: &'a [u8],
    node: &Node,
    attributes: &'a [(Vec<u8>, Vec<u8>)],
    kind: Kind<'a>,
) -> Member<'a> {
    Member {
        path: member_path(path),
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        modified: (node.modified.seconds, node.modified.nanos),
        attributes,
    }
}

/// Copies data of one file to an archive. The header already says how long it is, so unreadable parts become zeros.
struct Copy<'a> {
    fs: &'a dyn FileSystem,
    id: NodeId,
    buf: &'a mut [u8],
    /// The first damage that was met.
    failed: Option<FsError>,
}

impl Copy<'_> {
    fn range<W: Write>(&mut self, range: Range<u64>, out: &mut W) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.buf.len() as u64) as usize;
            let buf = &mut self.buf[..len];
            let why = match self.fs.read_at(self.id, at, buf) {
                Ok(got) if got == len => None,
                Ok(_) => Some(FsError::corrupt(self.fs.kind(), "the file ends before its size")),
                Err(e @ FsError::Read(_)) if !outcome::is_of_vault(&e) => return Err(e.into()),
                Err(e) => Some(e),
            };
            if let Some(why) = why {
                buf.fill(0);
                self.failed.get_or_insert(why);
            }
            out.write_all(buf).context("writing to standard output")?;
            at += len as u64;
        }
        Ok(())
    }
}
