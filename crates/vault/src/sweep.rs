//! The sweep of the shared set: which of its chunks any disk still references, recomputed from truth.
//!
//! 1. A retiring record is put for every container that is looked at: no session matches it from now on.
//! 2. Claims are read: a container that a living session has claimed is left alone.
//! 3. The summaries of all snapshots of all disks say what is referenced. One scan serves all containers.
//! 4. What is not referenced is logged dead, containers without a live chunk leave the table: one swap.
//! 5. The retiring records go.

use crate::compact::compact_folder;
use crate::delete::{bury, release_data, summary_of};
use crate::error::Result;
use crate::folder::{release, Containers, Edits, Folder};
use crate::gc::{fence_dead, remove_orphans, GcReport};
use crate::reader::delete_released;
use crate::recipe::read_root;
use crate::session::Session;
use crate::tables::read_table;
use crate::vault::Vault;
use format::{
    encode_frame, names, ContainerEntry, ContainerId, Kind, Owner, RecipePageRef, RunSet, Summary, WriterKind,
};
use std::collections::{BTreeMap, HashSet};

/// Sweeps and compacts the shared set, if the vault has one.
pub(crate) fn sweep_shared(vault: &Vault, threshold: f64, report: &mut GcReport) -> Result<()> {
    let folder = vault.shared();
    if folder.load_tagged()?.is_none() {
        return Ok(());
    }
    let session = Session::begin(&folder, WriterKind::Maintenance)?;
    // Only one maintenance of a folder at a time: what stands here was left by one that died.
    remove_retiring(vault)?;
    fence_dead(&session)?;
    let candidates = candidates(&session)?;
    let swept = sweep(vault, &session, &candidates);
    let cleared = remove_retiring(vault);
    swept?;
    cleared?;
    remove_stale_prefixes(&session)?;
    remove_orphans(&session, report)?;
    report.freed_bytes += delete_released(&folder, Some(session.writer))?;
    report.add_compaction(compact_folder(&session, threshold)?);
    report.freed_bytes += delete_released(&folder, Some(session.writer))?;
    session.end()
}

/// Containers that no living writer is still about to name in its disk's manifest.
fn candidates(session: &Session) -> Result<BTreeMap<ContainerId, ContainerEntry>> {
    let m = session.folder.load()?;
    let writers: HashSet<_> = m.writers.iter().map(|w| w.no).collect();
    let mut found = BTreeMap::new();
    Containers::new(session.folder.clone(), &m).each(|e| {
        if !writers.contains(&e.id.writer()) {
            found.insert(e.id, *e);
        }
        Ok(())
    })?;
    Ok(found)
}

fn sweep(vault: &Vault, session: &Session, candidates: &BTreeMap<ContainerId, ContainerEntry>) -> Result<()> {
    let folder = &session.folder;
    for id in candidates.keys() {
        let name = names::retiring(*id);
        let frame = encode_frame(Kind::Retiring, folder.context(&name), b"");
        folder.store.put(&name, &[&frame])?;
    }
    let claimed = claimed(vault)?;
    let live = referenced(vault)?;
    let mut edits = Edits::new();
    let mut released = Vec::new();
    for (id, entry) in candidates.iter().filter(|(id, _)| !claimed.contains(&id.to_string())) {
        let table = read_table(folder, *id, entry.table)?;
        let none = RunSet::default();
        let dead = table.numbers.minus(live.containers.get(id).unwrap_or(&none));
        if dead.len() <= u64::from(entry.dead_chunks) {
            continue;
        }
        let fresh = bury(session, entry, &dead, &mut released)?;
        if fresh.is_none() {
            released.push(names::prefixes(*id));
        }
        edits.insert(*id, fresh);
    }
    if edits.is_empty() {
        return Ok(());
    }
    release_data(&Containers::new(folder.clone(), &folder.load()?), &edits, &mut released)?;
    session.swap(|m, put, counter| {
        folder.edit_containers(m, put, session.writer, counter, &edits)?;
        released.iter().for_each(|object| release(m, object.clone()));
        Ok(())
    })?;
    Ok(())
}

/// Indexes that sessions which never committed have left.
fn remove_stale_prefixes(session: &Session) -> Result<()> {
    let folder = &session.folder;
    for object in stale_prefixes(folder)? {
        folder.store.delete(&object)?;
    }
    Ok(())
}

/// Indexes of containers that the manifest does not know and no registered writer may be about to add.
pub(crate) fn stale_prefixes(folder: &Folder) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let prefix = names::prefixes_of(folder.owner);
    folder.store.list(&prefix, &mut |e| {
        found.push(e.name);
        Ok(())
    })?;
    let m = folder.load()?;
    let mut known = HashSet::new();
    Containers::new(folder.clone(), &m).each(|e| {
        known.insert(names::prefixes(e.id));
        Ok(())
    })?;
    let writers: HashSet<String> = m.writers.iter().map(|w| format!("{}{}-", prefix, w.no.0)).collect();
    found.retain(|o| !known.contains(o) && !writers.iter().any(|w| o.starts_with(w)));
    Ok(found)
}

fn remove_retiring(vault: &Vault) -> Result<()> {
    let mut found = Vec::new();
    vault.store.list(&names::retiring_of(Owner::Shared), &mut |e| {
        found.push(e.name);
        Ok(())
    })?;
    for object in found {
        vault.store.delete(&object)?;
    }
    Ok(())
}

/// Containers that living sessions have claimed, as their names say.
fn claimed(vault: &Vault) -> Result<HashSet<String>> {
    let mut found = Vec::new();
    let prefix = names::claims_on(Owner::Shared);
    vault.store.list(&prefix, &mut |e| {
        found.push(e.name);
        Ok(())
    })?;
    let mut claimed = HashSet::new();
    for object in found {
        let mut parts = object.trim_start_matches(&prefix).split('/');
        if let (Some(container), Some(session)) = (parts.next(), parts.next()) {
            if vault.store.is_held(&format!("{}{session}", names::SESSIONS))? {
                claimed.insert(container.to_string());
            }
        }
    }
    Ok(claimed)
}

/// What all snapshots of all disks reference in the shared set. A disk that cannot be read stops the sweep.
fn referenced(vault: &Vault) -> Result<Summary> {
    let mut live = Summary::default();
    // Every folder there is, not every name: a disk whose name is damaged has its chunks all the same.
    for folder in vault.all_folders()? {
        let mut pages: HashSet<RecipePageRef> = HashSet::new();
        let view = vault.view(&folder, 0)?;
        for s in &view.manifest.snapshots {
            pages.extend(read_root(&folder, s)?.pages.into_iter().flatten());
        }
        for page in pages {
            let mut summary = summary_of(&folder, &page)?;
            summary.containers.retain(|id, _| id.owner() == Owner::Shared);
            live.merge(&summary);
        }
    }
    Ok(live)
}
