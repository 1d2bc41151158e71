//! Listing volumes and directories.

use super::{printable, Disk, Found};
use crate::args::Args;
use crate::output::{print_json, size};
use anyhow::Result;
use filesystem::{FileSystem, Node, NodeId, NodeKind};
use serde_json::{json, Value};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// The volumes of a disk.
pub fn volumes(args: &Args, disk: &Disk) -> Result<ExitCode> {
    if args.json {
        let volumes: Vec<Value> = disk
            .volumes
            .iter()
            .map(|v| json!({ "name": v.name, "kind": v.kind, "size": v.size, "type": v.type_id, "label": v.label }))
            .collect();
        print_json(&json!({ "snapshot": disk.name, "volumes": volumes }));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{:<20} {:<10} {:>10}  LABEL", "VOLUME", "KIND", "SIZE");
    for v in &disk.volumes {
        let kind = if v.kind.is_empty() { "-" } else { v.kind };
        println!("{:<20} {kind:<10} {:>10}  {}", v.name, size(v.size), printable_label(&v.label));
    }
    Ok(ExitCode::SUCCESS)
}

fn printable_label(label: &str) -> String {
    if label.is_empty() {
        return String::new();
    }
    printable(label.as_bytes())
}

/// What is in directories; files are listed themselves.
pub fn run(args: &Args, mut disk: Disk, paths: &[OsString], recursive: bool) -> Result<ExitCode> {
    if paths.is_empty() && disk.readable().len() != 1 {
        return volumes(args, &disk);
    }
    let mut entries = Vec::new();
    let stdout = std::io::stdout();
    let mut out = std::io::BufWriter::new(stdout.lock());
    for found in disk.find_all(paths)? {
        let Found { volume, fs, id, path } = found;
        let mut each = |path: &[u8], id: NodeId, node: &Node| -> Result<()> {
            let link = if node.kind == NodeKind::Link { Some(fs.link(id)?) } else { None };
            match args.json {
                true => entries.push(entry_json(&volume, path, node, link.as_deref())),
                false => writeln!(out, "{}", entry_line(path, node, link.as_deref()))?,
            }
            Ok(())
        };
        match fs.node(id)? {
            node if node.kind == NodeKind::Directory => {
                below(&*fs, id, &path, recursive, &mut HashSet::new(), &mut each)?;
            }
            node => each(&path, id, &node)?,
        }
    }
    out.flush()?;
    if args.json {
        print_json(&json!({ "snapshot": disk.name, "entries": entries }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Called with the path of a node.
type Each<'a> = dyn FnMut(&[u8], NodeId, &Node) -> Result<()> + 'a;

/// Goes through a directory, by name, and with `recursive` through those in it.
fn below(
    fs: &dyn FileSystem,
    id: NodeId,
    path: &[u8],
    recursive: bool,
    seen: &mut HashSet<NodeId>,
    each: &mut Each,
) -> Result<()> {
    let mut ahead = vec![(path.to_vec(), id)];
    while let Some((path, id)) = ahead.pop() {
        // A damaged tree may lead back to where it came from.
        if !seen.insert(id) {
            continue;
        }
        let mut entries = fs.entries(id)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let first = ahead.len();
        for entry in entries {
            let node = fs.node(entry.id)?;
            let path = [&path[..], b"/", &entry.name].concat();
            each(&path, entry.id, &node)?;
            if recursive && node.kind == NodeKind::Directory {
                ahead.push((path, entry.id));
            }
        }
        ahead[first..].reverse();
    }
    Ok(())
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

/// As `ls -l` shows it.
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
    let (uid, gid, bytes) = (node.uid, node.gid, node.size);
    let time = vault::format_time(node.modified.seconds);
    let link = link.map(|l| format!(" -> {}", printable(l))).unwrap_or_default();
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
        "modified": node.modified.seconds as f64 + f64::from(node.modified.nanos) * 1e-9,
    });
    put_bytes(&mut entry, "path", path);
    if let Some(link) = link {
        put_bytes(&mut entry, "link", link);
    }
    entry
}

/// What a node is, in one word.
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

/// Puts a name: as text, and where it is none also its bytes in hexadecimal, as NAME_hex.
pub fn put_bytes(object: &mut Value, key: &str, bytes: &[u8]) {
    object[key] = String::from_utf8_lossy(bytes).into();
    if std::str::from_utf8(bytes).is_err() {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        object[format!("{key}_hex")] = hex.into();
    }
}
