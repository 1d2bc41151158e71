//! The sweep of the shared set: finds the chunks that no disk references any more, from the summaries of all disks, and
//! marks them dead (`docs/flows/gc.md`).
//!
//! 1. It puts a retiring record for every writer whose containers it examines: from now on no session adds references
//!    to them.
//! 2. It lists the claims, and leaves containers alone whose writer a living session has claimed.
//! 3. It reads the summaries of all snapshots of all disks. One scan serves as many containers as memory allows, and
//!    ends early when all their chunks have been found referenced.
//! 4. One swap marks the other chunks dead and removes containers without a live chunk from the table.
//! 5. It removes the retiring records.

use crate::base::error::UnlessDamaged;
use crate::base::error::{Result, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::lookup::popular::published_chunks;
use crate::lookup::stale_indexes::{stale_prefixes, stale_segments};
use crate::manifest::container_table::{release_data, Containers, Edits};
use crate::manifest::folder::list_names;
use crate::manifest::folder::{list_unswept, release, Folder};
use crate::manifest::session::{fence_dead, Session};
use crate::manifest::vault::Vault;
use crate::recipe::stored::{read_root, summary_of};
use crate::reclaim::compact::compact_folder;
use crate::reclaim::dead_list::mark_dead;
use crate::reclaim::gc_report::GcReport;
use crate::reclaim::orphans::{list_checked, remove_orphans};
use crate::reclaim::released::delete_released;
use format::{
    encode_mark, names, ContainerEntry, ContainerId, Kind, Owner, RecipePageRef, Release, RunSet, WriterKind,
    WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use store::{Reserve, StoreError};

/// Chunks whose references are counted in one scan. They take four bytes each at worst, where every other one is
/// referenced.
const CHUNKS_AT_ONCE: u64 = 32 << 20;

/// Sweeps and compacts the shared set, if the vault has one.
pub(crate) fn sweep_shared(vault: &Vault, threshold: f64, report: &mut GcReport) -> Result<()> {
    let folder = vault.shared().with_reserve(Reserve::Whole);
    if folder.load_tagged()?.is_none() {
        return Ok(());
    }
    let listed = list_checked(&folder)?;
    let session = begin(vault, Session::begin(&folder, WriterKind::Maintenance)?)?;
    fence_dead(&session)?;
    sweep(vault, &session, candidates(&session, None)?.0, threshold)?;
    remove_stale_indexes(&session)?;
    remove_orphans(&session, &listed, report)?;
    report.freed_bytes += delete_released(&folder, Some(session.writer))?;
    report.add_compaction(compact_folder(&session, threshold, None)?);
    report.freed_bytes += delete_released(&folder, Some(session.writer))?;
    session.end()
}

/// What a sweep for one disk did.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepReport {
    pub freed_bytes: u64,
    /// Containers written again.
    pub compacted: u64,
    /// Why it was left for later: other maintenance, damage, or no room.
    pub held_up: Option<String>,
}

/// Sweeps the shared containers that a disk references less than before. Where that cannot be done now, the next
/// backup or deletion of the disk does it, or `gc`.
pub(crate) fn sweep_unswept(vault: &Vault, disk: &Folder, threshold: f64) -> Result<SweepReport> {
    let mut report = SweepReport::default();
    let unswept: BTreeSet<ContainerId> = disk.load()?.unswept.into_iter().collect();
    if unswept.is_empty() {
        return Ok(report);
    }
    let only = &unswept;
    let mut run = || -> Result<()> {
        let shared = vault.shared().with_reserve(disk.reserve);
        if shared.load_tagged()?.is_none() {
            return Ok(());
        }
        let session = begin(vault, Session::begin_if_free(&shared)?)?;
        let folder = session.folder.clone();
        // Before its snapshots are looked at: what is listed from now on is looked at again.
        disk.update(|m| {
            m.unswept.retain(|id| !only.contains(id));
            Ok(())
        })?;
        let (entries, about_to_be_named) = candidates(&session, Some(only))?;
        let mut skipped = sweep(vault, &session, entries, threshold)?;
        skipped.extend(about_to_be_named.iter().map(|e| e.id));
        if !skipped.is_empty() {
            disk.update(|m| {
                list_unswept(m, &skipped);
                Ok(())
            })?;
        }
        report.freed_bytes += delete_released(&folder, Some(session.writer))?;
        report.compacted += compact_folder(&session, threshold, Some(only))?.containers;
        report.freed_bytes += delete_released(&folder, Some(session.writer))?;
        session.end()
    };
    let done = run();
    if done.is_err() {
        disk.update(|m| {
            list_unswept(m, only);
            Ok(())
        })?;
    }
    match done {
        Err(e) if e.is_damage() || e.is_full() || matches!(e, VaultError::Busy { .. }) => {
            report.held_up = Some(e.to_string());
        }
        other => other?,
    }
    Ok(report)
}

fn begin(vault: &Vault, session: Session) -> Result<Session> {
    // Only one maintenance of a folder at a time: what stands here was left by one that died.
    remove_retiring(vault)?;
    Ok(session)
}

/// A container that is looked at, and those of its chunks that nothing is known to reference yet.
struct Candidate {
    entry: ContainerEntry,
    unreferenced: RunSet,
}

type Candidates = BTreeMap<ContainerId, Candidate>;

/// Containers, and apart from them those that a living writer is still about to name in its disk's manifest.
fn candidates(
    session: &Session,
    only: Option<&BTreeSet<ContainerId>>,
) -> Result<(Vec<ContainerEntry>, Vec<ContainerEntry>)> {
    let m = session.folder.load()?;
    let writers: HashSet<_> = m.writers.iter().map(|w| w.no).collect();
    let found = Containers::new(session.folder.clone(), &m).select(only, |_| true)?;
    Ok(found.into_iter().partition(|e| !writers.contains(&e.id.writer())))
}

/// Returns the containers that were left alone because they are claimed.
fn sweep(
    vault: &Vault,
    session: &Session,
    entries: Vec<ContainerEntry>,
    punch_below: f64,
) -> Result<BTreeSet<ContainerId>> {
    let (mut skipped, mut batch, mut chunks) = (BTreeSet::new(), Vec::new(), 0);
    for entry in entries {
        chunks += u64::from(entry.chunks);
        batch.push(entry);
        if chunks >= CHUNKS_AT_ONCE {
            skipped.extend(sweep_batch(vault, session, std::mem::take(&mut batch), punch_below)?);
            chunks = 0;
        }
    }
    skipped.extend(sweep_batch(vault, session, batch, punch_below)?);
    Ok(skipped)
}

/// Steps 1 to 5 for some containers.
fn sweep_batch(
    vault: &Vault,
    session: &Session,
    entries: Vec<ContainerEntry>,
    punch_below: f64,
) -> Result<BTreeSet<ContainerId>> {
    let folder = &session.folder;
    let writers: BTreeSet<WriterNo> = entries.iter().map(|e| e.id.writer()).collect();
    for writer in &writers {
        let name = names::retiring(folder.owner, *writer);
        let frame = encode_mark(Kind::Retiring, folder.context(&name));
        match folder.store.put(&name, &[&frame]) {
            // All that were there have been removed: something that is no object stands in its place.
            Err(StoreError::AlreadyExists { object }) => {
                return Err(VaultError::corrupt(&object, "a directory stands in its place; remove it"));
            }
            put => put?,
        }
    }
    let swept = sweep_retiring(vault, session, entries, punch_below);
    remove_retiring(vault).and(swept)
}

/// Steps 2 to 4, while the retiring records stand.
fn sweep_retiring(
    vault: &Vault,
    session: &Session,
    entries: Vec<ContainerEntry>,
    punch_below: f64,
) -> Result<BTreeSet<ContainerId>> {
    let folder = &session.folder;
    let claimed = claimed(vault)?;
    let (mut candidates, mut skipped) = (Candidates::new(), BTreeSet::new());
    for entry in entries {
        if claimed.contains(&entry.id.writer().0.to_string()) {
            skipped.insert(entry.id);
            continue;
        }
        let table = match read_table(folder, entry.id, entry.table) {
            // What it holds is not known; the others are swept.
            Err(e) if e.is_damage() => {
                skipped.insert(entry.id);
                continue;
            }
            other => other?,
        };
        let dead = read_dead(folder, &entry).unless_damaged()?.unwrap_or_default();
        let unreferenced = table.numbers.minus(&dead);
        candidates.insert(entry.id, Candidate { entry, unreferenced });
    }
    // Backups may match the popular set.
    for (id, chunks) in published_chunks(folder)? {
        if let Some(c) = candidates.get_mut(&id) {
            c.unreferenced = c.unreferenced.minus(&chunks);
        }
    }
    take_referenced(vault, &mut candidates)?;
    let mut edits = Edits::new();
    let mut released = Vec::new();
    for (id, c) in &candidates {
        let fresh = mark_dead(session, &c.entry, &c.unreferenced, punch_below, &mut released)?;
        if fresh.is_none() {
            released.push(Release::Object(names::prefixes(*id)));
        }
        edits.insert(*id, fresh);
    }
    if edits.is_empty() {
        return Ok(skipped);
    }
    release_data(&Containers::new(folder.clone(), &folder.load()?), &edits, &mut released)?;
    session.swap(|m| {
        m.edit_containers(&edits)?;
        released.iter().for_each(|what| release(m, what.clone()));
        Ok(())
    })?;
    Ok(skipped)
}

/// Indexes that sessions which never committed have left, and those of containers that are gone.
fn remove_stale_indexes(session: &Session) -> Result<()> {
    let folder = &session.folder;
    for object in stale_prefixes(folder)?.into_iter().chain(stale_segments(folder)?) {
        folder.store.delete(&object)?;
    }
    Ok(())
}

fn remove_retiring(vault: &Vault) -> Result<()> {
    let found = list_names(&*vault.store, &names::retiring_of(Owner::Shared))?;
    for object in found {
        vault.store.delete(&object)?;
    }
    Ok(())
}

/// Writers whose containers living sessions have claimed, as the claims' names say.
fn claimed(vault: &Vault) -> Result<HashSet<String>> {
    let prefix = names::claims_on(Owner::Shared);
    let found = list_names(&*vault.store, &prefix)?;
    let mut claimed = HashSet::new();
    for object in found {
        let mut parts = object.trim_start_matches(&prefix).split('/');
        if let (Some(writer), Some(session)) = (parts.next(), parts.next()) {
            match vault.store.is_held(&format!("{}{session}", names::SESSIONS)) {
                Ok(false) => {}
                // A session that cannot be read may live.
                Ok(true) | Err(StoreError::Unreadable { .. }) => drop(claimed.insert(writer.to_string())),
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(claimed)
}

/// Takes out what the snapshots of all disks reference. Disks whose own table names none of the candidates are passed
/// over. A disk that cannot be read, or whose manifest was rolled back, stops the sweep.
fn take_referenced(vault: &Vault, candidates: &mut Candidates) -> Result<()> {
    candidates.retain(|_, c| !c.unreferenced.is_empty());
    // Every folder there is, not every name: a disk whose name is damaged has its chunks all the same.
    for (folder, evidence) in vault.listed_folders()? {
        if candidates.is_empty() {
            break;
        }
        let folder = folder.with_reserve(Reserve::Whole);
        let view = match vault.view(&folder, 0) {
            // A failed first backup has taken it away since it was listed.
            Err(VaultError::Missing { .. }) if !folder.has_content()? => continue,
            view => view?,
        };
        // An older manifest does not know what newer snapshots reference.
        evidence.check(&folder, &view.manifest)?;
        let listed = Containers::new(folder.clone(), &view.manifest);
        let mut wanted = false;
        for id in candidates.keys() {
            wanted |= listed.get(*id)?.is_some();
        }
        if !wanted {
            continue;
        }
        let mut seen: HashSet<RecipePageRef> = HashSet::new();
        for s in view.manifest.snapshots.iter().rev() {
            for page in read_root(&folder, s)?.pages.iter().filter_map(|p| p.page()) {
                if candidates.is_empty() || !seen.insert(page) {
                    continue;
                }
                for (id, live) in summary_of(&folder, &page)?.containers {
                    if let Some(c) = candidates.get_mut(&id) {
                        c.unreferenced = c.unreferenced.minus(&live);
                        if c.unreferenced.is_empty() {
                            candidates.remove(&id);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
