//! Reads everything of a file system that may be damaged, and checks what must hold all the same.

use filesystem::{Directory, Disk, FileSystem, NodeId, NodeKind, Place};
use std::collections::HashSet;

/// How many nodes are visited.
const NODES_MAX: usize = 5000;
/// How many extents of a file are read, and how much of each.
const EXTENTS_MAX: usize = 50;
const READ_BYTES: usize = 64 << 10;

/// What was read without an error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Explored {
    pub nodes: usize,
    pub names: usize,
    pub bytes: u64,
    pub attributes: usize,
    pub errors: usize,
}

/// Visits each node once.
pub fn explore(fs: &dyn FileSystem, volume: &dyn Disk) -> Explored {
    let mut explored = Explored::default();
    let mut seen = HashSet::from([fs.root()]);
    let mut todo = vec![fs.root()];
    while let Some(id) = todo.pop() {
        let Ok(node) = fs.node(id) else {
            explored.errors += 1;
            continue;
        };
        explored.nodes += 1;
        assert!(
            node.mode <= 0o7777 && node.modified.nanos < 1_000_000_000 && node.changed.nanos < 1_000_000_000
        );
        match fs.attributes(id) {
            Ok(found) => {
                explored.attributes += found.values.len();
                explored.errors += found.unread.len();
            }
            Err(_) => explored.errors += 1,
        }
        match node.kind {
            NodeKind::Directory => {
                let found = entries(fs, id, &mut explored);
                todo.extend(found.into_iter().filter(|id| seen.len() < NODES_MAX && seen.insert(*id)));
            }
            NodeKind::File => data(fs, volume, id, node.size, &mut explored),
            NodeKind::Link => explored.errors += usize::from(fs.link(id).is_err()),
            _ => {}
        }
    }
    explored
}

fn entries(fs: &dyn FileSystem, id: NodeId, explored: &mut Explored) -> Vec<NodeId> {
    let Ok(Directory { entries, damage }) = Directory::read(fs, id) else {
        explored.errors += 1;
        return Vec::new();
    };
    explored.errors += damage.len();
    explored.names += entries.len();
    for entry in &entries {
        let is_bad = entry.name.is_empty() || entry.name == b"." || entry.name == b"..";
        assert!(!is_bad && !entry.name.iter().any(|b| matches!(b, 0 | b'/')), "{:?}", entry.name);
    }
    if let Some(last) = entries.last() {
        assert!(fs.lookup(id, &last.name).is_ok_and(|found| found.is_some()));
    }
    entries.into_iter().map(|e| e.id).collect()
}

fn data(fs: &dyn FileSystem, volume: &dyn Disk, id: NodeId, size: u64, explored: &mut Explored) {
    let mut buf = vec![0; READ_BYTES];
    let Ok(extents) = fs.extents(id) else {
        explored.errors += 1;
        return;
    };
    let mut end = 0;
    for e in &extents {
        assert!(e.len > 0 && e.offset >= end && e.len <= size - e.offset, "{e:?} behind {end} of {size}");
        end = e.offset + e.len;
        if let Place::Volume(at) = e.place {
            assert!(at.checked_add(e.len).is_some_and(|end| end <= volume.size()), "{e:?}");
        }
    }
    let ends = [0, size.saturating_sub(3), size, size.saturating_add(9), u64::MAX];
    let middles = extents.iter().take(EXTENTS_MAX).map(|e| e.offset);
    for offset in ends.into_iter().chain(middles) {
        match fs.read_at(id, offset, &mut buf) {
            Ok(n) => {
                assert_eq!(n as u64, size.saturating_sub(offset).min(READ_BYTES as u64));
                explored.bytes += n as u64;
            }
            Err(_) => explored.errors += 1,
        }
    }
}
