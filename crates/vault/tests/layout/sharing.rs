//! Disks that share chunks: each chunk is stored once, in a container of the disk that wrote it first, for as long as any
//! disk references it.

use crate::common;
use crate::common::{next_version, rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use std::fs;
use std::path::Path;
use vault::{Global, Policy, Progress, Vault, BALANCED, CONVENTIONAL, REVERSE};

fn small(policy: Policy) -> Policy {
    let global = match policy.global {
        // As many hooks in a small segment as in one of full size.
        Global::Chunks { champions, .. } => Global::Chunks { sampled: 2, champions },
        global => global,
    };
    Policy { segment_bytes: 256 << 10, group_bytes: 64 << 10, container_bytes: 1 << 20, global, ..policy }
}

const POLICIES: [Policy; 3] = [BALANCED, CONVENTIONAL, REVERSE];

/// A disk of `mib` MiB, half of it zeros.
fn image(rng: &mut StdRng, mib: usize) -> Vec<u8> {
    let mut bytes = vec![0; mib << 20];
    bytes.chunks_mut(256 << 10).step_by(2).for_each(|half| rng.fill(half));
    bytes
}

/// The files below a folder of a vault.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Backs a disk up. Returns the bytes of chunks that were new.
fn backup(vault: &Vault, disk: &str, bytes: &[u8], policy: Policy) -> u64 {
    common::backup(vault, disk, bytes, policy).unwrap().snapshot.new_bytes
}

fn restore(vault: &Vault, disk: &str) -> Vec<u8> {
    common::restore(vault, disk, "latest").unwrap()
}

fn data_files(dir: &Path) -> usize {
    files(dir).iter().filter(|p| p.extension().is_some_and(|e| e == "data")).count()
}

fn delete_all(vault: &Vault, disk: &str) {
    let ids: Vec<String> =
        vault.snapshots(Some(disk)).unwrap().snapshots.iter().map(|s| s.entry.id.to_string()).collect();
    for id in ids {
        vault.delete(disk, &[&id]).unwrap();
    }
}

#[test]
fn a_clone_stores_what_is_its_own() {
    for policy in POLICIES {
        let mut rng = rng(seed("a_clone_stores_what_is_its_own"));
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let template = image(&mut rng, 8);
        let first = backup(&vault, "a/x", &template, small(policy));
        let clone = backup(&vault, "b/x", &template, small(policy));
        assert_eq!(first, 4 << 20, "{}", policy.name);
        assert_eq!(clone, 0, "{}: an equal disk has nothing new", policy.name);
        // What hooks do not lead to is found in the same containers.
        let mut own = template.clone();
        rng.fill(&mut own[2 << 20..(2 << 20) + 8192]);
        let other = backup(&vault, "c/x", &own, small(policy));
        let most = if policy.name == "reverse" { u64::from(small(policy).segment_bytes) } else { 8192 };
        assert!(other <= most, "{}: {} bytes are new", policy.name, other);
        assert!(restore(&vault, "b/x") == template && restore(&vault, "c/x") == own);
        let stats = vault.stats(None).unwrap();
        let of = |name: &str| stats.disks.iter().find(|d| d.name == name).unwrap();
        assert_eq!((of("a/x").owners, of("a/x").foreign_containers), (0, 0));
        assert_eq!(of("b/x").owners, 1);
        assert_eq!((of("b/x").containers, of("b/x").foreign_containers), (0, of("a/x").containers));
    }
}

#[test]
fn an_isolated_disk_takes_nothing_from_others() {
    let mut rng = rng(seed("an_isolated_disk_takes_nothing_from_others"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let template = image(&mut rng, 8);
    let first = backup(&vault, "a/x", &template, small(BALANCED));
    for disk in ["b/x", "c/x"] {
        let alone = backup(&vault, disk, &template, small(BALANCED).isolated());
        assert_eq!(alone, first);
    }
    let stats = vault.stats(None).unwrap();
    assert!(stats.disks.iter().all(|d| d.owners == 0 && d.foreign_containers == 0));
}

/// An owner gives its chunks up only when its last referrer does, in whatever order disks are deleted.
#[test]
fn an_owner_outlives_its_snapshots() {
    for policy in POLICIES {
        let mut rng = rng(seed("an_owner_outlives_its_snapshots"));
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let template = image(&mut rng, 6);
        let upgraded = next_version(&mut rng, &template);
        backup(&vault, "a/x", &template, small(policy));
        backup(&vault, "a/x", &upgraded, small(policy));
        backup(&vault, "b/x", &template, small(policy));
        backup(&vault, "c/x", &upgraded, small(policy));
        delete_all(&vault, "a/x");
        for _ in 0..2 {
            vault.gc(false).unwrap();
            assert!(restore(&vault, "b/x") == template, "{}", policy.name);
            assert!(restore(&vault, "c/x") == upgraded, "{}", policy.name);
        }
        let report = vault.verify(None, true, &Progress::default()).unwrap();
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
        // The name is free for a new disk, which finds what is there.
        let again = backup(&vault, "a/x", &template, small(policy));
        assert!(again < 1 << 20, "{}: {} bytes are new", policy.name, again);
        delete_all(&vault, "a/x");
        delete_all(&vault, "b/x");
        vault.gc(false).unwrap();
        assert!(restore(&vault, "c/x") == upgraded, "{}", policy.name);
        delete_all(&vault, "c/x");
        vault.gc(false).unwrap();
        vault.gc(false).unwrap();
        assert_eq!(data_files(dir.path()), 0, "{}: all space comes back", policy.name);
        let left = files(&dir.path().join("objects/disks"));
        assert!(left.is_empty(), "{}: {left:?}", policy.name);
    }
}

/// A deletion does not ask many disks whether they need what it gave up: one collection does, for all deletions.
#[test]
fn what_many_disks_share_goes_with_a_collection() {
    let mut rng = rng(seed("what_many_disks_share_goes_with_a_collection"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let template = image(&mut rng, 4);
    let upgraded = next_version(&mut rng, &template);
    let disks: Vec<String> = (0..12).map(|n| format!("c{n}/x")).collect();
    for disk in &disks {
        backup(&vault, disk, &template, small(BALANCED));
        backup(&vault, disk, &upgraded, small(BALANCED));
    }
    for (n, disk) in disks.iter().enumerate() {
        let first = vault.delete(disk, &["latest~1"]).unwrap();
        let last = vault.delete(disk, &["latest"]).unwrap();
        let few = n + 8 > disks.len();
        assert!(few || n == 0 || first.left_shared + last.left_shared > 0, "{disk}: {first:?}, {last:?}");
        if let Some(next) = disks.get(n + 1) {
            assert!(restore(&vault, next) == upgraded, "{next}");
        }
    }
    vault.gc(false).unwrap();
    assert_eq!(data_files(dir.path()), 0, "one collection gives all space back");
    vault.gc(false).unwrap();
    let left = files(&dir.path().join("objects/disks"));
    assert!(left.is_empty(), "{left:?}");
}

/// Without its record, a referrer would not be asked before its chunks are removed.
#[test]
fn a_lost_referrer_record_is_told_and_put_back() {
    let mut rng = rng(seed("a_lost_referrer_record_is_told_and_put_back"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let template = image(&mut rng, 8);
    backup(&vault, "a/x", &template, small(BALANCED));
    backup(&vault, "b/x", &template, small(BALANCED));
    let records: Vec<_> = files(&dir.path().join("objects/disks"))
        .into_iter()
        .filter(|p| p.components().any(|c| c.as_os_str() == "referrers"))
        .collect();
    assert_eq!(records.len(), 1, "{records:?}");
    fs::remove_file(&records[0]).unwrap();
    let report = vault.verify(None, false, &Progress::default()).unwrap();
    assert!(report.damaged.iter().any(|d| d.object.contains("/referrers/")), "{:?}", report.damaged);
    vault.gc(false).unwrap();
    assert!(records[0].exists());
    let report = vault.verify(None, true, &Progress::default()).unwrap();
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    delete_all(&vault, "a/x");
    vault.gc(false).unwrap();
    assert!(restore(&vault, "b/x") == template);
}

/// What reverse passes leave in containers that another disk may reference goes with a later backup, not only with a
/// collection.
#[test]
fn backups_sweep_what_their_passes_leave() {
    let mut rng = rng(seed("backups_sweep_what_their_passes_leave"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let policy = small(REVERSE);
    let template = image(&mut rng, 24);
    let data_bytes = || -> u64 {
        let all = files(dir.path()).into_iter().filter(|p| p.extension().is_some_and(|e| e == "data"));
        all.map(|p| fs::metadata(p).unwrap().len()).sum()
    };
    // A block of each segment changes, so all segments are written whole.
    let change = |rng: &mut StdRng| {
        let mut bytes = template.clone();
        bytes.chunks_mut(256 << 10).step_by(2).for_each(|half| rng.fill(&mut half[..4096]));
        bytes
    };
    for disk in ["a/x", "b/x"] {
        backup(&vault, disk, &template, policy);
    }
    assert!(data_bytes() < 13 << 20, "{}", data_bytes());
    let contents = [("b/x", change(&mut rng)), ("a/x", change(&mut rng))];
    for (disk, bytes) in &contents {
        let report = common::backup(&vault, disk, bytes, policy).unwrap();
        assert_eq!(report.reverse.held_up, None);
    }
    // Two disks of 12 MiB, and the blocks of the first version that the second has not.
    assert!(data_bytes() < 26 << 20, "{}", data_bytes());
    for (disk, bytes) in &contents {
        assert!(
            restore(&vault, disk) == *bytes && common::restore(&vault, disk, "latest~1").unwrap() == template
        );
    }
    let before = data_bytes();
    vault.gc(false).unwrap();
    assert_eq!(data_bytes(), before);
    let found = vault.verify(None, true, &Progress::default()).unwrap();
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
}

/// Chunks that others keep in the old place would stay there twice: they are written again only where a restore reads four
/// times what it needs.
#[test]
fn shared_chunks_are_seldom_written_again() {
    for (share, kept, is_rewritten) in [(false, 2, true), (true, 2, false), (true, 8, true)] {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let mut rng = rng(seed("shared_chunks_are_seldom_written_again"));
        let mut bytes = vec![0; 16 << 20];
        rng.fill(&mut bytes[..]);
        backup(&vault, "vm/a", &bytes, BALANCED);
        if share {
            assert_eq!(backup(&vault, "vm/b", &bytes, BALANCED), 0);
        }
        // One block of so many stays.
        bytes.chunks_mut(4096).enumerate().filter(|(n, _)| n % kept != 0).for_each(|(_, b)| rng.fill(b));
        backup(&vault, "vm/a", &bytes, BALANCED);
        rng.fill(&mut bytes[..4096]);
        let report = common::backup(&vault, "vm/a", &bytes, BALANCED).unwrap();
        let told = format!("shared: {share}, one of {kept} kept: {} bytes", report.rewritten_bytes);
        assert_eq!(report.rewritten_bytes > 1 << 20, is_rewritten, "{told}");
        assert!(restore(&vault, "vm/a") == bytes);
    }
}
