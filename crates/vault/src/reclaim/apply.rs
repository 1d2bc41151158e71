//! Commits a change of a disk's snapshots in one swap: containers written again or lists of their dead chunks, new recipes,
//! released objects.

mod settle;

use crate::base::error::{Result, VaultError};
use crate::manifest::container_table::{release_data, Containers};
use crate::manifest::folder::{list_unswept, release, release_object, Folder};
use crate::manifest::session::Session;
use crate::manifest::snapshots::known::Known;
use crate::recipe::stored::recipe_of;
use crate::reclaim::change::{remove_new_recipe, Change};
use crate::reclaim::compact::{is_due, CompactReport};
use crate::reclaim::retiring::RetiringLease;
use crate::reclaim::unreferenced::{Dead, LeakCount};
use format::{
    names, ContainerId, Indexed, Manifest, RecipeName, Release, SnapId, SnapshotEntry, SnapshotState,
    WriterNo,
};
use settle::settle;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What changes of a disk's snapshots did to its containers.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Containers that lost chunks, and are still to be looked at by compaction.
    pub lost: BTreeSet<ContainerId>,
    /// Those that were written again at once.
    pub compacted: CompactReport,
}

/// Step 3, in one swap. Returns the manifest that it has left; `None`: there is a snapshot that `known` has not, and nothing was
/// done.
///
/// Containers with at least the share `rebuild_at` of dead chunks are written again at once ([`settle`]).
pub(crate) fn apply(
    session: &Session,
    known: Known<'_>,
    change: &Change,
    dead: &Dead,
    rebuild_at: f64,
    applied: &mut Applied,
) -> Result<Option<Manifest>> {
    let folder = &session.folder;
    let known_ids = known.ids();
    let m = folder.load_root()?;
    let containers = Containers::new(folder.clone(), &m);
    // What other disks may reference is only listed: a sweep looks at them, too.
    let writers: BTreeSet<WriterNo> = dead.chunks.keys().map(|id| id.writer()).collect();
    let retiring = if writers.is_empty() { None } else { Some(RetiringLease::begin(session, &writers)?) };
    let is_free = |id: &ContainerId| retiring.as_ref().is_none_or(|r| r.is_free(id.writer()));
    let (free, shared): (BTreeMap<_, _>, BTreeMap<_, _>) =
        dead.chunks.iter().map(|(id, chunks)| (*id, chunks)).partition(|(id, _)| is_free(id));
    let unswept_chunks =
        shared.values().map(|chunks| chunks.len()).chain(dead.shared.values().copied()).sum::<u64>();
    let is_of_recent = |m: &Manifest| !known.is_whole && change.leaves_older_alone(m);
    if !is_of_recent(&m) {
        // What the swap needs is read first: nothing is written for a change that cannot be made.
        folder.snapshot_pages(&m)?;
    }
    let mut settled = settle(session, &containers, &free, rebuild_at)?;
    settled.edits.extend(dead.foreign.iter().map(|id| (*id, None)));
    let swapped = release_data(&containers, &settled.edits, &mut settled.released).and_then(|()| {
        session.swap(|m| {
            let change_them = |m: &mut Manifest, all: &mut Vec<SnapshotEntry>| {
                if !known.has_all(m, all, &known_ids) {
                    return Ok(false);
                }
                let is_pair = |w: &[SnapshotEntry], ids: [SnapId; 2]| {
                    [w[0].id, w[1].id] == ids && w.iter().all(|s| s.state == SnapshotState::Live)
                };
                if change.neighbours.is_some_and(|ids| !all.windows(2).any(|w| is_pair(w, ids))) {
                    return Ok(false);
                }
                change_snapshots(folder, m, all, change);
                Ok(true)
            };
            let is_changed = if is_of_recent(m) {
                m.change_recent(change_them)?
            } else {
                m.change_snapshots(change_them)?
            };
            if !is_changed {
                return Ok(false);
            }
            m.edit_containers(&settled.edits)?;
            list_unswept(m, shared.keys());
            // Its readers may still need them.
            dead.shared.keys().for_each(|id| release(m, Release::Foreign(*id)));
            m.unswept_chunks = m.unswept_chunks.saturating_add(unswept_chunks);
            settled.released.iter().for_each(|what| release(m, what.clone()));
            dead.filters.iter().for_each(|object| release_object(m, object.clone()));
            m.by_filter = match dead.counted {
                _ if settled.leaks => m.by_filter.saturating_add(1),
                LeakCount::Exactly => m.by_filter,
                LeakCount::ByFilter(snapshots) => m.by_filter.saturating_add(snapshots),
                LeakCount::Repaired => 0,
            };
            Ok(true)
        })
    });
    let left = match swapped {
        Ok((m, done)) => done.then_some(m),
        // Whether the manifest names what was written is not known.
        Err(e @ VaultError::Uncertain { .. }) => return Err(e),
        Err(e) => {
            // What cannot be taken back now is garbage.
            let _ = settled.take_back(session);
            return Err(e);
        }
    };
    if left.is_some() {
        applied.compacted.add(settled.compacted);
        // Of those that were looked at, what is left of them is known.
        let is_left = |id: &&ContainerId| match settled.edits.get(id) {
            Some(Some(e)) => is_due(e, u64::from(e.dead_chunks), rebuild_at),
            Some(None) => false,
            None => true,
        };
        applied.lost.extend(dead.chunks.keys().filter(is_left));
        return Ok(left);
    }
    // The next attempt writes the same names.
    for s in known.snapshots.iter().filter(|s| change.rewritten.iter().any(|r| r.id == s.id)) {
        remove_new_recipe(session, s)?;
    }
    settled.take_back(session)?;
    Ok(None)
}

/// Takes the snapshots to delete out, puts new recipes in, and releases what no snapshot needs any more.
pub(crate) fn change_snapshots(
    folder: &Folder,
    m: &mut Manifest,
    all: &mut Vec<SnapshotEntry>,
    change: &Change,
) {
    let to_delete = &change.to_delete;
    let mut unneeded: BTreeSet<RecipeName> = BTreeSet::new();
    let mut roots = Vec::new();
    all.retain(|s| {
        if to_delete.contains(&s.id) {
            roots.push(recipe_of(s));
            unneeded.extend(&s.depends);
        }
        !to_delete.contains(&s.id)
    });
    for s in all.iter_mut() {
        if let Some(r) = change.rewritten.iter().find(|r| r.id == s.id) {
            roots.push(recipe_of(s));
            unneeded.extend(&s.depends);
            s.generation = r.generation;
            s.indexed = Indexed::No;
            s.depends = r.recipe.depends.clone();
            s.reverse = r.reverse;
        }
    }
    // Those who have them as parents were found dead: they are fenced.
    m.writers.retain(|w| !w.parent.is_some_and(|p| to_delete.contains(&p)));
    for root in roots {
        release_object(m, names::recipe_root(&folder.path, root));
    }
    let needed: HashSet<RecipeName> = all.iter().flat_map(|s| s.depends.clone()).collect();
    for recipe in unneeded.into_iter().filter(|r| !needed.contains(r)) {
        release_object(m, names::recipe_pages(&folder.path, recipe));
    }
}
