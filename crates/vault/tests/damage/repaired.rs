//! What a repair may do in every cell of the matrix: heal, and never harm.

use super::test_store::TestStore;
use super::{affected, harm, restore_all, Fixture, Harm, Kind};
use format::names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vault::{Damage, OpenDisk, Progress, RepairOptions, RepairReport, Vault};

/// Repairs what a cell has harmed: with what is left in the vault, with another vault that has everything, and with the
/// newest versions of the disks.
pub fn check(f: &Fixture, kind: Kind, object: &str, how: &Harm, what: &str) {
    let alone = repair(f, object, how, what, RepairOptions { data: true, ..Default::default() });
    let Some((healed, alone)) = alone else { return };
    let vaults = vec![f.store.copy().vault().unwrap()];
    let of_other = repair(f, object, how, what, RepairOptions { data: true, vaults, ..Default::default() });
    let (of_other, told_of_other) = of_other.map(|(healed, report)| (healed, report.after)).unwrap();
    assert!(of_other.is_superset(&healed), "{what}");
    let disks = f.newest.iter().map(|bytes| {
        let open: OpenDisk = Box::new(|| Ok(super::common::source(bytes, true)));
        open
    });
    let disks = disks.collect();
    let of_disks = repair(f, object, how, what, RepairOptions { data: true, disks, ..Default::default() });
    let (of_disks, after) = of_disks.unwrap();
    assert!(of_disks.is_superset(&healed), "{what}");
    let newest = f.newest_names();
    match kind {
        // One object of a container tells what is in it, and the other vault has the rest.
        Kind::Data | Kind::Table if !matches!(how, Harm::Swap(_)) => {
            assert!(of_other.is_superset(&f.content.keys().cloned().collect()), "{what}: {of_other:?}");
            let is_told = |name: &String| after.after.iter().any(|d| d.snapshots.contains(name));
            assert!(!newest.iter().any(is_told), "{what}: {:?}", after.after);
        }
        Kind::Dead
        | Kind::Name
        | Kind::VaultFile
        | Kind::References
        | Kind::Hooks
        | Kind::Commit
        | Kind::Filter
        | Kind::Manifest
        | Kind::ContainerPage
        | Kind::SnapshotPage => {
            assert!(alone.after.is_empty() || is_newer(&alone), "{what}: {:?}", alone.after);
        }
        // The other vault has all snapshots.
        Kind::RecipeRoot | Kind::RecipePages => {
            assert!(told_of_other.is_empty() || is_newer_in(&told_of_other), "{what}: {told_of_other:?}");
        }
        _ => {}
    }
}

/// What a newer program may have written is not touched.
fn is_newer(report: &RepairReport) -> bool {
    is_newer_in(&report.after)
}

fn is_newer_in(damaged: &[Damage]) -> bool {
    damaged.iter().any(|d| d.why.contains("newer"))
}

/// Repairs a copy that was harmed. Returns the snapshots that can be restored afterwards; `None` where there is no vault
/// that can be opened.
fn repair(
    f: &Fixture,
    object: &str,
    how: &Harm,
    what: &str,
    options: RepairOptions<'_>,
) -> Option<(BTreeSet<String>, RepairReport)> {
    let store = f.store.copy();
    harm(&store, object, how);
    let vault = store.vault().ok()?;
    let before = restorable(f, &vault);
    let report = vault.repair(&options, &Progress::default());
    let report = report.unwrap_or_else(|e| panic!("{what}: repair: {e}"));
    let after = restorable(f, &vault);
    assert!(after.is_superset(&before), "{what}: no longer restorable: {:?}", before.difference(&after));
    let told = vault.verify(None, true, &Progress::default()).unwrap().damaged;
    assert_eq!(told, report.after, "{what}: a verification finds what the repair has told");
    let failing: BTreeSet<&str> =
        f.content.keys().filter(|name| !after.contains(*name)).map(String::as_str).collect();
    assert_eq!(affected(&told), failing, "{what}: {told:?}");
    lost_ranges(f, &vault, &report, what);
    if report.after.is_empty() {
        let again = vault.repair(&RepairOptions { data: true, ..Default::default() }, &Progress::default());
        assert!(again.unwrap().before.is_empty(), "{what}");
        assert!(vault.snapshots(None).unwrap().damaged.is_empty(), "{what}");
    }
    // Nothing is left over, and collecting harms nothing.
    vault.gc(false).unwrap_or_else(|e| panic!("{what}: gc: {e}"));
    assert_eq!(restorable(f, &vault), after, "{what}: after gc");
    Some((after, report))
}

fn restorable(f: &Fixture, vault: &Vault) -> BTreeSet<String> {
    let failing: BTreeMap<String, String> = restore_all(f, vault);
    f.content.keys().filter(|name| !failing.contains_key(*name)).cloned().collect()
}

/// Where nothing but containers is damaged, all can be read but the ranges that are told to be lost.
fn lost_ranges(f: &Fixture, vault: &Vault, report: &RepairReport, what: &str) {
    if report.after.iter().any(|d| !d.object.contains("/containers/")) {
        return;
    }
    let names: BTreeSet<&String> = report.after.iter().flat_map(|d| &d.snapshots).collect();
    for name in names {
        let (disk, id) = name.split_once('@').unwrap();
        let Ok(ranges) = vault.lost_ranges(disk, id, &report.lost) else { continue };
        assert!(!ranges.is_empty(), "{what}: {name} is damaged, and nothing of it is lost");
        let cache = vault::ReadCache::new(1 << 20);
        let Ok(open) = vault.open_snapshot(disk, id, &cache) else { continue };
        let content = &f.content[name].bytes;
        let mut at = 0;
        for range in ranges.iter().chain([&(content.len() as u64..content.len() as u64)]) {
            let mut bytes = vec![0; (range.start - at) as usize];
            if bytes.is_empty() {
                at = range.end;
                continue;
            }
            open.read_at(at, &mut bytes).unwrap_or_else(|e| panic!("{what}: {name} at {at}: {e}"));
            assert!(bytes == content[at as usize..range.start as usize], "{what}: {name} at {at}");
            at = range.end;
        }
    }
}

/// `vault.json` and its copy: one is enough, and if both are lost, the other objects tell what stood there.
#[test]
fn the_description_comes_back() {
    let mut rng = super::rng(super::seed("the_description_comes_back"));
    let f = Fixture::new(vault::BALANCED, &mut rng);
    for lost in [names::VAULT, names::VAULT_COPY] {
        let store = f.store.copy();
        harm(&store, lost, &Harm::Delete);
        let vault = store.vault().unwrap();
        assert_eq!(vault.file_fault().is_some(), lost == names::VAULT);
        assert!(restore_all(&f, &vault).is_empty());
        let report = vault.repair(&RepairOptions::default(), &Progress::default()).unwrap();
        assert_eq!(report.before.iter().map(|d| d.object.as_str()).collect::<Vec<_>>(), [lost]);
        assert!(report.after.is_empty());
        assert_eq!(store.read(lost), f.store.read(lost));
        assert!(store.vault().unwrap().file_fault().is_none());
    }

    let store = f.store.copy();
    harm(&store, names::VAULT, &Harm::Flip(30, 3));
    harm(&store, names::VAULT_COPY, &Harm::Delete);
    let e = store.vault().err().unwrap();
    assert!(e.is_damage() && e.to_string().contains("sapwood repair"), "{e}");
    assert!(Vault::recover_file(&store.open()).unwrap());
    assert!(!Vault::recover_file(&store.open()).unwrap(), "once is enough");
    let vault = store.vault().unwrap();
    assert_eq!(vault.id(), f.store.vault().unwrap().id());
    assert_eq!(vault.policy().unwrap().name, "balanced");
    assert!(restore_all(&f, &vault).is_empty());
    assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);

    // No object tells the id of a vault without containers.
    let empty = TestStore::new();
    drop(Vault::init(Arc::new(empty.open()), &vault::BALANCED).unwrap());
    empty.write("disks/00000000000000000000000000000001/manifest", b"x");
    for lost in [names::VAULT, names::VAULT_COPY] {
        empty.remove(lost);
    }
    assert!(Vault::recover_file(&empty.open()).unwrap_err().is_damage());
}
