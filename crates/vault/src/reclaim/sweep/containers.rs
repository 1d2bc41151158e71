//! Finds the chunks of containers that no disk references any more, from the summaries of the owner and of its referrers,
//! and marks them dead.
//!
//! 1. It puts a retiring record for the writers whose containers it examines: from now on no backup adds references to
//!    them. It leaves those alone that a living backup has claimed ([`RetiringLease`]).
//! 2. It reads the summaries of all snapshots of the owner and of its referrers. One scan serves as many containers as
//!    memory allows, and ends early when all their chunks have been found referenced.
//! 3. One swap marks the other chunks dead and removes containers without a live chunk from the table.
//! 4. The records of disks that reference nothing any more go, and then the retiring record.

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::lookup::popular::published_chunks;
use crate::lookup::referrers;
use crate::manifest::container_table::{Containers, Edits};
use crate::manifest::folder::Folder;
use crate::manifest::rollback::Evidence;
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use crate::recipe::stored::{read_root, summary_of};
use crate::reclaim::compact::exchange;
use crate::reclaim::dead_list::mark_dead;
use crate::reclaim::retiring::RetiringLease;
use format::{
    names, ContainerEntry, ContainerId, DiskId, Manifest, OwnerNo, RecipePageRef, Release, RetiringRecord,
    RunSet, WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use store::Reserve;

/// Chunks whose references are counted in one scan. They take four bytes each at worst, where every other one is
/// referenced.
const CHUNKS_AT_ONCE: u64 = 32 << 20;

/// A container that is looked at, and those of its chunks that nothing is known to reference yet.
struct Candidate {
    entry: ContainerEntry,
    unreferenced: RunSet,
}

type Candidates = BTreeMap<ContainerId, Candidate>;

/// Containers, and apart from them those that a living writer is still about to name in its disk's manifest.
pub(super) fn candidates(
    session: &Session,
    only: Option<&BTreeSet<ContainerId>>,
) -> Result<(Vec<ContainerEntry>, Vec<ContainerEntry>)> {
    let m = session.folder.load_root()?;
    let writers: HashSet<_> = m.writers.iter().map(|w| w.no).collect();
    let found = Containers::new(session.folder.clone(), &m).select(only, |e| !e.is_foreign())?;
    Ok(found.into_iter().partition(|e| !writers.contains(&e.id.writer())))
}

/// What a sweep has left for later.
#[derive(Default)]
pub(super) struct Swept {
    /// Containers that are claimed, or of which somebody still reads what a disk no longer references, or for whose lists of
    /// dead chunks there was no room.
    pub skipped: BTreeSet<ContainerId>,
    /// That the store had no room for such lists. Containers without a live chunk, which need none, have gone all the same.
    pub full: Option<VaultError>,
}

/// All steps, for as many containers at once as memory allows.
pub(super) fn sweep(
    vault: &Vault,
    session: &Session,
    entries: Vec<ContainerEntry>,
    punch_below: f64,
) -> Result<Swept> {
    let (mut swept, mut chunks) = (Swept::default(), 0);
    let (mut batch, mut writers) = (Vec::new(), BTreeSet::new());
    for entry in entries {
        chunks += u64::from(entry.chunks);
        writers.insert(entry.id.writer());
        batch.push(entry);
        if chunks >= CHUNKS_AT_ONCE || writers.len() >= RetiringRecord::WRITERS_MAX {
            sweep_batch(vault, session, std::mem::take(&mut batch), &writers, punch_below, &mut swept)?;
            (chunks, writers) = (0, BTreeSet::new());
        }
    }
    if !batch.is_empty() {
        sweep_batch(vault, session, batch, &writers, punch_below, &mut swept)?;
    }
    Ok(swept)
}

/// All steps for the containers that some writers made.
fn sweep_batch(
    vault: &Vault,
    session: &Session,
    entries: Vec<ContainerEntry>,
    writers: &BTreeSet<WriterNo>,
    punch_below: f64,
    swept: &mut Swept,
) -> Result<()> {
    let folder = &session.folder;
    let retiring = RetiringLease::begin(session, writers)?;
    let (mut candidates, mut rebuilt) = (Candidates::new(), Edits::new());
    for entry in entries {
        if retiring.is_claimed(entry.id.writer()) {
            swept.skipped.insert(entry.id);
            continue;
        }
        let Some(table) = read_table(folder, entry.id, entry.table).unless_damaged()? else {
            // What it holds is not known; the others are swept.
            swept.skipped.insert(entry.id);
            continue;
        };
        let dead = read_dead(folder, &entry).unless_damaged()?.unwrap_or_default();
        let unreferenced = table.numbers.minus(&dead);
        if entry.is_rebuilt() {
            rebuilt.insert(entry.id, Some(ContainerEntry { level: 0, ..entry }));
        }
        candidates.insert(entry.id, Candidate { entry, unreferenced });
    }
    if folder.is_popular() {
        // Backups may match the popular set.
        for (id, chunks) in published_chunks(folder, |id| candidates.contains_key(&id))? {
            if let Some(c) = candidates.get_mut(&id) {
                c.unreferenced = c.unreferenced.minus(&chunks);
            }
        }
    }
    let looked = take_referenced(vault, folder, &retiring, &mut candidates)?;
    swept.skipped.extend(looked.waiting);
    let (mut edits, released) = mark_candidates(session, &candidates, punch_below, swept)?;
    // All of their chunks that are not listed now are referenced.
    for (id, entry) in rebuilt.into_iter().filter(|(id, _)| !swept.skipped.contains(id)) {
        let marked = edits.entry(id).or_insert(entry);
        *marked = marked.map(|entry| ContainerEntry { level: 0, ..entry });
    }
    if !edits.is_empty() {
        exchange(session, &edits, released)?;
    }
    // Until here they lead the next sweep to these containers, should this one be killed; and to those that were skipped.
    let skipped: BTreeSet<WriterNo> = swept.skipped.iter().map(|id| id.writer()).collect();
    let stale = looked.stale.iter().filter(|(writer, _)| !skipped.contains(writer));
    stale.into_iter().try_for_each(|(writer, disk)| referrers::remove(folder, *writer, *disk))
}

/// Logs what nothing references as dead. Where there is no space for all of the lists, none is left, and only containers
/// without a live chunk go.
fn mark_candidates(
    session: &Session,
    candidates: &Candidates,
    punch_below: f64,
    swept: &mut Swept,
) -> Result<(Edits, Vec<Release>)> {
    let (mut edits, mut released) = (Edits::new(), BTreeMap::new());
    for (id, c) in candidates {
        let mut of_container = Vec::new();
        match mark_dead(session, &c.entry, &c.unreferenced, true, punch_below, &mut of_container) {
            Err(e) if e.is_full() => {
                swept.full = Some(e);
                swept.skipped.insert(*id);
            }
            marked => {
                edits.insert(*id, marked?);
                released.insert(*id, of_container);
            }
        }
    }
    if swept.full.is_some() {
        for id in edits.iter().filter_map(|(id, fresh)| fresh.map(|_| *id)) {
            session.folder.store.delete(&names::dead(&session.folder.path, id, session.writer))?;
            released.remove(&id);
            swept.skipped.insert(id);
        }
        edits.retain(|_, fresh| fresh.is_none());
    }
    Ok((edits, released.into_values().flatten().collect()))
}

/// What the referrers say of an owner's containers.
#[derive(Default)]
struct ReferrerReport {
    /// Containers that cannot be judged now: somebody may still read what a disk no longer references.
    waiting: BTreeSet<ContainerId>,
    /// Records of disks that reference nothing that the writer made.
    stale: Vec<(WriterNo, DiskId)>,
}

/// Takes out what the snapshots of the owner and of its referrers reference. A disk that cannot be read, or whose manifest
/// was rolled back, stops the sweep.
fn take_referenced(
    vault: &Vault,
    owner: &Folder,
    retiring: &RetiringLease,
    candidates: &mut Candidates,
) -> Result<ReferrerReport> {
    let mut disks: BTreeMap<DiskId, Vec<WriterNo>> = BTreeMap::new();
    let writers: BTreeSet<WriterNo> = candidates.keys().map(|id| id.writer()).collect();
    for writer in writers.into_iter().filter(|w| retiring.is_referred(*w)) {
        for disk in referrers::of_writer(owner, writer)? {
            disks.entry(disk).or_default().push(writer);
        }
    }
    let mut looked = ReferrerReport::default();
    candidates.retain(|_, c| !c.unreferenced.is_empty());
    if !owner.is_popular() {
        take_referenced_by(vault, owner, owner, &[], candidates, &mut looked)?;
    }
    for (disk, writers) in disks {
        let folder = vault.folder(disk).with_reserve(Reserve::Whole);
        take_referenced_by(vault, owner, &folder, &writers, candidates, &mut looked)?;
    }
    Ok(looked)
}

/// Takes out what the snapshots of one disk reference. `recorded` are the writers of the owner of which it is on record as
/// a referrer.
fn take_referenced_by(
    vault: &Vault,
    owner: &Folder,
    disk: &Folder,
    recorded: &[WriterNo],
    candidates: &mut Candidates,
    looked: &mut ReferrerReport,
) -> Result<()> {
    let evidence = Evidence::of_folder(disk)?;
    let view = match vault.view(disk, 0) {
        // It has been removed since, or its first backup failed.
        Err(VaultError::Missing { .. }) if !disk.has_content()? => {
            looked.stale.extend(recorded.iter().map(|w| (*w, disk.disk)));
            return Ok(());
        }
        view => view?,
    };
    // An older manifest does not know what newer snapshots reference.
    evidence.check(disk, &view.manifest)?;
    let m = view.whole()?;
    let Some(no) = m.owner_no(owner.disk) else {
        looked.stale.extend(recorded.iter().map(|w| (*w, disk.disk)));
        return Ok(());
    };
    // What its readers may still need is not given back yet.
    for r in &m.released {
        if let Release::Foreign(id) = r.what {
            if id.owner() == no && candidates.remove(&id.local()).is_some() {
                looked.waiting.insert(id.local());
            }
        }
    }
    let listed = view.tables.own();
    let mut wanted = false;
    for id in candidates.keys() {
        wanted |= listed.get(id.of(no))?.is_some();
    }
    if !wanted {
        looked.stale.extend(stale(m, listed, no, recorded)?);
        return Ok(());
    }
    let mut seen: HashSet<RecipePageRef> = HashSet::new();
    for s in m.snapshots.iter().rev() {
        for page in read_root(disk, s)?.pages.iter().filter_map(|p| p.page()) {
            if candidates.is_empty() || !seen.insert(page) {
                continue;
            }
            for (id, live) in
                summary_of(disk, &page)?.containers.into_iter().filter(|(id, _)| id.owner() == no)
            {
                let id = id.local();
                if let Some(c) = candidates.get_mut(&id) {
                    c.unreferenced = c.unreferenced.minus(&live);
                    if c.unreferenced.is_empty() {
                        candidates.remove(&id);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The records of a disk for writers of whose containers it lists none, nor waits with any. No backup of it is about to add
/// one: none has a claim.
fn stale(
    m: &Manifest,
    listed: &Containers,
    no: OwnerNo,
    recorded: &[WriterNo],
) -> Result<Vec<(WriterNo, DiskId)>> {
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let mut used: HashSet<WriterNo> = HashSet::new();
    let of_owner = |id: ContainerId| (id.owner() == no).then(|| id.writer());
    listed.each(|e| {
        used.extend(of_owner(e.id));
        Ok(())
    })?;
    for r in &m.released {
        if let Release::Foreign(id) = r.what {
            used.extend(of_owner(id));
        }
    }
    Ok(recorded.iter().filter(|w| !used.contains(w)).map(|w| (*w, m.disk)).collect())
}
