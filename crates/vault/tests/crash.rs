//! Power cuts and kills at any operation of the store, during backup, deletion, compaction and collection.
//!
//! What must hold after each: no acknowledged snapshot is lost or different; one that was not acknowledged is there
//! whole or not at all; after `gc` the vault verifies clean and nothing is left over; the next backup works.

mod sim;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sim::{Bytes, Memory, World, BALANCED_SMALL, SMALL};
use store::sim_fs::Lack;
use store::{ObjectStore, SimStore, StoreError};
use vault::{BackupOptions, Progress, VaultError};

/// Stops in all; `SAPWOOD_CRASH_STOPS` asks for another number.
const STOPS: u64 = 1000;

#[test]
fn no_stop_at_any_operation_loses_what_was_acknowledged() {
    let stops: u64 = std::env::var("SAPWOOD_CRASH_STOPS").ok().and_then(|s| s.parse().ok()).unwrap_or(STOPS);
    let seed: u64 = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("{stops} stops from seed {seed}");
    let (mut done, mut world_no) = (0, 0);
    while done < stops {
        done += run_world(seed + world_no, (stops - done).min(25));
        world_no += 1;
    }
}

/// Runs one vault through a number of stops.
fn run_world(seed: u64, stops: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(seed, SMALL[rng.random_range(0..SMALL.len())]);
    let mut done = 0;
    for step in 0..10 * stops {
        if done == stops {
            break;
        }
        let stop = rng.random_bool(0.7);
        if stop {
            world.fs.stop_after(rng.random_range(1..120));
        }
        let outcome = act(&mut world, &mut rng);
        if world.fs.is_stopped() {
            done += 1;
            world.come_back(rng.random_bool(0.7));
        } else if stop {
            world.come_back(false);
        } else {
            outcome.unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}"));
        }
        world.check(&format!("seed {seed} step {step}"));
        if rng.random_bool(0.2) {
            world.collect_and_verify(&format!("seed {seed} step {step}"));
        }
    }
    world.collect_and_verify(&format!("seed {seed} end"));
    done
}

fn act(world: &mut World, rng: &mut StdRng) -> Result<(), VaultError> {
    let disk = ["a/x", "b/x"][rng.random_range(0..2)];
    match rng.random_range(0..11) {
        0..=5 => {
            world.change(disk, rng);
            world.backup(disk)
        }
        6..=7 => world.delete_one(disk, rng),
        8 => world.vault().compact(None, 0.01).map(|_| ()),
        9 => world.popular(rng),
        _ => world.vault().gc(false).map(|_| ()),
    }
}

#[test]
fn a_full_store_refuses_the_backup_and_still_deletes() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut world = World::new(5, BALANCED_SMALL);
    for _ in 0..3 {
        world.change("a/x", &mut rng);
        world.backup("a/x").unwrap();
    }
    // Room for a few more versions, and for what is kept for deletion.
    world.fs.set_capacity(world.used_bytes() + (9 << 20));
    let refused = loop {
        world.rewrite("a/x", &mut rng);
        if let Err(e) = world.backup("a/x") {
            break e;
        }
    };
    assert!(refused.to_string().contains("no space left"), "{refused}");
    world.check("after the refusal");
    // One deletion may free less than the next backup needs; all of them do not.
    while !world.is_empty("a/x") {
        world.delete_one("a/x", &mut rng).unwrap();
        world.check("after a deletion on the full store");
    }
    world.collect_and_verify("after the deletions on the full store");
}

#[test]
fn a_full_store_refuses_a_popular_set_and_keeps_what_is_there() {
    let mut rng = StdRng::seed_from_u64(8);
    let mut world = World::new(8, BALANCED_SMALL);
    world.change("a/x", &mut rng);
    world.rewrite("a/x", &mut rng);
    world.copy("b/x", "a/x");
    world.backup("a/x").unwrap();
    world.backup("b/x").unwrap();
    // Less than the reserve of backups is free.
    world.fs.set_capacity(world.used_bytes() + (1 << 20));
    let refused = world.popular(&mut rng).unwrap_err();
    assert!(refused.to_string().contains("no space left"), "{refused}");
    world.check("after the refusal");
    world.fs.set_capacity(world.used_bytes() + (64 << 20));
    world.popular(&mut rng).unwrap();
    world.collect_and_verify("with room");
}

/// Lets the disk have no byte and no inode left.
fn fill(world: &World) {
    world.fs.set_capacity(world.used_bytes());
    world.fs.set_inodes(world.fs.used_inodes());
}

fn make_room(world: &World) {
    world.fs.set_capacity(u64::MAX);
    world.fs.set_inodes(usize::MAX);
}

/// Deletion and collection on a disk without a byte or an inode left, stopped at any call.
#[test]
fn no_stop_on_a_full_store_loses_what_was_acknowledged() {
    let (mut stops, mut done) = (0, 0);
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(seed, SMALL[seed as usize % SMALL.len()]);
        for disk in ["a/x", "b/x"] {
            for _ in 0..3 {
                world.change(disk, &mut rng);
                world.backup(disk).unwrap();
            }
        }
        for step in 0..3 {
            let when = format!("seed {seed} step {step}");
            fill(&world);
            world.fs.stop_after(rng.random_range(1..150));
            let outcome = match rng.random_bool(0.7) {
                true => world.delete_one(["a/x", "b/x"][rng.random_range(0..2)], &mut rng),
                false => world.vault().gc(false).map(drop),
            };
            if world.fs.is_stopped() {
                stops += 1;
                world.come_back(rng.random_bool(0.7));
            } else {
                outcome.unwrap_or_else(|e| panic!("{when}: {e}"));
                done += 1;
                world.come_back(false);
            }
            // What is full still can be read.
            world.check(&when);
        }
        make_room(&world);
        world.collect_and_verify(&format!("seed {seed}"));
        assert_eq!(world.fs.file_names("reserve").len(), 60, "seed {seed}: the reserve is whole again");
    }
    println!("{stops} stops, {done} done");
    assert!(stops > 20 && done > 10);
}

/// One deletion needs a list of dead chunks for each of more containers than the reserve has files.
#[test]
fn a_deletion_goes_through_where_there_is_no_space_for_its_lists() {
    let world = World::new(9, BALANCED_SMALL);
    let mut rng = StdRng::seed_from_u64(9);
    let mut content = vec![0; 16 << 20];
    rng.fill(&mut content[..]);
    let vault = world.vault();
    let options = BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() };
    let backup = |content: &[u8]| {
        let source = Box::new(Bytes(std::sync::Arc::new(content.to_vec())));
        vault.backup("c/x", source, &options, &Progress::default()).unwrap()
    };
    backup(&content);
    let whole = world.used_bytes();
    content.chunks_mut(4096).step_by(4).for_each(|block| rng.fill(block));
    backup(&content);
    fill(&world);
    let report = vault.delete("c/x", &["latest~1"]).unwrap();
    assert!(report.held_up.is_none(), "{:?}", report.held_up);
    assert!(sim::restore(vault, "c/x", "latest").unwrap() == content);
    make_room(&world);
    let collected = vault.gc(false).unwrap();
    let freed = report.freed_bytes + collected.freed_bytes;
    assert!(freed > 3 << 20, "a quarter of 16 MiB was replaced, and {freed} bytes were given back");
    assert!(sim::restore(vault, "c/x", "latest").unwrap() == content);
    assert!(world.used_bytes() < whole + (2 << 20), "{} after {whole}", world.used_bytes());
    let verified = world.vault().verify(None, true, &Progress::default()).unwrap();
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
}

#[test]
fn a_cancelled_backup_leaves_nothing() {
    let mut rng = StdRng::seed_from_u64(6);
    let mut world = World::new(6, BALANCED_SMALL);
    world.change("a/x", &mut rng);
    world.backup("a/x").unwrap();
    let before = world.fs.file_names("").len();
    let progress = Progress::default();
    progress.cancel();
    world.rewrite("a/x", &mut rng);
    let source = Box::new(Bytes(world.content("a/x")));
    let e = world.vault().backup("a/x", source, &BackupOptions::default(), &progress).unwrap_err();
    assert!(matches!(e, VaultError::Cancelled), "{e}");
    assert_eq!(world.fs.file_names("").len(), before);
    world.collect_and_verify("after the cancelled backup");
    let _ = Memory::default();
}

/// Locks are what keeps processes from removing each other's objects: a file system that gives them to everybody is
/// refused before anything is touched.
#[test]
fn a_file_system_without_locks_is_refused() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut world = World::new(7, SMALL[3]);
    world.change("a/x", &mut rng);
    world.backup("a/x").unwrap();
    let files = world.fs.file_names("");
    world.fs.lack(Lack::Locks);
    let store = SimStore::open_on(world.fs.process()).unwrap();
    match store.put("any", &[b"x"]) {
        Err(StoreError::Unsuitable { why, .. }) => assert!(why.contains("no working locks"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.fs.file_names(""), files);
}
