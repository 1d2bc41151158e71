#![allow(clippy::unwrap_used)]

use super::*;
use crate::manifest::disks;
use crate::{BackupOptions, Policy, Progress, Vault, BALANCED, VM_CENTRIC_BLOOM};
use format::WriterKind;
use std::ops::Range;
use std::sync::Arc;
use store::LocalStore;

const DISK: &str = "vm/d";
const BLOCK: usize = 4096;

/// The paper's example: u of 10 million chunks, a fortieth of it new every day, ten snapshots.
#[test]
fn the_papers_example() {
    let (u, added): (f64, f64) = (10e6, 0.25e6);
    let all = u + 9.0 * added;
    assert!((all - 12.25e6).abs() < 1.0);
    let epsilon = misjudged(122_500_000, 7, all);
    assert!((0.005..=0.01).contains(&epsilon), "{epsilon}");
    assert!(leak_ratio(245, 0.01, u, added, 10) <= LEAK_MAX + 1e-9);
    assert!(leak_ratio(246, 0.01, u, added, 10) > LEAK_MAX);
    assert_eq!(leak_ratio(0, 0.01, u, added, 10), 0.0);
}

struct Disk(Vec<u8>);

impl image::Source for Disk {
    fn format(&self) -> &'static str {
        "memory"
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let len = self.0.len() as u64;
        Ok((from < len).then_some(from..len))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let rest = &self.0[(offset as usize).min(self.0.len())..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Blocks that no other number gives.
fn block(number: u64) -> Vec<u8> {
    chunk::Fingerprint::of(&number.to_le_bytes()).0.repeat(BLOCK / 32)
}

/// What does not fit into memory at once is repaired in parts, and nothing is left out or taken that is referenced.
#[test]
fn a_repair_in_parts_finds_the_same_as_one_at_once() {
    let policy = Policy {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        container_bytes: 64 << 10,
        chunking: BALANCED.chunking,
        ..VM_CENTRIC_BLOOM
    };
    let repaired = |bytes_max: usize| {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::init(Arc::new(LocalStore::create(dir.path()).unwrap()), &BALANCED).unwrap();
        let mut disk: Vec<u8> = (0..200).flat_map(block).collect();
        for version in 1..=3u64 {
            for n in (version as usize..200).step_by(5) {
                disk[n * BLOCK..(n + 1) * BLOCK].copy_from_slice(&block(1000 * version + n as u64));
            }
            let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
            vault.backup(DISK, Box::new(Disk(disk.clone())), &options, &Progress::default()).unwrap();
        }
        let at = disks::one(&vault, DISK).unwrap();
        let mut session = Session::begin(&at.folder, WriterKind::Maintenance).unwrap();
        // The oldest snapshot goes, and all that it alone had leaks.
        session
            .swap(|m| {
                m.recent.remove(0);
                m.by_filter = 1;
                Ok(())
            })
            .unwrap();
        let leaked = repair_within(&mut session, 0.0, bytes_max, &mut Applied::default()).unwrap();
        assert_eq!(repair_within(&mut session, 0.0, bytes_max, &mut Applied::default()).unwrap(), 0);
        let m = at.folder.load().unwrap();
        assert_eq!(m.by_filter, 0);
        session.end().unwrap();
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
        let (mut live, mut containers) = (0, 0);
        Containers::new(at.folder, &m)
            .each(|e| {
                live += e.chunks - e.dead_chunks;
                containers += 1;
                Ok(())
            })
            .unwrap();
        (leaked, live, containers)
    };
    let at_once = repaired(REFERENCED_BYTES);
    assert!(at_once.0 > 20 && at_once.2 > 8, "{at_once:?}");
    for bytes_max in [0, 1000] {
        assert_eq!(repaired(bytes_max), at_once, "in parts of {bytes_max} bytes");
    }
}
