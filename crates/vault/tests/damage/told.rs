//! Every kind of object there is: a bit that flips anywhere in it is told by `verify --data`. Hooks were not, because they
//! had no checksum.

use super::common::{rng, seed};
use super::{harm, kind_of, manifest, recipe_parts, Fixture, Harm, Kind, TestStore, DISKS};
use format::{names, Context, DiskId, Table, Verifications};
use std::collections::BTreeMap;
use std::ops::Range;
use vault::{
    Damage, Progress, Vault, VaultError, BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC, VM_CENTRIC_BLOOM,
};

/// What `docs/flows/verify.md` says is not told: the names of referrer records say all that they say, and the others are of
/// living processes.
const NOT_TOLD: [Kind; 5] = [Kind::Referrer, Kind::Session, Kind::Claim, Kind::Reader, Kind::Retiring];

/// All other kinds of objects.
const TOLD: [Kind; 15] = [
    Kind::VaultFile,
    Kind::Name,
    Kind::Manifest,
    Kind::Commit,
    Kind::ContainerPage,
    Kind::SnapshotPage,
    Kind::RecipeRoot,
    Kind::RecipePages,
    Kind::Data,
    Kind::Table,
    Kind::Dead,
    Kind::Hooks,
    Kind::References,
    Kind::Filter,
    Kind::Popular,
];

#[test]
fn a_flipped_bit_is_told_wherever_it_is() {
    let mut rng = rng(seed("a_flipped_bit_is_told_wherever_it_is"));
    let mut flips: BTreeMap<Kind, usize> = BTreeMap::new();
    for policy in [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC, VM_CENTRIC_BLOOM] {
        let f = Fixture::new(policy, &mut rng);
        let vault = f.store.vault().unwrap();
        let mut one_of_each = BTreeMap::new();
        for object in f.store.objects() {
            let kind = kind_of(&object).unwrap_or_else(|| panic!("{object}: of a kind that is not tried"));
            assert!(TOLD.contains(&kind) || NOT_TOLD.contains(&kind), "{object}: {kind:?}");
            // The longest one: of short ones start, middle and end are much the same. Dead chunks are not read.
            let has_dead = kind == Kind::Data && beside(&f, &object, ".dead").is_some();
            let len = if has_dead { 0 } else { f.store.len(&object) };
            if one_of_each.get(&kind).is_none_or(|(longest, _)| *longest < len) {
                one_of_each.insert(kind, (len, object));
            }
        }
        for (kind, (_, object)) in one_of_each.into_iter().filter(|(kind, _)| TOLD.contains(kind)) {
            for at in places(&f, &vault, kind, &object) {
                let store = f.store.copy();
                harm(&store, &object, &Harm::Flip(at, (at % 8) as u8));
                let what = format!("{}: {object}: byte {at} of {}", policy.name, f.store.len(&object));
                *flips.entry(kind).or_default() += 1;
                let told = match store.vault() {
                    // Its version is another one now.
                    Err(e @ VaultError::Newer { .. }) if kind == Kind::VaultFile => {
                        assert!(e.to_string().contains(names::VAULT), "{what}: {e}");
                        continue;
                    }
                    vault => vault.unwrap().verify(None, true, &Progress::default()).unwrap().damaged,
                };
                let is_told = told.iter().any(|d| d.object == object && !d.why.is_empty());
                assert!(is_told, "{what}: {told:?}");
            }
        }
    }
    println!("{flips:?}");
    assert_eq!(flips.into_keys().collect::<Vec<_>>(), TOLD, "kinds that no policy has");
}

/// What reading all chunks has found is told by verifications that read none, and by those of each disk that it affects, until
/// it is healed. They said "no damage" before the next one that read all.
#[test]
fn known_damage_is_told_until_it_is_healed() {
    let mut rng = rng(seed("known_damage_is_told_until_it_is_healed"));
    let mut shared = 0;
    for policy in [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC] {
        let f = Fixture::new(policy, &mut rng);
        let data = f.store.objects().into_iter().filter(|o| kind_of(o) == Some(Kind::Data));
        for object in data {
            let store = f.store.copy();
            harm(&store, &object, &Harm::Flip(f.store.len(&object) / 2, 3));
            let vault = store.vault().unwrap();
            let told = |what, data| {
                let damaged = vault.verify(what, data, &Progress::default()).unwrap().damaged;
                damaged.into_iter().find(|d| d.object == object)
            };
            let what = format!("{}: {object}", policy.name);
            assert!(told(None, false).is_none(), "{what}: nobody has looked");
            // It may be what nobody needs.
            let Some(known) = told(None, true) else { continue };
            assert_eq!(told(None, false).as_ref(), Some(&known), "{what}");
            let owner = object.split_once("containers/").unwrap().0;
            let mut affected = 0;
            for disk in DISKS {
                let prefix = format!("{disk}@");
                let is_affected = known.snapshots.iter().any(|s| s.starts_with(&prefix));
                affected += u32::from(is_affected);
                let is_own =
                    names::folder(vault.snapshots(Some(disk)).unwrap().snapshots[0].disk_id) == owner;
                if is_affected || is_own {
                    // It need not name those of other disks again.
                    let mut one = told(Some((disk, None)), false).unwrap_or_else(|| panic!("{what}: {disk}"));
                    let mut of_disk = known.snapshots.clone();
                    one.snapshots.retain(|s| s.starts_with(&prefix));
                    of_disk.retain(|s| s.starts_with(&prefix));
                    assert_eq!(one.snapshots, of_disk, "{what}: {disk}");
                }
            }
            shared += u32::from(affected > 1);
            let is_shown = |store: &TestStore| {
                let vault = store.vault().unwrap();
                let last = vault.last_verifications();
                let all = vault.snapshots(None).unwrap().snapshots;
                all.iter().any(|s| last.of_snapshot(s).is_some_and(|last| last.is_damaged))
            };
            assert_eq!(is_shown(&store), !known.snapshots.is_empty(), "{what}");
            // What did not get on the list stays known to lists of snapshots, as nobody has read it again.
            let manifest_name = format!("{owner}manifest");
            let unlisted = store.copy();
            let mut m = manifest(&unlisted, &vault, &manifest_name);
            m.damaged.clear();
            unlisted.write(&manifest_name, &m.encode(Context { vault: vault.id(), place: &manifest_name }));
            let context = Context { vault: vault.id(), place: names::VERIFICATIONS };
            let mut last = Verifications::decode(context, &store.read(names::VERIFICATIONS)).unwrap();
            assert!(last.all.iter().all(|v| !v.unlisted));
            last.all.iter_mut().for_each(|v| v.unlisted = true);
            unlisted.write(names::VERIFICATIONS, &last.encode(context).unwrap());
            let report = unlisted.vault().unwrap().verify(None, false, &Progress::default()).unwrap();
            assert!(
                report.damaged.is_empty() && is_shown(&unlisted) == is_shown(&store),
                "{what}: {report:?}"
            );
            store.write(&object, &f.store.read(&object));
            // By whichever verification, one of a single snapshot included: it takes the container off the list.
            let first = vault.snapshots(Some(DISKS[0])).unwrap().snapshots[0].entry.id.to_string();
            assert!(told(Some((DISKS[0], Some(&first))), false).is_none(), "{what}");
            for disk in DISKS {
                assert!(told(Some((disk, None)), false).is_none(), "{what}: {disk}: it is healed");
            }
            let is_popular = owner == names::folder(DiskId::POPULAR);
            assert!(!is_shown(&store) || is_popular && known.snapshots.is_empty(), "{what}");
            assert!(told(None, false).is_none(), "{what}: it is healed");
            let health = vault.health().unwrap();
            let listed: u64 = health.disks.iter().map(|d| d.damaged_containers).sum();
            assert_eq!(listed + health.damaged_popular, 0, "{what}");
            assert!(!is_shown(&store), "{what}");
        }
    }
    assert!(shared > 0);
}

/// What disks share is read once, and what is damaged is told as by verifications of each.
#[test]
fn disks_are_verified_together() {
    let mut rng = rng(seed("disks_are_verified_together"));
    let (mut once, mut shared) = (0, 0);
    for policy in [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC] {
        let f = Fixture::new(policy, &mut rng);
        let together = |store: &TestStore, data| {
            store.vault().unwrap().verify_disks(&DISKS, data, &Progress::default()).unwrap()
        };
        let each = |store: &TestStore, data| {
            let vault = store.vault().unwrap();
            DISKS.map(|disk| vault.verify(Some((disk, None)), data, &Progress::default()).unwrap())
        };
        let (whole, parts) = (together(&f.store, true), each(&f.store, true));
        assert_eq!((whole.disks, &whole.damaged[..]), (2, &[][..]));
        assert_eq!(whole.snapshots, parts.iter().map(|part| part.snapshots).sum::<u64>());
        let of_parts: u64 = parts.iter().map(|part| part.data_bytes).sum();
        assert!(whole.data_bytes <= of_parts, "{}: {} of {of_parts}", policy.name, whole.data_bytes);
        once += of_parts - whole.data_bytes;
        for object in f.store.objects().into_iter().filter(|o| kind_of(o) == Some(Kind::Data)) {
            let store = f.store.copy();
            harm(&store, &object, &Harm::Flip(f.store.len(&object) / 2, 3));
            let told = |damaged: Vec<Damage>| damaged.into_iter().find(|d| d.object == object);
            let what = format!("{}: {object}", policy.name);
            // That of each disk compares the other one with what it has found.
            let alone = each(&store.copy(), true).into_iter().find_map(|part| told(part.damaged));
            assert_eq!(told(together(&store, true).damaged), alone, "{what}");
            assert_eq!(told(together(&store, false).damaged), alone, "{what}: it is known now");
            let affected = alone.map_or(Vec::new(), |damage| damage.snapshots);
            shared += u32::from(DISKS.iter().all(|disk| affected.iter().any(|s| s.starts_with(disk))));
        }
        // Of one there is no manifest any more: the other one is looked at all the same.
        for data in [false, true] {
            let store = f.store.copy();
            let lost = store.vault().unwrap().snapshots(Some(DISKS[0])).unwrap().snapshots[0].disk_id;
            let object = format!("{}manifest", names::folder(lost));
            harm(&store, &object, &Harm::Delete);
            let report = together(&store, data);
            let told = report.damaged.iter().filter(|d| d.object == object).count();
            assert_eq!(told, 1, "{}: {report:?}", policy.name);
            assert!(report.snapshots > 0, "{}: {report:?}", policy.name);
        }
        let vault = f.store.copy().vault().unwrap();
        let wrong = vault.verify_disks(&[DISKS[0], "none/vda"], true, &Progress::default());
        assert!(matches!(wrong, Err(VaultError::NotFound { .. })), "{wrong:?}");
        let twice = vault.verify_disks(&[DISKS[0], DISKS[0]], false, &Progress::default()).unwrap();
        assert_eq!(twice.disks, 1);
    }
    assert!(once > 0 && shared > 0, "{once} bytes, {shared} objects");
}

/// Bytes at the start, in the middle and at the end of what is in an object.
fn places(f: &Fixture, vault: &Vault, kind: Kind, object: &str) -> Vec<usize> {
    let all = |range: Range<usize>| [range.start, (range.start + range.end) / 2, range.end - 1];
    match kind {
        // The middle of all may be between groups.
        Kind::Data => [vec![0, f.store.len(object) - 1], groups_of(f, vault, object)].concat(),
        // Pages that only deleted snapshots had are in between.
        Kind::RecipePages => {
            let parts = recipe_parts(&f.store, vault, object);
            let picked = [0, parts.len() / 2, parts.len() - 1].map(|n| parts[n].1.clone());
            picked.into_iter().flat_map(all).collect()
        }
        _ => all(0..f.store.len(object)).to_vec(),
    }
}

/// Another object of the container that a data object is of.
fn beside(f: &Fixture, object: &str, suffix: &str) -> Option<String> {
    let (folder, file) = object.rsplit_once('/').unwrap();
    let container = format!("{folder}/{}.", file.split_once('.').unwrap().0);
    f.store.objects().into_iter().find(|o| o.starts_with(&container) && o.ends_with(suffix))
}

/// The middles of a few groups of a container that has no dead chunks.
fn groups_of(f: &Fixture, vault: &Vault, object: &str) -> Vec<usize> {
    let name = beside(f, object, ".table").unwrap();
    let table = Table::decode(Context { vault: vault.id(), place: &name }, &f.store.read(&name)).unwrap();
    assert!(
        object.ends_with(&format!("{}.{}.data", table.data.container, table.data.generation.0)),
        "{name}"
    );
    let middle = |g: &format::Group| g.offset as usize + g.stored_len as usize / 2;
    table.groups.iter().step_by(1 + table.groups.len() / 3).map(middle).collect()
}
