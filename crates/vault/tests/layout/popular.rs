//! The popular set: what is chosen, what backups make of it, and what becomes of it.

use crate::common;
use crate::common::{backup, rng, seed};
use rand::RngExt;
use std::path::{Path, PathBuf};
use vault::{Global, Policy, PopularClass, Progress, Vault, BALANCED, VM_CENTRIC};

const BLOCK: usize = 4096;
/// In the paths of the set's containers.
const CONTAINERS: &str = "/popular/containers/";

/// Segments of 64 KiB and chunks of 4 KiB, so that little data has many of them.
pub const SMALL: Policy = Policy {
    segment_bytes: 64 << 10,
    group_bytes: 64 << 10,
    container_bytes: 256 << 10,
    chunking: BALANCED.chunking,
    ..VM_CENTRIC
};

fn blocks(rng: &mut impl RngExt, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK];
    rng.fill(&mut bytes[..]);
    bytes
}

fn build(vault: &Vault, fraction: f64) -> vault::PopularReport {
    let report = vault.popular_build(fraction, &std::env::temp_dir()).unwrap();
    assert_eq!(report.damaged, [""; 0]);
    report
}

fn verify(vault: &Vault) -> Vec<vault::Damage> {
    vault.verify(None, true, &Progress::default()).unwrap().damaged
}

fn files(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path, part)),
            false if path.to_str().unwrap().contains(part) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

#[test]
fn what_many_disks_have_is_stored_once_more_and_never_again() {
    let mut rng = rng(seed("what_many_disks_have_is_stored_once_more_and_never_again"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    // 40 blocks in all disks, 20 in two of them, and 30 of each disk's own, one of them twice.
    let (all, two) = (blocks(&mut rng, 40), blocks(&mut rng, 20));
    let mut disks = Vec::new();
    for n in 0..3 {
        let own = blocks(&mut rng, 30);
        let mut bytes = own.clone();
        bytes.extend(&all);
        bytes.extend(if n < 2 { &two[..] } else { &[] });
        bytes.extend(&own[..BLOCK]);
        let report = backup(&vault, &format!("vm{n}/vda"), &bytes, SMALL).unwrap();
        assert_eq!(
            report.snapshot.new_bytes as usize,
            bytes.len() - BLOCK,
            "without a set nothing is shared"
        );
        disks.push((format!("vm{n}/vda"), bytes));
    }
    let status = vault.popular_status(&std::env::temp_dir()).unwrap();
    let class = |disks, chunks: u64| PopularClass { disks, chunks, bytes: chunks * BLOCK as u64 };
    assert_eq!(status.classes, [class(3, 40), class(2, 20), class(1, 90)]);
    assert_eq!((status.disks, status.set_chunks, status.chunks()), (3, 0, 150));
    assert_eq!(status.duplicate_bytes(), 100 * BLOCK as u64);
    assert_eq!(status.of_top(40.0 / 150.0), (80 * BLOCK as u64, 40 * BLOCK as u64));

    // As many as three disks have, and half of the others that are not one disk's alone.
    let built = build(&vault, 50.0 / 150.0);
    assert_eq!((built.chunks, built.kept_chunks, built.least_disks), (50, 0, 2));
    let mut clone = blocks(&mut rng, 3);
    clone.extend(&all);
    clone.extend(&two);
    let report = backup(&vault, "vm3/vda", &clone, SMALL).unwrap();
    assert_eq!(report.snapshot.new_bytes as usize, (3 + 10) * BLOCK);
    disks.push(("vm3/vda".into(), clone.clone()));
    assert_eq!(verify(&vault), []);

    // A set that is built anew keeps what it has, and what another disk references counts as its own.
    let status = vault.popular_status(&std::env::temp_dir()).unwrap();
    assert_eq!(status.classes, [class(4, 40), class(3, 20), class(1, 93)]);
    assert_eq!(status.set_chunks, 50);
    let again = build(&vault, 1.0);
    assert_eq!((again.chunks, again.kept_chunks, again.least_disks), (60, 50, 3));
    assert_eq!(build(&vault, 1.0).stored_bytes, 0, "nothing is new");

    // The set goes on without the disks that it was made of, and goes with the last that needs it.
    for (disk, bytes) in &disks {
        assert!(common::restore(&vault, disk, "latest").unwrap() == *bytes, "{disk}");
    }
    for (disk, _) in &disks[..3] {
        vault.delete(disk, &["latest"]).unwrap();
    }
    vault.gc(false).unwrap();
    assert!(common::restore(&vault, "vm3/vda", "latest").unwrap() == clone);
    assert!(!files(dir.path(), CONTAINERS).is_empty());
    vault.delete("vm3/vda", &["latest"]).unwrap();
    // No disk has anything: the next set is empty, and nothing of the old one is left.
    assert_eq!(build(&vault, 1.0).chunks, 0);
    vault.gc(false).unwrap();
    assert!(files(dir.path(), CONTAINERS).is_empty());
    assert_eq!(verify(&vault), []);
}

/// A set that is built again is the same; chunks that leave it go, and their container is written again without them.
#[test]
fn sets_are_stable_and_what_leaves_them_is_freed() {
    let mut rng = rng(seed("sets_are_stable_and_what_leaves_them_is_freed"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let common = blocks(&mut rng, 80);
    for disk in ["a/x", "b/x"] {
        backup(&vault, disk, &common, SMALL).unwrap();
    }
    assert_eq!(build(&vault, 0.5).chunks, 40);
    // Disks that use it make the chunks that they use more popular, or hide others behind a disk of their own.
    backup(&vault, "c/x", &common, SMALL).unwrap();
    for _ in 0..2 {
        let again = build(&vault, 0.5);
        assert_eq!((again.chunks, again.kept_chunks, again.stored_bytes), (40, 40, 0));
    }
    let bytes = || files(dir.path(), CONTAINERS).iter().map(|f| f.metadata().unwrap().len()).sum::<u64>();
    let before = bytes();
    vault.delete("c/x", &["latest"]).unwrap();
    backup(&vault, "d/x", &common[35 * BLOCK..45 * BLOCK], SMALL).unwrap();
    assert_eq!(build(&vault, 10.0 / 80.0).chunks, 10);
    vault.gc(false).unwrap();
    assert!(bytes() < before / 2, "{} of {before} bytes are left", bytes());
    assert_eq!(verify(&vault), []);
    assert!(common::restore(&vault, "d/x", "latest").unwrap() == common[35 * BLOCK..45 * BLOCK]);
}

/// In short runs, popular chunks would be read one by one.
#[test]
fn short_runs_are_not_taken_where_the_policy_says_so() {
    let mut rng = rng(seed("short_runs_are_not_taken_where_the_policy_says_so"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let common = blocks(&mut rng, 64);
    for disk in ["a/x", "b/x"] {
        backup(&vault, disk, &common, SMALL).unwrap();
    }
    assert_eq!(build(&vault, 1.0).chunks, 64);
    // Runs of 1, 2, 3, 4 and 5 chunks, with own ones in between; a null run does not tear one.
    let mut bytes = Vec::new();
    let mut at = 0;
    for run in 1..=5 {
        bytes.extend(blocks(&mut rng, 2));
        bytes.extend(&common[at * BLOCK..(at + run) * BLOCK]);
        at += run + 3;
    }
    bytes.extend(&common[at * BLOCK..(at + 2) * BLOCK]);
    bytes.extend(vec![0; 5 * BLOCK]);
    bytes.extend(&common[(at + 2) * BLOCK..(at + 4) * BLOCK]);
    let long = Policy { global: Global::Popular { shortest_run: 4 }, segment_bytes: 256 << 10, ..SMALL };
    let report = backup(&vault, "c/x", &bytes, long).unwrap();
    assert_eq!(report.snapshot.new_bytes as usize, (5 * 2 + 1 + 2 + 3) * BLOCK);
    let report = backup(&vault, "d/x", &bytes, Policy { segment_bytes: 256 << 10, ..SMALL }).unwrap();
    assert_eq!(report.snapshot.new_bytes as usize, 5 * 2 * BLOCK);
    for disk in ["c/x", "d/x"] {
        assert!(common::restore(&vault, disk, "latest").unwrap() == bytes);
    }
}

/// Damage of the set reaches the disks that use it, and no other.
#[test]
fn damage_of_the_set_names_the_disks_that_use_it() {
    let mut rng = rng(seed("damage_of_the_set_names_the_disks_that_use_it"));
    let bytes = blocks(&mut rng, 60);
    for part in [".data", ".table"] {
        for mischief in ["flip", "cut", "empty", "gone"] {
            let dir = common::scratch();
            let vault = common::new_vault(dir.path());
            for disk in ["a/x", "b/x"] {
                backup(&vault, disk, &bytes, SMALL).unwrap();
            }
            assert_eq!(build(&vault, 1.0).chunks, 60);
            let user = backup(&vault, "c/x", &bytes, SMALL).unwrap();
            assert_eq!(user.snapshot.new_bytes, 0);
            let mut victims = files(dir.path(), CONTAINERS);
            victims.retain(|v| v.to_str().unwrap().ends_with(part));
            let victim = &victims[0];
            let mut stored = std::fs::read(victim).unwrap();
            let half = stored.len() / 2;
            stored[half] ^= 1;
            match mischief {
                "flip" => std::fs::write(victim, &stored).unwrap(),
                "cut" => std::fs::write(victim, &stored[..half]).unwrap(),
                "empty" => std::fs::write(victim, b"").unwrap(),
                _ => std::fs::remove_file(victim).unwrap(),
            }
            let what = format!("{part}, {mischief}");
            let damaged = verify(&vault);
            let affected = format!("c/x@{}", user.snapshot.id);
            assert_eq!(damaged.len(), 1, "{what}: {damaged:?}");
            assert!(damaged[0].object.starts_with("popular/containers/"), "{what}: {damaged:?}");
            assert_eq!(damaged[0].snapshots, [affected], "{what}");
            let of_disk =
                |disk| vault.verify(Some((disk, None)), true, &Progress::default()).unwrap().damaged;
            assert_eq!((of_disk("c/x"), of_disk("a/x")), (damaged, vec![]), "{what}");
            let e = common::restore(&vault, "c/x", "latest").unwrap_err().to_string();
            assert!(e.contains("popular/containers/"), "{what}: {e}");
            for disk in ["a/x", "b/x"] {
                assert!(common::restore(&vault, disk, "latest").unwrap() == bytes, "{what}: {disk}");
            }
            // The disk's next backup does not go by what is damaged.
            backup(&vault, "c/x", &bytes, SMALL).unwrap();
            assert!(common::restore(&vault, "c/x", "latest").unwrap() == bytes, "{what}");
        }
    }
}

/// Whatever is wrong with the set, backups go on; they take more space.
#[test]
fn a_set_that_cannot_be_read_costs_space_only() {
    let mut rng = rng(seed("a_set_that_cannot_be_read_costs_space_only"));
    let bytes = blocks(&mut rng, 60);
    for (part, cut) in
        [("index/popular/", false), ("index/popular/", true), (".table", false), (".data", true)]
    {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        for disk in ["a/x", "b/x"] {
            backup(&vault, disk, &bytes, SMALL).unwrap();
        }
        assert_eq!(build(&vault, 1.0).chunks, 60);
        let mut victims = files(dir.path(), part);
        if part.starts_with('.') {
            victims.retain(|v| v.to_str().unwrap().contains(CONTAINERS));
        }
        assert!(!victims.is_empty(), "{part}");
        for victim in &victims {
            let mut stored = std::fs::read(victim).unwrap();
            let half = stored.len() / 2;
            stored[half] ^= 1;
            std::fs::write(victim, if cut { &stored[..half] } else { &stored }).unwrap();
        }
        // Damage of the data is known once somebody has looked.
        let damaged = verify(&vault);
        assert!(!damaged.is_empty() && damaged.iter().all(|d| d.snapshots.is_empty()), "{part}: {damaged:?}");
        let report = backup(&vault, "c/x", &bytes, SMALL).unwrap();
        assert_eq!(report.snapshot.new_bytes as usize, bytes.len(), "{part}");
        for disk in ["a/x", "b/x", "c/x"] {
            assert!(common::restore(&vault, disk, "latest").unwrap() == bytes, "{part}");
        }
        // A new one is made of what is whole.
        let again = vault.popular_build(1.0, &std::env::temp_dir()).unwrap();
        assert_eq!((again.chunks, again.kept_chunks), (60, 0), "{part}");
        let report = backup(&vault, "d/x", &bytes, SMALL).unwrap();
        assert_eq!(report.snapshot.new_bytes, 0, "{part}");
        assert!(common::restore(&vault, "d/x", "latest").unwrap() == bytes, "{part}");
    }
}
