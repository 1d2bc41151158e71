//! A volume with XFS, made of sectors here and there: each has its number before it. All of it is walked and read.
#![no_main]

use filesystem::xfs::Xfs;
use filesystem::{Disk, FileSystem, NodeKind, Result};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const SECTOR: usize = 512;
const VOLUME_BYTES: u64 = 32 << 20;
/// A damaged directory may lead to any number of inodes.
const MAX_NODES: usize = 500;

struct Sectors(BTreeMap<u64, [u8; SECTOR]>);

impl Disk for Sectors {
    fn size(&self) -> u64 {
        VOLUME_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        assert!(end <= VOLUME_BYTES, "{} bytes at {offset}", buf.len());
        buf.fill(0);
        for (number, data) in self.0.range(offset / SECTOR as u64..end.div_ceil(SECTOR as u64)) {
            let at = number * SECTOR as u64;
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut sectors = BTreeMap::new();
    for record in bytes.chunks(4 + SECTOR) {
        let Some((number, data)) = record.split_first_chunk::<4>() else { continue };
        let mut sector = [0; SECTOR];
        sector[..data.len()].copy_from_slice(data);
        sectors.insert(u64::from(u32::from_le_bytes(*number)) % (VOLUME_BYTES / SECTOR as u64), sector);
    }
    if let Ok(Some(fs)) = Xfs::open_without_checksums(Arc::new(Sectors(sectors))) {
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
