//! Older manifests put back where a newer one was: by hand, by a restore of the store's own files, by a disk that lost
//! a write. `verify` found no damage then, and `gc` removed the newer snapshots' objects as left over: after it nothing
//! brought them back, not even the newer manifest.
//!
//! Every manifest that there was while a disk was backed up is put back afterwards, and an older one of the popular set.
//! Each time `verify` says so, nobody changes or removes anything, and with the newer one in its place all is well again.

use crate::between::Between;
use crate::sim::{restore, Bytes, SMALL};
use format::{names, Context, Manifest};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use store::{ObjectStore, SimFs, SimStore};
use vault::{
    utc, BackupOptions, Global, Policy, Progress, ReadCache, RetentionRules, SnapId, Vault, VaultError,
};

const DISKS: [&str; 2] = ["a/x", "b/x"];
/// The name in the manifest of the popular set.
const POPULAR: &str = "";

/// Content number `n`: most of it as in all others.
fn content(n: u64) -> Arc<Vec<u8>> {
    let version = |b: u64| if b % 7 == n % 7 { n } else { 0 };
    Arc::new((0..70).flat_map(|b| testing::noise(b * 1000 + version(b), 4096)).collect())
}

/// Blocks that no other content has. Without `all`, each eighth one is another one.
fn apart(all: bool) -> Arc<Vec<u8>> {
    let at = |b: u64| if all || b % 8 > 0 { b } else { b + 1000 };
    Arc::new((0..64).flat_map(|b| testing::noise(1_000_000 + at(b), 4096)).collect())
}

struct World {
    fs: SimFs,
    policy: Policy,
    snapshots: Vec<(&'static str, SnapId, Arc<Vec<u8>>)>,
}

/// A manifest's name and bytes.
type Root = (String, Vec<u8>);

impl World {
    fn new(policy: Policy) -> World {
        let fs = SimFs::new(1);
        Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &policy).unwrap();
        let mut world = World { fs, policy, snapshots: Vec::new() };
        for n in 0..4 {
            world.backup(&world.vault(), DISKS[n % 2], n as u64).unwrap();
        }
        if matches!(policy.global, Global::Popular { .. }) {
            world.vault().popular_build(1.0, &std::env::temp_dir()).unwrap();
        }
        world
    }

    fn store(&self) -> SimStore {
        SimStore::open_on(self.fs.process()).unwrap()
    }

    fn vault(&self) -> Vault {
        // So few that these disks have pages of snapshots.
        Vault::open(Arc::new(self.store())).unwrap().with_recent_max(1)
    }

    fn backup(&mut self, vault: &Vault, disk: &'static str, n: u64) -> Result<SnapId, VaultError> {
        self.backup_of(vault, disk, content(n))
    }

    fn backup_of(
        &mut self,
        vault: &Vault,
        disk: &'static str,
        content: Arc<Vec<u8>>,
    ) -> Result<SnapId, VaultError> {
        let options = BackupOptions { policy: Some(self.policy), ..BackupOptions::default() };
        let done = vault.backup(disk, Box::new(Bytes(content.clone())), &options, &Progress::default())?;
        self.snapshots.push((disk, done.snapshot.id, content));
        Ok(done.snapshot.id)
    }

    /// The manifests that are there, of all folders.
    fn roots(&self) -> Vec<Root> {
        roots(&self.store())
    }

    fn put_back(&self, (name, bytes): &Root) {
        let store = self.store();
        let tag = store.load(name).unwrap().unwrap().1;
        store.swap(name, Some(tag), bytes).unwrap();
    }

    /// Objects in folders, and what the manifests hold.
    fn state(&self) -> (BTreeSet<String>, Vec<Root>) {
        let mut all = BTreeSet::new();
        for prefix in ["disks/", "popular/", "names/", "index/"] {
            self.store()
                .list(prefix, &mut |e| {
                    all.insert(e.name);
                    Ok(())
                })
                .unwrap();
        }
        (all, self.roots())
    }

    /// All snapshots are as they were. Where a manifest is an older one they may be gone, and what it names too: then
    /// that is said.
    fn check(&self, may_fail: bool) {
        let vault = self.vault();
        for (disk, id, content) in &self.snapshots {
            match restore(&vault, disk, &id.to_string()) {
                Ok(bytes) => assert!(bytes == **content, "{disk}@{id} differs"),
                Err(e) => {
                    let is_told = e.is_damage() || matches!(e, VaultError::NotFound { .. });
                    assert!(may_fail && is_told, "{disk}@{id}: {e}");
                }
            }
        }
    }

    fn check_clean(&self) {
        self.check(false);
        let vault = self.vault();
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
        let collected = vault.gc(false).unwrap();
        assert!(collected.skipped.is_empty(), "{:?}", collected.skipped);
        self.check(false);
        assert_eq!(self.vault().verify(None, true, &Progress::default()).unwrap().damaged, []);
    }
}

fn roots(store: &SimStore) -> Vec<Root> {
    let mut names = Vec::new();
    store
        .list("", &mut |e| {
            names.extend(e.name.ends_with("/manifest").then_some(e.name));
            Ok(())
        })
        .unwrap();
    names.sort();
    names.into_iter().map(|n| (n.clone(), store.load(&n).unwrap().unwrap().0)).collect()
}

/// Backs disk a up. Returns the world, the manifests that stood before swap `at` of that, the snapshot, and how many swaps there were.
fn remember(policy: Policy, at: u64) -> (World, Vec<Root>, SnapId, u64) {
    let mut world = World::new(policy);
    let (seen, fs) = (Arc::new(Mutex::new(Vec::new())), world.fs.clone());
    let into = seen.clone();
    let action = Box::new(move || *into.lock().unwrap() = roots(&SimStore::open_on(fs.process()).unwrap()));
    let store = Between::before_swap(world.store(), at, action);
    let swaps = store.operations();
    let vault = Vault::open(Arc::new(store)).unwrap();
    let id = world.backup(&vault, "a/x", 9).unwrap();
    drop(vault);
    let older = std::mem::take(&mut *seen.lock().unwrap());
    let swaps = swaps.load(Ordering::Relaxed);
    (world, older, id, swaps)
}

/// Puts one older manifest back and looks at what everybody does. Returns whether it was recognised: one that came after
/// the last commit that counts differs in what is yet to be swept or deleted, and nothing is lost with it.
fn rolled_back(world: &mut World, older: &Root, newest: SnapId, what: &str) -> bool {
    let newer = world.roots().into_iter().find(|r| r.0 == older.0).unwrap();
    let of_disk = older.0.starts_with("disks/");
    world.put_back(older);
    let before = world.state();
    let vault = world.vault().with_patience(std::time::Duration::ZERO);

    let told = vault.verify(None, true, &Progress::default()).unwrap().damaged;
    if told.is_empty() {
        let listed = vault.snapshots(Some("a/x")).unwrap().snapshots;
        assert_eq!(listed.last().unwrap().entry.id, newest, "{what}: the newest snapshot is lost");
        world.check_clean();
        return false;
    }
    let of_root = told.iter().find(|d| d.object == older.0).unwrap_or_else(|| panic!("{what}: {told:?}"));
    assert!(of_root.why.contains("older copy"), "{what}: {}", of_root.why);
    let listed = vault.snapshots(None).unwrap();
    let is_listed = listed.snapshots.iter().any(|s| s.entry.id == newest);
    if of_disk {
        let name = format!("a/x@{newest}");
        assert_eq!(of_root.snapshots.contains(&name), !is_listed, "{what}: {:?}", of_root.snapshots);
    }
    world.check(true);

    let refused = |e: VaultError| {
        assert!(matches!(&e, VaultError::RolledBack { object, .. } if *object == older.0), "{what}: {e}");
        assert!(e.is_damage() && e.to_string().contains("put the newer one back"), "{what}: {e}");
    };
    let skipped =
        |lines: Vec<String>| assert!(lines.iter().any(|l| l.contains(&older.0)), "{what}: {lines:?}");
    skipped(vault.gc(false).unwrap().skipped);
    skipped(vault.compact(None, 0.01).unwrap().skipped);
    if of_disk {
        skipped(vault.gc(true).unwrap().skipped);
        refused(vault.delete("a/x", &["latest"]).unwrap_err());
        refused(vault.set_held("a/x", "latest", true).unwrap_err());
        refused(vault.set_held("a/x", "latest", false).unwrap_err());
        skipped(vault.compact(Some("a/x"), 0.01).unwrap().skipped);
        refused(world.backup(&vault, "a/x", 11).unwrap_err());
    } else {
        refused(vault.popular_build(1.0, &std::env::temp_dir()).unwrap_err());
    }
    // Hooks are hints, and other disks have no need of this manifest.
    vault.reindex().unwrap();
    world.backup(&vault, "b/x", 11).unwrap();
    drop(vault);
    let after = world.state();
    let folder = older.0.trim_end_matches("manifest");
    let is_kept = |o: &&String| {
        o.starts_with(folder) || o.starts_with("popular/containers/") || o.starts_with(names::POPULAR)
    };
    let gone: Vec<_> = before.0.difference(&after.0).filter(is_kept).collect();
    assert!(gone.is_empty(), "{what}: removed {gone:?}");
    let root = |state: &[Root]| state.iter().find(|r| r.0 == older.0).cloned();
    assert!(root(&before.1) == root(&after.1), "{what}: the older manifest was changed");

    world.put_back(&newer);
    world.check_clean();
    true
}

#[test]
fn every_older_manifest_is_recognised() {
    for policy in SMALL {
        let swaps = remember(policy, u64::MAX).3;
        let (mut done, mut recognised) = (0, 0);
        for at in 0..swaps {
            for of in ["a/x", "b/x", POPULAR] {
                // Each world gets one older manifest put back.
                let (mut world, older, newest, _) = remember(policy, at);
                let Some(older) = older.into_iter().find(|r| world.name_in(r) == of) else { continue };
                let newer = world.roots().into_iter().find(|r| r.0 == older.0).unwrap();
                if newer.1 == older.1 {
                    continue;
                }
                let what = format!("{}: {of:?} before swap {at}", policy.name);
                let is_recognised = rolled_back(&mut world, &older, newest, &what);
                assert!(is_recognised || (of, at) != ("a/x", 0), "{what}: not recognised");
                done += 1;
                recognised += usize::from(is_recognised);
            }
        }
        println!("{}: {recognised} of {done} older manifests are recognised", policy.name);
        assert!(recognised > 0);
    }
}

/// The popular set's, too.
#[test]
fn the_manifest_of_a_popular_set() {
    for policy in SMALL.into_iter().filter(|p| matches!(p.global, Global::Popular { .. })) {
        let mut world = World::new(policy);
        let older = world.root_of(POPULAR);
        for disk in DISKS {
            world.backup(&world.vault(), disk, 9).unwrap();
        }
        world.vault().popular_build(1.0, &std::env::temp_dir()).unwrap();
        let newest = world.backup(&world.vault(), "a/x", 10).unwrap();
        assert!(rolled_back(&mut world, &older, newest, &format!("{}: popular", policy.name)));
    }
}

/// Where commit records are lost too, objects of sessions that the older manifest has not begun prove it: to those who
/// look at the folder.
#[test]
fn objects_of_later_sessions_prove_it() {
    for policy in SMALL {
        let (world, older, newest, _) = remember(policy, 0);
        let store = world.store();
        let older =
            older.iter().find(|r| world.roots().iter().any(|now| now.0 == r.0 && now.1 != r.1)).unwrap();
        let newer = world.roots().into_iter().find(|r| r.0 == older.0).unwrap();
        for object in world.state().0.iter().filter(|o| o.contains("/commits/")) {
            assert!(store.delete(object).unwrap());
        }
        world.put_back(older);
        let before = world.state();
        let vault = world.vault();
        for _ in 0..3 {
            let told = vault.verify(None, false, &Progress::default()).unwrap().damaged;
            let of_root = told.iter().find(|d| d.object == older.0).unwrap_or_else(|| panic!("{told:?}"));
            assert!(of_root.snapshots.contains(&format!("a/x@{newest}")), "{:?}", of_root.snapshots);
            let skipped = vault.gc(false).unwrap().skipped;
            assert!(skipped.iter().any(|l| l.contains(&older.0)), "{skipped:?}");
        }
        // The other folder has a commit record again, and replaced pages that waited for it are deleted.
        let of_root = format::names::folder_of(&older.0).unwrap();
        let stays =
            |o: &String| !o.contains("/commits/") && (!o.contains("/snapshots/") || o.starts_with(of_root));
        let after: BTreeSet<_> = world.state().0.into_iter().filter(stays).collect();
        assert_eq!(after, before.0.into_iter().filter(stays).collect());
        world.put_back(&newer);
        world.check_clean();
    }
}

/// Deletion looked for commit records only. Where the record of the last commit is missing, because its put has failed, it
/// took the next writer number: nothing proved the rollback after it, and `gc` removed the newer snapshot's objects.
#[test]
fn deletion_looks_for_objects_of_later_sessions() {
    for policy in SMALL {
        let mut world = World::new(policy);
        let older = world.root_of("a/x");
        // Nothing that the older manifest names is replaced: all that it lists can be restored.
        let vault = Vault::open(Arc::new(world.store())).unwrap();
        world.backup(&vault, "a/x", 9).unwrap();
        let newer = world.root_of("a/x");
        let store = world.store();
        for object in world.state().0.iter().filter(|o| o.contains("/commits/")) {
            assert!(store.delete(object).unwrap());
        }
        world.put_back(&older);
        let before = world.state();
        let vault = world.vault();
        for (what, done) in irrevocable(&vault, "a/x") {
            assert!(matches!(done, Err(VaultError::RolledBack { .. })), "{}: {what}: {done:?}", policy.name);
        }
        assert_eq!(world.state(), before, "{}", policy.name);
        // So the proof is still there.
        let told = vault.verify(None, false, &Progress::default()).unwrap().damaged;
        assert!(told.iter().any(|d| d.object == older.0), "{}: {told:?}", policy.name);
        assert!(vault.gc(false).unwrap().skipped.iter().any(|l| l.contains(&older.0)));
        world.put_back(&newer);
        world.check_clean();
    }
}

/// Deletion did not look at pages of snapshots. Where a session has put nothing else, as a deletion that only folds them,
/// they alone prove that the manifest is an older one.
#[test]
fn pages_of_snapshots_prove_it() {
    for policy in SMALL {
        let mut world = World::new(policy);
        // Until there is a page that is not joined with the next one.
        for n in 9..26 {
            world.backup(&world.vault(), "a/x", n).unwrap();
        }
        let older = world.root_of("a/x");
        let newest = world.backup(&world.vault(), "a/x", 26).unwrap();
        let newer = world.root_of("a/x");
        let next = world.manifest_in(&older).next_writer;
        let folder = names::folder_of(&older.0).unwrap();
        let is_later = |o: &String| o.starts_with(folder) && names::writer_of(o).is_some_and(|w| w >= next);
        let (store, mut away) = (world.store(), Vec::new());
        for object in world.state().0 {
            if object.contains("/commits/") || is_later(&object) && !object.contains("/snapshots/") {
                away.push((object.clone(), store.read(&object, 1 << 30).unwrap()));
                assert!(store.delete(&object).unwrap());
            }
        }
        world.put_back(&older);
        let before = world.state();
        assert!(before.0.iter().any(is_later), "{}: no page of snapshots is left", policy.name);
        let vault = world.vault();
        for _ in 0..2 {
            let told = vault.verify(None, false, &Progress::default()).unwrap().damaged;
            let of_root = told.iter().find(|d| d.object == older.0).unwrap_or_else(|| panic!("{told:?}"));
            assert!(
                of_root.why.contains("older copy") && of_root.why.contains("snapshots/"),
                "{}",
                of_root.why
            );
            for (what, done) in irrevocable(&vault, "a/x") {
                let is_refused = matches!(done, Err(VaultError::RolledBack { .. }));
                assert!(is_refused, "{}: {what}: {done:?}", policy.name);
            }
            let skipped = vault.gc(false).unwrap().skipped;
            assert!(skipped.iter().any(|l| l.contains(&older.0)), "{}: {skipped:?}", policy.name);
        }
        let after = world.state();
        let of_disk = |state: &(BTreeSet<String>, Vec<Root>)| -> BTreeSet<String> {
            state.0.iter().filter(|o| o.starts_with(folder)).cloned().collect()
        };
        assert_eq!(of_disk(&after), of_disk(&before), "{}", policy.name);
        assert!(after.1.contains(&older), "{}: the older manifest was changed", policy.name);
        for (object, bytes) in &away {
            drop(store.put(object, &[bytes]));
        }
        world.put_back(&newer);
        world.check_clean();
        assert_eq!(vault.snapshots(Some("a/x")).unwrap().snapshots.last().unwrap().entry.id, newest);
    }
}

/// What cannot be undone, of one disk.
fn irrevocable(vault: &Vault, disk: &str) -> [(&'static str, Result<(), VaultError>); 5] {
    let rules = RetentionRules { last: 1, ..RetentionRules::default() };
    [
        ("delete", vault.delete(disk, &["latest"]).map(drop)),
        ("retain", vault.retain(disk, &rules, &utc, false).map(drop)),
        ("retain --dry-run", vault.retain(disk, &rules, &utc, true).map(drop)),
        ("remove", vault.remove(disk).map(drop)),
        ("rename", vault.rename(disk, "c/x")),
    ]
}

/// A whole copy of the vault's files from an earlier time, over what is there or in its place, by commit records and all.
#[test]
fn an_older_copy_of_the_files_over_newer_ones() {
    let mut world = World::new(SMALL[0]);
    let store = world.store();
    let copy: Vec<(String, Vec<u8>)> =
        world.state().0.into_iter().map(|o| (o.clone(), store.read(&o, 1 << 30).unwrap())).collect();
    for n in 20..23 {
        world.backup(&world.vault(), "a/x", n).unwrap();
    }
    let newer = world.roots();
    for (object, bytes) in copy {
        if object.ends_with("/manifest") {
            world.put_back(&(object, bytes))
        } else {
            drop(store.put(&object, &[&bytes]))
        }
    }
    let before = world.state();
    let vault = world.vault();
    assert!(matches!(world.backup(&vault, "a/x", 30), Err(VaultError::RolledBack { .. })));
    assert!(matches!(vault.delete("a/x", &["latest"]), Err(VaultError::RolledBack { .. })));
    // Nor may what others have written be collected: newer snapshots of this disk may reference it.
    let (skipped, why) = (vault.gc(false).unwrap().skipped, world.manifest_of("a/x"));
    assert!(!skipped.is_empty() && skipped.iter().all(|s| s.contains(&why)), "{skipped:?}");
    // The other disk is as it was.
    world.backup(&vault, "b/x", 30).unwrap();
    let after = world.state().0;
    let folder = world.manifest_of("a/x").replace("manifest", "");
    assert!(before.0.iter().filter(|o| o.starts_with(&folder)).all(|o| after.contains(o)));
    newer.iter().filter(|r| r.0 == world.manifest_of("a/x")).for_each(|r| world.put_back(r));
    world.check_clean();
}

impl World {
    /// The disk whose manifest this is.
    fn name_in(&self, root: &Root) -> String {
        self.manifest_in(root).name
    }

    fn manifest_in(&self, (name, bytes): &Root) -> Manifest {
        Manifest::decode(Context { vault: self.vault().id(), place: name }, bytes).unwrap()
    }

    fn root_of(&self, disk: &str) -> Root {
        self.roots().into_iter().find(|r| self.name_in(r) == disk).unwrap()
    }

    fn manifest_of(&self, disk: &str) -> String {
        self.root_of(disk).0
    }
}

/// Records do not pile up: one stays in each folder, however much has been done.
#[test]
fn few_commit_records_stay() {
    for policy in SMALL {
        let mut world = World::new(policy);
        for n in 40..46 {
            world.backup(&world.vault(), "a/x", n).unwrap();
            world.vault().delete("a/x", &["latest~1"]).unwrap();
        }
        world.vault().gc(false).unwrap();
        let objects = world.state().0;
        for (root, _) in world.roots() {
            let records = root.replace("manifest", "commits/");
            let there: Vec<_> = objects.iter().filter(|o| o.starts_with(&records)).collect();
            assert_eq!(there.len(), 1, "{}: {there:?}", policy.name);
        }
    }
}

/// The policies whose disks reference each other's chunks.
fn sharing() -> impl Iterator<Item = Policy> {
    SMALL.into_iter().filter(|p| matches!(p.global, Global::Chunks { .. } | Global::Segments)).map(|p| {
        Policy {
            global: match p.global {
                Global::Chunks { champions, .. } => Global::Chunks { sampled: 0, champions },
                other => other,
            },
            // As short as what the disks have in common.
            segment_bytes: 16 << 10,
            ..p
        }
    })
}

impl World {
    /// The containers of other owners that a disk references.
    fn foreign(&self, disk: &str) -> u64 {
        self.vault().stats(Some(disk)).unwrap().disks[0].foreign_containers
    }
}

/// An older manifest of an owner lists chunks that have been removed since. A backup of another disk once referenced
/// them, and its snapshot was lost when the newer manifest was put back.
#[test]
fn an_owner_that_was_rolled_back_gives_no_chunks() {
    for policy in sharing() {
        let mut world = World::new(policy);
        let vault = world.vault();
        let gone = world.backup_of(&vault, "a/x", apart(true)).unwrap();
        world.backup_of(&vault, "a/x", apart(false)).unwrap();
        let older = world.root_of("a/x");
        // As long as somebody reads, all is there that the older manifest names.
        let reader = vault.open_snapshot("a/x", "latest", &ReadCache::new(1 << 20)).unwrap();
        vault.delete("a/x", &[&gone.to_string()]).unwrap();
        world.snapshots.retain(|s| s.1 != gone);
        let newer = world.root_of("a/x");
        world.put_back(&older);
        world.backup_of(&vault, "c/x", apart(true)).unwrap();
        world.put_back(&newer);
        drop(reader);
        vault.gc(false).unwrap();
        world.check_clean();
    }
}

/// An older manifest of a referrer does not list the snapshots that need an owner's chunks: nobody removes these.
#[test]
fn a_referrer_that_was_rolled_back_keeps_the_chunks_of_others() {
    for policy in sharing() {
        let mut world = World::new(policy);
        let older = world.root_of("b/x");
        let id = world.backup(&world.vault(), "a/x", 70).unwrap();
        world.backup(&world.vault(), "b/x", 70).unwrap();
        assert!(world.foreign("b/x") > 0, "{}", policy.name);
        let newer = world.root_of("b/x");
        world.put_back(&older);
        world.vault().delete("a/x", &[&id.to_string()]).unwrap();
        for _ in 0..2 {
            let collected = world.vault().gc(false).unwrap();
            assert!(collected.skipped.iter().any(|l| l.contains(&older.0)), "{:?}", collected.skipped);
        }
        world.snapshots.retain(|s| s.1 != id);
        world.put_back(&newer);
        world.check_clean();
    }
}
