//! A change of a disk's snapshots: some are deleted, others get new recipes for the same content.

use crate::base::error::Result;
use crate::manifest::session::Session;
use crate::recipe::writer::WrittenRecipe;
use format::{
    names, Manifest, RecipeName, RecipePageRef, RecipeRoot, Reverse, SnapId, SnapshotEntry, WriterNo,
};
use std::collections::{BTreeSet, HashSet};

/// A change of a disk's snapshots: some are deleted, others get new recipes for the same content.
#[derive(Default)]
pub(crate) struct Change {
    pub to_delete: BTreeSet<SnapId>,
    pub rewritten: Vec<Rewritten>,
    /// Snapshots that must be live neighbours when it takes effect: a backup that began after the newer one was
    /// deleted compares with the older one, whose recipe must stay as it is.
    pub neighbours: Option<[SnapId; 2]>,
}

impl Change {
    /// Whether it changes recent snapshots only, and releases no recipe that an older one may depend on: no page of
    /// snapshots needs to be read for it.
    pub fn leaves_older_alone(&self, m: &Manifest) -> bool {
        let again = |s: &SnapshotEntry| self.rewritten.iter().find(|r| r.id == s.id);
        let are_recent = self.rewritten.iter().all(|r| m.recent.iter().any(|s| s.id == r.id));
        if !self.to_delete.is_empty() || !are_recent {
            return false;
        }
        let needed: HashSet<&RecipeName> =
            m.recent.iter().flat_map(|s| again(s).map_or(&s.depends, |r| &r.recipe.depends)).collect();
        let of_changed: HashSet<&RecipeName> = m.changed.iter().flat_map(|s| &s.depends).collect();
        let in_pages = m.older.iter().map(|at| at.depends_to).max();
        let is_older_ones =
            |r: &RecipeName| of_changed.contains(r) || in_pages.is_some_and(|latest| r.generation <= latest);
        // What a recent one still needs is not released.
        let mut before = m.recent.iter().filter(|s| again(s).is_some()).flat_map(|s| &s.depends);
        before.all(|r| needed.contains(r) || !is_older_ones(r))
    }
}

/// A recipe that was written anew for a snapshot that stays.
pub(crate) struct Rewritten {
    pub id: SnapId,
    /// The generation of the new recipe.
    pub generation: WriterNo,
    pub root: RecipeRoot,
    pub recipe: WrittenRecipe,
    /// Pages of the old recipe that the new one has no longer.
    pub unreferenced: Vec<RecipePageRef>,
    pub reverse: Reverse,
}

/// The name of a recipe that a session writes for a snapshot that is there.
pub(crate) fn new_recipe_name(session: &Session, s: &SnapshotEntry) -> RecipeName {
    RecipeName { snap: s.id, generation: session.writer }
}

/// Removes a recipe that was written for a snapshot and that nothing names yet.
pub(crate) fn remove_new_recipe(session: &Session, s: &SnapshotEntry) -> Result<()> {
    let (folder, name) = (&session.folder, new_recipe_name(session, s));
    folder.store.delete(&names::recipe_root(&folder.path, name))?;
    folder.store.delete(&names::recipe_pages(&folder.path, name))?;
    Ok(())
}
