//! Damage that restores, open snapshots and backups meet, before any verification.

use super::common::{backup, restore, rng, seed};
use super::{harm, kind_of, manifest, restore_all, Fixture, Harm, Kind, TestStore, DISKS};
use format::{DATA_FOOTER_BYTES, DATA_HEADER_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use vault::{Progress, ReadCache, Vault, VaultError, BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC};

/// The objects that are recorded now, and were not.
fn recorded(vault: &Vault) -> Vec<String> {
    let recorded = vault.record_damage_met(true, &Progress::default());
    assert!(recorded.left.is_none(), "{recorded:?}");
    recorded.damaged.into_iter().map(|d| d.object).collect()
}

/// The damage that a reader has met is recorded: `status` knows, and the next backup stores anew what it needs, before any
/// verification.
#[test]
fn what_readers_find_damaged_is_referenced_no_more() {
    let mut rng = rng(seed("what_readers_find_damaged_is_referenced_no_more"));
    let mut unhealed = 0;
    for (policy, is_open) in [(BALANCED, false), (CONVENTIONAL, true), (REVERSE, false), (VM_CENTRIC, true)] {
        let f = Fixture::new(policy, &mut rng);
        let newest = |vault: &Vault| -> Vec<bool> {
            let both = DISKS.iter().zip(&f.newest);
            both.map(|(disk, bytes)| restore(vault, disk, "latest").is_ok_and(|b| b == *bytes)).collect()
        };
        for kind in [Kind::Data, Kind::Table] {
            let harmed = |object: &str| {
                let store = f.store.copy();
                match kind {
                    Kind::Table => store.remove(object),
                    // In every block: some of them may be dead, or nothing but padding.
                    _ => (DATA_HEADER_BYTES..store.len(object) - DATA_FOOTER_BYTES - 512)
                        .step_by(512)
                        .for_each(|at| harm(&store, object, &Harm::Flip(at, 3))),
                }
                store
            };
            let objects = f.store.objects().into_iter().filter(|o| kind_of(o) == Some(kind));
            let long = objects.filter(|o| f.store.len(o) > 2048 || kind == Kind::Table);
            let is_needed = |object: &String| newest(&harmed(object).vault().unwrap()).contains(&false);
            let object = long.into_iter().find(is_needed).unwrap();
            let owner = format!("{}manifest", object.split_once("containers/").unwrap().0);
            let what = format!("{}: {object}", policy.name);
            let listed = |store: &TestStore, vault: &Vault| manifest(store, vault, &owner).damaged.len();
            // Nobody has looked: a backup goes on to reference what is damaged, but where it writes everything again.
            if kind == Kind::Data {
                let store = harmed(&object);
                let vault = store.vault().unwrap();
                for (disk, bytes) in DISKS.iter().zip(&f.newest) {
                    backup(&vault, disk, bytes, f.policy).unwrap();
                }
                assert_eq!(listed(&store, &vault), 0, "{what}");
                unhealed += u32::from(newest(&vault).contains(&false));
            }
            let store = harmed(&object);
            let vault = store.vault().unwrap();
            let read_all = || {
                for name in f.content.keys() {
                    let (disk, id) = name.split_once('@').unwrap();
                    if is_open {
                        let snapshot = vault.open_snapshot(disk, id, &ReadCache::new(1 << 20)).unwrap();
                        let mut block = [0; 512];
                        for at in (0..snapshot.size()).step_by(512) {
                            let _ = snapshot.read_at(at, &mut block);
                        }
                    } else {
                        let _ = restore(&vault, disk, id);
                    }
                }
            };
            // What has passed when it is looked at again is not recorded.
            read_all();
            let damaged = store.find(&object);
            store.write(&object, &f.store.read(&object));
            assert_eq!((recorded(&vault).len(), listed(&store, &vault)), (0, 0), "{what}");
            match damaged {
                Some(bytes) => store.write(&object, &bytes),
                None => store.remove(&object),
            }
            // Nor is what was met forgotten where it could not be looked at.
            read_all();
            let cancelled = Progress::default();
            cancelled.cancel();
            let stopped = vault.record_damage_met(true, &cancelled).left;
            assert!(
                matches!(stopped, Some(VaultError::Cancelled)) && vault.has_met_damage(),
                "{what}: {stopped:?}"
            );
            for new in [1, 0] {
                assert_eq!((recorded(&vault).len(), listed(&store, &vault)), (new, 1), "{what}");
                assert!(!vault.has_met_damage(), "{what}: told twice");
                read_all();
            }
            let health = vault.health().unwrap();
            let told: u64 = health.disks.iter().map(|d| d.damaged_containers).sum();
            assert_eq!(told + health.damaged_popular, 1, "{what}");
            for (disk, bytes) in DISKS.iter().zip(&f.newest) {
                backup(&vault, disk, bytes, f.policy).unwrap();
            }
            assert_eq!(newest(&vault), [true, true], "{what}");
        }
    }
    assert!(unhealed > 0);
}

/// The snapshots of which the last verifications say that they cannot be restored whole.
fn known_damaged(vault: &Vault) -> BTreeSet<String> {
    let last = vault.last_verifications();
    let all = vault.snapshots(None).unwrap().snapshots;
    let damaged = all.iter().filter(|s| last.of_snapshot(s).is_some_and(|v| v.is_damaged));
    damaged.map(|s| format!("{}@{}", s.disk, s.entry.id)).collect()
}

/// Where readers meet damage of recipes, or of pages of a container table, their disk is looked at as a whole: it is known from then
/// on which snapshots are affected. That is done once, however often it is met.
#[test]
fn what_readers_find_damaged_of_recipes_is_told() {
    let mut rng = rng(seed("what_readers_find_damaged_of_recipes_is_told"));
    let mut tried: BTreeMap<Kind, u32> = BTreeMap::new();
    for policy in [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC] {
        let f = Fixture::new(policy, &mut rng);
        for object in f.store.objects() {
            let kind = kind_of(&object).unwrap();
            if !matches!(kind, Kind::RecipeRoot | Kind::RecipePages | Kind::ContainerPage) {
                continue;
            }
            let what = format!("{}: {object}", policy.name);
            let store = f.store.copy();
            harm(&store, &object, &Harm::Delete);
            let vault = store.vault().unwrap();
            let failing: BTreeSet<String> = restore_all(&f, &vault).into_keys().collect();
            if failing.is_empty() {
                continue;
            }
            *tried.entry(kind).or_default() += 1;
            assert_eq!(known_damaged(&vault), BTreeSet::new(), "{what}");
            let cancelled = Progress::default();
            cancelled.cancel();
            assert!(
                vault.record_damage_met(true, &cancelled).left.is_some() && vault.has_met_damage(),
                "{what}"
            );
            assert_eq!(recorded(&vault), [object.as_str()], "{what}");
            assert_eq!(known_damaged(&vault), failing, "{what}");
            restore_all(&f, &vault);
            assert!(!vault.has_met_damage(), "{what}: looked at again");
            store.write(&object, &f.store.read(&object));
            vault.verify(None, false, &Progress::default()).unwrap();
            assert_eq!(known_damaged(&vault), BTreeSet::new(), "{what}");
        }
    }
    println!("{tried:?}");
    assert_eq!(tried.len(), 3);
}

/// A backup passes over what it finds damaged. It is known from then on, and the next backup stores anew what it needs of it.
#[test]
fn what_backups_find_damaged_is_told() {
    let mut rng = rng(seed("what_backups_find_damaged_is_told"));
    let mut met: BTreeMap<(&str, Kind), u32> = BTreeMap::new();
    for policy in [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC] {
        let f = Fixture::new(policy, &mut rng);
        for object in f.store.objects() {
            let kind = kind_of(&object).unwrap();
            if !matches!(kind, Kind::RecipeRoot | Kind::RecipePages | Kind::Table) {
                continue;
            }
            let what = format!("{}: {object}", policy.name);
            let store = f.store.copy();
            harm(&store, &object, &Harm::Delete);
            let failing: BTreeSet<String> = restore_all(&f, &store.vault().unwrap()).into_keys().collect();
            let vault = store.vault().unwrap();
            for (disk, bytes) in DISKS.iter().zip(&f.newest) {
                backup(&vault, disk, bytes, f.policy).unwrap();
            }
            if !vault.has_met_damage() {
                continue;
            }
            *met.entry((policy.name, kind)).or_default() += 1;
            assert!(recorded(&vault).contains(&object), "{what}");
            assert!(!vault.has_met_damage(), "{what}");
            let health = vault.health().unwrap();
            let listed: u64 = health.disks.iter().map(|d| d.damaged_containers).sum();
            let is_told = match kind {
                Kind::Table => listed + health.damaged_popular == 1,
                _ => known_damaged(&vault).is_superset(&failing),
            };
            assert!(is_told, "{what}");
            for (disk, bytes) in DISKS.iter().zip(&f.newest) {
                backup(&vault, disk, bytes, f.policy).unwrap();
                assert_eq!(restore(&vault, disk, "latest").unwrap(), *bytes, "{what}: {disk}");
            }
        }
    }
    println!("{met:?}");
    for kind in [Kind::RecipeRoot, Kind::RecipePages, Kind::Table] {
        assert!(met.keys().any(|(_, of)| *of == kind), "{kind:?} is never met");
    }
}

/// What a collection or a deletion has to leave because of damage is known from then on.
#[test]
fn what_maintenance_finds_damaged_is_told() {
    let mut rng = rng(seed("what_maintenance_finds_damaged_is_told"));
    let mut met: BTreeMap<(&str, Kind), u32> = BTreeMap::new();
    for policy in [BALANCED, CONVENTIONAL, VM_CENTRIC] {
        let f = Fixture::new(policy, &mut rng);
        for object in f.store.objects() {
            let kind = kind_of(&object).unwrap();
            let is_of_disk = object.starts_with(format::names::DISKS);
            if !is_of_disk || !matches!(kind, Kind::RecipeRoot | Kind::RecipePages | Kind::ContainerPage) {
                continue;
            }
            for by in ["gc", "delete"] {
                let what = format!("{}: {by}: {object}", policy.name);
                let store = f.store.copy();
                harm(&store, &object, &Harm::Delete);
                let vault = store.vault().unwrap();
                let is_told = match by {
                    "gc" => !vault.gc(false).unwrap().skipped.is_empty(),
                    _ => {
                        let deleted = DISKS.map(|disk| vault.delete(disk, &["latest~1"]));
                        deleted.iter().any(|done| done.as_ref().is_ok_and(|report| report.held_up.is_some()))
                    }
                };
                if !is_told {
                    continue;
                }
                *met.entry((by, kind)).or_default() += 1;
                // Nobody needs what deleted snapshots alone have used.
                let told = recorded(&vault);
                assert!(told.is_empty() || told == [object.as_str()], "{what}: {told:?}");
                let failing = restore_all(&f, &store.vault().unwrap());
                let live: BTreeSet<String> = vault
                    .snapshots(None)
                    .unwrap()
                    .snapshots
                    .iter()
                    .map(|s| format!("{}@{}", s.disk, s.entry.id))
                    .collect();
                let of_disk = |name: &&String| live.contains(*name) && object_is_of(&f, &object, name);
                let expected: BTreeSet<String> = failing.keys().filter(of_disk).cloned().collect();
                assert!(known_damaged(&vault).is_superset(&expected), "{what}: {expected:?}");
            }
        }
    }
    println!("{met:?}");
    assert!(met.keys().any(|(by, _)| *by == "gc") && met.keys().any(|(by, _)| *by == "delete"), "{met:?}");
}

/// Whether an object lies in the folder of a snapshot's disk.
fn object_is_of(f: &Fixture, object: &str, snapshot: &str) -> bool {
    object.starts_with(&format::names::folder(f.id_of(snapshot.split_once('@').unwrap().0)))
}
