//! A volume of XFS, walked over and read.
#![no_main]

use filesystem::xfs::Xfs;
use filesystem::{FileSystem, NodeKind};
use fuzz::disk::Sectors;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use std::sync::Arc;

/// A damaged directory may lead to any number of inodes.
const MAX_NODES: usize = 500;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(fs)) = Xfs::open_without_checksums(Arc::new(Sectors::decode(bytes))) {
        walk(&fs);
    }
});

fn walk(fs: &dyn FileSystem) {
    let (mut open, mut seen) = (vec![fs.root()], HashSet::new());
    let mut buf = vec![0; 64 << 10];
    while let Some(id) = open.pop().filter(|_| seen.len() < MAX_NODES) {
        if !seen.insert(id) {
            continue;
        }
        let _ = fs.attributes(id);
        let _ = fs.link(id);
        let Ok(node) = fs.node(id) else { continue };
        if node.kind == NodeKind::Directory {
            open.extend(fs.entries(id).unwrap_or_default().into_iter().map(|e| e.id));
            continue;
        }
        let mut end = 0;
        for extent in fs.extents(id).unwrap_or_default() {
            assert!(extent.len > 0 && extent.offset >= end, "{extent:?} after {end}");
            end = extent.offset + extent.len;
        }
        assert!(end <= node.size, "extents to {end} of {}", node.size);
        for at in [0, end.saturating_sub(777), node.size, u64::MAX] {
            if let Ok(n) = fs.read_at(id, at, &mut buf) {
                assert_eq!(n as u64, node.size.saturating_sub(at).min(buf.len() as u64));
            }
        }
    }
}
