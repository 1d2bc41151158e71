//! Deletion of snapshots.
//!
//! 1. The snapshots are marked deleted by one swap: users no longer see them, whatever happens next.
//! 2. What they alone referenced is found by comparing their summaries with those of all other snapshots of the disk.
//! 3. The dead chunks are logged beside their containers; containers without a live chunk leave the table. A second
//!    swap makes that true and forgets the snapshots.
//! 4. Containers with too much dead space are compacted ([`crate::compact`]).
//! 5. What the swaps released is deleted, once no reader that came before can need it.
//!
//! A snapshot that is the parent of a running backup waits at step 2 for the next deletion or `gc`; so do all where
//! other maintenance is at work on the disk, or where damage hides what the remaining snapshots reference.

use crate::compact::compact_folder;
use crate::dead::read_dead;
use crate::error::{Result, VaultError};
use crate::folder::{release, Containers, Edits, Folder};
use crate::reader::delete_released;
use crate::recipe::{read_page, read_root, read_summary, recipe_of};
use crate::session::Session;
use crate::snapshot_spec::find_snapshot;
use crate::vault::Vault;
use format::{
    names, ContainerEntry, ContainerId, DeadLog, Manifest, Owner, RecipePageRef, RunSet, SnapId,
    SnapshotEntry, SnapshotState, Summary, WriterKind, WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Share of dead chunks from which deletion compacts a container.
pub const COMPACT_AT_DELETION: f64 = 0.5;

/// What a deletion did.
#[derive(Clone, Debug, Default)]
pub struct DeleteReport {
    /// The snapshots that are gone for users.
    pub deleted: Vec<SnapshotEntry>,
    /// Deleted snapshots whose space waits for a running backup.
    pub waiting: usize,
    /// Bytes given back to the store.
    pub freed_bytes: u64,
    /// Why space was not given back although nothing runs that needs it.
    pub held_up: Option<String>,
}

impl Vault {
    /// Deletes snapshots of a disk. `specs` are as in [`Vault::restore`]; all of them are found, or nothing is deleted.
    pub fn delete(&self, disk: &str, specs: &[&str]) -> Result<DeleteReport> {
        let folder = self.disk(disk)?;
        let (_, deleted) = folder.update(|m, _| mark(m, disk, specs))?;
        let mut report = DeleteReport { deleted, ..DeleteReport::default() };
        let session = match Session::begin(&folder, WriterKind::Maintenance) {
            Err(VaultError::Busy { .. }) => {
                report.waiting = report.deleted.len();
                return Ok(report);
            }
            other => other?,
        };
        match carry_through(&session) {
            Err(e) if e.is_damage() => report.held_up = Some(e.to_string()),
            other => report.waiting = other?,
        }
        report.freed_bytes = delete_released(&folder, Some(session.writer))?;
        compact_folder(&session, COMPACT_AT_DELETION)?;
        report.freed_bytes += delete_released(&folder, Some(session.writer))?;
        session.end()?;
        Ok(report)
    }
}

/// Step 1.
fn mark(m: &mut Manifest, disk: &str, specs: &[&str]) -> Result<Vec<SnapshotEntry>> {
    let mut deleted: BTreeMap<SnapId, SnapshotEntry> = BTreeMap::new();
    for spec in specs {
        let s = find_snapshot(m, disk, spec)?;
        if s.held {
            let why = format!("{disk}@{}: is held; `sapwood release` it first", s.id);
            return Err(VaultError::Refused(why));
        }
        deleted.insert(s.id, s.clone());
    }
    for s in m.snapshots.iter_mut().filter(|s| deleted.contains_key(&s.id)) {
        s.state = SnapshotState::Deleted;
    }
    Ok(deleted.into_values().collect())
}

/// Steps 2 and 3 for every snapshot marked deleted. Returns how many must wait.
pub(crate) fn carry_through(session: &Session) -> Result<usize> {
    loop {
        let m = session.folder.load()?;
        let parents = parents_of_living(&session.folder, &m)?;
        let marked = |s: &&SnapshotEntry| s.state == SnapshotState::Deleted;
        let (waiting, doomed): (Vec<_>, Vec<_>) =
            m.snapshots.iter().filter(marked).partition(|s| parents.contains(&s.id));
        if doomed.is_empty() {
            return Ok(waiting.len());
        }
        let doomed: BTreeSet<SnapId> = doomed.iter().map(|s| s.id).collect();
        let dead = find_dead(&session.folder, &m, &doomed)?;
        let known: HashSet<SnapId> = m.snapshots.iter().map(|s| s.id).collect();
        if forget(session, &doomed, &known, &dead)? {
            return Ok(waiting.len());
        }
        // A backup has committed meanwhile: what it references was not looked at.
    }
}

/// Snapshots that living writers compare with.
fn parents_of_living(folder: &Folder, m: &Manifest) -> Result<HashSet<SnapId>> {
    let mut parents = HashSet::new();
    for w in &m.writers {
        if let Some(p) = w.parent {
            if folder.store.is_held(&names::session(w.token))? {
                parents.insert(p);
            }
        }
    }
    Ok(parents)
}

/// What becomes unreferenced.
struct Dead {
    /// Chunks of the disk's own containers.
    chunks: BTreeMap<ContainerId, RunSet>,
    /// Containers of other owners that the disk no longer references at all.
    foreign: BTreeSet<ContainerId>,
}

/// Step 2. Reads each page's summary once; pages that a remaining snapshot shares are not even candidates.
fn find_dead(folder: &Folder, m: &Manifest, doomed: &BTreeSet<SnapId>) -> Result<Dead> {
    let mut kept: HashSet<RecipePageRef> = HashSet::new();
    for s in m.snapshots.iter().filter(|s| !doomed.contains(&s.id)) {
        kept.extend(read_root(folder, s)?.pages.into_iter().flatten());
    }
    let mut candidates = Summary::default();
    let mut seen: HashSet<RecipePageRef> = HashSet::new();
    for s in m.snapshots.iter().filter(|s| doomed.contains(&s.id)) {
        let root = match read_root(folder, s) {
            // What a recipe that cannot be read references stays: it costs space, not data.
            Err(e) if e.is_damage() => continue,
            other => other?,
        };
        for page in root.pages.into_iter().flatten().filter(|p| !kept.contains(p)) {
            if !seen.insert(page) {
                continue;
            }
            match summary_of(folder, &page) {
                Err(e) if e.is_damage() => {}
                other => candidates.merge(&other?),
            }
        }
    }
    for page in kept {
        if candidates.containers.is_empty() {
            break;
        }
        // A snapshot that stays and cannot be read may reference anything: nothing is released then.
        for (id, live) in summary_of(folder, &page)?.containers {
            if id.owner() != Owner::Disk {
                candidates.containers.remove(&id);
            } else if let Some(c) = candidates.containers.get_mut(&id) {
                *c = c.minus(&live);
                if c.is_empty() {
                    candidates.containers.remove(&id);
                }
            }
        }
    }
    let (chunks, foreign): (BTreeMap<_, _>, BTreeMap<_, _>) =
        candidates.containers.into_iter().partition(|(id, _)| id.owner() == Owner::Disk);
    Ok(Dead { chunks, foreign: foreign.into_keys().collect() })
}

/// A page's summary, made anew from the page where it is damaged.
pub(crate) fn summary_of(folder: &Folder, page: &RecipePageRef) -> Result<Summary> {
    match read_summary(folder, page) {
        Err(e) if e.is_damage() => Ok(Summary::of(&read_page(folder, page)?)),
        other => other,
    }
}

/// Step 3. `false`: there is a snapshot that is not among the `known` ones, and nothing was done.
fn forget(
    session: &Session,
    doomed: &BTreeSet<SnapId>,
    known: &HashSet<SnapId>,
    dead: &Dead,
) -> Result<bool> {
    let folder = &session.folder;
    let m = folder.load()?;
    let containers = Containers::new(folder.clone(), &m);
    let mut edits: Edits = dead.foreign.iter().map(|id| (*id, None)).collect();
    let mut released = Vec::new();
    for (id, chunks) in &dead.chunks {
        let Some(entry) = containers.get(*id)? else { continue };
        edits.insert(*id, bury(session, &entry, chunks, &mut released)?);
    }
    release_data(&containers, &edits, &mut released)?;
    let (_, done) = session.swap(|m, put, counter| {
        if m.snapshots.iter().any(|s| !known.contains(&s.id)) {
            return Ok(false);
        }
        folder.edit_containers(m, put, session.writer, counter, &edits)?;
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut m.snapshots).into_iter().partition(|s| doomed.contains(&s.id));
        m.snapshots = kept;
        // Those who have them as parents were found dead: they are fenced.
        m.writers.retain(|w| !w.parent.is_some_and(|p| doomed.contains(&p)));
        let needed: HashSet<_> = m.snapshots.iter().flat_map(|s| s.depends.clone()).collect();
        let mut unneeded = BTreeSet::new();
        for s in &gone {
            release(m, names::recipe_root(&folder.path, recipe_of(s)));
            unneeded.extend(s.depends.iter().filter(|d| !needed.contains(d)).copied());
        }
        for recipe in unneeded {
            release(m, names::recipe_pages(&folder.path, recipe));
        }
        released.iter().for_each(|object: &String| release(m, object.clone()));
        Ok(true)
    })?;
    Ok(done)
}

/// Logs chunks of a container as dead. Returns its new entry, `None` where no live chunk is left.
pub(crate) fn bury(
    session: &Session,
    entry: &ContainerEntry,
    chunks: &RunSet,
    released: &mut Vec<String>,
) -> Result<Option<ContainerEntry>> {
    let folder = &session.folder;
    let old = match read_dead(folder, entry) {
        // A log that cannot be read is written anew with what is known.
        Err(e) if e.is_damage() => RunSet::default(),
        other => other?,
    };
    let dead = old.union(chunks);
    if entry.dead != WriterNo(0) {
        released.push(names::dead(&folder.path, entry.id, entry.dead));
    }
    let dead_chunks = dead.len().min(u64::from(u32::MAX)) as u32;
    if dead_chunks >= entry.chunks {
        released.push(names::table(&folder.path, entry.id, entry.table));
        return Ok(None);
    }
    let name = names::dead(&folder.path, entry.id, session.writer);
    let frame = DeadLog { container: entry.id, dead }.encode(folder.context(&name));
    match folder.store.put(&name, &[&frame]) {
        // From an attempt of this session that found the manifest changed.
        Err(store::StoreError::AlreadyExists { .. }) => {
            folder.store.delete(&name)?;
            folder.store.put(&name, &[&frame])?;
        }
        other => other?,
    }
    session.wrote(name);
    Ok(Some(ContainerEntry { dead: session.writer, dead_chunks, ..*entry }))
}

/// Releases the data objects that no entry names any more once `edits` are carried out.
pub(crate) fn release_data(containers: &Containers, edits: &Edits, released: &mut Vec<String>) -> Result<()> {
    let mut before = BTreeSet::new();
    for id in edits.keys() {
        if let Some(e) = containers.get(*id)? {
            before.insert(e.data);
        }
    }
    before.retain(|d| d.generation != WriterNo(0) && !edits.values().flatten().any(|e| e.data == *d));
    if before.is_empty() {
        return Ok(());
    }
    containers.each(|e| {
        if !edits.contains_key(&e.id) {
            before.remove(&e.data);
        }
        Ok(())
    })?;
    let path = &containers.folder().path;
    released.extend(before.into_iter().map(|d| names::data(path, d)));
    Ok(())
}
