//! Checks recipes: roots, pages, summaries, and that every reference leads to the right chunks.

use crate::base::error::{fault, Result};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::container::view::View;
use crate::lookup::referrers;
use crate::manifest::container_table::Containers;
use crate::recipe::cache::RecipeCache;
use crate::recipe::filters;
use crate::recipe::indirect::segment_of;
use crate::recipe::stored::{read_summary, recipe_of, summary_of};
use crate::recipe::writer::recipes_of;
use crate::verify::checks::descent::{descend, end_of_chain, Level, Resolved};
use crate::verify::checks::segments::SegmentCheck;
use crate::verify::findings::affected::{Affected, SnapshotIndex};
use crate::verify::findings::bad_chunks::ObjectNo;
use crate::verify::findings::containers::ContainerFindings;
use format::{
    names, ContainerId, OwnerNo, PageAt, PageNo, RecipeName, RecipePage, RecipePageRef, RecipeRoot,
    Reference, SegmentRecipe, SnapshotEntry, Summary, WriterNo,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Memory for the containers referenced, in bytes.
const REFERENCED_BYTES: usize = 8 << 20;
/// Owners and writers that are remembered.
const RECORDED_MAX: usize = 1 << 18;

/// Pages that cannot be restored, and the object that is to blame.
pub(crate) type BadPages = HashMap<RecipePageRef, ObjectNo>;

/// What was found in the recipes of a disk.
#[derive(Default)]
pub(crate) struct RecipeFindings {
    pub bad_pages: BadPages,
    /// Objects and the snapshots that cannot be restored because of them, as far as that is known without comparing
    /// summaries.
    pub affected: Affected<ObjectNo>,
    /// Objects looked at.
    pub objects: u64,
}

/// The next newer snapshot where it was looked at, and the objects to blame for its traced pages, by page.
struct Newer<'a> {
    level: Option<&'a Level>,
    bad: HashMap<PageNo, ObjectNo>,
}

/// Looks at the recipes of one disk, snapshot by snapshot.
pub(crate) struct RecipeCheck<'a> {
    view: &'a View,
    found: &'a mut ContainerFindings,
    bad_pages: BadPages,
    /// The containers referenced that were not looked at.
    referenced: ContainerSet,
    /// Looks at containers: they are not remembered where they are too many.
    look: &'a mut LookAt<'a>,
    objects: BTreeSet<RecipeName>,
    roots: u64,
    /// The disk's own list of containers: says which shared ones it may reference.
    listed: Containers,
    segments: SegmentCheck<'a>,
    /// Objects and the snapshots that cannot be restored because of them.
    affected: Affected<ObjectNo>,
    /// Owners and writers whose referrer records were looked for.
    recorded: BTreeSet<(OwnerNo, WriterNo)>,
}

/// Looks at containers of the disk, or that it references.
pub(crate) type LookAt<'a> = dyn FnMut(&ContainerSet, &mut ContainerFindings) -> Result<()> + 'a;

impl<'a> RecipeCheck<'a> {
    /// Checks the recipes of a disk. The containers referenced are given to `look`, which is called with many at once.
    pub fn new(view: &'a View, found: &'a mut ContainerFindings, look: &'a mut LookAt<'a>) -> Self {
        RecipeCheck {
            view,
            found,
            bad_pages: BadPages::new(),
            referenced: ContainerSet::default(),
            look,
            objects: BTreeSet::new(),
            roots: 0,
            listed: Containers::new(view.folder.clone(), &view.manifest),
            segments: SegmentCheck::new(&view.tables),
            affected: Affected::default(),
            recorded: BTreeSet::new(),
        }
    }

    /// What was found, once all containers referenced were looked at.
    pub fn finish(mut self) -> Result<RecipeFindings> {
        self.look_at_referenced()?;
        Ok(RecipeFindings {
            bad_pages: self.bad_pages,
            affected: self.affected,
            objects: self.roots + self.objects.len() as u64,
        })
    }

    fn look_at_referenced(&mut self) -> Result<()> {
        (self.look)(&std::mem::take(&mut self.referenced), &mut *self.found)
    }

    /// Looks at snapshots. Each is looked at as far as it is not as the next newer one.
    pub fn snapshots(&mut self, wanted: &BTreeSet<SnapshotIndex>, progress: &Progress) -> Result<()> {
        let (Some(&oldest), Some(&newest)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let (view, cache) = (self.view, RecipeCache::default());
        let top = end_of_chain(&view.whole()?.snapshots, newest);
        // Whether the snapshot before was looked at, and what was wrong with its traced pages.
        let (mut newer_checked, mut newer_bad) = (false, HashMap::new());
        descend(view, &cache, (top, oldest), &mut |step| {
            progress.check()?;
            let checked = std::mem::take(&mut newer_checked);
            let bad = std::mem::take(&mut newer_bad);
            if !wanted.contains(&step.no) {
                return Ok(());
            }
            self.roots += u64::from(step.is_first_band);
            let level = match step.level {
                Ok(level) => level,
                Err((object, why)) => {
                    let object = self.found.found.add(object, why);
                    self.affected.add(object, step.no);
                    return Ok(());
                }
            };
            if step.is_first_band {
                self.check_depends(step.entry, &level.root);
                self.check_filter(step.entry, &level.root)?;
            }
            let newer = Newer { level: step.newer.filter(|_| checked), bad };
            newer_bad = self.pages(&cache, step.no, level, &newer)?;
            newer_checked = true;
            Ok(())
        })
    }

    /// Looks at the pages of a snapshot. Returns what is wrong with those that are traced.
    fn pages(
        &mut self,
        cache: &RecipeCache,
        no: SnapshotIndex,
        level: &Level,
        newer: &Newer<'_>,
    ) -> Result<HashMap<PageNo, ObjectNo>> {
        let mut bad = HashMap::new();
        for at in level.page_numbers() {
            let before = newer.level.filter(|n| n.is_cut_like(level, at)).map(|n| n.page(at));
            match (level.page(at), before) {
                (Resolved::Null, _) => {}
                (Resolved::Lost(fault), _) => {
                    let object = self.found.found.add(&fault.0, &fault.1);
                    self.affected.add(object, no);
                }
                (Resolved::Direct(here), Some(Resolved::Direct(there))) if here == there => {}
                (Resolved::Direct(here), _) => {
                    if !self.bad_pages.contains_key(here) {
                        self.page(cache, &level.root, at, here)?;
                    }
                }
                (Resolved::Traced { at: here, page }, before) => {
                    self.own_page(cache, level, at)?;
                    let object = match before {
                        Some(Resolved::Traced { page: same, .. }) if Arc::ptr_eq(page, same) => {
                            newer.bad.get(&at).copied()
                        }
                        _ => self.traced_page(cache, &level.root, at, (here, page), newer)?,
                    };
                    if let Some(object) = object {
                        self.affected.add(object, no);
                        bad.insert(at, object);
                    }
                }
            }
        }
        Ok(bad)
    }

    /// Looks at a page of the snapshot's own recipe some of whose references lead through newer snapshots.
    fn own_page(&mut self, cache: &RecipeCache, level: &Level, no: PageNo) -> Result<()> {
        let PageAt::Page(own) = level.root.pages[no.0 as usize] else { return Ok(()) };
        self.objects.insert(own.recipe);
        let object = names::recipe_pages(&self.view.folder.path, own.recipe);
        let of_page = Summary::of(&*cache.page(&self.view.folder, &own)?);
        self.check_summary(&own, &object, &of_page)
    }

    /// Looks at what a page leads to, as far as the next newer snapshot has not the same at the same place. Returns the
    /// object to blame if something is wrong.
    fn traced_page(
        &mut self,
        cache: &RecipeCache,
        root: &RecipeRoot,
        no: PageNo,
        (at, page): (&RecipePageRef, &RecipePage),
        newer: &Newer<'_>,
    ) -> Result<Option<ObjectNo>> {
        let sound = match newer.level.map(|n| n.page(no)) {
            Some(Resolved::Traced { page, .. }) if !newer.bad.contains_key(&no) => Some(page.clone()),
            Some(Resolved::Direct(at)) if !self.bad_pages.contains_key(at) => {
                cache.page(&self.view.folder, at).ok()
            }
            _ => None,
        };
        let is_there = |(n, s): &&(u16, SegmentRecipe)| {
            sound.as_ref().and_then(|p| segment_of(p, PageNo(0).segment(*n))) == Some(s)
        };
        let fresh: Vec<&(u16, SegmentRecipe)> = page.segments.iter().filter(|s| !is_there(s)).collect();
        self.check_referenced(&fresh)?;
        let why = self.segments.check(root, no, &fresh)?;
        let object = names::recipe_pages(&self.view.folder.path, at.recipe);
        Ok(why.map(|why| self.found.found.add(&object, &why)))
    }

    /// The manifest must say whose pages the recipe uses, or they would be deleted with their own snapshot.
    fn check_depends(&mut self, s: &SnapshotEntry, root: &RecipeRoot) {
        let used = recipes_of(root);
        let listed: HashSet<&RecipeName> = s.depends.iter().collect();
        if let Some(r) = used.iter().find(|r| !listed.contains(r)) {
            let root = names::recipe_root(&self.view.folder.path, recipe_of(s));
            let why = format!(
                "uses pages of recipe {}.{}, which the manifest does not say",
                r.snap, r.generation.0
            );
            self.found.found.add(&root, &why);
        }
    }

    /// A damaged filter keeps nothing from being restored; one that lacks what its snapshot references would let
    /// deletion take that.
    fn check_filter(&mut self, s: &SnapshotEntry, root: &RecipeRoot) -> Result<()> {
        let folder = &self.view.folder;
        let filter = self.found.found.tell(filters::read(folder, s), "; deletion goes without it")?;
        let Some(filter) = filter.flatten() else { return Ok(()) };
        for at in root.pages.iter().filter_map(|p| p.page()) {
            // What cannot be read is told of elsewhere.
            let Ok(summary) = summary_of(folder, &at) else { continue };
            let own = summary.containers.iter().filter(|(id, _)| id.is_own());
            for (id, chunks) in own {
                if let Some(no) = filters::numbers(chunks).find(|no| !filter.may_have(*id, *no)) {
                    let object = names::bloom(&folder.path, recipe_of(s));
                    let why = format!("lacks chunk {} of container {id}, which {} references", no.0, s.id);
                    self.found.found.add(&object, &why);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn page(&mut self, cache: &RecipeCache, root: &RecipeRoot, no: PageNo, at: &RecipePageRef) -> Result<()> {
        self.objects.insert(at.recipe);
        let folder = &self.view.folder;
        let object = names::recipe_pages(&folder.path, at.recipe);
        let page = match cache.page(folder, at) {
            Ok(page) => page,
            Err(e) => {
                let (object, why) = fault(e)?;
                let whole = why == "is missing";
                let why = if whole { why } else { format!("the page at offset {}: {why}", at.offset) };
                let object = self.found.found.add(&object, &why);
                self.bad_pages.insert(*at, object);
                return Ok(());
            }
        };
        self.check_summary(at, &object, &Summary::of(&page))?;
        let segments: Vec<&(u16, SegmentRecipe)> = page.segments.iter().collect();
        self.check_referenced(&segments)?;
        if let Some(id) = later_container(at, &segments) {
            let why = format!(
                "references container {id} of a later writer; restores work, deletions may damage it"
            );
            self.found.found.add(&object, &why);
        }
        if let Some(why) = self.segments.check(root, no, &segments)? {
            let object = self.found.found.add(&object, &why);
            self.bad_pages.insert(*at, object);
        }
        Ok(())
    }

    /// A damaged summary keeps nothing from being restored.
    fn check_summary(&mut self, at: &RecipePageRef, object: &str, of_page: &Summary) -> Result<()> {
        let why = match read_summary(&self.view.folder, at) {
            Ok(summary) if summary == *of_page => return Ok(()),
            Ok(_) => "does not say what its page references".into(),
            Err(e) => fault(e)?.1,
        };
        let place = at.offset.saturating_add(u64::from(at.page_len));
        let why = format!(
            "the summary at offset {place}: {why}; restores do not need it, deletion reads the page instead"
        );
        self.found.found.add(object, &why);
        Ok(())
    }

    /// Notes the containers that segments reference. Those of other owners that the disk's own table does not name would be taken
    /// for unused.
    fn check_referenced(&mut self, segments: &[&(u16, SegmentRecipe)]) -> Result<()> {
        segments.iter().try_for_each(|(_, s)| self.check_containers(s))
    }

    fn check_containers(&mut self, segment: &SegmentRecipe) -> Result<()> {
        let mut fresh = BTreeSet::new();
        for r in &segment.references {
            if let Reference::Direct { container, .. } = r {
                if self.referenced.insert(*container) {
                    fresh.insert(*container);
                }
            }
        }
        for id in fresh.into_iter().filter(|id| !id.is_own()) {
            // A page of the table that cannot be read has been told of.
            if let Ok(None) = self.listed.get(id) {
                let why =
                    format!("does not list container {id} of another owner, which a snapshot references");
                self.found.found.add(&self.view.folder.manifest_name(), &why);
            }
            if self.recorded.len() >= RECORDED_MAX {
                self.recorded.clear();
            }
            if self.recorded.insert((id.owner(), id.writer())) {
                self.check_recorded(id)?;
            }
        }
        if self.referenced.memory_bytes() >= REFERENCED_BYTES {
            self.look_at_referenced()?;
        }
        Ok(())
    }

    /// Without a referrer record, the owner of a container would remove what the disk references.
    fn check_recorded(&mut self, id: ContainerId) -> Result<()> {
        let (disk, owner) = (&self.view.folder, self.view.tables.folder_of(id));
        // Where the owner is gone there is no use for it. A disk that has given these containers up since has its record removed.
        if !referrers::is_recorded(&owner, id.writer(), disk.disk)?
            && self.view.tables.other(id.owner()).is_ok()
            && disk.load()?.sequence == self.view.manifest.sequence
        {
            let object = names::referrer(&owner.path, id.writer(), disk.disk);
            let why = "is missing: deletions in its folder may remove what this disk needs; `sapwood gc` puts it back";
            self.found.found.add(&object, why);
        }
        Ok(())
    }
}

/// A container of the disk itself that was made after the page was written. Deletion takes it that there is none.
fn later_container(at: &RecipePageRef, segments: &[&(u16, SegmentRecipe)]) -> Option<ContainerId> {
    let references = segments.iter().flat_map(|(_, s)| &s.references);
    references.into_iter().find_map(|r| match r {
        Reference::Direct { container, .. } => {
            Some(*container).filter(|id| id.is_own() && id.writer() > at.recipe.generation)
        }
        _ => None,
    })
}
