//! Power cuts and kills at any operation of the store, during backup, deletion, compaction and collection.
//!
//! What must hold after each: no acknowledged snapshot is lost or different; one that was not acknowledged is there
//! whole or not at all; after `gc` the vault verifies clean and nothing is left over; the next backup works.
#![allow(clippy::unwrap_used)]

mod sim;

use format::{names, Context, Manifest};
use image::Source;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use sim::{Bytes, World, BALANCED_SMALL, SMALL};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use store::sim_fs::{Lack, SimOp};
use store::{ObjectStore, SimStore, StoreError};
use vault::{BackupOptions, Policy, Progress, RepairOptions, Rewrite, VaultError};

/// Stops in all; `SAPWOOD_CRASH_STOPS` asks for another number.
const STOPS: u64 = 600;

#[test]
fn no_stop_at_any_operation_loses_what_was_acknowledged() {
    run_worlds(number("SAPWOOD_CRASH_STOPS", STOPS), number("SAPWOOD_SEED", 1), None);
}

/// Whatever a process that was stopped has left: where the manifests are lost too, the commit records have what was
/// acknowledged.
#[test]
fn lost_manifests_come_back_after_a_stop_at_any_operation() {
    let stops = number("SAPWOOD_CRASH_STOPS", STOPS) / 3;
    run_worlds(stops, number("SAPWOOD_SEED", 1000), Some(lose_manifests));
}

/// Where the container tables are lost, what killed processes have left of containers is not taken for what counts.
#[test]
fn lost_container_tables_come_back_after_a_stop_at_any_operation() {
    let stops = number("SAPWOOD_CRASH_STOPS", STOPS) / 3;
    run_worlds(stops, number("SAPWOOD_SEED", 2000), Some(lose_pages));
}

/// A number of the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

/// The objects of all disks.
fn of_disks(store: &SimStore) -> Vec<String> {
    let mut objects = Vec::new();
    let mut add = |entry: store::Entry| {
        objects.push(entry.name);
        Ok(())
    };
    store.list(names::DISKS, &mut add).unwrap();
    objects
}

/// Removes the pages of the disks' container tables, and repairs. Some repairs are stopped before, and not all sweep.
fn lose_pages(world: &mut World, rng: &mut StdRng, when: &str) {
    let store = store(world);
    let pages: Vec<String> = of_disks(&store).into_iter().filter(|o| o.contains("/pages/")).collect();
    for page in &pages {
        store.delete(page).unwrap();
    }
    if rng.random_bool(0.5) {
        let repair = RepairOptions::default();
        world.fs.stop_after(rng.random_range(1..120));
        let _ = world.vault().repair(&repair, &Progress::default());
        world.come_back(rng.random_bool(0.5));
    }
    let report = world.vault().repair(&RepairOptions::default(), &Progress::default());
    let report = report.unwrap_or_else(|e| panic!("{when}: repair: {e}"));
    assert_eq!(report.after, [], "{when}");
    assert!(report.pages <= pages.len() as u64, "{when}: {} of {} pages", report.pages, pages.len());
    let verified = world.vault().verify(None, true, &Progress::default());
    let damaged = verified.unwrap_or_else(|e| panic!("{when}: verify: {e}")).damaged;
    assert!(damaged.is_empty(), "{when}: {damaged:?}");
    // Chunks that have been freed are needed again.
    for disk in ["a/x", "b/x"] {
        world.go_back(disk, rng);
        world.backup(disk).unwrap_or_else(|e| panic!("{when}: backup: {e}"));
    }
}

/// Removes the manifests of the disks, and repairs.
fn lose_manifests(world: &mut World, _: &mut StdRng, when: &str) {
    let store = store(world);
    let objects = of_disks(&store);
    let mut lost = 0;
    for manifest in objects.iter().filter(|o| o.ends_with("/manifest")) {
        // A disk of which nothing has ever been acknowledged has no record, or one of an empty manifest.
        let commits = names::commits_of(names::folder_of(manifest).unwrap());
        let sequence = |o: &&String| names::sequence_of_commit(o);
        let newest = objects.iter().filter(|o| o.starts_with(&commits)).max_by_key(sequence);
        let has_content = |record: &String| {
            let bytes = store.read(record, 1 << 20).unwrap();
            let at = Context { vault: world.vault().id(), place: record };
            let m = Manifest::decode_record(at, &bytes).unwrap();
            !(m.recent.is_empty() && m.pages.is_empty())
        };
        if newest.is_some_and(has_content) {
            store.delete(manifest).unwrap();
            lost += 1;
        }
    }
    let report = world.vault().repair(&RepairOptions::default(), &Progress::default());
    let report = report.unwrap_or_else(|e| panic!("{when}: repair: {e}"));
    assert_eq!((report.manifests, report.after), (lost, Vec::new()), "{when}");
}

/// What is done to a vault after each stop.
type After = fn(&mut World, &mut StdRng, &str);

/// Runs vaults through a number of stops.
fn run_worlds(stops: u64, seed: u64, after: Option<After>) {
    println!("{stops} stops from seed {seed}");
    let (mut done, mut world_no) = (0, 0);
    while done < stops {
        done += run_world(seed + world_no, (stops - done).min(25), after);
        world_no += 1;
    }
}

/// The same for one vault.
fn run_world(seed: u64, stops: u64, after: Option<After>) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(seed, SMALL[rng.random_range(0..SMALL.len())]);
    // A swap without its record counts as not acknowledged: the process died before it could say anything.
    world.dies_silently = after.is_some();
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
            if let Some(after) = after {
                after(&mut world, &mut rng, &format!("seed {seed} step {step}"));
            }
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
        6 => world.delete_one(disk, rng),
        7 => world.retain(disk, rng.random_range(1..4)),
        8 if rng.random_bool(0.5) => world.vault().compact(None, 0.01).map(|_| ()),
        8 => world.vault().recompress(None, rng.random_range(1..8), None, &Progress::default()).map(|_| ()),
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
            world.fs.stop_after(rng.random_range(1..300));
            let outcome = if rng.random_bool(0.7) {
                world.delete_one(["a/x", "b/x"][rng.random_range(0..2)], &mut rng)
            } else {
                world.vault().gc(false).map(drop)
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

/// Backs up two versions of a disk `c/x` of 16 MiB: a quarter of the blocks in each container are replaced. Returns the
/// second version, and the bytes that the first one takes.
fn replaced_everywhere(world: &World) -> (Vec<u8>, u64) {
    let mut rng = StdRng::seed_from_u64(9);
    let mut content = vec![0; 16 << 20];
    rng.fill(&mut content[..]);
    // Otherwise most of what stays is written again, and the old containers go whole.
    let policy = Policy { rewrite_at: Rewrite::Never, ..BALANCED_SMALL };
    let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
    let backup = |content: &[u8]| {
        let source = Box::new(Bytes(Arc::new(content.to_vec())));
        world.vault().backup("c/x", source, &options, &Progress::default()).unwrap()
    };
    backup(&content);
    let whole = world.used_bytes();
    content.chunks_mut(4096).step_by(4).for_each(|block| rng.fill(block));
    backup(&content);
    (content, whole)
}

fn store(world: &World) -> SimStore {
    SimStore::open_on(world.fs.process()).unwrap()
}

/// How many deletions have left chunks that nothing references, by the manifest of the only disk.
fn leaking_deletions(world: &World) -> u32 {
    let store = store(world);
    let mut manifests = Vec::new();
    let mut add = |entry: store::Entry| {
        manifests.extend(Some(entry.name).filter(|name| name.ends_with("/manifest")));
        Ok(())
    };
    store.list(names::DISKS, &mut add).unwrap();
    let [manifest] = &manifests[..] else { panic!("{manifests:?}") };
    let bytes = store.load(manifest).unwrap().unwrap().0;
    Manifest::decode(Context { vault: world.vault().id(), place: manifest }, &bytes).unwrap().by_filter
}

/// One deletion needs a list of dead chunks for each of more containers than the reserve has files. It leaves chunks that
/// nothing references, the manifest counts that, and the next collection finds them.
#[test]
fn a_deletion_goes_through_where_there_is_no_space_for_its_lists() {
    let world = World::new(9, BALANCED_SMALL);
    let vault = world.vault();
    let (content, whole) = replaced_everywhere(&world);
    fill(&world);
    let report = vault.delete("c/x", &["latest~1"]).unwrap();
    assert!(report.held_up.is_none(), "{:?}", report.held_up);
    assert!(leaking_deletions(&world) > 0, "all of the lists found room");
    assert!(sim::restore(vault, "c/x", "latest").unwrap() == content);
    make_room(&world);
    let collected = vault.gc(false).unwrap();
    assert_eq!(leaking_deletions(&world), 0);
    let freed = report.freed_bytes + collected.freed_bytes;
    assert!(freed > 3 << 20, "a quarter of 16 MiB was replaced, and {freed} bytes were given back");
    assert!(sim::restore(vault, "c/x", "latest").unwrap() == content);
    assert!(world.used_bytes() < whole + (2 << 20), "{} after {whole}", world.used_bytes());
    let verified = world.vault().verify(None, true, &Progress::default()).unwrap();
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
}

/// A quota that is used up (EDQUOT) is met as a full disk is: with the reserve.
#[test]
fn a_used_up_quota_stops_neither_reading_nor_deleting() {
    for op in [SimOp::Create, SimOp::Write] {
        let mut rng = StdRng::seed_from_u64(10);
        let mut world = World::new(10, BALANCED_SMALL);
        for _ in 0..3 {
            world.change("a/x", &mut rng);
            world.backup("a/x").unwrap();
        }
        let reserve = || world.fs.file_names("reserve").len();
        let all = reserve();
        let fail = || world.fs.fail_next(op, Errno::DQUOT.raw_os_error());
        fail();
        let restored = sim::restore(world.vault(), "a/x", "latest").unwrap();
        assert!(restored == **world.content("a/x"), "{op:?}");
        (0..3).for_each(|_| fail());
        world.vault().delete("a/x", &["latest~1"]).unwrap();
        world.vault().gc(false).unwrap();
        assert_eq!(reserve(), all, "{op:?}: the reserve is whole again");
        let verified = world.vault().verify(None, true, &Progress::default()).unwrap();
        assert!(verified.damaged.is_empty(), "{op:?}: {:?}", verified.damaged);
    }
}

/// A disk whose backup is cancelled at one of its reads.
struct Cancelling {
    bytes: Bytes,
    progress: Arc<Progress>,
    /// Reads before that one.
    reads: usize,
}

impl Source for Cancelling {
    fn format(&self) -> &'static str {
        self.bytes.format()
    }
    fn size(&self) -> Option<u64> {
        self.bytes.size()
    }
    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.bytes.next_data(from)
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        match self.reads.checked_sub(1) {
            None => self.progress.cancel(),
            Some(left) => self.reads = left,
        }
        self.bytes.read_at(offset, buf)
    }
}

/// All objects but the roots, which commits replace.
fn objects(world: &World) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |entry: store::Entry| {
        let is_root = entry.name.ends_with("/manifest") || entry.name.contains("/commits/");
        names.extend(Some(entry.name).filter(|_| !is_root));
        Ok(())
    };
    store(world).list("", &mut add).unwrap();
    names
}

#[test]
fn a_backup_cancelled_at_any_read_leaves_nothing() {
    let mut rng = StdRng::seed_from_u64(6);
    let mut world = World::new(6, BALANCED_SMALL);
    world.change("a/x", &mut rng);
    world.backup("a/x").unwrap();
    world.vault().gc(false).unwrap();
    let before = objects(&world);
    let mut content = vec![0; 1 << 20];
    rng.fill(&mut content[..]);
    let content = Arc::new(content);
    let options = BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() };
    let (mut cancelled, mut written) = (0, Vec::new());
    loop {
        let progress = Arc::new(Progress::default());
        let source =
            Cancelling { bytes: Bytes(content.clone()), progress: progress.clone(), reads: cancelled };
        let calls = world.fs.op_count();
        match world.vault().backup("a/x", Box::new(source), &options, &progress) {
            Err(VaultError::Cancelled) => {}
            Err(e) => panic!("cancelled at read {cancelled}: {e}"),
            Ok(_) => break,
        }
        written.push(world.fs.op_count() - calls);
        assert_eq!(objects(&world), before, "cancelled at read {cancelled}");
        cancelled += 1;
    }
    // The later ones had written containers.
    assert!(cancelled > 8 && written[cancelled - 1] > written[0] + 8, "changing calls: {written:?}");
    let collected = world.vault().gc(false).unwrap();
    assert_eq!((collected.orphans, collected.dead_sessions), (0, 0));
    assert!(sim::restore(world.vault(), "a/x", "latest").unwrap() == *content);
    assert!(sim::restore(world.vault(), "a/x", "latest~1").unwrap() == **world.content("a/x"));
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
