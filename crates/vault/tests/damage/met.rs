//! Damage that restores and open snapshots meet, before any verification.

use super::common::{backup, restore, rng, seed};
use super::{harm, kind_of, manifest, Fixture, Harm, Kind, TestStore, DISKS};
use format::{DATA_FOOTER_BYTES, DATA_HEADER_BYTES};
use vault::{Progress, ReadCache, Vault, VaultError, BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC};

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
            assert_eq!(
                (vault.record_damage_met(&Progress::default()).unwrap(), listed(&store, &vault)),
                (0, 0),
                "{what}"
            );
            match damaged {
                Some(bytes) => store.write(&object, &bytes),
                None => store.remove(&object),
            }
            // Nor is what was met forgotten where it could not be looked at.
            read_all();
            let cancelled = Progress::default();
            cancelled.cancel();
            let stopped = vault.record_damage_met(&cancelled).unwrap_err();
            assert!(matches!(stopped, VaultError::Cancelled) && vault.has_met_damage(), "{what}: {stopped}");
            for new in [1, 0] {
                assert_eq!(
                    (vault.record_damage_met(&Progress::default()).unwrap(), listed(&store, &vault)),
                    (new, 1),
                    "{what}"
                );
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
