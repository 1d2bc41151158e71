//! Listing volumes and directories.

use super::damage::Damage;
use super::disk::{printable, Disk, NamedNode};
use crate::args::Args;
use crate::terminal::escape::escaped;
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{outln, Out};
use anyhow::Result;
use filesystem::{Node, NodeId, NodeKind, Order, Step, Walk};
use serde_json::{json, Value};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// The volumes of a disk.
pub fn volumes(args: &Args, disk: &Disk) -> Result<ExitCode> {
    if args.json {
        let volumes: Vec<Value> = disk
            .volumes
            .iter()
            .map(|v| json!({ "name": v.name, "kind": v.kind, "size": v.size, "type": v.type_id, "label": v.label }))
            .collect();
        print_json(&json!({ "disk": disk.snapshot().0, "snapshot": disk.snapshot().1, "volumes": volumes }));
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{:<20} {:<10} {:>10}  LABEL", "VOLUME", "KIND", "SIZE");
    for v in &disk.volumes {
        let kind = if v.kind.is_empty() { "-" } else { v.kind };
        outln!("{:<20} {kind:<10} {:>10}  {}", v.name, size(v.size), escaped(v.label.as_bytes()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists files, and the content of directories.
pub fn run(args: &Args, mut disk: Disk, paths: &[OsString], recursive: bool) -> Result<ExitCode> {
    if paths.is_empty() && disk.readable()?.0.len() != 1 {
        return volumes(args, &disk);
    }
    let found = disk.find_all(paths)?;
    let out = BufWriter::new(Out);
    let mut list = List { out, json: args.json, entries: 0, damage: Damage::default() };
    if args.json {
        let (disk, id) = disk.snapshot();
        write!(list.out, "{{\"disk\":{},\"snapshot\":{},\"entries\":[", json!(disk), json!(id))?;
    }
    found.iter().try_for_each(|f| list.found(f, recursive))?;
    if args.json {
        writeln!(list.out, "],\"damaged_count\":{}}}", list.damage.count)?;
    }
    list.out.flush()?;
    Ok(list.damage.exit_code(0))
}

/// Prints entries one by one: they may not fit into memory.
struct List<W: Write> {
    out: W,
    json: bool,
    entries: u64,
    damage: Damage,
}

impl<W: Write> List<W> {
    /// Lists a file, or the content of a directory, sorted by name; with `recursive` also that of its subdirectories.
    fn found(&mut self, found: &NamedNode, recursive: bool) -> Result<()> {
        let mut walk = Walk::new(&*found.fs, &found.path, found.id, Order::Name);
        let mut is_first = true;
        while let Some(step) = walk.next() {
            let is_top = std::mem::take(&mut is_first);
            let told = match step {
                Ok(Step::Left(..)) => continue,
                Ok(Step::Node(_, node)) if is_top && node.kind == NodeKind::Directory => continue,
                Ok(Step::Node(id, node)) => {
                    if !recursive {
                        walk.pass_over();
                    }
                    self.entry(found, walk.path(), id, &node)
                }
                Err(e) => Err(e.into()),
            };
            told.or_else(|e| self.damage.tell(e, &found.volume, || printable(walk.path())))?;
        }
        Ok(())
    }

    fn entry(&mut self, found: &NamedNode, path: &[u8], id: NodeId, node: &Node) -> Result<()> {
        let link = if node.kind == NodeKind::Link { Some(found.fs.link(id)?) } else { None };
        if self.json {
            let comma = if self.entries > 0 { "," } else { "" };
            write!(self.out, "{comma}{}", entry_json(&found.volume, path, node, link.as_deref()))?;
        } else {
            writeln!(self.out, "{}", entry_line(path, node, link.as_deref()))?;
        }
        self.entries += 1;
        Ok(())
    }
}

fn letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::File => '-',
        NodeKind::Directory => 'd',
        NodeKind::Link => 'l',
        NodeKind::CharDevice { .. } => 'c',
        NodeKind::BlockDevice { .. } => 'b',
        NodeKind::Fifo => 'p',
        NodeKind::Socket => 's',
    }
}

/// A line like that of `ls -l`.
fn entry_line(path: &[u8], node: &Node, link: Option<&[u8]>) -> String {
    let mode: String = (0..9)
        .rev()
        .map(|bit| {
            let set = node.mode >> bit & 1 == 1;
            let (special, letter) = match bit {
                6 => (node.mode & 0o4000 != 0, 's'),
                3 => (node.mode & 0o2000 != 0, 's'),
                0 => (node.mode & 0o1000 != 0, 't'),
                _ => (false, ' '),
            };
            match (special, set) {
                (true, true) => letter,
                (true, false) => letter.to_ascii_uppercase(),
                (false, true) => ['x', 'w', 'r'][bit % 3],
                (false, false) => '-',
            }
        })
        .collect();
    let bytes = match node.kind {
        NodeKind::CharDevice { major, minor } | NodeKind::BlockDevice { major, minor } => {
            format!("{major}, {minor}")
        }
        _ => node.size.to_string(),
    };
    let (uid, gid) = (node.uid, node.gid);
    let time = vault::format_time(node.modified.seconds);
    let link = link.map(|l| format!(" -> {}", escaped(l))).unwrap_or_default();
    format!("{}{mode} {uid:>5} {gid:>5} {bytes:>12} {time} {}{link}", letter(node.kind), printable(path))
}

fn entry_json(volume: &str, path: &[u8], node: &Node, link: Option<&[u8]>) -> Value {
    let mut entry = json!({
        "volume": volume,
        "kind": kind_name(node.kind),
        "mode": node.mode,
        "uid": node.uid,
        "gid": node.gid,
        "size": node.size,
        "links": node.links,
        "modified": node.modified.seconds,
        "modified_nanos": node.modified.nanos,
    });
    if let NodeKind::CharDevice { major, minor } | NodeKind::BlockDevice { major, minor } = node.kind {
        entry["device"] = json!([major, minor]);
    }
    put_bytes(&mut entry, "path", path);
    if let Some(link) = link {
        put_bytes(&mut entry, "link", link);
    }
    entry
}

/// The kind of a node, as JSON names it.
pub fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Link => "link",
        NodeKind::CharDevice { .. } => "char-device",
        NodeKind::BlockDevice { .. } => "block-device",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
    }
}

/// Adds a field with a name or a path. If it is not UTF-8, the field KEY_hex has its exact bytes.
pub fn put_bytes(object: &mut Value, key: &str, bytes: &[u8]) {
    object[key] = String::from_utf8_lossy(bytes).into();
    if std::str::from_utf8(bytes).is_err() {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        object[format!("{key}_hex")] = hex.into();
    }
}
