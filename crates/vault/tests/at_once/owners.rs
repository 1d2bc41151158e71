//! Disks without snapshots whose chunks others reference: they stay as long as they are needed, and no longer, whatever
//! is lost, stopped or full meanwhile.

use crate::between::Between;
use crate::sim::{restore, Bytes, BALANCED_SMALL};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{ObjectStore, SimFs, SimStore};
use vault::{BackupOptions, Policy, Progress, Vault, VaultError, CONVENTIONAL};

/// A vault on a simulated disk.
struct World {
    fs: SimFs,
}

impl World {
    fn new(policy: Policy) -> World {
        let fs = SimFs::new(1);
        Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &policy).unwrap();
        World { fs }
    }

    fn vault(&self) -> Vault {
        Vault::open(Arc::new(SimStore::open_on(self.fs.clone()).unwrap())).unwrap()
    }

    fn backup(&self, disk: &str, bytes: &Arc<Vec<u8>>) -> u64 {
        self.backup_with(disk, bytes, &options())
    }

    fn backup_with(&self, disk: &str, bytes: &Arc<Vec<u8>>, options: &BackupOptions) -> u64 {
        let source = Box::new(Bytes(bytes.clone()));
        self.vault().backup(disk, source, options, &Progress::default()).unwrap().snapshot.new_bytes
    }

    fn delete(&self, disk: &str) -> Result<(), VaultError> {
        self.vault().delete(disk, &["latest"]).map(drop)
    }

    fn objects(&self, prefix: &str) -> Vec<String> {
        let store = SimStore::open_on(self.fs.clone()).unwrap();
        let mut names = Vec::new();
        store
            .list(prefix, &mut |e| {
                names.push(e.name);
                Ok(())
            })
            .unwrap();
        names
    }

    /// Nothing is left of any disk.
    fn is_empty(&self) -> bool {
        self.objects("disks/").is_empty() && self.objects("names/").is_empty()
    }

    fn collect(&self) {
        let report = self.vault().gc(false).unwrap();
        assert!(report.skipped.is_empty() && report.busy.is_empty(), "{report:?}");
    }

    fn verify(&self) {
        let report = self.vault().verify(None, true, &Progress::default()).unwrap();
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    }
}

fn options() -> BackupOptions {
    BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() }
}

fn content(seed: u64, kib: usize) -> Arc<Vec<u8>> {
    let mut bytes = vec![0; kib << 10];
    StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    Arc::new(bytes)
}

/// Half of one and half of another.
fn half(a: &Arc<Vec<u8>>, b: &Arc<Vec<u8>>) -> Arc<Vec<u8>> {
    let middle = a.len() / 2;
    Arc::new([&a[..middle], &b[middle..]].concat())
}

#[test]
fn a_deletion_by_the_last_referrer_leaks_nothing_wherever_it_stops() {
    let (first, second) = (content(1, 640), content(2, 640));
    let mut at = 1;
    loop {
        let mut world = World::new(BALANCED_SMALL);
        world.backup("a/x", &first);
        // Its containers are of two writers: what both make is looked at together.
        world.backup("a/x", &half(&first, &second));
        world.backup("b/x", &half(&first, &second));
        world.delete("a/x").unwrap();
        world.delete("a/x").unwrap();
        world.collect();
        assert!(restore(&world.vault(), "b/x", "latest").unwrap() == *half(&first, &second));
        world.fs.stop_after(at);
        let _ = world.delete("b/x");
        let stopped = world.fs.is_stopped();
        world.fs = if at % 2 == 0 { world.fs.crash() } else { world.fs.restart() };
        if !world.vault().snapshots(None).unwrap().snapshots.is_empty() {
            world.delete("b/x").unwrap();
        }
        for _ in 0..3 {
            world.collect();
        }
        assert!(world.is_empty(), "stopped at {at}: {:?}", world.objects("disks/"));
        if !stopped {
            break;
        }
        at += 1;
    }
    assert!(at > 20, "it ended after {at} calls");
}

/// Of a deletion and a collection on a disk without a byte and an inode left.
#[test]
fn a_full_store_gives_shared_space_back() {
    let (first, second) = (content(3, 6 << 10), content(4, 6 << 10));
    let world = World::new(BALANCED_SMALL);
    world.backup("a/x", &first);
    // Of each container of a, one half is referenced.
    let mut mixed = second.to_vec();
    for (n, part) in mixed.chunks_mut(64 << 10).enumerate() {
        if n % 2 == 0 {
            part.copy_from_slice(&first[n * (64 << 10)..][..part.len()]);
        }
    }
    world.backup("b/x", &Arc::new(mixed));
    world.backup("c/x", &first);
    world.delete("a/x").unwrap();
    world.collect();
    world.fs.set_capacity(world.fs.used_bytes());
    world.fs.set_inodes(world.fs.used_inodes());
    for disk in ["c/x", "b/x"] {
        // What of it cannot be done now, a collection does.
        world.delete(disk).unwrap();
    }
    for _ in 0..20 {
        if world.objects("disks/").iter().all(|o| !o.ends_with(".data")) {
            return;
        }
        let _ = world.vault().gc(false);
    }
    panic!("{} objects are left", world.objects("disks/").len());
}

/// A collection reads what other disks reference of an owner only if one of them references less than before.
#[test]
fn a_collection_looks_only_at_what_was_given_up() {
    let first = content(6, 640);
    let world = World::new(BALANCED_SMALL);
    world.backup("a/x", &first);
    world.backup("b/x", &first);
    world.collect();
    let store = SimStore::open_on(world.fs.clone()).unwrap();
    // Whoever wants to know what they reference is told of damage.
    for root in world.objects("disks/").into_iter().filter(|o| o.ends_with(".root")) {
        store.delete(&root).unwrap();
    }
    world.collect();
    let report = world.vault().gc_all().unwrap();
    assert!(!report.skipped.is_empty(), "{report:?}");
}

/// What damage has hidden from a deletion is found by a collection of everything.
#[test]
fn a_collection_of_everything_finds_what_damage_has_hidden() {
    let first = content(7, 640);
    let world = World::new(BALANCED_SMALL);
    world.backup("a/x", &first);
    world.backup("b/x", &first);
    world.delete("a/x").unwrap();
    world.collect();
    let store = SimStore::open_on(world.fs.clone()).unwrap();
    for pages in world.objects("disks/").into_iter().filter(|o| o.ends_with(".pages")) {
        store.delete(&pages).unwrap();
    }
    world.delete("b/x").unwrap();
    world.collect();
    let data = |world: &World| world.objects("disks/").iter().filter(|o| o.ends_with(".data")).count();
    assert!(data(&world) > 0, "nothing was hidden");
    let report = world.vault().gc_all().unwrap();
    assert!(report.skipped.is_empty(), "{report:?}");
    assert_eq!(data(&world), 0);
}

/// The name object of a disk says nothing of what others need of it.
#[test]
fn an_owner_without_snapshots_that_loses_its_name_stays() {
    let first = content(5, 640);
    for again in [false, true] {
        let world = World::new(BALANCED_SMALL);
        world.backup("a/x", &first);
        world.backup("b/x", &first);
        world.delete("a/x").unwrap();
        world.collect();
        let store = SimStore::open_on(world.fs.clone()).unwrap();
        store.delete(&format::names::name("a/x")).unwrap();
        if again {
            // The disk goes on where it was.
            assert_eq!(world.backup("a/x", &first), 0);
            assert_eq!(world.objects("disks/").iter().filter(|o| o.ends_with("/manifest")).count(), 2);
        }
        for _ in 0..2 {
            world.vault().gc(false).unwrap();
            assert!(restore(&world.vault(), "b/x", "latest").unwrap() == *first);
        }
        world.verify();
        if again {
            world.delete("a/x").unwrap();
        }
        world.delete("b/x").unwrap();
        for _ in 0..2 {
            world.collect();
        }
        assert!(world.is_empty(), "{:?}", world.objects(""));
    }
}

/// Isolation is of the vault or of a backup, whatever policy it has.
#[test]
fn what_is_isolated_takes_nothing_and_offers_nothing() {
    let first = content(8, 640);
    let world = World::new(BALANCED_SMALL.isolated());
    let new = world.backup("a/x", &first);
    let by_policy = BackupOptions { policy: Some(CONVENTIONAL), ..BackupOptions::default() };
    assert_eq!(world.backup_with("b/x", &first, &by_policy), new);

    let world = World::new(BALANCED_SMALL);
    let alone = BackupOptions { isolate: true, ..options() };
    world.backup_with("a/x", &first, &alone);
    world.vault().reindex().unwrap();
    assert_eq!(world.backup("b/x", &first), new);
    // What is not isolated is found.
    assert_eq!(world.backup("c/x", &first), 0);
}

/// Hooks of containers that have gone go with a collection.
#[test]
fn hooks_lead_to_what_is_there() {
    let world = World::new(BALANCED_SMALL);
    for n in 0..9 {
        world.backup("a/x", &content(10 + n, 640));
    }
    for _ in 0..8 {
        world.vault().delete("a/x", &["latest~1"]).unwrap();
    }
    let hooks = |world: &World| -> u64 {
        let store = SimStore::open_on(world.fs.clone()).unwrap();
        world.objects("index/hooks/").iter().map(|o| store.len(o).unwrap()).sum()
    };
    let before = hooks(&world);
    world.collect();
    let left = hooks(&world);
    assert!(left > 0 && left < before / 4, "{left} bytes of hooks are left of {before}");
    assert_eq!(world.backup("b/x", &content(18, 640)), 0, "what is there is found");
}

/// What other owners list stays in memory as far as there is room for it.
#[test]
fn a_restore_from_three_owners_reads_nothing_twice() {
    let world = World::new(BALANCED_SMALL);
    let parts: Vec<_> = (0..3).map(|n| content(20 + n, 640)).collect();
    for (n, part) in parts.iter().enumerate() {
        world.backup(&format!("owner-{n}/x"), part);
    }
    // From one owner after the other, and back again.
    let piece = 16 << 10;
    let pieces =
        (0..parts[0].len() / piece).flat_map(|k| parts.iter().map(move |p| &p[k * piece..][..piece]));
    let all = Arc::new(pieces.collect::<Vec<_>>().concat());
    assert_eq!(world.backup("all/x", &all), 0, "other owners have all of it");
    let store = Between::counting(SimStore::open_on(world.fs.clone()).unwrap());
    let reads = store.reads();
    let vault = Vault::open(Arc::new(store)).unwrap();
    reads.lock().unwrap().clear();
    assert!(restore(&vault, "all/x", "latest").unwrap() == *all);
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let reads = reads.lock().unwrap();
    reads.iter().for_each(|name| *times.entry(name).or_default() += 1);
    let of = |what: &'static str| {
        let wanted = times.iter().filter(move |(name, _)| name.contains(what));
        wanted.map(|(_, times)| *times).collect::<Vec<_>>()
    };
    // A reader reads the manifest before it holds its object, and after it. That of the disk itself is found first.
    let mut manifests = of("/manifest");
    manifests.sort_unstable();
    assert_eq!(manifests, [2, 2, 2, 3]);
    assert_eq!(of("/pages/"), [1; 3]);
    let tables = of(".table");
    assert!(tables.len() >= 3 && tables.iter().all(|times| *times == 1), "{times:?}");
}
