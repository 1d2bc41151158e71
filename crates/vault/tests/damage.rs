//! The damage matrix: every kind of object, damaged in every way.
//!
//! Restoring every snapshot tells what a damage does; `verify` must tell the same without restoring: the object, and
//! exactly the snapshots that cannot be restored. Nothing restores wrong bytes, nothing panics, and the next backup
//! works or says in one line why not.
//!
//! A repair, which is most of the work, is tried on the first object of each kind with every harm, and on one harm in four
//! of the others; `SAPWOOD_DAMAGE=all` asks for all.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "damage/expected.rs"]
mod expected;
#[path = "damage/met.rs"]
mod met;
#[path = "damage/repaired.rs"]
mod repaired;
#[path = "damage/test_store.rs"]
mod test_store;
#[path = "damage/told.rs"]
mod told;

use common::{backup, image, next_version, range, restore, rng, seed};
use expected::Expected;
use format::{
    names, Context, DataFooter, DiskId, HooksFooter, Manifest, RecipeRoot, RetiringRecord, Token, WriterNo,
    DATA_FOOTER_BYTES, DATA_HEADER_BYTES,
};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use test_store::TestStore;
use vault::{
    Damage, Global, Policy, Progress, ReadCache, Vault, VaultError, BALANCED, CONVENTIONAL, REVERSE,
    VM_CENTRIC, VM_CENTRIC_BLOOM,
};

/// Small everything, so that a little data has many containers, groups and recipe pages.
fn small(policy: Policy) -> Policy {
    Policy {
        segment_bytes: 4096,
        chunking: "1k".parse().unwrap(),
        group_bytes: 16 << 10,
        container_bytes: 128 << 10,
        own_index_bytes: 1 << 20,
        global: match policy.global {
            Global::Chunks { champions, .. } => Global::Chunks { sampled: 0, champions },
            other => other,
        },
        index_at: 1,
        ..policy
    }
}

/// How often a repair is tried on an object that is not the first of its kind.
const REPAIRED: f64 = 0.25;

const DISKS: [&str; 2] = ["web/vda", "db/vda"];

/// A vault of two disks with three versions each, and what is in them.
struct Fixture {
    store: TestStore,
    policy: Policy,
    /// By `vm/disk@id`.
    content: BTreeMap<String, Arc<Expected>>,
    /// The newest of each disk.
    newest: Vec<Vec<u8>>,
}

impl Fixture {
    fn new(policy: Policy, rng: &mut StdRng) -> Self {
        let policy = small(policy);
        let store = TestStore::new();
        let vault = Vault::init(Arc::new(store.open()), &BALANCED).unwrap().with_recent_max(1);
        let mut content = BTreeMap::new();
        let first = sparse(rng);
        let mut newest: Vec<Vec<u8>> = DISKS.iter().map(|_| first.clone()).collect();
        let mut known = vec![0; RETURNING.len()];
        rng.fill(&mut known[..]);
        for version in 0..4 {
            for (n, disk) in DISKS.iter().enumerate() {
                let bytes = &mut newest[n];
                *bytes = touched(rng, bytes);
                rng.fill(&mut bytes[FRESH]);
                // What no parent has any more, but the popular set.
                match version {
                    2 => bytes[RETURNING].fill(0),
                    _ => bytes[RETURNING].copy_from_slice(&known),
                }
                if version > 0 {
                    // Each has what the other one wrote: both are owners and referrers.
                    let of_other = newest[1 - n][FRESH].to_vec();
                    newest[n][COPIED].copy_from_slice(&of_other);
                }
                let bytes = &newest[n];
                let id = backup(&vault, disk, bytes, policy).unwrap().snapshot.id;
                if version != 1 {
                    content.insert(format!("{disk}@{id}"), Expected::new(bytes.clone()));
                }
            }
            if version == 1 && matches!(policy.global, Global::Popular { .. }) {
                vault.popular_build(1.0, common::scratch().path()).unwrap();
            }
        }
        // Deletion leaves lists of dead chunks.
        for disk in DISKS {
            vault.delete(disk, &["latest~2"]).unwrap();
        }
        vault.gc(false).unwrap();
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
        // Nothing needs it: reports.rs damages it.
        store.remove(names::VERIFICATIONS);
        let f = Fixture { store, policy, content, newest };
        for disk in DISKS {
            let stats = &vault.stats(Some(disk)).unwrap().disks[0];
            assert!(
                stats.foreign_containers > 0,
                "{}: {disk} references no other owner's chunks",
                policy.name
            );
        }
        f
    }

    /// The same with what every process leaves that dies at a certain moment of a backup, while a snapshot is open.
    fn with_dead_processes(self, rng: &mut StdRng) -> Self {
        let vault = self.store.vault().unwrap();
        let other = self.store.vault().unwrap();
        let _open = other.open_snapshot(DISKS[1], "latest", &ReadCache::new(1 << 20)).unwrap();
        // What the other disk has is claimed.
        let mut bytes = self.newest[1].clone();
        bytes[..4096].fill(rng.random());
        let (original, copied) = (self.store.same(), Arc::new(Mutex::new(None)));
        let copy = copied.clone();
        let last = bytes.len() as u64 - 1;
        let source = common::source_with(&bytes, last, move || {
            *copy.lock().unwrap() = Some(original.copy());
        });
        let options = vault::BackupOptions { policy: Some(self.policy), ..Default::default() };
        vault.backup(DISKS[0], source, &options, &Progress::default()).unwrap();
        let store = copied.lock().unwrap().take().unwrap();
        // And what a sweep leaves that dies while it looks at containers.
        let object = names::retiring(self.id_of(DISKS[1]), Token(0xcc));
        let record = RetiringRecord { session: Token(0xcc), writers: (1..4).map(WriterNo).collect() };
        store.write(&object, &record.encode(Context { vault: vault.id(), place: &object }));
        Fixture { store, ..self }
    }

    /// The newest snapshots.
    fn newest_names(&self) -> Vec<String> {
        let is_newest = |(_, of): &(&String, &Arc<Expected>)| self.newest.contains(&of.bytes);
        self.content.iter().filter(is_newest).map(|(name, _)| name.clone()).collect()
    }

    /// The id of a disk's folder is in its name.
    fn id_of(&self, disk: &str) -> DiskId {
        let name = self.store.read(&names::name(disk));
        DiskId(name[32..48].try_into().unwrap())
    }
}

/// What every version of a disk has anew, and where it has what the other disk has there.
const FRESH: Range<usize> = (7 << 20)..(7 << 20) + 65_536;
const COPIED: Range<usize> = (8 << 20)..(8 << 20) + 65_536;
/// What is the same in both, and missing in one version.
const RETURNING: Range<usize> = (10 << 20)..(10 << 20) + 65_536;

/// Twelve mebibytes with some data here and there: three recipe pages.
fn sparse(rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; 12 << 20];
    for at in [0, 3 << 20, 5 << 20, (9 << 20) + 700] {
        let part = image(rng, 200_000);
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    bytes
}

/// The next version: some changes within one or two pages.
fn touched(rng: &mut StdRng, bytes: &[u8]) -> Vec<u8> {
    let mut next = bytes.to_vec();
    for _ in 0..2 {
        let at = [0, 3 << 20, 5 << 20, 9 << 20][rng.random_range(0..4)];
        let mut part = next_version(rng, &next[at..at + 150_000]);
        part.resize(150_000, 0);
        let hot = range(rng, part.len(), 40_000);
        rng.fill(&mut part[hot]);
        next[at..at + part.len()].copy_from_slice(&part);
    }
    next
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    VaultFile,
    Name,
    Manifest,
    Commit,
    ContainerPage,
    SnapshotPage,
    RecipeRoot,
    RecipePages,
    Data,
    Table,
    Dead,
    Hooks,
    Referrer,
    References,
    Filter,
    Popular,
    Session,
    Claim,
    Reader,
    Retiring,
}

impl Kind {
    /// What a process has only while it lives.
    fn is_of_process(self) -> bool {
        matches!(self, Kind::Session | Kind::Claim | Kind::Reader | Kind::Retiring)
    }
}

fn kind_of(object: &str) -> Option<Kind> {
    let is = |suffix: &str| object.ends_with(suffix);
    Some(match object {
        names::VAULT | names::VAULT_COPY => Kind::VaultFile,
        _ if object.starts_with(names::NAMES) => Kind::Name,
        _ if object.starts_with(names::POPULAR) => Kind::Popular,
        _ if object.starts_with(names::SESSIONS) => Kind::Session,
        _ if object.starts_with(names::CLAIMS) => Kind::Claim,
        _ if object.starts_with(names::READERS) => Kind::Reader,
        _ if object.starts_with(names::RETIRING) => Kind::Retiring,
        _ if object.starts_with(names::HOOKS) => Kind::Hooks,
        _ if object.contains("/referrers/") => Kind::Referrer,
        _ if object.contains("/references/") => Kind::References,
        _ if is("/manifest") => Kind::Manifest,
        _ if object.contains("/commits/") => Kind::Commit,
        _ if object.contains("/pages/") => Kind::ContainerPage,
        _ if object.contains("/snapshots/") => Kind::SnapshotPage,
        _ if is(".root") => Kind::RecipeRoot,
        _ if is(".pages") => Kind::RecipePages,
        _ if is(".data") => Kind::Data,
        _ if is(".table") => Kind::Table,
        _ if is(".dead") => Kind::Dead,
        _ if is(".bloom") => Kind::Filter,
        _ => return None,
    })
}

/// Parts of an object that are checked in different ways.
fn parts(store: &TestStore, vault: &Vault, object: &str) -> Vec<(&'static str, Range<usize>)> {
    let bytes = store.read(object);
    match kind_of(object) {
        Some(Kind::Data) => {
            let footer_at = bytes.len() - DATA_FOOTER_BYTES;
            let footer = DataFooter::decode(&bytes[footer_at..], bytes.len() as u64).unwrap();
            let directory = footer.directory_offset as usize;
            vec![
                ("header", 0..DATA_HEADER_BYTES),
                ("groups", DATA_HEADER_BYTES..directory),
                ("directory", directory..footer_at),
                ("footer", footer_at..bytes.len()),
            ]
        }
        Some(Kind::RecipePages) => recipe_parts(store, vault, object),
        Some(Kind::Hooks) => {
            let tail = bytes[bytes.len() - 8..].try_into().unwrap();
            let footer_at = HooksFooter::begins_at(bytes.len() as u64, tail).unwrap() as usize;
            vec![("hooks", 0..footer_at), ("footer", footer_at..bytes.len())]
        }
        _ => vec![("body", 0..bytes.len())],
    }
}

/// The pages and summaries in a `pages` object, as the roots say.
fn recipe_parts(store: &TestStore, vault: &Vault, object: &str) -> Vec<(&'static str, Range<usize>)> {
    let folder = object.split_once("recipes/").unwrap().0;
    let all = store.objects();
    let mut found = BTreeSet::new();
    for root in all.iter().filter(|o| o.starts_with(folder) && o.ends_with(".root")) {
        let bytes = store.read(root);
        let root = RecipeRoot::decode(Context { vault: vault.id(), place: root }, &bytes).unwrap();
        for p in root.pages.iter().filter_map(|p| p.page()) {
            if names::recipe_pages(folder, p.recipe) == object {
                found.insert((p.offset as usize, p.page_len as usize, p.summary_len as usize));
            }
        }
    }
    let place = |(at, page, summary)| [("page", at..at + page), ("summary", at + page..at + page + summary)];
    found.into_iter().flat_map(place).collect()
}

#[derive(Clone, Debug)]
enum Harm {
    Delete,
    Empty,
    Truncate(usize),
    Flip(usize, u8),
    Swap(String),
}

fn harm(store: &TestStore, object: &str, how: &Harm) {
    match how {
        Harm::Delete => store.remove(object),
        Harm::Empty => store.write(object, b""),
        Harm::Truncate(len) => store.write(object, &store.read(object)[..*len]),
        Harm::Flip(at, bit) => {
            let mut bytes = store.read(object);
            bytes[*at] ^= 1 << bit;
            store.write(object, &bytes);
        }
        Harm::Swap(other) => {
            let (a, b) = (store.read(object), store.read(other));
            store.write(object, &b);
            store.write(other, &a);
        }
    }
}

/// What each snapshot gives: its content, or the error. Of those that give it, nothing is said.
fn restore_all(f: &Fixture, vault: &Vault) -> BTreeMap<String, String> {
    let mut failing = BTreeMap::new();
    for (name, content) in &f.content {
        let (disk, id) = name.split_once('@').unwrap();
        if let Err(e) = content.restore(vault, disk, id) {
            failing.insert(name.clone(), e.to_string());
        }
    }
    failing
}

fn affected(damaged: &[Damage]) -> BTreeSet<&str> {
    damaged.iter().flat_map(|d| d.snapshots.iter().map(String::as_str)).collect()
}

/// One cell of the matrix.
fn case(f: &Fixture, object: &str, part: &str, how: &Harm, is_repaired: bool) {
    let what = format!("{object} ({part}) {how:?}");
    let store = f.store.copy();
    harm(&store, object, how);
    let kind = kind_of(object).unwrap();
    let vault = match store.vault() {
        Ok(vault) => vault,
        Err(e) => {
            assert_eq!(kind, Kind::VaultFile, "{what}: {e}");
            assert!(e.to_string().contains(names::VAULT), "{what}: {e}");
            assert!(e.is_damage() || matches!(e, VaultError::Newer { .. }), "{what}: {e}");
            return;
        }
    };
    let hurt: BTreeSet<&str> = match how {
        Harm::Swap(other) => [object, other].into(),
        _ => [object].into(),
    };
    let failing = restore_all(f, &vault);
    for (snapshot, e) in &failing {
        assert!(hurt.iter().any(|h| e.contains(h)) && !e.contains('\n'), "{what}: {snapshot}: {e}");
    }

    let quick = vault.verify(None, false, &Progress::default()).unwrap();
    assert!(quick.damaged.iter().all(|d| hurt.contains(d.object.as_str())), "{what}: {:?}", quick.damaged);
    let report = vault.verify(None, true, &Progress::default()).unwrap();
    assert_eq!(report.unrecorded, None, "{what}");
    if is_repaired && !kind.is_of_process() {
        // Where there is no room for what is known of a single container, the same is told.
        let narrow = store.vault().unwrap().with_findings_bytes(1);
        let told = narrow.verify(None, true, &Progress::default()).unwrap().damaged;
        assert_eq!(by_object(&told), by_object(&report.damaged), "{what}");
    }
    let named: BTreeSet<&str> = report.damaged.iter().map(|d| d.object.as_str()).collect();
    let harmless = match kind {
        // What only deleted snapshots used is not looked at; a copy in the other's place, and a missing index, mean nothing.
        Kind::RecipePages => {
            let used = recipe_parts(&f.store, &vault, object).into_iter().map(|(_, r)| r.end).max();
            matches!(how, Harm::Truncate(len) if Some(*len) >= used)
        }
        Kind::Data => part == "groups",
        Kind::VaultFile => matches!(how, Harm::Swap(_)),
        Kind::Filter | Kind::Popular | Kind::Hooks => matches!(how, Harm::Delete),
        // That it is there is all that it says.
        Kind::Referrer => true,
        Kind::Commit => matches!(how, Harm::Delete),
        _ if kind.is_of_process() => true,
        _ => false,
    };
    if !(harmless && named.is_empty()) {
        assert_eq!(named, hurt, "{what}: {:?}", report.damaged);
    }
    let failing: BTreeSet<&str> = failing.keys().map(String::as_str).collect();
    assert_eq!(affected(&report.damaged), failing, "{what}: {:?}", report.damaged);
    for d in &report.damaged {
        let once: BTreeSet<&String> = d.snapshots.iter().collect();
        assert_eq!(once.len(), d.snapshots.len(), "{what}: {:?}", d.snapshots);
    }
    for disk in DISKS {
        if let Ok(one) = vault.verify(Some((disk, None)), true, &Progress::default()) {
            let of_disk = failing.iter().filter(|s| s.starts_with(disk)).copied();
            let told = affected(&one.damaged);
            assert!(of_disk.collect::<BTreeSet<_>>().is_subset(&told), "{what}: {disk}: {:?}", one.damaged);
            of_one_disk(f, disk, kind, &one.damaged, &report.damaged, &what);
        }
    }
    others_are_listed(f, &vault, kind, &what);
    if kind == Kind::Name {
        names_come_back(f, &vault, &store, &hurt, &what);
    }
    back_up_again(f, &vault, kind, &what);
    if is_repaired {
        repaired::check(f, kind, object, how, &what);
    }
    if kind.is_of_process() {
        let collected = vault.gc(false).unwrap_or_else(|e| panic!("{what}: gc: {e}"));
        assert_eq!(collected.skipped, [""; 0], "{what}");
        assert!(hurt.iter().all(|object| store.find(object).is_none()), "{what}: stays");
        assert!(restore_all(f, &vault).is_empty(), "{what}");
    }
}

/// Objects in order, each with the snapshots that it affects in order.
fn by_object(damaged: &[Damage]) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = damaged
        .iter()
        .map(|d| (d.object.as_str(), d.snapshots.iter().map(String::as_str).collect()))
        .collect();
    all.iter_mut().for_each(|(_, snapshots)| snapshots.sort_unstable());
    all.sort_unstable();
    all
}

/// Whoever looks at one disk, owner or referrer, is told of damaged data what those are told who look at all.
fn of_one_disk(f: &Fixture, disk: &str, kind: Kind, one: &[Damage], all: &[Damage], what: &str) {
    let sorted = |d: &Damage| (d.object.clone(), d.snapshots.iter().cloned().collect::<BTreeSet<_>>());
    let all: BTreeMap<_, _> = all.iter().map(sorted).collect();
    let one: BTreeMap<_, _> = one.iter().map(sorted).collect();
    if matches!(kind, Kind::Data | Kind::Table) {
        assert!(one.iter().all(|(object, snapshots)| all[object] == *snapshots), "{what}: {disk}: {one:?}");
        let folder = names::folder(f.id_of(disk));
        let own: Vec<&String> = all.keys().filter(|o| o.starts_with(&folder)).collect();
        assert!(own.iter().all(|o| one.contains_key(*o)), "{what}: {disk}: {one:?}");
    }
}

/// A damaged manifest hides nothing but its disk, a damaged name nothing at all, and both are said.
fn others_are_listed(f: &Fixture, vault: &Vault, kind: Kind, what: &str) {
    let listing = vault.snapshots(None).unwrap_or_else(|e| panic!("{what}: listing: {e}"));
    let listed: BTreeSet<String> =
        listing.snapshots.iter().map(|s| format!("{}@{}", s.disk, s.entry.id)).collect();
    let hidden = |name: &str| {
        let disk = name.split_once('@').unwrap().0;
        kind == Kind::Manifest && !listing.snapshots.iter().any(|s| s.disk == disk)
    };
    let expected: BTreeSet<String> = f.content.keys().filter(|n| !hidden(n)).cloned().collect();
    assert_eq!(listed, expected, "{what}");
    let is_root = kind == Kind::Name || listed.len() < f.content.len();
    assert_eq!(listing.damaged.is_empty(), !is_root, "{what}: {:?}", listing.damaged);
}

/// `gc` puts damaged names back, byte for byte. What looks as if a newer program had written it stays as it is.
fn names_come_back(f: &Fixture, vault: &Vault, store: &TestStore, hurt: &BTreeSet<&str>, what: &str) {
    let listing = vault.snapshots(None).unwrap();
    let is_newer = listing.damaged.iter().any(|line| line.contains("newer"));
    let read = |store: &TestStore| hurt.iter().map(|o| store.find(o)).collect::<Vec<_>>();
    let harmed = read(store);
    let collected = vault.gc(false).unwrap_or_else(|e| panic!("{what}: gc: {e}"));
    assert_eq!(collected.names_put_back.is_empty(), is_newer, "{what}: {collected:?}");
    assert_eq!(collected.skipped.is_empty(), !is_newer, "{what}: {collected:?}");
    assert_eq!(vault.snapshots(None).unwrap().damaged.is_empty(), !is_newer, "{what}");
    assert!(read(store) == if is_newer { harmed } else { read(&f.store) }, "{what}: not put back");
}

/// A backup of the same content works or refuses; where data or tables are damaged it heals the newest snapshot.
fn back_up_again(f: &Fixture, vault: &Vault, kind: Kind, what: &str) {
    for (disk, bytes) in DISKS.iter().zip(&f.newest) {
        match backup(vault, disk, bytes, f.policy) {
            Err(e) => {
                assert!(!matches!(kind, Kind::Data | Kind::Table), "{what}: backup of {disk}: {e}");
                assert!(!e.to_string().contains('\n'), "{what}: {e}");
            }
            Ok(report) => {
                let id = report.snapshot.id.to_string();
                let back =
                    restore(vault, disk, &id).unwrap_or_else(|e| panic!("{what}: fresh {disk}@{id}: {e}"));
                assert!(back == *bytes, "{what}: fresh {disk}@{id} restored wrong bytes");
                let report = vault.verify(Some((disk, Some(&id))), true, &Progress::default());
                let damaged = report.unwrap_or_else(|e| panic!("{what}: {e}")).damaged;
                let fresh = format!("{disk}@{id}");
                assert!(!affected(&damaged).contains(fresh.as_str()), "{what}: {damaged:?}");
            }
        }
    }
}

/// All ways to harm one object.
fn harms(
    f: &Fixture,
    rng: &mut StdRng,
    vault: &Vault,
    object: &str,
    all: &[String],
) -> Vec<(&'static str, Harm)> {
    let len = f.store.len(object);
    let mut list = vec![("all", Harm::Delete), ("all", Harm::Empty), ("all", Harm::Truncate(len - 1))];
    list.push(("all", Harm::Truncate(rng.random_range(1..len))));
    let others: Vec<&String> = all.iter().filter(|o| kind_of(o) == kind_of(object) && *o != object).collect();
    if !others.is_empty() {
        list.push(("all", Harm::Swap(others[rng.random_range(0..others.len())].clone())));
    }
    for (part, range) in parts(&f.store, vault, object) {
        for _ in 0..if part == "groups" { 4 } else { 2 } {
            list.push((part, Harm::Flip(rng.random_range(range.clone()), rng.random_range(0..8))));
        }
    }
    list
}

/// Harms some objects of some kinds.
fn matrix(test: &str, policy: Policy, kinds: &[Kind], most: usize) {
    let mut rng = rng(seed(test));
    let has_all = |f: &Fixture| {
        let all = f.store.objects();
        kinds.iter().all(|kind| all.iter().any(|o| kind_of(o) == Some(*kind)))
    };
    // Not every history leaves a list of dead chunks.
    let mut histories = (0..20).map(|_| Fixture::new(policy, &mut rng));
    let f = histories.find(has_all).unwrap_or_else(|| panic!("{test}: no history has all of {kinds:?}"));
    harm_some(test, &f, &mut rng, kinds, most);
}

fn harm_some(test: &str, f: &Fixture, rng: &mut StdRng, kinds: &[Kind], most: usize) {
    let vault = f.store.vault().unwrap();
    let all = f.store.objects();
    let repairs_all = std::env::var("SAPWOOD_DAMAGE").is_ok_and(|s| s == "all");
    let mut cases = 0;
    for kind in kinds {
        let mut of_kind: Vec<&String> = all.iter().filter(|o| kind_of(o) == Some(*kind)).collect();
        assert!(!of_kind.is_empty(), "{test}: there is no {kind:?}");
        while of_kind.len() > most {
            of_kind.remove(rng.random_range(0..of_kind.len()));
        }
        for (n, object) in of_kind.into_iter().enumerate() {
            for (part, how) in harms(f, rng, &vault, object, &all) {
                let is_repaired = n == 0 || rng.random_bool(REPAIRED) || repairs_all;
                case(f, object, part, &how, is_repaired);
                cases += 1;
            }
        }
    }
    println!("{test}: {cases} cases");
}

#[test]
fn balanced_data() {
    matrix("balanced_data", BALANCED, &[Kind::Data], 3);
}

#[test]
fn balanced_tables_and_logs() {
    matrix("balanced_tables_and_logs", BALANCED, &[Kind::Table, Kind::Dead, Kind::References], 3);
}

#[test]
fn balanced_recipes() {
    matrix("balanced_recipes", BALANCED, &[Kind::RecipeRoot, Kind::RecipePages], 3);
}

#[test]
fn balanced_roots() {
    let kinds = [Kind::VaultFile, Kind::Name, Kind::Manifest, Kind::Commit, Kind::ContainerPage];
    matrix("balanced_roots", BALANCED, &kinds, 2);
}

#[test]
fn balanced_snapshot_pages() {
    matrix("balanced_snapshot_pages", BALANCED, &[Kind::SnapshotPage], 2);
}

#[test]
fn conventional_data() {
    matrix("conventional_data", CONVENTIONAL, &[Kind::Data], 3);
}

#[test]
fn conventional_tables_and_hooks() {
    matrix("conventional_tables_and_hooks", CONVENTIONAL, &[Kind::Table, Kind::Hooks], 3);
}

#[test]
fn conventional_recipes() {
    matrix("conventional_recipes", CONVENTIONAL, &[Kind::RecipeRoot, Kind::RecipePages], 2);
}

#[test]
fn conventional_roots() {
    let kinds = [Kind::Name, Kind::Manifest, Kind::ContainerPage, Kind::Referrer];
    matrix("conventional_roots", CONVENTIONAL, &kinds, 4);
}

#[test]
fn reverse_data_and_tables() {
    matrix("reverse_data_and_tables", REVERSE, &[Kind::Data, Kind::Table, Kind::Dead, Kind::Hooks], 2);
}

#[test]
fn reverse_recipes_and_roots() {
    let kinds = [Kind::RecipeRoot, Kind::RecipePages, Kind::References, Kind::Manifest, Kind::ContainerPage];
    matrix("reverse_recipes_and_roots", REVERSE, &kinds, 2);
}

#[test]
fn filters_and_what_stands_beside_them() {
    let kinds = [Kind::Filter, Kind::RecipeRoot, Kind::RecipePages];
    matrix("filters_and_what_stands_beside_them", VM_CENTRIC_BLOOM, &kinds, 3);
}

#[test]
fn popular_index_and_set() {
    matrix("popular_index_and_set", VM_CENTRIC, &[Kind::Popular, Kind::Data, Kind::Table], 3);
}

#[test]
fn popular_roots() {
    let kinds = [Kind::Manifest, Kind::ContainerPage, Kind::Referrer];
    matrix("popular_roots", VM_CENTRIC, &kinds, 4);
}

#[test]
fn what_dead_processes_left() {
    let test = "what_dead_processes_left";
    let mut rng = rng(seed(test));
    let f = Fixture::new(CONVENTIONAL, &mut rng).with_dead_processes(&mut rng);
    let kinds = [Kind::Session, Kind::Claim, Kind::Reader, Kind::Retiring];
    harm_some(test, &f, &mut rng, &kinds, 2);
}

/// Whatever is wrong with the hooks, backups go on; they take more space, until the hooks are made anew.
#[test]
fn hooks_that_cannot_be_read_cost_space_only() {
    for policy in [BALANCED, CONVENTIONAL, REVERSE] {
        let mut rng = rng(seed("hooks_that_cannot_be_read_cost_space_only"));
        let f = Fixture::new(policy, &mut rng);
        let hooks: Vec<String> =
            f.store.objects().into_iter().filter(|o| kind_of(o) == Some(Kind::Hooks)).collect();
        assert!(!hooks.is_empty());
        // A clone of a disk, to be found by hooks only.
        let clone = |store: &TestStore| {
            let vault = store.vault().unwrap();
            let report = backup(&vault, "new/vda", &f.newest[1], f.policy).unwrap();
            assert!(restore(&vault, "new/vda", "latest").unwrap() == f.newest[1], "{}", policy.name);
            assert_eq!(
                affected(&vault.verify(None, true, &Progress::default()).unwrap().damaged),
                [""; 0].into()
            );
            report.snapshot.new_bytes
        };
        let least = clone(&f.store.copy());
        type How = (&'static str, bool, fn(&TestStore, &str));
        let hows: [How; 6] = [
            ("missing", false, |store, object| store.remove(object)),
            ("a directory", false, |store, object| {
                store.remove(object);
                let below = format!("{object}/x");
                store.write(&below, b"");
                store.remove(&below);
            }),
            ("empty", true, |store, object| store.write(object, b"")),
            ("cut", true, |store, object| {
                let bytes = store.read(object);
                store.write(object, &bytes[..bytes.len() - 1]);
            }),
            ("a flipped bit", true, |store, object| {
                let mut bytes = store.read(object);
                let at = bytes.len() - 20;
                bytes[at] ^= 1;
                store.write(object, &bytes);
            }),
            ("other hooks", false, |store, object| {
                let mut bytes = store.read(object);
                bytes.iter_mut().take(18).for_each(|b| *b = 0xff);
                let first: [u8; 18] = bytes[..18].try_into().unwrap();
                let tail = bytes[bytes.len() - 8..].try_into().unwrap();
                let end = HooksFooter::begins_at(bytes.len() as u64, tail).unwrap() as usize;
                bytes[..end].chunks_mut(18).for_each(|hook| hook.copy_from_slice(&first));
                store.write(object, &bytes);
            }),
        ];
        for (how_it_is, is_told, how) in hows {
            let what = format!("{}: {how_it_is}", policy.name);
            let harmed = || {
                let store = f.store.copy();
                hooks.iter().for_each(|object| how(&store, object));
                store
            };
            let store = harmed();
            let vault = store.vault().unwrap();
            let told = vault.verify(None, false, &Progress::default()).unwrap().damaged;
            let named: BTreeSet<&String> = told.iter().map(|d| &d.object).collect();
            let expected = if is_told { hooks.iter().collect() } else { BTreeSet::new() };
            assert_eq!(named, expected, "{what}");
            assert!(
                told.iter().all(|d| d.snapshots.is_empty() && d.why.contains("sapwood reindex")),
                "{what}"
            );
            // Whoever reads all of them is told of all that are there.
            let told = vault.verify(None, true, &Progress::default()).unwrap().damaged;
            let is_there = !["missing", "a directory"].contains(&how_it_is);
            assert_eq!(told.len(), if is_there { hooks.len() } else { 0 }, "{what}: {told:?}");
            let stored = clone(&store);
            assert!(stored > least + 100_000, "{what}: {stored} bytes are new, {least} with hooks");

            let store = harmed();
            let report = store.vault().unwrap().reindex().unwrap();
            assert!(report.hooks > 0 && report.damaged == 0, "{what}: {report:?}");
            assert_eq!(store.vault().unwrap().verify(None, true, &Progress::default()).unwrap().damaged, []);
            let fresh = clone(&store);
            match policy.global {
                Global::Chunks { sampled: 0, .. } => assert_eq!(fresh, least, "{what}"),
                // It samples as the policy of that name does, not as the small one; and of segments it finds those that
                // their owners' snapshots still have in one piece.
                _ => assert!(fresh < stored, "{what}: {fresh} bytes are new, {stored} without hooks"),
            }
        }
    }
}

fn manifest(store: &TestStore, vault: &Vault, object: &str) -> Manifest {
    let bytes = store.read(object);
    Manifest::decode(Context { vault: vault.id(), place: object }, &bytes).unwrap()
}

/// Damage that is no more is forgotten, but only by those who have read everything.
#[test]
fn containers_found_whole_again_leave_the_list() {
    for policy in [BALANCED, CONVENTIONAL] {
        let mut rng = rng(seed("containers_found_whole_again_leave_the_list"));
        let f = Fixture::new(policy, &mut rng);
        let store = f.store.copy();
        let data = f.store.objects().into_iter().filter(|o| kind_of(o) == Some(Kind::Data));
        // The smallest ones have no room for a block between header and footer.
        let object = data.max_by_key(|o| store.len(o)).unwrap();
        let owner = format!("{}manifest", object.split_once("containers/").unwrap().0);
        let before = store.read(&object);
        // In every block: some of them may be dead, or nothing but padding.
        for at in (DATA_HEADER_BYTES..before.len() - DATA_FOOTER_BYTES - 512).step_by(512) {
            harm(&store, &object, &Harm::Flip(at, 3));
        }
        let vault = store.vault().unwrap();
        let listed = |vault: &Vault| manifest(&store, vault, &owner).damaged.len();
        vault.verify(None, false, &Progress::default()).unwrap();
        assert_eq!(listed(&vault), 0, "a flipped bit in a group is not seen without reading it");
        // Those who look at a referrer only have read it, too.
        let read = |disk| vault.verify(Some((disk, None)), true, &Progress::default()).unwrap().damaged.len();
        let referrer =
            DISKS.into_iter().find(|d| names::manifest(&names::folder(f.id_of(d))) != owner).unwrap();
        assert_eq!(read(referrer), listed(&vault), "{referrer}");
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged.len(), 1);
        assert_eq!(listed(&vault), 1);
        vault.verify(None, true, &Progress::default()).unwrap();
        assert_eq!(listed(&vault), 1, "listed once");
        // What is listed is read again, also where nothing else is.
        for data in [false, true] {
            let store = store.copy();
            store.write(&object, &before);
            let vault = store.vault().unwrap();
            assert_eq!(manifest(&store, &vault, &owner).damaged.len(), 1);
            assert_eq!(vault.verify(None, data, &Progress::default()).unwrap().damaged, []);
            assert_eq!(manifest(&store, &vault, &owner).damaged.len(), 0, "{data}");
        }
    }
}

/// What crashed processes leave behind is no damage.
#[test]
fn leftovers_are_no_damage() {
    let mut rng = rng(seed("leftovers_are_no_damage"));
    let f = Fixture::new(CONVENTIONAL, &mut rng);
    let store = f.store.copy();
    let disk = f.store.objects().into_iter().find(|o| o.starts_with(names::DISKS)).unwrap();
    let id = disk.split('/').nth(1).unwrap();
    for (n, object) in [
        "sessions/00000000000000aa".to_owned(),
        format!("claims/{id}/1/00000000000000aa"),
        "sessions/zz".to_owned(),
        format!("retiring/{id}/00000000000000aa"),
    ]
    .into_iter()
    .enumerate()
    {
        store.write(&object, &b"SAPWgarbage...."[..n * 4]);
    }
    for object in [
        format!("readers/{id}/00000000000000bb"),
        format!("disks/{id}/containers/1-999.1.data"),
        // A first backup that failed.
        format!("disks/{id}/referrers/1/{}", DiskId([7; 16])),
    ] {
        store.write(&object, b"");
    }
    let vault = store.vault().unwrap();
    assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
    assert!(restore_all(&f, &vault).is_empty());
    back_up_again(&f, &vault, Kind::Data, "leftovers");
}

/// Snapshots that come and go while it looks never look damaged.
#[test]
fn deletion_and_collection_beside_it_are_no_damage() {
    let seed = seed("deletion_and_collection_beside_it_are_no_damage");
    for policy in [BALANCED, CONVENTIONAL] {
        let f = Fixture::new(policy, &mut rng(seed));
        let store = f.store.copy();
        let vault = store.vault().unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut rng = rng(seed);
                let other = store.vault().unwrap();
                let mut bytes = f.newest.clone();
                for _ in 0..6 {
                    for (disk, bytes) in DISKS.iter().zip(&mut bytes) {
                        *bytes = touched(&mut rng, bytes);
                        backup(&other, disk, bytes, f.policy).unwrap();
                        other.delete(disk, &["latest~1"]).unwrap();
                        other.gc(false).unwrap();
                    }
                }
            });
            while !writer.is_finished() {
                let report = vault.verify(None, true, &Progress::default()).unwrap();
                assert_eq!(report.damaged, []);
            }
        });
    }
}
