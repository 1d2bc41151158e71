//! Version 4, which newer kernels do not mount: made by mkfs.xfs from a list of files, and compared with that list.

use crate::tree::noise;
use crate::volume::{make, open, run, VOLUME_BYTES};
use filesystem::{FileSystem, NodeId, NodeKind};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

/// What a node must be: its kind, what it holds, mode, owner and group.
#[derive(Debug, PartialEq)]
struct Expected {
    kind: NodeKind,
    holds: Vec<u8>,
    mode: u16,
    owner: (u32, u32),
}

/// A list of files as mkfs.xfs takes it, and what must come of it.
struct List {
    text: String,
    expected: BTreeMap<String, Expected>,
}

impl List {
    fn new() -> List {
        List { text: "/dev/null\n0 0\nd--755 0 0\n".into(), expected: BTreeMap::new() }
    }

    /// Adds a line; what it holds follows the owner and the group.
    fn add(&mut self, path: &str, letter: char, mode: u16, kind: NodeKind, argument: &str, holds: &[u8]) {
        let name = path.rsplit('/').next().expect("a name");
        let owner = (u32::from(mode), 65_535);
        writeln!(self.text, "{name} {letter}--{mode:03o} {} {} {argument}", owner.0, owner.1)
            .expect("a line");
        self.expected.insert(path.into(), Expected { kind, holds: holds.to_vec(), mode, owner });
    }

    fn end(&mut self) {
        self.text.push_str("$\n");
    }
}

fn list(sources: &Path) -> List {
    let mut list = List::new();
    for size in [0, 1, 4095, 4096, 4097, 65_536, 5_000_001] {
        let (source, bytes) = (sources.join(size.to_string()), noise(size, size as usize));
        std::fs::write(&source, &bytes).expect("a source");
        let source = source.to_str().expect("a plain path").to_owned();
        list.add(&format!("size-{size}"), '-', 0o644, NodeKind::File, &source, &bytes);
    }
    for len in [1, 100, 155, 156, 157, 1000, 1023] {
        let target = "t".repeat(len);
        list.add(&format!("link-{len}"), 'l', 0o777, NodeKind::Link, &target, target.as_bytes());
    }
    list.add("null", 'c', 0o666, NodeKind::CharDevice { major: 1, minor: 3 }, "1 3", b"");
    list.add("disk", 'b', 0o600, NodeKind::BlockDevice { major: 259, minor: 77 }, "259 77", b"");
    list.add("fifo", 'p', 0o640, NodeKind::Fifo, "", b"");
    let empty = sources.join("0").to_str().expect("a plain path").to_owned();
    for count in [0, 4, 30, 700, 4000] {
        let dir = format!("of-{count}");
        list.add(&dir, 'd', 0o750, NodeKind::Directory, "", b"");
        for n in 0..count {
            let path = format!("{dir}/entry-{n}-{}", "x".repeat(n % 60));
            list.add(&path, '-', 0o600, NodeKind::File, &empty, b"");
        }
        list.end();
    }
    list.end();
    list
}

fn read_tree(fs: &dyn FileSystem) -> BTreeMap<String, Expected> {
    let mut found = BTreeMap::new();
    let mut open = vec![(fs.root(), String::new())];
    while let Some((id, path)) = open.pop() {
        let node = fs.node(id).expect("a node");
        let holds = match node.kind {
            NodeKind::File => {
                let mut bytes = vec![0; node.size as usize];
                assert_eq!(fs.read_at(id, 0, &mut bytes).expect("its bytes"), bytes.len());
                bytes
            }
            NodeKind::Link => fs.link(id).expect("a target"),
            _ => Vec::new(),
        };
        if node.kind == NodeKind::Directory {
            for entry in fs.entries(id).expect("entries") {
                let name = String::from_utf8(entry.name).expect("a plain name");
                open.push((entry.id, if path.is_empty() { name } else { format!("{path}/{name}") }));
            }
        }
        let owner = (node.uid, node.gid);
        found.insert(path, Expected { kind: node.kind, holds, mode: node.mode, owner });
    }
    found.remove("");
    found
}

/// The debugger's option for its name space, its name, and the length of its value.
type Attribute = (&'static str, String, usize);

/// Sets attributes by the debugger, which fills their values with `v`.
fn set_attributes(image: &Path, id: NodeId, attributes: &[Attribute]) {
    let mut arguments = vec!["-x".to_owned(), "-c".into(), format!("inode {}", id.0)];
    for (space, name, len) in attributes {
        arguments.extend(["-c".into(), format!("attr_set {space} -v {len} {name}")]);
    }
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([image.as_os_str()]).collect();
    run("xfs_db", "xfsprogs", &arguments);
}

fn check(options: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, proto) = (dir.path().join("xfs.img"), dir.path().join("list"));
    let list = list(dir.path());
    std::fs::write(&proto, &list.text).expect("a list");
    make(&image, VOLUME_BYTES, &format!("-m crc=0 {options} -p {}", proto.display()));
    let found = read_tree(&open(&image));
    for (path, expected) in &list.expected {
        let found = found.get(path).unwrap_or_else(|| panic!("{path} is missing"));
        assert!(found == expected, "{path}: {:?} of {} bytes", found.kind, found.holds.len());
    }
    assert_eq!(found.len(), list.expected.len());
    check_attributes(&image);
}

fn check_attributes(image: &Path) {
    let fs = open(image);
    let id = |name: &str| fs.lookup(fs.root(), name.as_bytes()).expect("entries").expect("an entry").id;
    let plans: [(&str, Vec<Attribute>); 3] = [
        ("size-1", vec![("-u", "a".into(), 10), ("-s", "b".into(), 1), ("-r", "c".into(), 3)]),
        ("size-4095", (0..20).map(|n| ("-u", format!("name-{n}"), 1 + n * 10)).collect()),
        ("of-4", (0..300).map(|n| ("-r", format!("name-{n}"), 1 + n * 21)).collect()),
    ];
    for (path, attributes) in &plans {
        set_attributes(image, id(path), attributes);
    }
    let fs = open(image);
    for (path, attributes) in &plans {
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> = attributes
            .iter()
            .map(|(space, name, len)| {
                let space = match *space {
                    "-u" => "user",
                    "-s" => "security",
                    _ => "trusted",
                };
                (format!("{space}.{name}").into_bytes(), vec![b'v'; *len])
            })
            .collect();
        expected.sort();
        let found = fs.attributes(id(path)).expect("attributes").values;
        let short = |all: &[(Vec<u8>, Vec<u8>)]| -> Vec<String> {
            all.iter().map(|(n, v)| format!("{} ({})", n.escape_ascii(), v.len())).collect()
        };
        assert!(found == expected, "{path}: {:?} instead of {:?}", short(&found), short(&expected));
    }
}

#[test]
fn with_kinds_in_directories() {
    check("-n ftype=1");
}

#[test]
fn without_kinds_in_directories() {
    check("-n ftype=0,size=8192 -b size=2048");
}

#[test]
fn with_the_first_version_of_the_log() {
    check("-n ftype=0 -b size=1024 -l version=1 -i size=256");
}
