//! Deletion by filters: what it frees, what it leaks, and the repair.

use crate::common;
use crate::common::{backup, rng, seed};
use rand::RngExt;
use std::path::{Path, PathBuf};
use vault::{
    leak_ratio, misjudged, Policy, Progress, Vault, BALANCED, LEAK_MAX, VM_CENTRIC, VM_CENTRIC_BLOOM,
};

const BLOCK: usize = 4096;
const DISK: &str = "vm/vda";

/// Segments of 64 KiB and chunks of 4 KiB, so that little data has many of them.
const BLOOM: Policy = Policy {
    segment_bytes: 64 << 10,
    group_bytes: 64 << 10,
    container_bytes: 256 << 10,
    chunking: BALANCED.chunking,
    ..VM_CENTRIC_BLOOM
};
const EXACT: Policy = Policy { summaries: VM_CENTRIC.summaries, name: VM_CENTRIC.name, ..BLOOM };

fn blocks(rng: &mut impl RngExt, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK];
    rng.fill(&mut bytes[..]);
    bytes
}

/// A disk in versions of which each has a tenth of its blocks anew.
fn versions(rng: &mut impl RngExt, count: usize) -> Vec<Vec<u8>> {
    let mut all = vec![blocks(rng, 500)];
    for _ in 1..count {
        let mut next = all.last().unwrap().clone();
        for _ in 0..50 {
            let at = rng.random_range(0..500) * BLOCK;
            let fresh = blocks(rng, 1);
            next[at..at + BLOCK].copy_from_slice(&fresh);
        }
        all.push(next);
    }
    all
}

fn live_chunks(vault: &Vault) -> u64 {
    let stats = vault.stats(None).unwrap();
    stats.disks.iter().map(|d| d.live_chunks).sum()
}

fn bloom_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(bloom_files(&path))
        } else {
            found.extend(Some(path).filter(|p| p.extension().is_some_and(|e| e == "bloom")))
        }
    }
    found
}

fn verify(vault: &Vault) -> Vec<vault::Damage> {
    vault.verify(None, true, &Progress::default()).unwrap().damaged
}

#[test]
fn what_leaks_is_little_and_a_repair_finds_all_of_it() {
    let mut rng = rng(seed("what_leaks_is_little_and_a_repair_finds_all_of_it"));
    let versions = versions(&mut rng, 12);
    let (dirs, vaults): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let dir = common::scratch();
            let vault = common::new_vault(dir.path());
            (dir, vault)
        })
        .unzip();
    let (exact, bloom) = (&vaults[0], &vaults[1]);
    for v in &versions {
        backup(exact, DISK, v, EXACT).unwrap();
        backup(bloom, DISK, v, BLOOM).unwrap();
    }
    assert_eq!((bloom_files(dirs[0].path()).len(), bloom_files(dirs[1].path()).len()), (0, 12));
    assert_eq!(verify(bloom), []);
    let mut leaked_ever = 0;
    for left in (2..12).rev() {
        // The oldest, the newest, and one between.
        let spec =
            ["latest", &format!("latest~{}", left / 2), &format!("latest~{left}")][left % 3].to_owned();
        exact.delete(DISK, &[&spec]).unwrap();
        let report = bloom.delete(DISK, &[&spec]).unwrap();
        assert!(report.held_up.is_none(), "{:?}", report.held_up);
        assert_eq!((report.waiting, report.repaired_chunks), (0, 0));
        let (a, b) = (live_chunks(exact), live_chunks(bloom));
        assert!(a <= b, "{b} chunks live, {a} are referenced");
        leaked_ever = b - a;
        assert_eq!(bloom_files(dirs[1].path()).len(), left);
    }
    // About 500 chunks were deleted by filters of 10 bits a chunk or more.
    assert!(leaked_ever <= 20, "{leaked_ever}");
    assert_eq!(verify(bloom), []);
    let report = bloom.gc(false).unwrap();
    assert_eq!(report.repaired_chunks, leaked_ever);
    assert_eq!(live_chunks(exact), live_chunks(bloom));
    assert_eq!(bloom.gc(false).unwrap().repaired_chunks, 0);
    for spec in ["latest", "latest~1"] {
        assert!(common::restore(bloom, DISK, spec).unwrap() == common::restore(exact, DISK, spec).unwrap());
    }
    assert_eq!(verify(bloom), []);
}

#[test]
fn deletions_repair_before_much_has_leaked() {
    let mut rng = rng(seed("deletions_repair_before_much_has_leaked"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    // Nothing of a version is in the next: with two at a time each deletion takes half of what there is.
    let first = misjudged(1 << 12, 7, 600.0);
    let wanted = (1..100).find(|r| leak_ratio(*r, first, 300.0, 300.0, 2) > LEAK_MAX).unwrap();
    backup(&vault, DISK, &blocks(&mut rng, 300), BLOOM).unwrap();
    let mut repaired = Vec::new();
    for n in 0..60 {
        backup(&vault, DISK, &blocks(&mut rng, 300), BLOOM).unwrap();
        if vault.delete(DISK, &["latest~1"]).unwrap().repaired_chunks > 0 {
            repaired.push(n + 1);
        }
        assert!(live_chunks(&vault) <= 300 + 60, "at {n}: {}", live_chunks(&vault));
    }
    assert!(!repaired.is_empty(), "none within {wanted} deletions");
    assert_eq!(verify(&vault), []);
}

/// A repair once wrote the list of dead chunks anew that the deletion before it, of the same session, had just made
/// count, and then had it deleted.
#[test]
fn a_repair_right_behind_a_deletion_of_the_same_container() {
    let mut rng = rng(seed("a_repair_right_behind_a_deletion_of_the_same_container"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut disk = blocks(&mut rng, 500);
    backup(&vault, DISK, &disk, BLOOM).unwrap();
    let mut repaired = 0;
    for n in 0..80 {
        // One container holds what stays and what goes.
        for _ in 0..150 {
            let at = rng.random_range(0..500) * BLOCK;
            let fresh = blocks(&mut rng, 1);
            disk[at..at + BLOCK].copy_from_slice(&fresh);
        }
        backup(&vault, DISK, &disk, BLOOM).unwrap();
        let report = match n % 8 {
            7 => vault.gc(false).unwrap().repaired_chunks,
            _ => vault.delete(DISK, &["latest~1"]).unwrap().repaired_chunks,
        };
        repaired += report;
        assert_eq!(verify(&vault), [], "after round {n}");
    }
    assert!(repaired > 0);
    assert!(common::restore(&vault, DISK, "latest").unwrap() == disk);
}

#[test]
fn without_a_filter_or_with_a_damaged_one_it_is_exact() {
    let mut rng = rng(seed("without_a_filter_or_with_a_damaged_one_it_is_exact"));
    let versions = versions(&mut rng, 4);
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for (n, v) in versions.iter().enumerate() {
        backup(&vault, DISK, v, if n == 1 { EXACT } else { BLOOM }).unwrap();
    }
    let files = bloom_files(dir.path());
    assert_eq!(files.len(), 3);
    for file in &files {
        let mut bytes = std::fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    let damaged = verify(&vault);
    assert_eq!(damaged.len(), 3, "{damaged:?}");
    assert!(damaged.iter().all(|d| d.snapshots.is_empty() && d.object.ends_with(".bloom")), "{damaged:?}");
    let before = live_chunks(&vault);
    vault.delete(DISK, &["latest~3"]).unwrap();
    assert!(live_chunks(&vault) < before);
    assert_eq!(vault.gc(false).unwrap().repaired_chunks, 0, "nothing was deleted by filters");
    for (n, v) in versions.iter().skip(1).rev().enumerate() {
        assert!(common::restore(&vault, DISK, &format!("latest~{n}")).unwrap() == *v);
    }
}
