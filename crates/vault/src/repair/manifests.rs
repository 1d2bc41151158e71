//! Puts manifests again that are lost, damaged or rolled back: as the newest commit record has them.
//!
//! What sessions have changed since that record was put is lost: they died before they ended. Nothing of it was
//! acknowledged, but objects that the copy names may have been replaced by newer ones; these are taken in their place
//! ([`newest_recipes`], and [`super::pages`] for containers).

use crate::base::error::{fault, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::listing::for_each_name;
use crate::manifest::rollback::{read_record, record, Evidence};
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::{read_root, recipe_of};
use crate::recipe::writer::recipes_of;
use format::{names, Indexed, Manifest, Reverse, Sequence, SnapId, SnapshotState, WriterNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::StoreError;

/// Puts the manifest of a folder again, if that is necessary. Returns whether it was, and could be done.
pub(super) fn put_back(folder: &Folder) -> Result<bool> {
    let (mut evidence, mut objects) = (Evidence::default(), BTreeSet::new());
    for_each_name(&*folder.store, &folder.path, |name| {
        evidence.add(&name);
        objects.insert(name);
    })?;
    let current = match folder.load_tagged() {
        Ok(Some((m, _))) => match evidence.check(folder, &m) {
            Err(VaultError::RolledBack { .. }) => Some(m),
            checked => return checked.map(|()| false),
        },
        Ok(None) => None,
        Err(VaultError::Corrupt { .. }) => None,
        // One that a newer program has written stays.
        Err(e) => return fault(e).map(|_| false),
    };
    let mut copy = None;
    for sequence in evidence.commits() {
        // One that names pages which are gone would have none of the snapshots in them.
        let read = read_record(folder, sequence).and_then(|m| folder.whole(Arc::new(m)));
        copy = read.unless_unreadable()?;
        if copy.is_some() {
            break;
        }
    }
    // An older manifest is better than an even older copy.
    let Some(copy) = copy.filter(|copy| current.as_ref().is_none_or(|m| m.sequence < copy.sequence)) else {
        return Ok(false);
    };
    let mut m = Manifest::clone(copy.root());
    let newest = current.map_or(m.sequence, |current| m.sequence.max(current.sequence));
    m.sequence = Sequence(newest.0.saturating_add(1));
    if is_outdated(folder, &copy, &objects) {
        newest_recipes(folder, &mut m, &objects)?;
    }
    if let Some(highest) = evidence.highest_writer() {
        m.next_writer = m.next_writer.max(WriterNo(highest.0.saturating_add(1)));
    }
    let name = folder.manifest_name();
    // What stands there instead, say a directory, may be nothing that can be replaced.
    let Ok(damaged) = folder.store.load(&name) else { return Ok(false) };
    match folder.store.swap(&name, damaged.map(|(_, tag)| tag), &m.encode(folder.context(&name))) {
        Ok(_) => {}
        // Somebody else has put one.
        Err(StoreError::Conflict { .. }) => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    record(folder, &m, &evidence);
    Ok(true)
}

/// Whether an object that a manifest names is gone: a later one has replaced it.
fn is_outdated(folder: &Folder, m: &Whole, objects: &BTreeSet<String>) -> bool {
    let path = &folder.path;
    let pages = m.pages.iter().map(|p| names::page(path, p.writer, p.number));
    let roots = m.snapshots.iter().map(|s| names::recipe_root(path, recipe_of(s)));
    let of_recipes = m.snapshots.iter().flat_map(|s| &s.depends).map(|d| names::recipe_pages(path, *d));
    !pages.chain(roots).chain(of_recipes).all(|object| objects.contains(&object))
}

/// Takes the newest recipe of each snapshot, and forgets deleted snapshots whose recipes are gone.
fn newest_recipes(folder: &Folder, m: &mut Manifest, objects: &BTreeSet<String>) -> Result<()> {
    let prefix = names::recipes_of(&folder.path);
    let recipes = objects.range(prefix.clone()..).take_while(|o| o.starts_with(&prefix));
    // The later ones come later.
    let newest: BTreeMap<SnapId, WriterNo> =
        recipes.filter_map(|o| names::recipe_of_root(o)).map(|r| (r.snap, r.generation)).collect();
    folder.change_snapshots(m, |_, all| {
        all.retain(|s| s.state == SnapshotState::Live || newest.contains_key(&s.id));
        let last = all.last().map(|s| s.id);
        for s in all {
            let Some(generation) = newest.get(&s.id).copied().filter(|g| *g > s.generation) else { continue };
            s.generation = generation;
            s.indexed = Indexed::No;
            let Some(root) = read_root(folder, s).unless_unreadable()? else { continue };
            s.depends = recipes_of(&root).into_iter().collect();
            // Some of its references may be indirect.
            s.reverse = if Some(s.id) == last { Reverse::No } else { Reverse::Done };
        }
        Ok(())
    })
}
