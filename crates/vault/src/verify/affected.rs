//! Which snapshots damage affects: a second pass over the summaries, made only where damage was found.

use super::findings::ContainerFindings;
use super::recipes::BadPages;
use crate::chain::{RecipeCache, RecipeReader};
use crate::disks::DiskAt;
use crate::error::fault;
use crate::error::Result;
use crate::folder::Folder;
use crate::recipe::{read_page, read_summary};
use crate::vault::View;
use format::{RecipePageRef, Summary};
use std::collections::HashMap;

/// What is to blame for a page that cannot be restored, in the disk and in the shared set.
#[derive(Clone, Default)]
struct Hits {
    own: Vec<usize>,
    shared: Vec<usize>,
}

/// Tells for every damaged object which snapshots of a disk it affects.
pub(super) fn attribute(
    view: &View,
    disk: &str,
    bad_pages: &BadPages,
    own: &mut ContainerFindings,
    shared: &mut ContainerFindings,
) -> Result<()> {
    if bad_pages.is_empty() && own.bad.is_empty() && shared.bad.is_empty() {
        return Ok(());
    }
    let mut before: HashMap<u64, (RecipePageRef, Hits)> = HashMap::new();
    let cache = RecipeCache::default();
    for s in view.manifest.live() {
        let mut recipe = match RecipeReader::open_with(&cache, &view.folder, &view.manifest, s) {
            Ok(recipe) => recipe,
            Err(e) => {
                // Said already, of this snapshot alone.
                fault(e)?;
                continue;
            }
        };
        let name = format!("{disk}@{}", s.id);
        // Pages are shared along the chain of snapshots: what was found for the one before serves again.
        let mut now = HashMap::new();
        for no in recipe.page_numbers() {
            let at = match recipe.direct_page(no) {
                Ok(at) => at,
                // One of its own; of those of newer snapshots it has been said.
                Err(e) => fault(e).map(|_| recipe.root.pages[no as usize].page())?,
            };
            let hits = match (at, at.and_then(|_| before.get(&no))) {
                (Some(at), Some((same, hits))) if *same == at => hits.clone(),
                (Some(at), _) => hits_of(&view.folder, &at, bad_pages, own, shared)?,
                (None, _) => hits_of_traced(&mut recipe, no, own, shared)?,
            };
            hits.own.iter().for_each(|h| own.found.affects(*h, &name));
            hits.shared.iter().for_each(|h| shared.found.affects(*h, &name));
            if let Some(at) = at {
                now.insert(no, (at, hits));
            }
        }
        before = now;
    }
    Ok(())
}

fn hits_of(
    folder: &Folder,
    at: &RecipePageRef,
    bad_pages: &BadPages,
    own: &ContainerFindings,
    shared: &ContainerFindings,
) -> Result<Hits> {
    if let Some(object) = bad_pages.get(at) {
        return Ok(Hits { own: vec![*object], shared: Vec::new() });
    }
    let Some(summary) = summary_of(folder, at)? else { return Ok(Hits::default()) };
    Ok(Hits { own: own.bad.hits(&summary), shared: shared.bad.hits(&summary) })
}

/// The same for a page that is traced through newer snapshots.
fn hits_of_traced(
    recipe: &mut RecipeReader,
    no: u64,
    own: &ContainerFindings,
    shared: &ContainerFindings,
) -> Result<Hits> {
    match recipe.summary(no) {
        Ok(summary) => Ok(Hits { own: own.bad.hits(&summary), shared: shared.bad.hits(&summary) }),
        Err(e) => fault(e).map(|_| Hits::default()),
    }
}

/// A page's summary, from the page where the summary is damaged; `None` where both are.
fn summary_of(folder: &Folder, at: &RecipePageRef) -> Result<Option<Summary>> {
    if let Ok(summary) = read_summary(folder, at) {
        return Ok(Some(summary));
    }
    match read_page(folder, at) {
        Ok(page) => Ok(Some(Summary::of(&page))),
        Err(e) => fault(e).map(|_| None),
    }
}

/// The snapshots of a disk whose manifest cannot be read, as far as its recipes tell.
pub(super) fn of_unreadable_disk(at: &DiskAt) -> Result<Vec<String>> {
    let prefix = format!("{}recipes/", at.folder.path);
    let mut snapshots = Vec::new();
    at.folder.store.list(&prefix, &mut |e| {
        let file = e.name.strip_prefix(&prefix).unwrap_or_default();
        if let Some((id, _)) = file.strip_suffix(".root").and_then(|f| f.split_once('.')) {
            snapshots.push(format!("{}@{id}", at.name));
        }
        Ok(())
    })?;
    snapshots.sort();
    Ok(snapshots)
}
