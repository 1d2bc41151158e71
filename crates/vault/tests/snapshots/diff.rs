//! What `diff` says of two snapshots, against the bytes of both.

use crate::common;
use crate::common::{image, next_version, rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use std::ops::Range;
use vault::{BackupOptions, Policy, Progress, Vault, BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC};

/// Large chunks of one size in small segments.
fn coarse() -> Policy {
    Policy { segment_bytes: 1 << 20, chunking: "32k".parse().unwrap(), ..CONVENTIONAL }
}

type Side<'a> = (&'a str, &'a str);

fn diff(vault: &Vault, old: Side, new: Side) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    vault.diff(old, new, &mut |r| ranges.push(r)).unwrap();
    ranges
}

/// Every difference is in a range. Ranges are in order, apart from each other, and within the longer disk.
fn check(ranges: &[Range<u64>], old: &[u8], new: &[u8], what: &str) {
    let common = old.len().min(new.len());
    let longer = old.len().max(new.len()) as u64;
    let mut end = None;
    for r in ranges {
        assert!(r.start < r.end && r.end <= longer && end.is_none_or(|e| e < r.start), "{what}: {ranges:?}");
        end = Some(r.end);
    }
    let mut at = 0;
    for r in ranges.iter().cloned().chain(std::iter::once(longer..longer)) {
        let same = at.min(common)..(r.start as usize).min(common);
        assert!(old[same.clone()] == new[same.clone()], "{what}: a difference in {same:?} is not told");
        at = r.end as usize;
    }
    if old.len() != new.len() {
        assert_eq!(end, Some(longer), "{what}: the end of the longer one");
    }
}

/// Of chunks of one size in both, no more is told than differs.
fn check_whole_chunks(ranges: &[Range<u64>], chunk: u64, old: &[u8], new: &[u8], what: &str) {
    let common = old.len().min(new.len()) as u64;
    let part = |disk: &[u8], r: Range<u64>| disk[r.start as usize..(r.end as usize).min(disk.len())].to_vec();
    for r in ranges {
        assert!(r.start % chunk == 0 || r.start == common, "{what}: {r:?}");
        assert!(r.end % chunk == 0 || r.end >= common, "{what}: {r:?}");
        let mut at = r.start;
        while at < r.end.min(common) {
            let end = at / chunk * chunk + chunk;
            // The last chunk of the shorter disk is another one than that of the longer disk.
            let is_cut = end > common && old.len() != new.len();
            assert!(is_cut || part(old, at..end) != part(new, at..end), "{what}: {at}..{end} is the same");
            at = end;
        }
    }
}

fn backup(vault: &Vault, disk: &str, bytes: &[u8], policy: Policy) -> String {
    let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
    let source = common::source(bytes, true);
    vault.backup(disk, source, &options, &Progress::default()).unwrap().snapshot.id.to_string()
}

fn small(policy: Policy, rng: &mut StdRng) -> Policy {
    let segment_bytes = [64 << 10, 256 << 10][rng.random_range(0..2)];
    Policy { segment_bytes, own_index_bytes: 1 << 20, ..policy }
}

/// A chain of versions of one disk, and one of another; any two of them.
#[test]
fn ranges_are_what_differs() {
    let start = seed("ranges_are_what_differs");
    for (n, policy) in [BALANCED, REVERSE, VM_CENTRIC, CONVENTIONAL, coarse()].into_iter().enumerate() {
        for round in 0..3 {
            let mut rng = rng(start.wrapping_add(n as u64 * 100 + round));
            let dir = common::scratch();
            let vault = common::new_vault(dir.path());
            let policy = small(policy, &mut rng);
            let len = rng.random_range(1..2_000_000);
            let mut bytes = image(&mut rng, len);
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(("vm/a", backup(&vault, "vm/a", &bytes, policy), bytes.clone()));
                bytes = next_version(&mut rng, &bytes);
            }
            all.push(("vm/b", backup(&vault, "vm/b", &bytes, policy), bytes));
            for (disk, id, old) in &all {
                for (other, newer, new) in &all {
                    let what = format!("policy {n}, round {round} of {start}: {disk}@{id} {other}@{newer}");
                    let ranges = diff(&vault, (disk, id), (other, newer));
                    check(&ranges, old, new, &what);
                    if let chunk::ChunkSpec::Fixed { bytes } = policy.chunking {
                        check_whole_chunks(&ranges, bytes.into(), old, new, &what);
                    }
                    let identical = id == newer || old == new;
                    assert!(!identical || ranges.is_empty(), "{what}: {ranges:?}");
                    let turned = diff(&vault, (other, newer), (disk, id));
                    assert_eq!(turned, ranges, "{what}, turned round");
                }
            }
        }
    }
}

/// Chunks of other sizes in other segments: all that differs is told, and zeros are zeros.
#[test]
fn disks_of_different_policies_are_compared() {
    let start = seed("disks_of_different_policies_are_compared");
    let policies = [BALANCED, REVERSE, VM_CENTRIC, CONVENTIONAL, coarse()];
    let mut rng = rng(start);
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = image(&mut rng, 12 << 20);
    bytes[5 << 20..].fill(0);
    let mut all = Vec::new();
    for (n, policy) in policies.into_iter().enumerate() {
        let disk = format!("vm/d{n}");
        let policy = Policy { own_index_bytes: 1 << 20, ..policy };
        let id = backup(&vault, &disk, &bytes, policy);
        all.push((disk, id, bytes.clone()));
        let at = rng.random_range(0..4 << 20);
        rng.fill(&mut bytes[at..at + 10_000]);
    }
    for (disk, id, old) in &all {
        for (other, newer, new) in &all {
            let ranges = diff(&vault, (disk, id), (other, newer));
            let what = format!("seed {start}: {disk} {other}");
            check(&ranges, old, new, &what);
            assert!(ranges.iter().all(|r| r.start < 6 << 20), "{what}: zeros differ from zeros: {ranges:?}");
        }
    }
}

/// A disk of 1 TiB with data far apart takes no longer than what is on it.
#[test]
fn what_is_on_neither_is_passed_over() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let path = dir.path().join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let write =
        |at: u64, byte: u8| std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 4096], at).unwrap();
    write(0, 1);
    write(600 << 30, 2);
    let options = BackupOptions::default();
    let run = || {
        let source = image::open(&path, &image::SourceOptions::default()).unwrap();
        vault.backup("vm/d", source, &options, &Progress::default()).unwrap();
    };
    run();
    write(300 << 30, 3);
    write(600 << 30, 4);
    run();
    let ranges = diff(&vault, ("vm/d", "latest~1"), ("vm/d", "latest"));
    let at = |start: u64| start..start + 4096;
    assert_eq!(ranges, [at(300 << 30), at(600 << 30)]);
}
