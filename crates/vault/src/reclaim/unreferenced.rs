//! Finds the chunks that no snapshot of the disk will reference after a change.

use crate::base::error::{Result, UnlessDamaged};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::snapshots::known::Known;
use crate::recipe::filters;
use crate::recipe::filters::Merged;
use crate::recipe::reference_index::Part;
use crate::recipe::stored::{read_root, recipe_of, summary_of};
use crate::reclaim::change::{Change, Rewritten};
use format::{
    ContainerId, IndexRef, Indexed, RecipeName, RecipePageRef, RunSet, SnapId, SnapshotEntry, Summary, Table,
    WriterNo,
};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Memory for chunks that may be dead, in bytes, but for one page with more.
const CANDIDATE_BYTES: usize = 32 << 20;

/// What becomes unreferenced.
#[derive(Default)]
pub(crate) struct Dead {
    /// Chunks of the disk's own containers.
    pub chunks: BTreeMap<ContainerId, RunSet>,
    /// Containers of other owners some of whose chunks the disk no longer references, and how many; other disks may.
    pub shared: BTreeMap<ContainerId, u64>,
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

/// Step 2. Pages that a neighbour shares are not even candidates. Of remaining snapshots that have filters, these are read
/// in place of the summaries.
///
/// Recipes of remaining snapshots are read, those first that were written anew, then newest first, as long as there are
/// candidates that they may reference: a recipe references no container that a later writer made. Of recipes in the
/// reference index, that is read instead. Each page's summary is read once, where what is lost fits into memory; otherwise
/// once for each part of it.
///
/// Where only the newest snapshots are known and an older one may reference a candidate, the older ones are read, and all is
/// done again.
pub(crate) fn find_dead(folder: &Folder, m: Known<'_>, change: &Change) -> Result<Dead> {
    let (dead, certainty) = find(folder, m, change)?;
    if certainty == Certainty::Certain {
        return Ok(dead);
    }
    let whole = folder.whole(Arc::new(m.root().clone()))?;
    Ok(find(folder, Known::all(&whole), change)?.0)
}

/// Whether it is known what older snapshots reference, of which only the reference index was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    Certain,
    /// One may reference what was asked for, or may be no more.
    Open,
}

fn find(folder: &Folder, m: Known<'_>, change: &Change) -> Result<(Dead, Certainty)> {
    let mut kept = RemainingRecipes::new(folder, m, change)?;
    let lost = lost_pages(folder, m, change, &mut kept)?;
    let listed = Containers::new(folder.clone(), m.root());
    let is_exact = kept.filters.is_empty();
    let mut dead = Dead::default();
    let mut lost = lost.iter().peekable();
    while lost.peek().is_some() {
        let mut candidates = Candidates::new(&listed);
        while let Some((page, must_read)) = lost.next_if(|_| candidates.bytes < CANDIDATE_BYTES) {
            match summary_of(folder, page) {
                // What cannot be read stays: it costs space, not data.
                Err(e) if e.is_damage() && !must_read => {}
                other => candidates.add(other?)?,
            }
        }
        let referenced = candidates.without_kept(&mut kept)?;
        if candidates.certainty == Certainty::Open {
            return Ok((dead, Certainty::Open));
        }
        if !is_exact {
            candidates.without_filtered(&kept.filters);
        }
        for (id, chunks) in candidates.chunks {
            if id.is_own() {
                let known = dead.chunks.entry(id).or_default();
                *known = known.union(&chunks);
                continue;
            }
            *dead.shared.entry(id).or_default() += chunks.len();
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
        let goes = change.to_delete.contains(&s.id) || change.rewritten.iter().any(|r| r.id == s.id);
        goes && filters::has_filter(s)
    };
    dead.filters = filters::existing(folder, m.snapshots.iter().filter(is_gone).map(recipe_of))?;
    Ok((dead, Certainty::Certain))
}

/// Pages that snapshots lose, and whether they must be readable.
fn lost_pages(
    folder: &Folder,
    m: Known<'_>,
    change: &Change,
    kept: &mut RemainingRecipes<'_>,
) -> Result<Vec<(RecipePageRef, bool)>> {
    let unreferenced = change.rewritten.iter().flat_map(|r| &r.unreferenced);
    let mut lost: Vec<(RecipePageRef, bool)> = unreferenced.map(|p| (*p, true)).collect();
    for s in m.snapshots.iter().filter(|s| change.to_delete.contains(&s.id)) {
        // What a recipe that cannot be read references stays: it costs space, not data.
        let Some(root) = read_root(folder, s).unless_damaged()? else { continue };
        lost.extend(root.pages.iter().filter_map(|p| p.page()).map(|p| (p, false)));
    }
    kept.read_neighbours(m, change)?;
    lost.retain(|(p, _)| kept.seen.insert(*p));
    // They are only lost if no other snapshot has them: these must be looked at.
    for (page, _) in &lost {
        kept.seen.remove(page);
    }
    Ok(lost)
}

/// The recipes of the snapshots that stay, read as far as they are needed.
struct RemainingRecipes<'a> {
    folder: &'a Folder,
    known: Known<'a>,
    /// Snapshots of which it is known whether they stay, and with which recipe.
    told: HashSet<SnapId>,
    /// Newest first: it holds most of what is wanted. Without those that have filters.
    recipes: Vec<RemainingRecipe<'a>>,
    /// Pages of those that were read, and of those with filters.
    seen: HashSet<RecipePageRef>,
    /// The filters of the others.
    filters: Merged,
    /// The parts of the reference index that were needed; `None` where one cannot be opened.
    index: HashMap<IndexRef, Option<Part>>,
}

/// The recipe of a snapshot that stays.
struct RemainingRecipe<'a> {
    snapshot: &'a SnapshotEntry,
    /// Where it was written anew.
    rewritten: Option<&'a Rewritten>,
    /// The pages that no recipe read before has.
    pages: Option<Vec<RecipePageRef>>,
}

impl RemainingRecipe<'_> {
    /// Who wrote it: nothing in it is of a later writer of the disk.
    fn generation(&self) -> WriterNo {
        self.rewritten.map_or(self.snapshot.generation, |r| r.generation)
    }

    /// Its name, if the reference index may have it.
    fn indexed(&self) -> Option<RecipeName> {
        (self.snapshot.indexed != Indexed::No && self.rewritten.is_none()).then(|| recipe_of(self.snapshot))
    }
}

impl<'a> RemainingRecipes<'a> {
    fn new(folder: &'a Folder, m: Known<'a>, change: &'a Change) -> Result<RemainingRecipes<'a>> {
        let mut kept = RemainingRecipes {
            folder,
            known: m,
            told: m.ids(),
            recipes: Vec::new(),
            seen: HashSet::new(),
            filters: Merged::default(),
            index: HashMap::new(),
        };
        for s in m.told().rev().filter(|s| !change.to_delete.contains(&s.id)) {
            let rewritten = change.rewritten.iter().find(|r| r.id == s.id);
            // Only deletion goes by filters, which are of recipes as they were.
            let may_have_one = !change.to_delete.is_empty() && rewritten.is_none() && filters::has_filter(s);
            if may_have_one && kept.filters.add(folder, s)? {
                kept.seen.extend(read_root(folder, s)?.pages.iter().filter_map(|p| p.page()));
            } else {
                kept.recipes.push(RemainingRecipe { snapshot: s, rewritten, pages: None });
            }
        }
        Ok(kept)
    }

    /// Reads the recipes that most likely share pages with those that change: the ones beside them.
    fn read_neighbours(&mut self, m: Known<'_>, change: &Change) -> Result<()> {
        let near = near_changes(m.snapshots, change);
        for n in 0..self.recipes.len() {
            if near.contains(&self.recipes[n].snapshot.id) {
                self.read(n)?;
            }
        }
        Ok(())
    }

    /// A part of the reference index, if it can be opened.
    fn part(&mut self, at: IndexRef) -> Result<Option<&Part>> {
        Ok(match self.index.entry(at) {
            Entry::Occupied(known) => known.into_mut().as_ref(),
            Entry::Vacant(new) => new.insert(Part::open(self.folder, &at).unless_damaged()?).as_ref(),
        })
    }

    /// The pages of a recipe that none read before has.
    fn read(&mut self, n: usize) -> Result<&[RecipePageRef]> {
        let RemainingRecipe { snapshot, rewritten, pages } = &mut self.recipes[n];
        let pages = match pages {
            Some(pages) => pages,
            none => {
                let read;
                let root = match rewritten {
                    Some(r) => &r.root,
                    None => {
                        read = read_root(self.folder, snapshot)?;
                        &read
                    }
                };
                let of_root = root.pages.iter().filter_map(|p| p.page());
                none.insert(of_root.filter(|p| self.seen.insert(*p)).collect())
            }
        };
        Ok(pages)
    }
}

/// Snapshots that change, and beside each the next older and the next newer one that stays.
fn near_changes(snapshots: &[SnapshotEntry], change: &Change) -> HashSet<SnapId> {
    let rewritten: HashSet<SnapId> = change.rewritten.iter().map(|r| r.id).collect();
    let mut near = HashSet::new();
    let mut pass = |all: &mut dyn Iterator<Item = &SnapshotEntry>| {
        let mut last_that_stays = None;
        for s in all {
            let goes = change.to_delete.contains(&s.id);
            if goes || rewritten.contains(&s.id) {
                near.insert(s.id);
                near.extend(last_that_stays);
            }
            if !goes {
                last_that_stays = Some(s.id);
            }
        }
    };
    pass(&mut snapshots.iter());
    pass(&mut snapshots.iter().rev());
    near
}

/// What the reference index says of what a recipe references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// The recipe stays: it counts.
    ItStays,
    /// The recipe is of an older snapshot, which was not read.
    ItMayStay,
    /// The recipe is no more.
    Nothing,
}

/// Chunks that nothing may reference any more.
struct Candidates<'a> {
    /// The disk's own table: it lists every container that a recipe references.
    listed: &'a Containers,
    chunks: BTreeMap<ContainerId, RunSet>,
    /// About what they take in memory.
    bytes: usize,
    certainty: Certainty,
}

impl<'a> Candidates<'a> {
    fn new(listed: &'a Containers) -> Candidates<'a> {
        Candidates { listed, chunks: BTreeMap::new(), bytes: 0, certainty: Certainty::Certain }
    }

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

    /// The writer before which no recipe can reference any of them: other owners count their writers by themselves.
    /// `None`: there are none.
    fn oldest_writer(&self) -> Option<WriterNo> {
        // Ids are in order of owners, the disk itself first, and then of writers.
        let (first, last) = (self.chunks.keys().next()?, self.chunks.keys().next_back()?);
        Some(if last.is_own() { first.writer() } else { WriterNo::BEFORE_ALL })
    }

    /// Takes out what recipes reference. Returns the containers of candidates that they reference.
    fn without_kept(&mut self, kept: &mut RemainingRecipes<'_>) -> Result<HashSet<ContainerId>> {
        let mut referenced = HashSet::new();
        let (indexed, mut others): (Vec<usize>, Vec<usize>) =
            (0..kept.recipes.len()).partition(|n| kept.recipes[*n].indexed().is_some());
        // What was written anew is in memory, and mostly has what the old recipe loses.
        others.sort_by_key(|n| kept.recipes[*n].rewritten.is_none());
        for n in others {
            self.without_recipe(kept, n, &mut referenced)?;
        }
        let names: HashSet<RecipeName> = indexed.iter().filter_map(|n| kept.recipes[*n].indexed()).collect();
        let mut done = HashSet::new();
        let known = kept.known;
        let told = std::mem::take(&mut kept.told);
        let says = |r: &RecipeName| match names.contains(r) {
            true => Says::ItStays,
            false if known.is_whole || told.contains(&r.snap) => Says::Nothing,
            false => Says::ItMayStay,
        };
        for at in &known.root().references {
            // Recipes in a part are not of later writers than the part.
            let may_tell = self.oldest_writer().is_some_and(|oldest| at.writer >= oldest);
            if (names.is_empty() && known.is_whole) || !may_tell {
                continue;
            }
            // The recipes of a damaged part are read one by one, which all must be known for.
            let read = match kept.part(*at)? {
                Some(part) => {
                    self.without_part(part, &says, &mut referenced).unless_damaged()?.map(|()| part)
                }
                None => None,
            };
            match read {
                Some(part) => done.extend(part.footer.recipes.iter().copied()),
                None if known.is_whole => {}
                None => self.certainty = Certainty::Open,
            }
        }
        kept.told = told;
        for n in indexed {
            if kept.recipes[n].indexed().is_some_and(|name| !done.contains(&name)) {
                self.without_recipe(kept, n, &mut referenced)?;
            }
        }
        Ok(referenced)
    }

    /// Takes out what one recipe references.
    fn without_recipe(
        &mut self,
        kept: &mut RemainingRecipes<'_>,
        n: usize,
        referenced: &mut HashSet<ContainerId>,
    ) -> Result<()> {
        if self.oldest_writer().is_none_or(|oldest| kept.recipes[n].generation() < oldest) {
            return Ok(());
        }
        let folder = kept.folder;
        for page in kept.read(n)? {
            // It may be older than the recipe.
            if self.oldest_writer().is_none_or(|oldest| page.recipe.generation < oldest) {
                continue;
            }
            // A snapshot that stays and cannot be read may reference anything: nothing is released then.
            for (id, live) in &summary_of(folder, page)?.containers {
                self.without(*id, live, referenced);
            }
        }
        Ok(())
    }

    /// Takes out what a part of the reference index says of these recipes.
    fn without_part(
        &mut self,
        part: &Part,
        says: &dyn Fn(&RecipeName) -> Says,
        referenced: &mut HashSet<ContainerId>,
    ) -> Result<()> {
        let Some(oldest) = self.oldest_writer() else { return Ok(()) };
        let of = |r: &RecipeName| if r.generation >= oldest { says(r) } else { Says::Nothing };
        let of: Vec<Says> = part.footer.recipes.iter().map(of).collect();
        if of.iter().all(|says| *says == Says::Nothing) {
            return Ok(());
        }
        let wanted: Vec<ContainerId> = self.chunks.keys().copied().collect();
        part.each_of(wanted.iter(), &mut |entry| match of[entry.recipe as usize] {
            Says::ItStays => self.without(entry.container, &entry.chunks, referenced),
            Says::ItMayStay => self.ask(entry.container, &entry.chunks),
            Says::Nothing => {}
        })
    }

    /// Notes that chunks may be referenced by a recipe of which it is not known whether it stays.
    fn ask(&mut self, id: ContainerId, chunks: &RunSet) {
        // Of a container of another owner it matters whether anything of it is referenced.
        let matters = |c: &RunSet| !id.is_own() || c.minus(chunks) != *c;
        if self.chunks.get(&id).is_some_and(matters) {
            self.certainty = Certainty::Open;
        }
    }

    /// Takes out what is referenced of a container.
    fn without(&mut self, id: ContainerId, live: &RunSet, referenced: &mut HashSet<ContainerId>) {
        let Some(c) = self.chunks.get_mut(&id) else { return };
        referenced.insert(id);
        *c = c.minus(live);
        if c.is_empty() {
            self.chunks.remove(&id);
        }
    }

    /// Takes out what filters have, and containers of other owners, of which they say nothing.
    fn without_filtered(&mut self, filters: &Merged) {
        self.chunks.retain(|id, chunks| {
            *chunks = filters.without_what_is_in(*id, chunks);
            id.is_own() && !chunks.is_empty()
        });
    }
}
