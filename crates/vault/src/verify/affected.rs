//! Finds the snapshots that damage affects: a second pass over the summaries, only if damage was found.

use crate::base::error::{fault, Result};
use crate::container::view::View;
use crate::manifest::disks::DiskAt;
use crate::manifest::folder::Folder;
use crate::recipe::chain::RecipeCache;
use crate::recipe::stored::{read_page, read_summary};
use crate::verify::descent::{descend, end_of_chain, Resolved};
use crate::verify::findings::ContainerFindings;
use crate::verify::recipes::{BadPages, RecipeFindings};
use format::{RecipePageRef, SnapshotEntry, SnapshotState, Summary};
use std::collections::{BTreeSet, HashMap};

/// What is to blame for a page that cannot be restored, in the disk and in the shared set.
#[derive(Clone, Default)]
struct Hits {
    own: Vec<usize>,
    shared: Vec<usize>,
}

/// Tells for every damaged object which snapshots of a disk it affects; of some it is known already.
pub(super) fn attribute(
    view: &View,
    disk: &str,
    recipes: &RecipeFindings,
    own: &mut ContainerFindings,
    shared: &mut ContainerFindings,
) -> Result<()> {
    let mut of_own = recipes.affected.clone();
    let mut of_shared = BTreeSet::new();
    let snapshots = &view.manifest.snapshots;
    let is_live = |s: &SnapshotEntry| s.state == SnapshotState::Live;
    if !(recipes.bad_pages.is_empty() && own.bad.is_empty() && shared.bad.is_empty()) {
        let Some(newest) = snapshots.iter().rposition(is_live) else { return Ok(()) };
        let (top, cache) = (end_of_chain(snapshots, newest), RecipeCache::default());
        // Pages are shared along the chain of snapshots: what was found for the next newer one serves again.
        let mut before: HashMap<usize, Hits> = HashMap::new();
        descend(view, &cache, (top, 0), &mut |step| {
            let known = std::mem::take(&mut before);
            // Of a root that cannot be read it has been said.
            let Ok(level) = step.level else { return Ok(()) };
            for no in level.band.start..level.band.end.min(level.root.pages.len()) {
                let here = level.page(no);
                let hits = match step.newer.filter(|n| n.page(no).is(here)).and_then(|_| known.get(&no)) {
                    Some(hits) => hits.clone(),
                    None => hits_of(&view.folder, here, &recipes.bad_pages, own, shared)?,
                };
                if is_live(step.entry) {
                    of_own.extend(hits.own.iter().map(|h| (*h, step.no)));
                    of_shared.extend(hits.shared.iter().map(|h| (*h, step.no)));
                }
                before.insert(no, hits);
            }
            Ok(())
        })?;
    }
    let name = |no: usize| format!("{disk}@{}", snapshots[no].id);
    of_own.into_iter().for_each(|(object, no)| own.found.affects(object, &name(no)));
    of_shared.into_iter().for_each(|(object, no)| shared.found.affects(object, &name(no)));
    Ok(())
}

fn hits_of(
    folder: &Folder,
    page: &Resolved,
    bad_pages: &BadPages,
    own: &ContainerFindings,
    shared: &ContainerFindings,
) -> Result<Hits> {
    let summary = match page {
        // Of what cannot be followed it has been said.
        Resolved::Null | Resolved::Lost(_) => return Ok(Hits::default()),
        Resolved::Traced { page, .. } => Summary::of(page),
        Resolved::Direct(at) => {
            if let Some(object) = bad_pages.get(at) {
                return Ok(Hits { own: vec![*object], shared: Vec::new() });
            }
            let Some(summary) = summary_of(folder, at)? else { return Ok(Hits::default()) };
            summary
        }
    };
    Ok(Hits { own: own.bad.hits(&summary), shared: shared.bad.hits(&summary) })
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
    Ok(at.recipes()?.into_keys().map(|id| format!("{}@{id}", at.name)).collect())
}
