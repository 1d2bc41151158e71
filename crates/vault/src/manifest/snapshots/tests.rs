#![allow(clippy::unwrap_used)]

use crate::manifest::folder::Folder;
use crate::manifest::rollback::{self, load_checked, read_record, Evidence};
use crate::manifest::session::Session;
use crate::manifest::snapshots::pages::names_of;
use crate::reclaim::released::delete_released;
use crate::{Vault, BALANCED};
use format::{
    Indexed, Manifest, Release, Reverse, SnapId, SnapshotEntry, SnapshotState, WriterKind, WriterNo,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{SimFs, SimStore};

fn entry(id: u64) -> SnapshotEntry {
    SnapshotEntry {
        id: SnapId(id),
        time: id as i64 * 3600,
        size: 1 << 30,
        state: SnapshotState::Live,
        held: false,
        isolated: false,
        reverse: Reverse::No,
        indexed: Indexed::No,
        made_by: WriterNo(1),
        generation: WriterNo(1),
        depends: Vec::new(),
        parent: id.checked_sub(1).map(SnapId),
        data_bytes: 1 << 20,
        changed_bytes: 1 << 10,
        new_bytes: 1 << 10,
        stored_bytes: 1 << 9,
        policy: "balanced".into(),
        tags: Vec::new(),
    }
}

/// A disk, and the list of snapshots that it should have.
struct World {
    fs: SimFs,
    recent_max: usize,
    folder: Folder,
    all: Vec<SnapshotEntry>,
    /// The list at the newest commit record.
    recorded: Vec<SnapshotEntry>,
    next: u64,
}

impl World {
    fn new(seed: u64, recent_max: usize) -> World {
        let fs = SimFs::new(seed);
        let store = Arc::new(SimStore::create_on(fs.clone()).unwrap());
        let vault = Vault::init(store, &BALANCED).unwrap().with_recent_max(recent_max);
        let folder = vault.disk_or_new("vm/d").unwrap();
        World { fs, recent_max, folder, all: Vec::new(), recorded: Vec::new(), next: 1 }
    }

    /// The disk as another process sees it, which has no pages in memory.
    fn reopened(&self) -> Folder {
        let store = Arc::new(SimStore::open_on(self.fs.process()).unwrap());
        Vault::open(store).unwrap().with_recent_max(self.recent_max).folder(self.folder.disk)
    }

    fn commit(&mut self, n: usize) {
        let session = Session::begin(&self.folder, WriterKind::Backup).unwrap();
        assert_eq!(session.parent.as_ref(), self.newest());
        let fresh: Vec<SnapshotEntry> = (self.next..self.next + n as u64).map(entry).collect();
        self.next += n as u64;
        session
            .commit(|m| {
                m.recent.extend(fresh.iter().cloned());
                Ok(())
            })
            .unwrap();
        delete_released(&self.folder, None).unwrap();
        self.all.extend(fresh);
        self.recorded = self.all.clone();
    }

    /// A change by a session, such as the removal of deleted snapshots.
    fn maintain(&mut self, change: impl Fn(&mut Vec<SnapshotEntry>)) {
        let session = Session::begin(&self.folder, WriterKind::Maintenance).unwrap();
        session
            .swap(|m| {
                m.change_snapshots(|_, all| {
                    change(all);
                    Ok(())
                })
            })
            .unwrap();
        delete_released(&self.folder, Some(&session)).unwrap();
        session.end().unwrap();
        change(&mut self.all);
        self.recorded = self.all.clone();
    }

    /// A change without a session, such as a tag.
    fn update(&mut self, change: impl Fn(&mut Vec<SnapshotEntry>)) {
        let (_, evidence) = load_checked(&self.folder).unwrap();
        let (m, ()) = self
            .folder
            .update_whole(|_, all| {
                change(all);
                Ok(())
            })
            .unwrap();
        rollback::record(&self.folder, &m, &evidence);
        change(&mut self.all);
        self.recorded = self.all.clone();
    }

    fn newest(&self) -> Option<&SnapshotEntry> {
        self.all.iter().rfind(|s| s.state == SnapshotState::Live)
    }

    fn check(&self, when: &str) {
        for folder in [&self.folder, &self.reopened()] {
            let m = folder.load().unwrap();
            assert!(m.snapshots == self.all, "{when}: {} for {}", m.snapshots.len(), self.all.len());
            assert_eq!(folder.newest(&m).unwrap().as_ref(), self.newest(), "{when}");
            assert_eq!(m.snapshot_count(), self.all.len(), "{when}");
            let newest_record = Evidence::of_commits(folder).unwrap().commits()[0];
            let recorded = folder.whole(Arc::new(read_record(folder, newest_record).unwrap())).unwrap();
            assert!(recorded.snapshots == self.recorded, "{when}: the record differs");
        }
        let m = self.folder.load_root().unwrap();
        let mut named: BTreeSet<String> = m.older.iter().flat_map(|at| names_of(&self.folder, at)).collect();
        named.extend(m.released.into_iter().filter_map(|r| match r.what {
            Release::Object(name) => Some(name),
            _ => None,
        }));
        let mut there = BTreeSet::new();
        self.folder
            .store
            .list(&format::names::snapshot_pages_of(&self.folder.path), &mut |e| {
                there.insert(e.name);
                Ok(())
            })
            .unwrap();
        assert!(there.is_subset(&named), "{when}: left over");
    }
}

/// Whatever is done to the snapshots of a disk, they are those of a plain list, and the newest commit record has those
/// that it had.
#[test]
fn the_snapshots_are_those_of_a_plain_list() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut w = World::new(seed, [1, 2, 4, 32][seed as usize % 4]);
        for step in 0..40 {
            let count = w.all.len();
            let ids: BTreeSet<SnapId> = w.all.iter().filter(|_| rng.random_bool(0.1)).map(|s| s.id).collect();
            let place = rng.random_range(0..count.max(1));
            match rng.random_range(0..12) {
                0..=4 => w.commit(rng.random_range(1..4)),
                5 => w.commit(rng.random_range(1..100)),
                6 => w.maintain(|all| all.retain(|s| !ids.contains(&s.id))),
                7 => w.maintain(|all| drop(all.drain(..place.min(all.len())))),
                8 => w.maintain(|all| all.iter_mut().skip(place).for_each(|s| s.reverse = Reverse::Done)),
                9 => w.update(|all| {
                    let wanted = all.iter_mut().filter(|s| ids.contains(&s.id));
                    wanted.for_each(|s| s.state = SnapshotState::Deleted);
                }),
                10 => w.update(|all| {
                    if let Some(s) = all.get_mut(place) {
                        s.tags.push(("k".into(), format!("{step}")));
                        s.held = !s.held;
                    }
                }),
                _ => w.maintain(|all| all.truncate(place)),
            }
            w.check(&format!("seed {seed} step {step}"));
        }
    }
}

/// A manifest stays short, there are few pages, and no page is deleted that the newest commit record names.
#[test]
fn a_manifest_of_10000_snapshots_is_short() {
    let mut w = World::new(1, 32);
    for _ in 0..100 {
        w.commit(100);
    }
    for _ in 0..40 {
        w.commit(1);
    }
    w.check("in the end");
    let m = w.folder.load_root().unwrap();
    assert!(m.recent.len() <= 32 && m.older.len() <= 12, "{} {:?}", m.recent.len(), m.older);
    let name = w.folder.manifest_name();
    assert!(w.folder.store.len(&name).unwrap() < 4096);
    // Deletions of the oldest, one by one.
    for n in 0..300 {
        let gone = w.all[0].id;
        w.update(|all| all[0].state = SnapshotState::Deleted);
        w.maintain(|all| all.retain(|s| s.id != gone));
        assert!(w.folder.store.len(&name).unwrap() < 8192, "after {n} deletions");
    }
    w.check("after deletions");
}

/// A page is lost as a whole: nothing takes the rest of the list for the whole. One of its objects is enough.
#[test]
fn no_list_without_a_page() {
    let mut w = World::new(2, 4);
    for _ in 0..30 {
        w.commit(1);
    }
    let m = w.folder.load_root().unwrap();
    let [first, copy] = names_of(&w.folder, &m.older[0]);
    w.folder.store.delete(&first).unwrap();
    w.check("without the first object");
    w.folder.store.delete(&copy).unwrap();
    let folder = w.reopened();
    assert!(folder.load().unwrap_err().is_damage());
    assert!(folder.update_whole(|_, all| Ok(std::mem::take(all))).unwrap_err().is_damage());
    let session = Session::begin(&folder, WriterKind::Maintenance).unwrap();
    assert!(session.swap(|m| m.change_snapshots(|_, all| Ok(std::mem::take(all)))).unwrap_err().is_damage());
    // Backups go on, and the manifest keeps what it cannot fold.
    drop(session);
    w.folder = folder;
    let newest = w.all.last().unwrap().clone();
    for n in 100..110 {
        let session = Session::begin(&w.folder, WriterKind::Backup).unwrap();
        assert!(session.parent == Some(if n == 100 { newest.clone() } else { entry(n - 1) }));
        session
            .commit(|m| {
                m.recent.push(entry(n));
                Ok(())
            })
            .unwrap();
    }
    let now = w.folder.load_root().unwrap();
    assert_eq!(now.snapshot_count(), 40);
    assert_eq!(now.older[0], m.older[0]);
}

/// What a backup and a deletion put of the manifest does not grow with the number of snapshots: bytes, and operations of
/// the store. Before, each of the three writings of a backup had all entries.
#[test]
fn what_is_put_does_not_grow_with_the_snapshots() {
    let objects = |w: &World| {
        let mut all = BTreeMap::new();
        let mut add = |e: store::Entry| {
            all.insert(e.name, e.len);
            Ok(())
        };
        w.folder.store.list(&w.folder.path, &mut add).unwrap();
        all
    };
    // Of so many: bytes in objects that were put, the manifest once more for each swap but the last, and operations.
    let measure = |w: &mut World, times: u64, swaps: u64, work: &dyn Fn(&mut World)| {
        let (mut bytes, mut ops) = (0, 0);
        for _ in 0..times {
            let (before, began) = (objects(w), w.fs.op_count());
            let manifest = w.folder.manifest_name();
            work(w);
            ops += w.fs.op_count() - began;
            let is_new = |name: &String| !before.contains_key(name) || *name == manifest;
            let now = objects(w);
            bytes += now.iter().filter(|(name, _)| is_new(name)).map(|(_, len)| len).sum::<u64>();
            bytes += (swaps - 1) * now[&manifest];
        }
        (bytes / times, ops / times)
    };
    let mut seen = Vec::new();
    for n in [10, 1000, 10_000] {
        let mut w = World::new(n, 32);
        while (w.all.len() as u64) < n {
            w.commit(10);
        }
        let backup = measure(&mut w, 64, 2, &|w| w.commit(1));
        let deletion = measure(&mut w, 64, 4, &|w| {
            let gone = w.all[5].id;
            w.update(|all| all[5].state = SnapshotState::Deleted);
            w.maintain(|all| all.retain(|s| s.id != gone));
        });
        let m = w.folder.load().unwrap();
        let whole = Manifest { recent: m.snapshots.clone(), ..Manifest::new(m.disk, &m.name) };
        let before = 3 * whole.encode(w.folder.context("x")).len() as u64;
        println!(
            "{n} snapshots: a backup puts {} bytes in {} operations ({before} bytes before), a deletion {} in {}",
            backup.0, backup.1, deletion.0, deletion.1
        );
        seen.push((backup, deletion));
    }
    for (backup, deletion) in seen {
        // Pages that are joined or put again count in full.
        assert!(backup.0 < 16 << 10 && deletion.0 < 32 << 10, "{backup:?} {deletion:?}");
    }
}
