//! Files as a tar archive.

use super::{printable, Disk, Found};
use crate::args::Args;
use crate::tar::{Kind, Member, Tar};
use anyhow::{Context, Result};
use filesystem::{FileSystem, FsError, Node, NodeId, NodeKind, Place};
use std::collections::hash_map::{Entry, HashMap};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use vault::VaultError;

const STEP_BYTES: u64 = 1 << 20;
/// Holes shorter than this in all are written as zeros: a sparse member needs room, and readers that know it.
const HOLES_BYTES_MIN: u64 = 64 << 10;

/// Writes what was named to standard output.
pub fn run(_: &Args, mut disk: Disk, paths: &[OsString]) -> Result<ExitCode> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(VaultError::Usage("a tar archive is no text: send it to a file or a pipe".into()).into());
    }
    let found = disk.find_all(paths)?;
    let mut tar = Tar::new(BufWriter::with_capacity(STEP_BYTES as usize, stdout.lock()));
    let mut left_out = 0;
    for f in &found {
        let mut archive = Archive { fs: &*f.fs, links: HashMap::new(), way: HashSet::new(), left_out };
        archive.node(&mut tar, &member_path(f), f.id)?;
        left_out = archive.left_out;
    }
    tar.finish().context("writing to standard output")?;
    if left_out > 0 {
        eprintln!("sapwood: {}: {left_out} sockets left out, which a tar cannot hold", disk.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole path without its first `/`; the root of a file system is `.`.
fn member_path(f: &Found) -> Vec<u8> {
    match f.path.get(1..) {
        None | Some([]) => b".".to_vec(),
        Some(path) => path.to_vec(),
    }
}

struct Archive<'a> {
    fs: &'a dyn FileSystem,
    /// Members of nodes with several names.
    links: HashMap<NodeId, Vec<u8>>,
    /// Directories from the first one to where we are.
    way: HashSet<NodeId>,
    left_out: u64,
}

impl Archive<'_> {
    fn node<W: Write>(&mut self, tar: &mut Tar<W>, path: &[u8], id: NodeId) -> Result<()> {
        let node = self.fs.node(id)?;
        let attributes = self.fs.attributes(id)?;
        let said = || format!("writing {}", printable(path));
        if node.links > 1 && node.kind != NodeKind::Directory {
            match self.links.entry(id) {
                Entry::Occupied(first) => {
                    return tar
                        .add(&member(path, &node, &attributes, Kind::HardLink(first.get())))
                        .with_context(said);
                }
                Entry::Vacant(first) => drop(first.insert(path.to_vec())),
            }
        }
        let link = if node.kind == NodeKind::Link { self.fs.link(id)? } else { Vec::new() };
        match node.kind {
            NodeKind::Directory => {
                tar.add(&member(path, &node, &attributes, Kind::Directory)).with_context(said)?;
                return self.directory(tar, path, id);
            }
            NodeKind::File => {
                let data = self.data(id, node.size)?;
                let fs = self.fs;
                tar.add_file(&member(path, &node, &attributes, Kind::File), node.size, &data, |range, out| {
                    copy(fs, id, range, out)
                })
            }
            NodeKind::Link => tar.add(&member(path, &node, &attributes, Kind::SymbolicLink(&link))),
            NodeKind::CharDevice { major, minor } => {
                tar.add(&member(path, &node, &attributes, Kind::CharDevice(major, minor)))
            }
            NodeKind::BlockDevice { major, minor } => {
                tar.add(&member(path, &node, &attributes, Kind::BlockDevice(major, minor)))
            }
            NodeKind::Fifo => tar.add(&member(path, &node, &attributes, Kind::Fifo)),
            NodeKind::Socket => {
                self.left_out += 1;
                Ok(())
            }
        }
        .with_context(said)
    }

    fn directory<W: Write>(&mut self, tar: &mut Tar<W>, path: &[u8], id: NodeId) -> Result<()> {
        if !self.way.insert(id) {
            let why = format!("{} is in itself", printable(path));
            return Err(FsError::corrupt(self.fs.kind(), why).into());
        }
        let mut entries = self.fs.entries(id)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let below = if path == b"." { entry.name } else { [path, b"/", &entry.name].concat() };
            self.node(tar, &below, entry.id)?;
        }
        self.way.remove(&id);
        Ok(())
    }

    /// The ranges of a file that are written; all of it, where its holes are not worth it.
    fn data(&self, id: NodeId, size: u64) -> Result<Vec<Range<u64>>> {
        let mut data: Vec<Range<u64>> = Vec::new();
        for e in self.fs.extents(id)?.iter().filter(|e| e.place != Place::Zeros) {
            let range = e.offset..(e.offset + e.len).min(size);
            match data.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ if range.is_empty() => {}
                _ => data.push(range),
            }
        }
        let bytes: u64 = data.iter().map(|r| r.end - r.start).sum();
        if size - bytes.min(size) < HOLES_BYTES_MIN && size > 0 {
            data.clear();
            data.push(0..size);
        }
        Ok(data)
    }
}

fn member<'a>(
    path: &'a [u8],
    node: &Node,
    attributes: &'a [(Vec<u8>, Vec<u8>)],
    kind: Kind<'a>,
) -> Member<'a> {
    Member {
        path,
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        modified: (node.modified.seconds, node.modified.nanos),
        attributes,
    }
}

fn copy<W: Write>(fs: &dyn FileSystem, id: NodeId, range: Range<u64>, out: &mut W) -> io::Result<()> {
    let mut buf = vec![0; STEP_BYTES.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(buf.len() as u64) as usize;
        let got = fs.read_at(id, at, &mut buf[..len]).map_err(io::Error::other)?;
        if got < len {
            return Err(io::Error::other("the file ends before its size"));
        }
        out.write_all(&buf[..len])?;
        at += len as u64;
    }
    Ok(())
}
