//! Copies arrive equal, whatever the policies of the two vaults, and bring only what the other one lacks.

use crate::common::{image, next_version, restore, rng, scratch, seed, source};
use rand::rngs::StdRng;
use rand::RngExt;
use std::sync::Arc;
use store::LocalStore;
use tempfile::TempDir;
use vault::{
    BackupOptions, CopyOptions, CopyReport, Policy, Progress, SnapshotEntry, Vault, VaultError, BALANCED,
    CONVENTIONAL, COPIED_FROM, REVERSE, VM_CENTRIC,
};

const DISK: &str = "vm/disk";

fn vault_of(policy: &Policy) -> (TempDir, Vault) {
    let dir = scratch();
    let store = Arc::new(LocalStore::create(dir.path()).unwrap());
    let vault = Vault::init(store, policy).unwrap();
    (dir, vault)
}

fn backup(vault: &Vault, disk: &str, bytes: &[u8], time: i64) -> SnapshotEntry {
    backup_by(vault, None, disk, bytes, time)
}

fn backup_by(vault: &Vault, policy: Option<Policy>, disk: &str, bytes: &[u8], time: i64) -> SnapshotEntry {
    let tags = vec![("n".into(), time.to_string()), ("secret".into(), "x".into())];
    let options = BackupOptions { policy, time: Some(time), tags, ..BackupOptions::default() };
    vault.backup(disk, source(bytes, true), &options, &Progress::default()).unwrap().snapshot
}

fn copy(from: &Vault, to: &Vault, disk: &str) -> Result<CopyReport, VaultError> {
    copy_one(from, to, disk, None)
}

fn copy_one(from: &Vault, to: &Vault, disk: &str, snapshot: Option<&str>) -> Result<CopyReport, VaultError> {
    let options = CopyOptions { snapshot: snapshot.map(Into::into), tags_left_out: vec!["secret".into()] };
    let mut report = CopyReport::default();
    from.copy(disk, to, &options, &Progress::default(), &mut report)?;
    Ok(report)
}

fn entries(vault: &Vault, disk: &str) -> Vec<SnapshotEntry> {
    vault.snapshots(Some(disk)).unwrap().snapshots.into_iter().map(|s| s.entry).collect()
}

/// The snapshots are the same ones: ids, times, sizes, holds, tags but for one, and every byte.
fn same(from: &Vault, to: &Vault, disk: &str) {
    let (here, there) = (entries(from, disk), entries(to, disk));
    assert_eq!(here.len(), there.len());
    for (a, b) in here.iter().zip(&there) {
        assert_eq!((a.id, a.time, a.size, a.held), (b.id, b.time, b.size, b.held));
        let tag = |s: &SnapshotEntry, name: &str| s.tags.iter().find(|(k, _)| k == name).map(|t| t.1.clone());
        assert_eq!(tag(a, "n"), tag(b, "n"));
        assert!(tag(b, "secret").is_none() && tag(b, COPIED_FROM).is_some());
        let spec = a.id.to_string();
        assert!(restore(from, disk, &spec).unwrap() == restore(to, disk, &spec).unwrap(), "{spec} differs");
    }
    assert!(to.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

fn versions(rng: &mut StdRng, bytes: usize, count: usize) -> Vec<Vec<u8>> {
    let mut all = vec![image(rng, bytes)];
    while all.len() < count {
        all.push(next_version(rng, all.last().unwrap()));
    }
    all
}

#[test]
fn between_all_policies() {
    let mut rng = rng(seed("between_all_policies"));
    let small = Policy { segment_bytes: 64 << 10, chunking: "cdc:4k".parse().unwrap(), ..BALANCED };
    for from in &[BALANCED, REVERSE, CONVENTIONAL, VM_CENTRIC, small] {
        for to in &[BALANCED, REVERSE, CONVENTIONAL, VM_CENTRIC] {
            let ((_a, here), (_b, there)) = (vault_of(from), vault_of(to));
            let bytes = rng.random_range(1..6_000_000);
            let all = versions(&mut rng, bytes, 5);
            let mut done = 0;
            for (n, bytes) in all.iter().enumerate() {
                let time = 1_790_000_000 + n as i64 * 3600;
                let s = backup_by(&here, Some(*from), DISK, bytes, time);
                if n == 1 {
                    here.set_held(DISK, &s.id.to_string(), true).unwrap();
                }
                if rng.random_bool(0.4) {
                    done += copy(&here, &there, DISK).unwrap().copied.len();
                }
            }
            done += copy(&here, &there, DISK).unwrap().copied.len();
            assert_eq!(done, 5);
            same(&here, &there, DISK);
            let again = copy(&here, &there, DISK).unwrap();
            assert_eq!((again.copied.len(), again.there, again.older), (0, 5, 0));
        }
    }
}

/// Half of the disk's chunks are on another disk of the other vault, and the second version changes little.
#[test]
fn only_what_is_missing_is_read() {
    let mut rng = rng(seed("only_what_is_missing_is_read"));
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    let mut bytes = vec![0; 24 << 20];
    rng.fill(&mut bytes[..]);
    backup(&there, "vm/other", &bytes[..12 << 20], 1_790_000_000);
    backup(&here, DISK, &bytes, 1_790_000_000);
    let first = copy(&here, &there, DISK).unwrap();
    let read = first.copied[0].read_bytes;
    assert!((12 << 20..13 << 20).contains(&read), "{read} bytes were read for 12 MiB that are missing");
    bytes[5_000_000..5_100_000].fill(7);
    backup(&here, DISK, &bytes, 1_790_003_600);
    let second = copy(&here, &there, DISK).unwrap();
    let read = second.copied[0].read_bytes;
    assert!(read < 120_000, "{read} bytes were read for 100,000 that are new");
    same(&here, &there, DISK);
}

#[test]
fn what_a_retention_has_deleted_stays_deleted() {
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    let all: Vec<String> = (0..5u8)
        .map(|n| backup(&here, DISK, &vec![n + 1; 300_000], i64::from(n) * 3600).id.to_string())
        .collect();
    let report = copy_one(&here, &there, DISK, Some(&all[2])).unwrap();
    assert_eq!((report.copied.len(), report.there, report.older), (1, 0, 0));
    // Of those before it, none comes.
    let report = copy(&here, &there, DISK).unwrap();
    assert_eq!((report.copied.len(), report.there, report.older), (2, 1, 2));
    let refused = copy_one(&here, &there, DISK, Some(&all[0])).unwrap_err();
    assert!(matches!(&refused, VaultError::Refused(why) if why.contains("older")), "{refused}");
    // Nothing that both had is left here.
    for id in &all[2..] {
        here.delete(DISK, &[id]).unwrap();
    }
    assert_eq!(copy(&here, &there, DISK).unwrap().copied.len(), 0);
    let fresh = backup(&here, DISK, &[9; 300_000], 10 * 3600);
    assert_eq!(copy(&here, &there, DISK).unwrap().copied[0].snapshot.id, fresh.id);
    assert!(restore(&there, DISK, "latest").unwrap() == [9; 300_000]);
}

#[test]
fn a_disk_that_is_another_one_is_left_alone() {
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    backup(&here, DISK, &[1; 100_000], 0);
    backup(&there, DISK, &[2; 100_000], 0);
    let refused = copy(&here, &there, DISK).unwrap_err();
    assert!(matches!(&refused, VaultError::Refused(why) if why.contains("another disk")), "{refused}");
    assert_eq!(entries(&there, DISK).len(), 1);
    assert!(matches!(copy(&here, &there, "vm/none"), Err(VaultError::NotFound { .. })));
    // To itself: all is there.
    assert_eq!(copy(&here, &here, DISK).unwrap().there, 1);
}

/// Damage here keeps one snapshot from arriving, and no later one; nothing wrong arrives.
#[test]
fn damage_is_not_copied() {
    for by in [BALANCED, Policy { segment_bytes: 64 << 10, ..BALANCED }] {
        let ((dir, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
        let mut rng = rng(13);
        let mut bytes = vec![0; 1 << 20];
        for n in 0..2 {
            rng.fill(&mut bytes[..]);
            backup_by(&here, Some(by), DISK, &bytes, n * 3600);
        }
        let newest = common_data_object(dir.path());
        let mut data = std::fs::read(&newest).unwrap();
        let middle = data.len() / 2;
        data[middle] ^= 1;
        std::fs::write(&newest, data).unwrap();
        rng.fill(&mut bytes[..]);
        let third = backup_by(&here, Some(by), DISK, &bytes, 3 * 3600);
        let mut report = CopyReport::default();
        let copied = here.copy(DISK, &there, &CopyOptions::default(), &Progress::default(), &mut report);
        assert!(matches!(&copied, Err(e) if e.is_damage()), "{copied:?}");
        assert_eq!((report.copied.len(), entries(&there, DISK).len()), (2, 2));
        assert_eq!(report.copied[1].snapshot.id, third.id);
        assert!(restore(&there, DISK, "latest").unwrap() == bytes);
        // Once more: the damaged one is older than what both have.
        assert_eq!(copy(&here, &there, DISK).unwrap().older, 1);
        assert!(there.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
    }
}

/// The container that was written last.
fn common_data_object(vault: &std::path::Path) -> std::path::PathBuf {
    let mut all = Vec::new();
    let mut dirs = vec![vault.join("objects")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "data") {
                all.push(path);
            }
        }
    }
    all.sort_by_key(|p| std::fs::metadata(p).unwrap().modified().unwrap());
    all.pop().unwrap()
}

/// Two copies at once: each snapshot arrives once.
#[test]
fn two_copies_at_once() {
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    let mut rng = rng(seed("two_copies_at_once"));
    for (n, bytes) in versions(&mut rng, 2_000_000, 12).iter().enumerate() {
        backup(&here, DISK, bytes, n as i64 * 3600);
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| match copy(&here, &there, DISK) {
                Ok(_) | Err(VaultError::Busy { .. } | VaultError::Refused(_)) => {}
                Err(e) => panic!("{e}"),
            });
        }
    });
    copy(&here, &there, DISK).unwrap();
    same_without_order(&here, &there);
}

fn same_without_order(here: &Vault, there: &Vault) {
    let ids = |v: &Vault| entries(v, DISK).iter().map(|s| s.id).collect::<Vec<_>>();
    assert_eq!(ids(here), ids(there), "each once, in order");
    same(here, there, DISK);
}

#[test]
fn an_empty_disk_and_one_of_an_odd_size() {
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    for (n, bytes) in [vec![0; 0], vec![0; 1 << 20], vec![5; 777], vec![6; (4 << 20) + 1]].iter().enumerate()
    {
        let disk = format!("vm/d{n}");
        backup(&here, &disk, bytes, 0);
        copy(&here, &there, &disk).unwrap();
        assert!(restore(&there, &disk, "latest").unwrap() == *bytes);
    }
}

/// A copy that is stopped while it brings the first snapshot goes on where it was: what it has stored is not read again.
#[test]
fn a_stopped_first_copy_goes_on() {
    for policy in [BALANCED, REVERSE] {
        let ((_a, here), (dir, there)) = (vault_of(&policy), vault_of(&policy));
        let mut rng = rng(seed("a_stopped_first_copy_goes_on"));
        let mut bytes = vec![0; 160 << 20];
        rng.fill(&mut bytes[..]);
        backup(&here, DISK, &bytes, 0);
        let options = CopyOptions::default();
        let stopped_at = |limit: u64| {
            let progress = Progress::default();
            std::thread::scope(|scope| {
                let copy =
                    scope.spawn(|| here.copy(DISK, &there, &options, &progress, &mut CopyReport::default()));
                while progress.done() < limit && !copy.is_finished() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                progress.cancel();
                copy.join().unwrap()
            })
        };
        for limit in [90 << 20, 120 << 20] {
            let stopped = stopped_at(limit);
            assert!(matches!(stopped, Err(VaultError::Cancelled)), "{stopped:?}");
        }
        let stored = data_bytes(dir.path());
        assert!(stored >= 64 << 20, "{stored} bytes were stored before it was stopped");
        let read = copy(&here, &there, DISK).unwrap().copied[0].read_bytes;
        // A container was not whole yet.
        assert!(read <= bytes.len() as u64 - (64 << 20), "{}: {read} bytes were read again", policy.name);
        same_bytes(&there, &bytes);
        // What the stopped ones have left and nobody needs goes, and nothing else.
        there.gc(false).unwrap();
        there.gc(false).unwrap();
        same_bytes(&there, &bytes);
        let after = data_bytes(dir.path());
        assert!(after < bytes.len() as u64 * 21 / 20, "{}: {after} bytes are stored", policy.name);
        assert_eq!(there.verify(None, true, &Progress::default()).unwrap().damaged, []);
        assert_eq!(copy(&here, &there, DISK).unwrap().there, 1);
    }
}

fn same_bytes(vault: &Vault, bytes: &[u8]) {
    assert!(restore(vault, DISK, "latest").unwrap() == bytes);
}

/// Bytes of all data objects.
fn data_bytes(vault: &std::path::Path) -> u64 {
    let mut sum = 0;
    let mut dirs = vec![vault.join("objects")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "data") {
                sum += std::fs::metadata(path).unwrap().len();
            }
        }
    }
    sum
}

/// A restore holds what it reads, for its time. That is no reason to hold the copy.
#[test]
fn the_hold_of_a_restore_is_not_copied() {
    let ((_a, here), (_b, there)) = (vault_of(&BALANCED), vault_of(&BALANCED));
    let ids: Vec<String> =
        (0..2u8).map(|n| backup(&here, DISK, &vec![n + 1; 300_000], i64::from(n)).id.to_string()).collect();
    here.set_held(DISK, &ids[0], true).unwrap();
    for id in &ids {
        here.hold_for(DISK, id, "a restore").unwrap();
    }
    copy(&here, &there, DISK).unwrap();
    let held = |vault: &Vault| entries(vault, DISK).iter().map(|s| s.held).collect::<Vec<_>>();
    assert_eq!((held(&here), held(&there)), (vec![true, true], vec![true, false]));
    assert!(entries(&there, DISK).iter().all(|s| s.tags.iter().all(|(name, _)| name != vault::HELD_FOR)));
    // It ends with the restore, but not where the user holds it, before or since.
    here.end_hold_for(DISK, &ids[0], "a restore").unwrap();
    here.end_hold_for(DISK, &ids[1], "a restore").unwrap();
    assert_eq!(held(&here), [true, false]);
    here.hold_for(DISK, &ids[1], "a restore").unwrap();
    assert!(here.set_held(DISK, &ids[1], true).unwrap().1);
    here.end_hold_for(DISK, &ids[1], "a restore").unwrap();
    assert_eq!(held(&here), [true, true]);
}
