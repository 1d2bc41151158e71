//! Commits a change of a disk's snapshots in one swap: lists of dead chunks, new recipes, released objects.

use crate::base::error::Result;
use crate::base::error::UnlessDamaged;
use crate::container::dead::read_dead;
use crate::manifest::container_table::{release_data, Containers, Edits};
use crate::manifest::folder::{list_unswept, release, release_object, Folder};
use crate::manifest::session::Session;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::recipe_of;
use crate::reclaim::change::{remove_new_recipe, Change};
use crate::reclaim::dead_list::mark_dead;
use crate::reclaim::retiring::RetiringLease;
use crate::reclaim::unreferenced::{Dead, LeakCount};
use format::{
    names, ContainerId, Manifest, RecipeName, Release, RunSet, SnapId, SnapshotEntry, SnapshotState, WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Chunks of containers that only the disk itself references.
type DeadChunks<'a> = BTreeMap<ContainerId, &'a RunSet>;

/// Step 3, in one swap. `false`: there is a snapshot that `known` has not, and nothing was done.
pub(crate) fn apply(
    session: &Session,
    known: &Whole,
    change: &Change,
    dead: &Dead,
    punch_below: f64,
) -> Result<bool> {
    let folder = &session.folder;
    let known_ids: HashSet<SnapId> = known.snapshots.iter().map(|s| s.id).collect();
    let m = folder.load_root()?;
    let containers = Containers::new(folder.clone(), &m);
    // What other disks may reference is only listed: a sweep looks at them, too.
    let writers: BTreeSet<WriterNo> = dead.chunks.keys().map(|id| id.writer()).collect();
    let retiring = if writers.is_empty() { None } else { Some(RetiringLease::begin(session, &writers)?) };
    let is_free = |id: &ContainerId| retiring.as_ref().is_none_or(|r| r.is_free(id.writer()));
    let (free, shared): (BTreeMap<_, _>, BTreeMap<_, _>) =
        dead.chunks.iter().map(|(id, chunks)| (*id, chunks)).partition(|(id, _)| is_free(id));
    let mut released = Vec::new();
    let (mut edits, leaks) = match mark_all_dead(session, &containers, &free, punch_below, &mut released) {
        // Containers without a live chunk need no list. What is dead in the others leaks until it is repaired.
        Err(e) if e.is_full() => {
            released.clear();
            (unlisted(session, &containers, &free, &mut released)?, true)
        }
        edits => (edits?, false),
    };
    edits.extend(dead.foreign.iter().map(|id| (*id, None)));
    release_data(&containers, &edits, &mut released)?;
    let (_, done) = session.swap(|m| {
        let is_changed = m.change_snapshots(|m, all| {
            if all.iter().any(|s| !known_ids.contains(&s.id)) {
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
        })?;
        if !is_changed {
            return Ok(false);
        }
        m.edit_containers(&edits)?;
        list_unswept(m, shared.keys());
        // Its readers may still need them.
        dead.shared.iter().for_each(|id| release(m, Release::Foreign(*id)));
        released.iter().for_each(|what| release(m, what.clone()));
        dead.filters.iter().for_each(|object| release_object(m, object.clone()));
        m.by_filter = match dead.counted {
            _ if leaks => m.by_filter.saturating_add(1),
            LeakCount::Exactly => m.by_filter,
            LeakCount::ByFilter(snapshots) => m.by_filter.saturating_add(snapshots),
            LeakCount::Repaired => 0,
        };
        Ok(true)
    })?;
    if !done {
        // The next attempt writes the same names.
        for s in known.snapshots.iter().filter(|s| change.rewritten.iter().any(|r| r.id == s.id)) {
            remove_new_recipe(session, s)?;
        }
    }
    Ok(done)
}

/// Logs everything dead in a disk's own containers. Where there is no space for all of the lists, none is left.
fn mark_all_dead(
    session: &Session,
    containers: &Containers,
    dead: &DeadChunks<'_>,
    punch_below: f64,
    released: &mut Vec<Release>,
) -> Result<Edits> {
    let mut edits = Edits::new();
    for (id, chunks) in dead {
        let Some(entry) = containers.get(*id)? else { continue };
        match mark_dead(session, &entry, chunks, false, punch_below, released) {
            Err(e) if e.is_full() => {
                let path = &session.folder.path;
                for id in edits.iter().filter_map(|(id, fresh)| fresh.map(|_| *id)) {
                    session.folder.store.delete(&names::dead(path, id, session.writer))?;
                }
                return Err(e);
            }
            fresh => drop(edits.insert(*id, fresh?)),
        }
    }
    Ok(edits)
}

/// What can be done without a list of dead chunks: containers without a live chunk go.
fn unlisted(
    session: &Session,
    containers: &Containers,
    dead: &DeadChunks<'_>,
    released: &mut Vec<Release>,
) -> Result<Edits> {
    let mut edits = Edits::new();
    for (id, chunks) in dead {
        let Some(entry) = containers.get(*id)? else { continue };
        let Some(old) = read_dead(&session.folder, &entry).unless_damaged()? else { continue };
        if old.union(chunks).len() >= u64::from(entry.chunks) {
            let none = mark_dead(session, &entry, chunks, false, 0.0, released)?;
            edits.insert(*id, none);
        }
    }
    Ok(edits)
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
            s.indexed = false;
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
