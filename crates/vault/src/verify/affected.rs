//! Which snapshots damage affects: a second pass over the summaries, made only where damage was found.

use super::findings::ContainerFindings;
use super::recipes::BadPages;
use crate::disks::DiskAt;
use crate::error::fault;
use crate::error::Result;
use crate::folder::Folder;
use crate::recipe::{read_page, read_root, read_summary};
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
    let mut before: HashMap<usize, (RecipePageRef, Hits)> = HashMap::new();
    for s in view.manifest.live() {
        let root = match read_root(&view.folder, s) {
            Ok(root) => root,
            Err(e) => {
                // Said already, of this snapshot alone.
                fault(e)?;
                continue;
            }
        };
        let name = format!("{disk}@{}", s.id);
        // Pages are shared along the chain of snapshots: what was found for the one before serves again.
        let mut now = HashMap::new();
        for (no, at) in root.pages.iter().enumerate().filter_map(|(n, p)| p.map(|p| (n, p))) {
            let hits = match before.get(&no) {
                Some((same, hits)) if *same == at => hits.clone(),
                _ => hits_of(&view.folder, &at, bad_pages, own, shared)?,
            };
            hits.own.iter().for_each(|h| own.found.affects(*h, &name));
            hits.shared.iter().for_each(|h| shared.found.affects(*h, &name));
            now.insert(no, (at, hits));
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
