//! What a tree of files is, so that two can be compared.

use rustix::fs::SeekFrom;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// A node, but for what nobody can copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    pub owner: (u32, u32),
    pub time: (i64, i64),
    pub device: u64,
    pub size: u64,
    /// Of what is not zeros, and where it is.
    pub content: u64,
    /// The target of a link.
    pub link: Vec<u8>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first of its names, by their bytes.
    pub first_name: Vec<u8>,
    /// Bytes that it takes on its disk.
    pub room: u64,
}

pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Everything below a directory, by its path from there; the directory itself is the empty one.
pub fn tree(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut firsts = BTreeMap::new();
    add(top, Vec::new(), &mut tree, &mut firsts);
    tree
}

fn add(top: &Path, name: Vec<u8>, tree: &mut Tree, firsts: &mut BTreeMap<u64, Vec<u8>>) {
    let path = top.join(OsStr::from_bytes(&name));
    let path = if name.is_empty() { top } else { &path };
    let stat = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let is_directory = stat.is_dir();
    let first_name =
        if is_directory { name.clone() } else { firsts.entry(stat.ino()).or_insert(name.clone()).clone() };
    let link =
        if stat.is_symlink() { fs::read_link(path).unwrap().into_os_string().into_vec() } else { Vec::new() };
    let is_device = stat.mode() & 0o130_000 == 0o020_000;
    let node = Node {
        mode: stat.mode(),
        owner: (stat.uid(), stat.gid()),
        time: (stat.mtime(), stat.mtime_nsec()),
        device: if is_device { stat.rdev() } else { 0 },
        size: if stat.is_file() { stat.size() } else { 0 },
        content: if stat.is_file() { content(path, stat.size()) } else { 0 },
        link,
        attributes: attributes(path),
        first_name,
        room: stat.blocks() * 512,
    };
    tree.insert(name.clone(), node);
    if is_directory {
        let mut names: Vec<Vec<u8>> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
        names.sort();
        for below in names {
            let below = if name.is_empty() { below } else { [&name[..], b"/", &below].concat() };
            add(top, below, tree, firsts);
        }
    }
}

fn content(path: &Path, size: u64) -> u64 {
    let file = File::open(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut hash = Xxh3::new();
    let mut block = vec![0; 4096];
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap_or(size);
        at = data / 4096 * 4096;
        while at < end {
            let n = file.read_at(&mut block, at).unwrap();
            if block[..n].iter().any(|b| *b != 0) {
                hash.update(&at.to_le_bytes());
                let len = block[..n].iter().rposition(|b| *b != 0).unwrap() + 1;
                hash.update(&block[..len]);
            }
            at += 4096;
        }
    }
    hash.digest()
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut names, mut value) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) else { return BTreeMap::new() };
    let names =
        names[..len].split(|b| *b == 0).filter(|n| !n.is_empty() && !n.starts_with(b"trusted.SGI_ACL_"));
    names
        .map(|name| {
            let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

/// Two trees are the same, but for what `forgiven` makes the same of two nodes.
pub fn assert_same(ours: &Tree, theirs: &Tree, what: &str, forgiven: impl Fn(&[u8], &mut Node, &mut Node)) {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).escape_debug().to_string();
    let missing: Vec<_> = theirs.keys().filter(|n| !ours.contains_key(*n)).map(|n| shown(n)).collect();
    let more: Vec<_> = ours.keys().filter(|n| !theirs.contains_key(*n)).map(|n| shown(n)).collect();
    let few = |names: &[String]| format!("{} {:?}", names.len(), &names[..names.len().min(5)]);
    assert!(
        missing.is_empty() && more.is_empty(),
        "{what}: missing {}, too many {}",
        few(&missing),
        few(&more)
    );
    for (name, theirs) in theirs {
        let (mut a, mut b) = (ours[name].clone(), theirs.clone());
        // A sparse file stays one.
        let room = b.room + (256 << 10);
        assert!(a.room <= room, "{what}: {} takes {} bytes instead of {}", shown(name), a.room, b.room);
        (a.room, b.room) = (0, 0);
        forgiven(name, &mut a, &mut b);
        assert!(a == b, "{what}: {}: {a:?} instead of {b:?}", shown(name));
    }
}
