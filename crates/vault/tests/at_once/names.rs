//! Names that lead nowhere or elsewhere. A lost or damaged object below `names/` hid its disk: the list was empty, the
//! next backup put a second folder in its place, and the snapshots could no longer be restored although the manifest has
//! the name. A forged one gave another disk's bytes under the name, and took backups into the other disk's folder.
//!
//! The manifest decides what a disk is called, whatever happens to the object that leads to it.

use crate::between::Between;
use crate::sim::{restore, Bytes, BALANCED_SMALL};
use format::{encode_frame, names, Context, DiskId, Kind, Manifest};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use store::{ObjectStore, SimFs, SimStore};
use vault::{BackupOptions, Global, Policy, Progress, SnapId, Vault, VaultError};

const DISKS: [&str; 3] = ["web/vda", "db/vda", "db/vdb"];

struct World {
    fs: SimFs,
    /// By disk and id.
    snapshots: BTreeMap<(String, SnapId), Arc<Vec<u8>>>,
    folders: BTreeMap<String, DiskId>,
}

fn content(disk: &str, n: u64) -> Arc<Vec<u8>> {
    Arc::new(
        (0..150_000_u64)
            .map(|at| (at / 512 * n + disk.len() as u64 * 31 + at) as u8 ^ disk.as_bytes()[0])
            .collect(),
    )
}

impl World {
    fn new(disks: &[&str]) -> World {
        let fs = SimFs::new(1);
        Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &BALANCED_SMALL).unwrap();
        let mut world = World { fs, snapshots: BTreeMap::new(), folders: BTreeMap::new() };
        for n in 1..3 {
            for disk in disks {
                world.backup(disk, n).unwrap();
            }
        }
        world.folders = world.manifests().into_iter().map(|m| (m.name.clone(), m.disk)).collect();
        world
    }

    fn store(&self) -> SimStore {
        SimStore::open_on(self.fs.process()).unwrap()
    }

    fn vault(&self) -> Vault {
        Vault::open(Arc::new(self.store())).unwrap()
    }

    /// The same where the disk may stop at any call.
    fn vault_unless_stopped(&self) -> Result<Vault, VaultError> {
        Vault::open(Arc::new(SimStore::open_on(self.fs.process())?))
    }

    fn backup(&mut self, disk: &str, n: u64) -> Result<SnapId, VaultError> {
        let options = BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() };
        let source = Box::new(Bytes(content(disk, n)));
        let id = self.vault().backup(disk, source, &options, &Progress::default())?.snapshot.id;
        self.snapshots.insert((disk.into(), id), content(disk, n));
        Ok(id)
    }

    fn manifests(&self) -> Vec<Manifest> {
        let (vault, store) = (self.vault().id(), self.store());
        let mut found = Vec::new();
        store
            .list(names::DISKS, &mut |e| {
                if e.name.ends_with("/manifest") {
                    let bytes = store.load(&e.name)?.unwrap().0;
                    found.push(Manifest::decode(Context { vault, place: &e.name }, &bytes).unwrap());
                }
                Ok(())
            })
            .unwrap();
        found
    }

    /// Puts a whole and valid object at the place of one name that says another name and disk.
    fn forge(&self, place: &str, name: &str, id: DiskId) {
        let object = names::name(place);
        self.store().delete(&object).unwrap();
        let body = [&id.0[..], name.as_bytes()].concat();
        let frame = encode_frame(Kind::Name, Context { vault: self.vault().id(), place: &object }, &body);
        self.store().put(&object, &[&frame]).unwrap();
    }

    fn overwrite(&self, name: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) {
        let object = names::name(name);
        let bytes = change(self.store().read(&object, 4096).unwrap());
        self.store().delete(&object).unwrap();
        self.store().put(&object, &[&bytes]).unwrap();
    }

    /// Every snapshot is there, with its own bytes, under its own name.
    fn check(&self, what: &str) {
        let vault = self.vault();
        for ((disk, id), content) in &self.snapshots {
            let bytes =
                restore(&vault, disk, &id.to_string()).unwrap_or_else(|e| panic!("{what}: {disk}@{id}: {e}"));
            assert!(bytes == **content, "{what}: {disk}@{id} differs");
        }
        for disk in self.folders.keys() {
            let listed = vault.snapshots(Some(disk)).unwrap().snapshots;
            assert!(
                listed.iter().all(|s| self.snapshots.contains_key(&(disk.clone(), s.entry.id))),
                "{what}"
            );
            let newest = listed.last().unwrap().entry.id;
            assert!(
                restore(&vault, disk, "latest").unwrap() == *self.snapshots[&(disk.clone(), newest)],
                "{what}"
            );
        }
        let all = vault.snapshots(None).unwrap().snapshots;
        let mut all: Vec<(String, SnapId)> = all.into_iter().map(|s| (s.disk, s.entry.id)).collect();
        all.sort();
        assert!(all.iter().eq(self.snapshots.keys()), "{what}: {all:?} are listed");
    }

    /// Nothing is wrong with names, for anybody.
    fn check_clean(&self, what: &str) {
        self.check(what);
        let vault = self.vault();
        assert_eq!(vault.snapshots(None).unwrap().damaged, <[String; 0]>::default(), "{what}");
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, [], "{what}");
        let again = vault.gc(false).unwrap();
        assert!(again.skipped.is_empty() && again.names_put_back.is_empty(), "{what}: {again:?}");
        for (disk, id) in &self.folders {
            let bytes = self.store().read(&names::name(disk), 4096).unwrap();
            let place = names::name(disk);
            let body = format::decode_frame(Kind::Name, Context { vault: vault.id(), place: &place }, &bytes);
            assert_eq!(body.unwrap(), [&id.0[..], disk.as_bytes()].concat(), "{what}");
        }
    }
}

/// What may happen to names.
type Harm = (&'static str, &'static [&'static str], fn(&World));

const HARMS: [Harm; 10] = [
    ("lost", &["web/vda"], |w| assert!(w.store().delete(&names::name("web/vda")).unwrap())),
    ("empty", &["web/vda"], |w| w.overwrite("web/vda", |_| Vec::new())),
    ("truncated", &["web/vda"], |w| w.overwrite("web/vda", |b| b[..b.len() - 3].to_vec())),
    ("a flipped bit", &["web/vda"], |w| {
        w.overwrite("web/vda", |mut b| {
            b[40] ^= 4;
            b
        })
    }),
    ("leads to another disk", &["web/vda"], |w| w.forge("web/vda", "web/vda", w.folders["db/vda"])),
    ("leads nowhere", &["web/vda"], |w| w.forge("web/vda", "web/vda", DiskId([9; 16]))),
    ("is of another name", &["web/vda"], |w| w.forge("web/vda", "db/vda", w.folders["db/vda"])),
    ("two lead to each other's disk", &["web/vda", "db/vda"], |w| {
        w.forge("web/vda", "web/vda", w.folders["db/vda"]);
        w.forge("db/vda", "db/vda", w.folders["web/vda"]);
    }),
    ("one is lost and one leads to its disk", &["web/vda", "db/vda"], |w| {
        w.forge("db/vda", "db/vda", w.folders["web/vda"]);
        assert!(w.store().delete(&names::name("web/vda")).unwrap());
    }),
    ("all are lost", &DISKS, |w| {
        DISKS.iter().for_each(|disk| assert!(w.store().delete(&names::name(disk)).unwrap()));
    }),
];

#[test]
fn the_manifest_decides_what_a_disk_is_called() {
    for (what, hurt, harm) in HARMS {
        let mut world = World::new(&DISKS);
        harm(&world);
        world.check(what);
        let vault = world.vault();
        for disk in DISKS {
            let told = vault.snapshots(Some(disk)).unwrap().damaged;
            assert_eq!(told.is_empty(), !hurt.contains(&disk), "{what}: {told:?}");
            let told = vault.verify(Some((disk, None)), false, &Progress::default()).unwrap().damaged;
            assert_eq!(told.is_empty(), !hurt.contains(&disk), "{what}: {told:?}");
        }
        let mut told: Vec<String> = vault
            .verify(None, true, &Progress::default())
            .unwrap()
            .damaged
            .into_iter()
            .map(|d| d.object)
            .collect();
        let mut expected: Vec<String> = hurt.iter().map(|disk| names::name(disk)).collect();
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "{what}");
        assert_eq!(vault.snapshots(None).unwrap().damaged.len(), hurt.len(), "{what}");
        assert_eq!(vault.gc(true).unwrap().skipped.len(), hurt.len(), "{what}: a dry run");

        // Into the same folder, and into no other disk's.
        for disk in DISKS {
            world.backup(disk, 7).unwrap_or_else(|e| panic!("{what}: backup of {disk}: {e}"));
        }
        world.check(what);
        let folders: BTreeMap<_, _> =
            world.manifests().into_iter().map(|m| (m.name.clone(), m.disk)).collect();
        assert_eq!((folders, world.manifests().len()), (world.folders.clone(), 3), "{what}: a second folder");
        world.vault().set_held("web/vda", "latest", true).unwrap();
        world.vault().set_held("web/vda", "latest", false).unwrap();

        let collected = world.vault().gc(false).unwrap();
        let mut put_back = collected.names_put_back;
        put_back.sort();
        let mut hurt = hurt.to_vec();
        hurt.sort();
        assert_eq!(
            (put_back, collected.skipped),
            (hurt.iter().map(|d| d.to_string()).collect(), vec![]),
            "{what}"
        );
        world.check_clean(what);
    }
}

/// What the missing name has led to, and would again: two folders whose manifests have one name.
#[test]
fn two_disks_of_one_name_are_told_apart() {
    let mut world = World::new(&DISKS);
    let (first, second) = (world.folders["web/vda"], world.folders["db/vdb"]);
    let object = format!("disks/{second}/manifest");
    let (vault, store) = (world.vault(), world.store());
    let place = Context { vault: vault.id(), place: &object };
    let (bytes, tag) = store.load(&object).unwrap().unwrap();
    let renamed = Manifest { name: "web/vda".into(), ..Manifest::decode(place, &bytes).unwrap() };
    store.swap(&object, Some(tag), &renamed.encode(place)).unwrap();
    store.delete(&names::name("db/vdb")).unwrap();

    // While the name leads to one of them, that one has it; the other one is shown, and can be used, by its folder.
    let by_folder = format!("disks/{second}");
    assert!(restore(&vault, "web/vda", "latest").unwrap() == *content("web/vda", 2));
    assert!(restore(&vault, &by_folder, "latest").unwrap() == *content("db/vdb", 2));
    let listing = vault.snapshots(None).unwrap();
    assert_eq!(listing.snapshots.iter().filter(|s| s.disk == by_folder).count(), 2);
    assert_eq!(listing.snapshots.iter().filter(|s| s.disk == "web/vda").count(), 2);
    assert!(listing.damaged[0].contains(&object) && listing.damaged[0].contains(&first.to_string()));
    let told = vault.verify(None, true, &Progress::default()).unwrap().damaged;
    assert!(told.len() == 1 && told[0].object == object, "{told:?}");

    // Without it, nobody guesses.
    store.delete(&names::name("web/vda")).unwrap();
    let refused = |e: VaultError| {
        let said = e.to_string();
        let both = said.contains(&first.to_string()) && said.contains(&second.to_string());
        assert!(matches!(e, VaultError::Refused(_)) && both, "{said}");
    };
    refused(restore(&vault, "web/vda", "latest").unwrap_err());
    refused(world.backup("web/vda", 5).unwrap_err());
    refused(vault.delete("web/vda", &["latest"]).unwrap_err());
    assert_eq!(vault.snapshots(None).unwrap().damaged.len(), 2);
    assert_eq!(vault.gc(false).unwrap().skipped.len(), 2);

    vault.delete(&by_folder, &["latest", "latest~1"]).unwrap();
    assert_eq!(vault.gc(false).unwrap().names_put_back, ["web/vda"]);
    world.snapshots.retain(|(disk, _), _| disk != "db/vdb");
    world.folders.remove("db/vdb");
    world.check_clean("after the second one's snapshots were deleted");
    assert_eq!(world.manifests().len(), 2, "the empty folder is gone");
}

/// A disk whose manifest cannot be read and that no name leads to may be any disk: no new one takes its place.
#[test]
fn a_disk_that_cannot_be_told_is_not_replaced() {
    let mut world = World::new(&DISKS);
    let store = world.store();
    let object = format!("disks/{}/manifest", world.folders["web/vda"]);
    let (bytes, tag) = store.load(&object).unwrap().unwrap();
    store.swap(&object, Some(tag), &bytes[..bytes.len() - 1]).unwrap();
    store.delete(&names::name("web/vda")).unwrap();
    let e = world.backup("web/vda", 5).unwrap_err();
    assert!(e.is_damage() && e.to_string().contains(&object), "{e}");
    assert!(restore(&world.vault(), "web/vda", "latest").unwrap_err().to_string().contains(&object));
    // The others go on.
    world.backup("db/vda", 5).unwrap();
}

/// The first backup of a disk looks for one that has lost its name. That must not cost a reading of every disk.
#[test]
fn a_first_backup_reads_no_other_disk() {
    // Returns the operations, and how many objects of hooks there were.
    let operations = |disks: usize, policy: Policy| {
        let names: Vec<String> = (0..disks).map(|n| format!("vm{n}/vda")).collect();
        let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut hooks = 0;
        let count = &mut |_| {
            hooks += 1;
            Ok(())
        };
        world.store().list(names::HOOKS, count).unwrap();
        let store = Between::new(world.store(), u64::MAX, 0, Box::new(|| {}));
        let operations = store.operations();
        let vault = Vault::open(Arc::new(store)).unwrap();
        let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
        let source = Box::new(Bytes(content("new/vda", 1)));
        vault.backup("new/vda", source, &options, &Progress::default()).unwrap();
        (operations.load(Ordering::Relaxed), hooks)
    };
    let off = Policy { global: Global::Off, ..BALANCED_SMALL };
    assert_eq!(operations(2, off).0, operations(30, off).0);
    // Hooks of many disks stand in few objects, each of which is read once.
    let (few, many) = (operations(2, BALANCED_SMALL), operations(30, BALANCED_SMALL));
    println!("{few:?} operations and objects of hooks with 2 disks, {many:?} with 30");
    assert!(many.1 < 16, "{} objects of hooks", many.1);
    assert_eq!(many.0 - few.0, many.1 - few.1);
}

/// A vault that has lost `vault.json` and all names is no place for a new one either.
#[test]
fn disks_without_names_are_no_empty_store() {
    let world = World::new(&DISKS);
    let store = world.store();
    DISKS.iter().for_each(|disk| assert!(store.delete(&names::name(disk)).unwrap()));
    assert!(store.delete(names::VAULT).unwrap());
    let is_refused = || {
        let e = Vault::init(Arc::new(world.store()), &BALANCED_SMALL).map(drop).unwrap_err();
        assert!(matches!(&e, VaultError::Missing { object } if object == names::VAULT), "{e}");
    };
    is_refused();
    assert!(Vault::open(Arc::new(world.store())).unwrap().file_fault().is_some());
    assert!(store.delete(names::VAULT_COPY).unwrap());
    is_refused();
    let e = Vault::open(Arc::new(world.store())).map(drop).unwrap_err();
    assert!(matches!(&e, VaultError::Description { .. }), "{e}");
}

impl World {
    /// What was called `old` is called `new`.
    fn called(&mut self, old: &str, new: &str) {
        let rename = |disk: &str| if disk == old { new.to_owned() } else { disk.to_owned() };
        self.snapshots = std::mem::take(&mut self.snapshots)
            .into_iter()
            .map(|((d, id), c)| ((rename(&d), id), c))
            .collect();
        self.folders =
            std::mem::take(&mut self.folders).into_iter().map(|(d, id)| (rename(&d), id)).collect();
    }

    fn names(&self) -> usize {
        let mut count = 0;
        let counted = self.store().list(names::NAMES, &mut |_| {
            count += 1;
            Ok(())
        });
        counted.unwrap();
        count
    }
}

#[test]
fn a_disk_gets_another_name() {
    let mut world = World::new(&DISKS);
    let vault = world.vault();
    for (old, new, why) in [
        ("web/vda", "db/vda", "there is a disk of this name"),
        ("web/vda", "web/vda", "there is a disk of this name"),
        ("web/vda", "no name", "no name"),
        ("mail/vda", "post/vda", "there is no disk mail/vda"),
    ] {
        let e = vault.rename(old, new).unwrap_err().to_string();
        assert!(e.contains(why), "{old} {new}: {e}");
    }
    world.check_clean("refused");
    vault.rename("web/vda", "www/vda").unwrap();
    world.called("web/vda", "www/vda");
    world.check_clean("renamed");
    assert!(matches!(vault.snapshots(Some("web/vda")), Err(VaultError::NotFound { .. })));
    // It goes on as the same disk, and the old name is free.
    let id = world.backup("www/vda", 3).unwrap();
    let listed = vault.snapshots(Some("www/vda")).unwrap().snapshots;
    let newest = &listed.last().unwrap().entry;
    assert_eq!((newest.id, newest.parent), (id, Some(listed[1].entry.id)));
    let first = world.backup("web/vda", 1).unwrap();
    assert_eq!(vault.snapshots(Some("web/vda")).unwrap().snapshots[0].entry.id, first);
    vault.rename("web/vda", "tmp/vda").unwrap();
    vault.rename("www/vda", "web/vda").unwrap();
    world.called("web/vda", "tmp/vda");
    world.called("www/vda", "web/vda");
    assert_eq!(world.names(), 4);
}

#[test]
fn a_renaming_that_is_stopped_leaves_one_name() {
    let (mut old_ones, mut new_ones) = (0, 0);
    for stop in 1.. {
        let mut world = World::new(&["web/vda"]);
        let fs = world.fs.clone();
        fs.stop_after(stop);
        let ended = world.vault_unless_stopped().and_then(|v| v.rename("web/vda", "www/vda"));
        if !fs.is_stopped() {
            ended.unwrap();
            break;
        }
        world.fs = if stop % 2 == 0 { fs.crash() } else { fs.restart() };
        let listing = world.vault().snapshots(None).unwrap();
        assert_eq!(listing.damaged, [""; 0], "stop {stop}");
        let name = listing.snapshots[0].disk.clone();
        if name == "www/vda" {
            world.called("web/vda", "www/vda");
            new_ones += 1;
        } else {
            old_ones += 1;
        }
        world.check(&format!("stop {stop}"));
        assert!(world.vault().verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
        // The other name is free for a new disk, and what was begun can be done.
        let other = if name == "www/vda" { "web/vda" } else { "www/vda" };
        match stop % 3 {
            0 => drop(world.backup(other, 1).unwrap()),
            1 => {
                world.vault().rename(&name, other).unwrap();
                world.called(&name, other);
            }
            _ => {}
        }
        world.vault().gc(false).unwrap();
        world.check_clean(&format!("stop {stop}, collected"));
        assert_eq!(world.names(), world.manifests().len(), "stop {stop}");
        assert!(world.manifests().iter().all(|m| m.other_names.is_empty()), "stop {stop}");
    }
    assert!(old_ones > 5 && new_ones > 2, "{old_ones} old names, {new_ones} new ones");
}

/// Backups that begin or end while a disk is renamed: each snapshot is of the disk of one name or of the other.
#[test]
fn renaming_beside_backups() {
    for at in 0.. {
        let world = World::new(&["web/vda"]);
        let (fs, done) = (world.fs.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let made = done.clone();
        let meanwhile = move || {
            for (disk, n) in [("web/vda", 3), ("www/vda", 4)] {
                let store = Arc::new(SimStore::open_on(fs.process()).unwrap());
                let vault = Vault::open(store).unwrap().with_patience(std::time::Duration::from_millis(1));
                let options = BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() };
                let source = Box::new(Bytes(content(disk, n)));
                match vault.backup(disk, source, &options, &Progress::default()) {
                    Ok(report) => made.lock().unwrap().push((report.snapshot.id, content(disk, n))),
                    Err(VaultError::Busy { .. }) => {}
                    Err(e) => panic!("{disk}: {e}"),
                }
            }
        };
        let store = Between::new(world.store(), at, 0, Box::new(meanwhile));
        let operations = store.operations();
        match Vault::open(Arc::new(store)).unwrap().rename("web/vda", "www/vda") {
            Ok(()) | Err(VaultError::Refused(_) | VaultError::Busy { .. }) => {}
            Err(e) => panic!("operation {at}: {e}"),
        }
        let last = operations.load(Ordering::Relaxed) <= at;
        let vault = world.vault();
        vault.gc(false).unwrap();
        let listing = vault.snapshots(None).unwrap();
        assert_eq!(listing.damaged, [""; 0], "operation {at}");
        let expected: Vec<(SnapId, Arc<Vec<u8>>)> = world
            .snapshots
            .iter()
            .map(|((_, id), content)| (*id, content.clone()))
            .chain(done.lock().unwrap().iter().cloned())
            .collect();
        assert_eq!(listing.snapshots.len(), expected.len(), "operation {at}");
        for s in &listing.snapshots {
            let content = &expected.iter().find(|(id, _)| *id == s.entry.id).unwrap().1;
            assert!(
                restore(&vault, &s.disk, &s.entry.id.to_string()).unwrap() == **content,
                "operation {at}"
            );
        }
        assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
        if last {
            break;
        }
    }
}
