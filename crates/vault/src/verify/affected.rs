//! Finds the snapshots that damage affects: a second pass over the summaries, only if damage was found.

use crate::base::error::{fault, Result};
use crate::container::view::View;
use crate::manifest::disks::DiskAt;
use crate::manifest::folder::Folder;
use crate::recipe::cache::RecipeCache;
use crate::recipe::stored::{read_page, read_summary};
use crate::verify::checks::descent::{descend, end_of_chain, Resolved};
use crate::verify::checks::recipes::{BadPages, RecipeFindings};
use crate::verify::findings::affected::{Affected, SnapshotIndex};
use crate::verify::findings::bad_chunks::ObjectNo;
use crate::verify::findings::containers::ContainerFindings;
use crate::verify::findings::others::OtherFindings;
use format::{DiskId, OwnerNo, PageNo, RecipePageRef, SnapshotEntry, SnapshotState, Summary};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory for what is to blame for the pages of one snapshot, in bytes.
const HITS_BYTES: usize = 16 << 20;

/// What is to blame for a page that cannot be restored, in the disk and in other owners.
#[derive(Default)]
struct Hits {
    own: Vec<ObjectNo>,
    others: Vec<(DiskId, ObjectNo)>,
    /// Owners of which nothing can be read, as the disk counts them.
    gone: Vec<OwnerNo>,
}

impl Hits {
    fn memory_bytes(&self) -> usize {
        size_of::<Hits>()
            + size_of_val(&self.own[..])
            + size_of_val(&self.others[..])
            + size_of_val(&self.gone[..])
    }
}

/// Tells for every damaged object which snapshots of a disk it affects; of some it is known already. With `gone`, also for
/// owners of which nothing can be read: once for each disk.
pub(super) fn attribute(
    view: &View,
    disk: &str,
    recipes: &RecipeFindings,
    own: &mut ContainerFindings,
    others: &mut OtherFindings,
    gone: bool,
) -> Result<()> {
    let mut of_own = recipes.affected.clone();
    let mut of_others = Affected::default();
    let is_bad = |disk: &DiskId| others.owners.get(disk).is_some_and(|found| !found.bad.is_empty());
    let bad_others: HashMap<OwnerNo, DiskId> = (1..)
        .map(OwnerNo)
        .zip(view.manifest.owners.iter().copied())
        .filter(|(_, disk)| is_bad(disk))
        .collect();
    let lacks_owners = gone && view.manifest.owners.iter().any(|disk| others.gone.has(disk));
    let snapshots = &view.whole()?.snapshots;
    let is_live = |s: &SnapshotEntry| s.state == SnapshotState::Live;
    let name = |no: SnapshotIndex| format!("{disk}@{}", snapshots[no.0].id);
    if !(recipes.bad_pages.is_empty() && own.bad.is_empty() && bad_others.is_empty()) || lacks_owners {
        let Some(newest) = snapshots.iter().rposition(is_live) else { return Ok(()) };
        let (top, cache) = (end_of_chain(snapshots, SnapshotIndex(newest)), RecipeCache::default());
        // Pages are shared along the chain of snapshots: what was found for the next newer one serves again.
        let mut before: HashMap<PageNo, Arc<Hits>> = HashMap::new();
        descend(view, &cache, (top, SnapshotIndex(0)), &mut |step| {
            let known = std::mem::take(&mut before);
            let mut bytes = 0;
            // Of a root that cannot be read it has been said.
            let Ok(level) = step.level else { return Ok(()) };
            for no in level.page_numbers() {
                let here = level.page(no);
                let hits = match step.newer.filter(|n| n.page(no).is(here)).and_then(|_| known.get(&no)) {
                    Some(hits) => hits.clone(),
                    None => Arc::new(hits_of(view, here, &recipes.bad_pages, own, &bad_others, others)?),
                };
                if is_live(step.entry) {
                    hits.own.iter().for_each(|h| of_own.add(*h, step.no));
                    hits.others.iter().for_each(|h| of_others.add(*h, step.no));
                    if gone {
                        let gone = hits.gone.iter().filter_map(|no| view.manifest.owner(*no));
                        others.gone.affect(&name(step.no), gone);
                    }
                }
                // What is not kept is found again.
                bytes += hits.memory_bytes();
                if bytes <= HITS_BYTES {
                    before.insert(no, hits);
                }
            }
            Ok(())
        })?;
    }
    let (of_own, more) = of_own.into_parts();
    let (of_others, more_of_others) = of_others.into_parts();
    of_own.into_iter().for_each(|(object, no)| own.found.affects(object, &name(no)));
    for ((disk, object), no) in of_others {
        others.of(disk).found.affects(object, &name(no));
    }
    more.into_iter().chain(more_of_others).for_each(|no| own.found.affects_more(&name(no)));
    Ok(())
}

fn hits_of(
    view: &View,
    page: &Resolved,
    bad_pages: &BadPages,
    own: &ContainerFindings,
    bad_others: &HashMap<OwnerNo, DiskId>,
    others: &OtherFindings,
) -> Result<Hits> {
    let summary = match page {
        // Of what cannot be followed it has been said.
        Resolved::Null | Resolved::Lost(_) => return Ok(Hits::default()),
        Resolved::Traced { page, .. } => Summary::of(page),
        Resolved::Direct(at) => {
            if let Some(object) = bad_pages.get(at) {
                return Ok(Hits { own: vec![*object], ..Hits::default() });
            }
            let Some(summary) = summary_of(&view.folder, at)? else { return Ok(Hits::default()) };
            summary
        }
    };
    // In the order of their ids, owner by owner.
    let (mut hits, mut gone) = (Hits::default(), Vec::new());
    let mut containers = summary.containers.into_iter().peekable();
    while let Some(no) = containers.peek().map(|(id, _)| id.owner()) {
        let of_owner = std::iter::from_fn(|| containers.next_if(|(id, _)| id.owner() == no));
        if no != OwnerNo::OWN && view.manifest.owner(no).is_some_and(|disk| others.gone.has(&disk)) {
            of_owner.for_each(drop);
            gone.push(no);
            continue;
        }
        let of_owner = Summary { containers: of_owner.map(|(id, chunks)| (id.local(), chunks)).collect() };
        if no == OwnerNo::OWN {
            hits.own = own.bad.hits(&of_owner);
        } else if let Some(disk) = bad_others.get(&no) {
            let found = others.owners.get(disk).map(|found| found.bad.hits(&of_owner)).unwrap_or_default();
            hits.others.extend(found.into_iter().map(|object| (*disk, object)));
        }
    }
    hits.gone = gone;
    Ok(hits)
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
pub(super) fn of_unreadable_disk(at: &DiskAt, recent: &[SnapshotEntry]) -> Result<Vec<String>> {
    let mut recipes = at.recipes()?;
    for s in recent {
        recipes.remove(&s.id.to_string());
    }
    Ok(recipes.into_keys().map(|id| format!("{}@{id}", at.name)).collect())
}
