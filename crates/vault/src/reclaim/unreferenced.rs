//! Finds the chunks that no snapshot of the disk will reference after a change.

use crate::base::error::Result;
use crate::base::error::UnlessDamaged;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::recipe::filters;
use crate::recipe::filters::Merged;
use crate::recipe::stored::{read_root, recipe_of, summary_of};
use crate::reclaim::change::Change;
use format::{ContainerId, Manifest, RecipePageRef, RunSet, SnapshotEntry, Summary, Table};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Memory for chunks that may be dead, in bytes, but for one page with more.
const CANDIDATE_BYTES: usize = 32 << 20;

/// What becomes unreferenced.
#[derive(Default)]
pub(crate) struct Dead {
    /// Chunks of the disk's own containers.
    pub chunks: BTreeMap<ContainerId, RunSet>,
    /// Containers of other owners some of whose chunks the disk no longer references; other disks may.
    pub shared: BTreeSet<ContainerId>,
    /// Containers of other owners that the disk no longer references at all.
    pub foreign: BTreeSet<ContainerId>,
    /// Filters of recipes that go.
    pub filters: Vec<String>,
    /// What becomes of the count of deletions by filters.
    pub counted: LeakCount,
}

/// A change of [`Manifest::by_filter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeakCount {
    /// Nothing was decided by filters, and nothing leaked for want of space.
    #[default]
    Exactly,
    /// So many snapshots were deleted by them.
    ByFilter(u32),
    /// Their leaks were repaired.
    Repaired,
}

/// Pages whose chunks may be dead, and what says which of them are not.
struct Pages {
    /// Pages that snapshots lose, and whether they must be readable.
    lost: Vec<(RecipePageRef, bool)>,
    /// Pages of the snapshots that stay, but for those with filters.
    kept: Vec<RecipePageRef>,
    /// The filters of these.
    filters: Merged,
}

/// Step 2. Pages that a remaining snapshot shares are not even candidates. Of remaining snapshots that have filters, these
/// are read in place of the summaries.
///
/// Each page's summary is read once, where what is lost fits into memory; otherwise those of the remaining snapshots are
/// read once for each part of it.
pub(crate) fn find_dead(folder: &Folder, m: &Manifest, change: &Change) -> Result<Dead> {
    let pages = pages_of_change(folder, m, change)?;
    let listed = Containers::new(folder.clone(), m);
    let is_exact = pages.filters.is_empty();
    let mut dead = Dead::default();
    let mut lost = pages.lost.iter().peekable();
    while lost.peek().is_some() {
        let mut candidates = Candidates { listed: &listed, chunks: BTreeMap::new(), bytes: 0 };
        while let Some((page, must_read)) = lost.next_if(|_| candidates.bytes < CANDIDATE_BYTES) {
            match summary_of(folder, page) {
                // What cannot be read stays: it costs space, not data.
                Err(e) if e.is_damage() && !must_read => {}
                other => candidates.add(other?)?,
            }
        }
        let referenced = candidates.without_kept(folder, &pages.kept)?;
        if !is_exact {
            candidates.without_filtered(&pages.filters);
        }
        for (id, chunks) in candidates.chunks {
            if id.is_own() {
                let known = dead.chunks.entry(id).or_default();
                *known = known.union(&chunks);
                continue;
            }
            dead.shared.insert(id);
            // All kept pages were read where anything is left.
            if is_exact && !referenced.contains(&id) {
                dead.foreign.insert(id);
            }
        }
    }
    if !is_exact {
        // Not all that is referenced was seen: a repair tells.
        dead.counted = LeakCount::ByFilter(change.to_delete.len() as u32);
    }
    let is_gone = |s: &&SnapshotEntry| {
        change.to_delete.contains(&s.id) || change.rewritten.iter().any(|r| r.id == s.id)
    };
    dead.filters = filters::existing(folder, m.snapshots.iter().filter(is_gone).map(recipe_of))?;
    Ok(dead)
}

fn pages_of_change(folder: &Folder, m: &Manifest, change: &Change) -> Result<Pages> {
    let to_delete = &change.to_delete;
    let mut seen: HashSet<RecipePageRef> = HashSet::new();
    let mut pages = Pages { lost: Vec::new(), kept: Vec::new(), filters: Merged::default() };
    let mut filtered = Vec::new();
    // Newest first: it holds most of what is wanted.
    for s in m.snapshots.iter().rev().filter(|s| !to_delete.contains(&s.id)) {
        let rewritten = change.rewritten.iter().find(|r| r.id == s.id);
        // Only deletion goes by filters, which are of recipes as they were.
        let by_filter = !to_delete.is_empty() && rewritten.is_none() && pages.filters.add(folder, s)?;
        let read;
        let root = match rewritten {
            Some(r) => &r.root,
            None => {
                read = read_root(folder, s)?;
                &read
            }
        };
        let of_root = root.pages.iter().filter_map(|p| p.page());
        if by_filter {
            filtered.extend(of_root)
        } else {
            pages.kept.extend(of_root.filter(|p| seen.insert(*p)))
        }
    }
    seen.extend(filtered);
    let unreferenced = change.rewritten.iter().flat_map(|r| &r.unreferenced).copied();
    pages.lost.extend(unreferenced.filter(|p| seen.insert(*p)).map(|p| (p, true)));
    for s in m.snapshots.iter().filter(|s| to_delete.contains(&s.id)) {
        // What a recipe that cannot be read references stays: it costs space, not data.
        let Some(root) = read_root(folder, s).unless_damaged()? else { continue };
        let of_root = root.pages.iter().filter_map(|p| p.page());
        pages.lost.extend(of_root.filter(|p| seen.insert(*p)).map(|p| (p, false)));
    }
    Ok(pages)
}

/// Chunks that nothing may reference any more.
struct Candidates<'a> {
    /// The disk's own table: it lists every container that a recipe references.
    listed: &'a Containers,
    chunks: BTreeMap<ContainerId, RunSet>,
    /// About what they take in memory.
    bytes: usize,
}

impl Candidates<'_> {
    fn add(&mut self, summary: Summary) -> Result<()> {
        self.bytes += summary.memory_bytes();
        for (id, chunks) in summary.containers {
            let most = match self.listed.get(id)? {
                None => continue,
                Some(e) if id.is_own() => u64::from(e.chunks).min(Table::CHUNKS_MAX),
                Some(_) => Table::CHUNKS_MAX,
            };
            // A summary that names more chunks than there are is damaged: it costs space, not data.
            if chunks.len() <= most {
                let known = self.chunks.entry(id).or_default();
                *known = known.union(&chunks);
            }
        }
        Ok(())
    }

    /// Takes out what pages reference. Returns the containers of candidates that they reference.
    fn without_kept(&mut self, folder: &Folder, kept: &[RecipePageRef]) -> Result<HashSet<ContainerId>> {
        let mut referenced = HashSet::new();
        for page in kept {
            if self.chunks.is_empty() {
                break;
            }
            // A snapshot that stays and cannot be read may reference anything: nothing is released then.
            for (id, live) in summary_of(folder, page)?.containers {
                let Some(c) = self.chunks.get_mut(&id) else { continue };
                referenced.insert(id);
                *c = c.minus(&live);
                if c.is_empty() {
                    self.chunks.remove(&id);
                }
            }
        }
        Ok(referenced)
    }

    /// Takes out what filters have, and containers of other owners, of which they say nothing.
    fn without_filtered(&mut self, filters: &Merged) {
        self.chunks.retain(|id, chunks| {
            *chunks = filters.without_what_is_in(*id, chunks);
            id.is_own() && !chunks.is_empty()
        });
    }
}
