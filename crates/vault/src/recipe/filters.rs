//! Bloom filters over the chunks that a whole snapshot references. A deletion asks them which chunks the other
//! snapshots need, instead of reading their summaries (VM-centric 3.2). Chunks that are false positives leak;
//! [`crate::reclaim::leaks`] repairs that.
//!
//! A filter is never needed: if it is missing or damaged, the deletion reads the summaries of the snapshot's pages.

use crate::base::error::UnlessDamaged;
use crate::base::error::{Named, Result, VaultError};
use crate::base::policy::{Policy, Summaries};
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::recipe::stored::{recipe_of, summary_of};
use format::{names, Bloom, ChunkNo, ContainerId, Kind, RecipeName, RecipePageRef, RunSet, SnapshotEntry};
use store::StoreError;

/// Puts the filter of a recipe whose pages are durable. Returns its bytes.
pub(crate) fn put(session: &Session, name: RecipeName, pages: &[RecipePageRef]) -> Result<u64> {
    let folder = &session.folder;
    let mut referenced: Vec<(ContainerId, RunSet)> = Vec::new();
    for page in pages {
        // Chunks of the popular set and of other disks are not deleted with a snapshot.
        let own = summary_of(folder, page)?.containers.into_iter().filter(|(id, _)| id.is_own());
        referenced.extend(own);
    }
    let items: u64 = referenced.iter().map(|(_, chunks)| chunks.len()).sum();
    let mut filter = with_room(items);
    if filter.len_bits() < items.saturating_mul(4) {
        // The largest one is too small: it would take anything for referenced. The summaries count.
        return Ok(0);
    }
    for (id, chunks) in &referenced {
        numbers(chunks).for_each(|no| filter.insert(*id, no));
    }
    let object = names::bloom(&folder.path, name);
    let frame = filter.encode(folder.context(&object));
    session.wrote(object.clone());
    folder.store.put(&object, &[&frame])?;
    Ok(frame.len() as u64)
}

/// An empty filter for a snapshot of so many chunks: with room for those of the others that it is merged with. The
/// paper's U of ten snapshots is 1.225 u.
pub(crate) fn with_room(chunks: u64) -> Bloom {
    Bloom::with_room(chunks.saturating_add(chunks / 4))
}

/// Whether a snapshot may have a filter: its policy makes them, or is not known.
pub(crate) fn has_filter(s: &SnapshotEntry) -> bool {
    Policy::by_name(&s.policy).map_or(true, |p| p.summaries == Summaries::Bloom)
}

/// Reads a snapshot's filter; `None` where it has none.
pub(crate) fn read(folder: &Folder, s: &SnapshotEntry) -> Result<Option<Bloom>> {
    let object = names::bloom(&folder.path, recipe_of(s));
    let bytes = match folder.store.read(&object, Kind::Bloom.frame_max()) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other.named()?,
    };
    let decoded = Bloom::decode(folder.context(&object), &bytes);
    decoded.map(Some).map_err(VaultError::malformed(&object))
}

/// The names of those filters of recipes that there are.
pub(crate) fn existing(folder: &Folder, recipes: impl Iterator<Item = RecipeName>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for object in recipes.map(|r| names::bloom(&folder.path, r)) {
        match folder.store.len(&object) {
            Ok(_) => found.push(object),
            Err(StoreError::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

/// The chunks of a set of runs.
pub(crate) fn numbers(chunks: &RunSet) -> impl Iterator<Item = ChunkNo> + '_ {
    chunks.runs().iter().flat_map(|(first, count)| (*first..first + count).map(ChunkNo))
}

/// The filters of several snapshots, merged: those of one size by their bits.
#[derive(Default)]
pub(crate) struct Merged(Vec<Bloom>);

impl Merged {
    /// Adds a snapshot's filter. `false`: it has none that can be read.
    pub fn add(&mut self, folder: &Folder, s: &SnapshotEntry) -> Result<bool> {
        let Some(filter) = read(folder, s).unless_damaged()?.flatten() else { return Ok(false) };
        if !self.0.iter_mut().any(|m| m.merge(&filter)) {
            self.0.push(filter);
        }
        Ok(true)
    }

    /// Whether there is no filter in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of `chunks` that no snapshot has, as far as the filters are right.
    pub fn without_what_is_in(&self, id: ContainerId, chunks: &RunSet) -> RunSet {
        let gone = numbers(chunks).filter(|no| !self.0.iter().any(|m| m.may_have(id, *no)));
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for no in gone {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == no.0 => *count += 1,
                _ => runs.push((no.0, 1)),
            }
        }
        RunSet::from_unsorted(runs)
    }
}
