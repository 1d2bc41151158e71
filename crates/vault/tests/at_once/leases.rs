//! Who ignores what a dead process has left, a claim or a retiring record, fences its writer first: should the process
//! only have lost its lease, it can no longer commit.

use crate::between::Between;
use crate::sim::{restore, Bytes, BALANCED_SMALL};
use format::{names, Context, Manifest, WriterKind};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use store::{ObjectStore, SimFs, SimStore};
use vault::{BackupOptions, Progress, Vault, VaultError};

fn content(n: u64) -> Arc<Vec<u8>> {
    Arc::new((0..70).flat_map(|b| testing::noise(b * 1000 + n, 4096)).collect())
}

fn backup(vault: &Vault, disk: &str, n: u64) -> Result<u64, VaultError> {
    let options = BackupOptions { policy: Some(BALANCED_SMALL), ..BackupOptions::default() };
    let report = vault.backup(disk, Box::new(Bytes(content(n))), &options, &Progress::default())?;
    Ok(report.snapshot.new_bytes)
}

struct World {
    fs: SimFs,
}

impl World {
    fn new() -> World {
        let fs = SimFs::new(1);
        Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &BALANCED_SMALL).unwrap();
        World { fs }
    }

    fn store(&self) -> SimStore {
        SimStore::open_on(self.fs.process()).unwrap()
    }

    fn vault(&self) -> Vault {
        Vault::open(Arc::new(self.store())).unwrap()
    }

    fn objects(&self, prefix: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |e: store::Entry| {
            names.push(e.name);
            Ok(())
        };
        self.store().list(prefix, &mut add).unwrap();
        names
    }

    /// The manifest of a disk, and its folder.
    fn manifest(&self, disk: &str) -> (String, Manifest) {
        let (store, vault) = (self.store(), self.vault().id());
        let manifests = self.objects("disks/").into_iter().filter(|o| o.ends_with("/manifest"));
        let all = manifests.map(|name| {
            let bytes = store.load(&name).unwrap().unwrap().0;
            let m = Manifest::decode(Context { vault, place: &name }, &bytes).unwrap();
            (name.trim_end_matches("manifest").to_owned(), m)
        });
        all.into_iter().find(|(_, m)| m.name == disk).unwrap()
    }

    /// A process that is killed before its operation `at`, or before its swap of a manifest of that number.
    fn mortal(&self, at: u64, swaps: bool) -> Between {
        let process = self.fs.process();
        let store = SimStore::open_on(process.clone()).unwrap();
        let kill = Box::new(move || process.kill());
        if swaps {
            Between::before_swap(store, at, kill)
        } else {
            Between::new(store, at, 0, kill)
        }
    }
}

/// A collection that leaves a disk alone removed the claims of its dead backup all the same, and did not fence it.
#[test]
fn a_claim_goes_after_its_writer() {
    for harm in ["none", "claim"] {
        let world = World::new();
        backup(&world.vault(), "a/x", 1).unwrap();
        backup(&world.vault(), "b/x", 2).unwrap();
        // It dies before its commit.
        let dying = Vault::open(Arc::new(world.mortal(1, true))).unwrap();
        backup(&dying, "b/x", 1).unwrap_err();
        drop(dying);
        let claims = world.objects("claims/");
        assert_eq!(claims.len(), 1, "{claims:?}");
        let (folder, m) = world.manifest("b/x");
        assert_eq!(m.writers.len(), 1);
        let store = world.store();
        if harm == "claim" {
            // Whose it is cannot be told.
            store.delete(&claims[0]).unwrap();
            store.put(&claims[0], &[b"damaged"]).unwrap();
        }
        // A manifest that looks as if it had been rolled back, by one commit, is left alone: one more would hide that.
        let record = names::commit(&folder, m.sequence.next());
        let place = Context { vault: world.vault().id(), place: &record };
        store.put(&record, &[&format::encode_mark(format::Kind::Commit, place)]).unwrap();
        let report = world.vault().gc(false).unwrap();
        assert!(!report.skipped.is_empty());
        assert_eq!(world.manifest("b/x").1, m, "{harm}");
        assert_eq!(world.objects("claims/"), claims, "{harm}: the claim has gone before its writer");
        store.delete(&record).unwrap();
        world.vault().gc(false).unwrap();
        assert!(world.manifest("b/x").1.writers.is_empty());
        assert_eq!(world.objects("claims/"), [""; 0], "{harm}");
    }
}

/// A backup passed over the retiring record of a sweep that had lost its lease, and referenced what the sweep was about to
/// remove.
#[test]
fn a_sweep_is_fenced_before_its_record_is_passed_over() {
    let (mut at, mut met) = (0, 0);
    loop {
        let world = World::new();
        backup(&world.vault(), "a/x", 1).unwrap();
        backup(&world.vault(), "d/x", 1).unwrap();
        // It sweeps what disk a has, for disk d.
        let store = world.mortal(at, false);
        let operations = store.operations();
        if let Ok(vault) = Vault::open(Arc::new(store)) {
            let _ = vault.delete("d/x", &["latest"]);
        }
        let left = !world.objects("retiring/").is_empty();
        let is_maintained = |w: &format::Writer| w.kind == WriterKind::Maintenance;
        if left {
            met += u64::from(world.manifest("a/x").1.writers.iter().any(is_maintained));
        }
        assert_eq!(backup(&world.vault(), "e/x", 1).unwrap(), 0, "before operation {at}");
        let (_, m) = world.manifest("a/x");
        assert!(
            !left || !m.writers.iter().any(is_maintained),
            "before operation {at}: the sweep may still commit"
        );
        assert!(restore(&world.vault(), "e/x", "latest").unwrap() == *content(1));
        world.vault().gc(false).unwrap();
        assert_eq!(world.objects("retiring/"), [""; 0]);
        if operations.load(Ordering::Relaxed) <= at {
            break;
        }
        at += 1;
    }
    assert!(met > 3, "{met} sweeps died under their records");
}
