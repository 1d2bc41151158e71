//! What `stats`, `map` and `study` say, compared with what is there.

use crate::between::Between;
use crate::common;
use crate::common::{backup, image, next_version, rng, seed};
use rand::RngExt;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::{Entry, LocalStore, ObjectStore, SimFs, SimStore};
use vault::{
    Cell, Policy, Progress, Rewrite, Study, Vault, VaultError, VerifyReport, BALANCED, CONVENTIONAL,
};

fn bytes_on(store: &dyn ObjectStore) -> u64 {
    let mut sum = 0;
    store
        .list("", &mut |e| {
            sum += e.len;
            Ok(())
        })
        .unwrap();
    sum
}

/// The containers of other owners, and these owners, that the snapshots of a disk reference.
fn foreign(vault: &Vault, disk: &str) -> (u64, u64) {
    let of_disk = vault.disk_chunks(disk).unwrap();
    let mut ids = HashSet::new();
    for s in of_disk.snapshots() {
        of_disk.each_run(s, &mut |id, _| ids.extend([id])).unwrap();
    }
    ids.retain(|id| !id.is_own());
    let owners: HashSet<_> = ids.iter().map(|id| id.owner()).collect();
    (ids.len() as u64, owners.len() as u64)
}

#[test]
fn statistics_add_up_to_what_is_stored() {
    let mut rng = rng(seed("statistics_add_up_to_what_is_stored"));
    let dir = common::scratch();
    let store = Arc::new(LocalStore::create(dir.path()).unwrap());
    let vault = Vault::init(store.clone(), &BALANCED).unwrap();
    let check = |logical: u64, snapshots: u64| {
        let s = vault.stats(None).unwrap();
        assert_eq!(s.data_bytes() + s.metadata_bytes(), bytes_on(&*store));
        assert_eq!(s.disks.iter().map(|d| d.logical_bytes).sum::<u64>(), logical);
        assert_eq!(s.disks.iter().map(|d| d.snapshots).sum::<u64>(), snapshots);
        s
    };
    check(0, 0);
    let (mut sizes, mut before) = (HashMap::new(), Vec::new());
    for (disk, policy) in [("a/vda", BALANCED), ("b/vda", CONVENTIONAL), ("c/vda", CONVENTIONAL)] {
        let policy = Policy { own_index_bytes: 1 << 20, container_bytes: 256 << 10, ..policy };
        let mut bytes = image(&mut rng, 1_500_000);
        if disk == "c/vda" {
            // It is a clone of another disk as that one is now.
            bytes.clone_from(&before);
        }
        for _ in 0..3 {
            before.clone_from(&bytes);
            let entry = backup(&vault, disk, &bytes, policy).unwrap().snapshot;
            sizes.insert((disk, entry.id), (entry.size, entry.data_bytes));
            bytes = next_version(&mut rng, &bytes);
            let at = rng.random_range(0..bytes.len().saturating_sub(100_000).max(1));
            let end = bytes.len().min(at + 100_000);
            rng.fill(&mut bytes[at..end]);
        }
    }
    let s = check(sizes.values().map(|s| s.0).sum(), 9);
    assert_eq!(s.popular.data + s.popular.metadata(), 0, "nobody has built one");
    for d in &s.disks {
        let (containers, owners) = foreign(&vault, &d.name);
        assert_eq!((d.foreign_containers, d.owners), (containers, owners), "{}", d.name);
        match d.name.as_str() {
            "a/vda" => assert_eq!(owners, 0, "there was no other disk"),
            "c/vda" => assert!(owners > 0, "it is a clone"),
            _ => {}
        }
        assert_eq!(d.damaged + d.released, 0);
        let newest = vault.newest_stats(&d.name).unwrap().unwrap();
        let f = newest.fragmentation;
        assert!(f.groups >= f.containers && f.runs >= f.containers);
        assert!(f.wanted_bytes <= d.nonzero_bytes);
        let taken: u64 = newest.taken.iter().map(|t| t.bytes).sum();
        assert_eq!(newest.own_bytes + taken, f.wanted_bytes);
        assert!(newest.taken.len() as u64 <= owners, "{}", d.name);
        let of_one = vault.stats(Some(&d.name)).unwrap();
        assert_eq!((of_one.disks.len(), of_one.disks[0].bytes.all()), (1, d.bytes.all()));
    }
    let first = vault.snapshots(Some("a/vda")).unwrap().snapshots[0].entry.id;
    vault.delete("a/vda", &[&first.to_string()]).unwrap();
    sizes.remove(&("a/vda", first));
    check(sizes.values().map(|s| s.0).sum(), 8);
}

#[test]
fn a_map_tells_which_backup_wrote_what() {
    let mut rng = rng(seed("a_map_tells_which_backup_wrote_what"));
    let policy = Policy { rewrite_at: Rewrite::Never, ..BALANCED };
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 << 20];
    rng.fill(&mut bytes[..6 << 20]);
    let first = backup(&vault, "vm/d", &bytes, policy).unwrap().snapshot;
    rng.fill(&mut bytes[4 << 20..6 << 20]);
    rng.fill(&mut bytes[(1 << 20) + 4096..(1 << 20) + 8192]);
    let second = backup(&vault, "vm/d", &bytes, policy).unwrap().snapshot;

    let map = vault.map("vm/d", "latest", 64).unwrap();
    assert_eq!((map.cell_bytes, map.cells.len()), (128 << 10, 64));
    for (n, cell) in map.cells.iter().enumerate() {
        let wanted = match n {
            8 => Cell::Mixed { age: 1 },
            0..32 => Cell::One { age: 1 },
            32..48 => Cell::One { age: 0 },
            _ => Cell::Null,
        };
        assert_eq!(*cell, wanted, "cell {n}");
    }
    let ages: Vec<_> = map.ages.iter().map(|a| (a.age, a.snapshot, a.bytes)).collect();
    let new = (2 << 20) + 4096;
    assert_eq!(ages, [(0, Some(second.id), new), (1, Some(first.id), (6 << 20) - new)]);
    let f = map.fragmentation;
    assert_eq!(f.wanted_bytes, 6 << 20);
    assert!(f.fetched_bytes >= f.wanted_bytes && f.runs >= 4, "{f:?}");

    let old = vault.map("vm/d", &first.id.to_string(), 1000).unwrap();
    assert!(old.cells.len() <= 1000 && old.ages.len() == 1);
    backup(&vault, "vm/empty", &[], BALANCED).unwrap();
    assert_eq!(vault.map("vm/empty", "latest", 64).unwrap().cells, []);
}

fn row<'a>(study: &'a Study, cut: &str) -> &'a chunk::CensusReport {
    &study.rows.iter().find(|r| r.cut == cut).unwrap().report
}

/// Counts the blocks of files: all that are not zero, the different ones, and the bytes of zeros.
fn count_blocks(files: &[Vec<u8>], block: usize) -> (u64, u64, u64) {
    let (mut seen, mut chunks, mut null) = (HashMap::new(), 0, 0);
    for b in files.iter().flat_map(|f| f.chunks(block)) {
        if b.iter().all(|x| *x == 0) {
            null += b.len() as u64;
        } else {
            chunks += 1;
            *seen.entry(b).or_insert(0) += 1;
        }
    }
    (chunks, seen.len() as u64, null)
}

#[test]
fn a_study_counts_what_is_there() {
    let mut rng = rng(seed("a_study_counts_what_is_there"));
    let dir = common::scratch();
    let mut noise = vec![0; 300_001];
    rng.fill(&mut noise[..]);
    let mut shifted = vec![0; 4096];
    shifted.extend_from_slice(&noise);
    let mut behind_zeros = vec![0; 12 << 20];
    behind_zeros.extend_from_slice(&noise);
    let big = image(&mut rng, 9_000_000);
    let files = [noise.clone(), noise, shifted, behind_zeros, vec![0; 70_000], Vec::new(), big];
    for (n, bytes) in files.iter().enumerate() {
        let folder = dir.path().join(format!("d{}", n % 3));
        fs::create_dir_all(&folder).unwrap();
        write_sparse(&folder.join(format!("f{n}")), bytes);
    }
    std::os::unix::fs::symlink(dir.path(), dir.path().join("d0/loop")).unwrap();
    let cuts: Vec<chunk::ChunkSpec> = ["4k", "8k", "12k", "cdc:4k"].map(|c| c.parse().unwrap()).into();
    let study = vault::study(&[dir.path().into()], &cuts, None, &Progress::default()).unwrap();
    let bytes: u64 = files.iter().map(|f| f.len() as u64).sum();
    assert_eq!((study.files, study.bytes, study.skipped.len()), (7, bytes, 0));
    let whole = row(&study, "whole file");
    assert_eq!((whole.chunks, whole.unique_chunks, whole.saved_bytes()), (7, 6, 300_001));
    assert_eq!((whole.classes[0].unique_chunks, whole.classes[1].unique_chunks), (5, 1));
    for (cut, block) in [("4k", 4096), ("8k", 8192), ("12k", 12_288)] {
        let r = row(&study, cut);
        let (chunks, unique, null) = count_blocks(&files, block);
        assert_eq!((r.chunks, r.unique_chunks, r.null_bytes), (chunks, unique, null), "{cut}");
        assert_eq!(r.bytes + r.null_bytes, bytes, "{cut}");
    }
    assert!(row(&study, "cdc:4k").saved_bytes() > row(&study, "12k").saved_bytes());
}

/// Zeros become holes.
fn write_sparse(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (n, b) in bytes.chunks(4096).enumerate().filter(|(_, b)| b.iter().any(|x| *x != 0)) {
        file.write_all_at(b, n as u64 * 4096).unwrap();
    }
}

#[test]
fn a_study_says_what_it_could_not_read() {
    let dir = common::scratch();
    fs::write(dir.path().join("good"), vec![1; 10_000]).unwrap();
    fs::write(dir.path().join("bad"), b"QFI\xfb\0\0\0\x02 and no more").unwrap();
    let cuts = ["4k".parse().unwrap()];
    let study = vault::study(&[dir.path().into()], &cuts, None, &Progress::default()).unwrap();
    assert_eq!((study.files, study.bytes), (1, 10_000));
    assert!(study.skipped.len() == 1 && study.skipped[0].contains("bad"), "{:?}", study.skipped);
    assert!(vault::study(&[dir.path().join("none")], &cuts, None, &Progress::default()).is_err());
}

/// What snapshots reference adds up to what they say of themselves, and to what deletion lets go.
#[test]
fn references_add_up_to_the_snapshots() {
    let mut rng = rng(seed("references_add_up_to_the_snapshots"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for (disk, policy) in [("a/vda", BALANCED), ("b/vda", CONVENTIONAL)] {
        let policy = Policy { container_bytes: 256 << 10, ..policy };
        let mut bytes = image(&mut rng, 3_000_000);
        for _ in 0..4 {
            backup(&vault, disk, &bytes, policy).unwrap();
            bytes = next_version(&mut rng, &bytes);
        }
        let of_disk = vault.disk_chunks(disk).unwrap();
        let containers = of_disk.containers().unwrap();
        assert_eq!(of_disk.snapshots().count(), 4);
        let mut referenced = HashSet::new();
        for s in of_disk.snapshots() {
            let mut runs = Vec::new();
            of_disk.each_run(s, &mut |id, chunks| runs.push((id, chunks))).unwrap();
            let bytes: u64 = runs.iter().map(|(id, c)| of_disk.bytes(*id, c.clone()).unwrap()).sum();
            assert_eq!(bytes, s.data_bytes);
            for (id, chunks) in runs {
                assert!(containers.iter().any(|c| c.id == id), "{id} {chunks:?}");
                referenced.extend(chunks.map(|no| (id, no)));
            }
        }
        let live: u32 = containers.iter().map(|c| c.chunks - c.dead_chunks).sum();
        assert_eq!(live as usize, referenced.len(), "{disk}");
    }
    assert!(vault.disk_chunks("c/vda").is_err());
}

#[test]
fn what_is_held_is_not_deleted() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let backup_of = |n: u8| backup(&vault, "vm/disk", &vec![n; 1 << 20], BALANCED).unwrap();
    let ids: Vec<String> = (1..4).map(|n| backup_of(n).snapshot.id.to_string()).collect();
    let held = || -> Vec<bool> {
        vault.snapshots(Some("vm/disk")).unwrap().snapshots.iter().map(|s| s.entry.held).collect()
    };
    assert!(vault.set_held("vm/disk", &ids[1], true).unwrap().1);
    assert!(!vault.set_held("vm/disk", "latest~1", true).unwrap().1, "it was held already");
    assert_eq!(held(), [false, true, false]);
    let refused = vault.delete("vm/disk", &[&ids[0], &ids[1]]).unwrap_err();
    assert!(matches!(refused, vault::VaultError::Refused(_)), "{refused}");
    assert_eq!(held(), [false, true, false], "one that is held keeps all of them");
    vault.gc(false).unwrap();
    assert_eq!(held(), [false, true, false]);
    assert!(vault.set_held("vm/disk", &ids[1], false).unwrap().1);
    vault.delete("vm/disk", &[&ids[0], &ids[1]]).unwrap();
    assert_eq!(held(), [false]);
    assert!(vault.set_held("vm/disk", &ids[1], true).is_err());
}

/// What something holds for itself is told from what users hold, and a user may take it over.
#[test]
fn a_hold_says_what_it_is_for() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    backup(&vault, "vm/disk", &vec![1; 1 << 20], BALANCED).unwrap();
    let held_for =
        || -> Vec<String> { vault.health().unwrap().held_for.into_iter().map(|h| h.what).collect() };
    assert!(vault.hold_for("vm/disk", "latest", "a restore").unwrap().1);
    assert!(!vault.hold_for("vm/disk", "latest", "another one").unwrap().1);
    assert_eq!(held_for(), ["a restore"]);
    vault.end_hold_for("vm/disk", "latest", "another one").unwrap();
    assert_eq!(held_for(), ["a restore"]);
    // From here on it is the user's.
    assert!(vault.set_held("vm/disk", "latest", true).unwrap().1);
    assert_eq!(held_for(), [""; 0]);
    vault.end_hold_for("vm/disk", "latest", "a restore").unwrap();
    assert!(vault.find("vm/disk", "latest").unwrap().held);
    vault.set_held("vm/disk", "latest", false).unwrap();
    assert!(vault.hold_for("vm/disk", "latest", "a restore").unwrap().1);
    vault.end_hold_for("vm/disk", "latest", "a restore").unwrap();
    let entry = vault.find("vm/disk", "latest").unwrap();
    assert!(!entry.held && entry.tags.is_empty());
}

/// Verifies disks, and is stopped at each call of the store in turn. Returns how often the disks of the vault were known to be
/// verified in which way afterwards, as long as it did not end by itself, and what that found.
fn stopped_everywhere(fs: &SimFs, disks: &[&str]) -> (HashMap<Vec<bool>, u32>, VerifyReport) {
    let vault = Vault::open(Arc::new(SimStore::open_on(fs.clone()).unwrap())).unwrap();
    let mut kept = HashMap::new();
    for at in 0.. {
        let progress = Arc::new(Progress::default());
        let stop = progress.clone();
        let store = SimStore::open_on(fs.clone()).unwrap();
        let store = Between::new(store, at, 0, Box::new(move || stop.cancel()));
        match Vault::open(Arc::new(store)).unwrap().verify_disks(disks, true, &progress) {
            Err(VaultError::Cancelled) => {
                let known = vault.health().unwrap().disks.iter().map(|d| d.verified.is_some()).collect();
                *kept.entry(known).or_insert(0) += 1;
            }
            ended => return (kept, ended.unwrap()),
        }
    }
    unreachable!()
}

/// Hours may have gone into the disks that were looked at before a signal came.
#[test]
fn a_verification_that_is_stopped_keeps_what_it_has_found_sound() {
    let fs = SimFs::new(1);
    let vault = Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &BALANCED).unwrap();
    for (n, disk) in ["a/vda", "b/vda"].iter().enumerate() {
        backup(&vault, disk, &testing::noise(n as u64, 1 << 20), BALANCED).unwrap();
    }
    let (kept, report) = stopped_everywhere(&fs, &["a/vda", "b/vda"]);
    assert_eq!(report.damaged, []);
    assert!(kept[&vec![false, false]] > 0 && kept[&vec![true, false]] > 0 && kept.len() == 2, "{kept:?}");
}

/// What was found in a template's folder is not known to be all before that was looked at: a clone that lacks some of it was
/// called sound where the signal came then.
#[test]
fn a_verification_that_is_stopped_calls_nothing_sound_once_it_has_found_damage() {
    let fs = SimFs::new(1);
    let store = SimStore::create_on(fs.clone()).unwrap();
    let vault = Vault::init(Arc::new(store), &BALANCED).unwrap();
    for disk in ["template/vda", "clone/vda"] {
        backup(&vault, disk, &testing::noise(1, 1 << 20), BALANCED).unwrap();
    }
    let store = SimStore::open_on(fs.clone()).unwrap();
    let mut objects = Vec::new();
    let each = &mut |e: Entry| {
        objects.push((e.len, e.name));
        Ok(())
    };
    store.list("", each).unwrap();
    let (len, largest) = objects.into_iter().max().unwrap();
    let mut bytes = store.read(&largest, len).unwrap();
    bytes[len as usize / 2] ^= 1;
    assert!(store.delete(&largest).unwrap());
    store.put(&largest, &[&bytes]).unwrap();
    let (kept, report) = stopped_everywhere(&fs, &["clone/vda", "template/vda"]);
    assert_eq!(report.damaged[0].snapshots.len(), 2, "{report:?}");
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), [[false, false]]);
}

/// What is kept of verifications may be lost and damaged: nothing is known of them then, and the next one makes it anew.
#[test]
fn nothing_needs_what_verifications_have_left() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for disk in ["a/vda", "b/vda"] {
        backup(&vault, disk, &vec![1; 1 << 20], BALANCED).unwrap();
    }
    let verify = |what| vault.verify(what, false, &Progress::default()).unwrap();
    let known =
        || -> Vec<bool> { vault.health().unwrap().disks.iter().map(|d| d.verified.is_some()).collect() };
    assert_eq!(known(), [false, false]);
    verify(Some(("b/vda", None)));
    assert_eq!(known(), [false, true]);
    let object = dir.path().join("objects/verifications");
    let good = fs::read(&object).unwrap();
    for bad in [&[][..], &good[..good.len() - 1], b"something else"] {
        fs::write(&object, bad).unwrap();
        assert_eq!(known(), [false, false]);
        let report = verify(None);
        assert_eq!((report.damaged, report.not_kept), (Vec::new(), None));
        assert_eq!(known(), [true, true]);
    }
    // A disk that is gone leaves nothing.
    let before = fs::read(&object).unwrap().len();
    vault.remove("b/vda").unwrap();
    verify(None);
    assert!(fs::read(&object).unwrap().len() < before);
    // Where it cannot be kept, the verification is as good.
    fs::remove_file(&object).unwrap();
    fs::create_dir(&object).unwrap();
    let report = verify(None);
    assert!(report.damaged.is_empty() && report.not_kept.is_some());
}
