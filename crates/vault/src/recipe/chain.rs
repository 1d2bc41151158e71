//! Chains of indirect references: a recipe is read as if all its references were direct (RevDedup 3.2.2, 3.3).
//!
//! References are resolved one page and one snapshot at a time ([`super::indirect`]). A page that is the same as in the newer recipe is
//! not decoded on the way.

use crate::base::error::{Result, VaultError};
use crate::manifest::folder::Folder;
use crate::recipe::cache::{CachedPage, ReaderNo, RecipeCache, ROOTS_BYTES};
use crate::recipe::indirect::{resolve, segment_of, Place};
use crate::recipe::stored::{read_root, recipe_of, summary_of};
use format::{
    names, PageAt, PageNo, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reverse, SegmentNo,
    SegmentRecipe, SnapshotEntry, Summary,
};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Recipes of a chain that are read at once.
const AHEAD: usize = 16;

/// Bytes of their pages as stored: they must fit into the cache, decoded.
const AHEAD_BYTES: u64 = 1 << 20;

/// Pages that are looked for at once.
const BAND_PAGES: u64 = 1 << 16;

/// Reads a snapshot's recipe. The pages read last stay in its cache.
pub(crate) struct RecipeReader {
    folder: Folder,
    pub root: RecipeRoot,
    recipe: Link,
    /// The newer snapshots that its references may lead through, nearest first.
    newer: Arc<[Link]>,
    cache: RecipeCache,
    no: ReaderNo,
    /// Where pages stand that newer recipes have.
    band: Option<Band>,
}

/// Where some consecutive pages stand that newer recipes have. `None`: it was not found out.
struct Band {
    first: PageNo,
    places: Vec<Option<PagePlace>>,
}

/// A recipe in a chain.
#[derive(Clone, Copy)]
struct Link {
    name: RecipeName,
    /// Size of the disk.
    size: u64,
    /// Whether its references may lead through the next newer one.
    is_reversed: bool,
}

impl Link {
    fn of(s: &SnapshotEntry) -> Link {
        Link { name: recipe_of(s), size: s.size, is_reversed: s.reverse == Reverse::Done }
    }
}

/// The first recipe from a reader's own on that has a page, and where; `None`: the page is null.
type PagePlace = Option<(u32, RecipePageRef)>;

/// A page of a recipe after some newer recipes are deleted.
pub(crate) enum Unlinked {
    /// An existing page.
    At(PageAt),
    /// A page that must be written.
    Fresh(RecipePage),
}

impl RecipeReader {
    /// Reads the root of a snapshot's recipe. `snapshots` are this one and at least all newer ones.
    pub fn open(folder: &Folder, snapshots: &[SnapshotEntry], s: &SnapshotEntry) -> Result<Self> {
        Self::open_with(&RecipeCache::default(), folder, snapshots, s)
    }

    /// The same, with what other readers of the disk's recipes have read.
    pub fn open_with(
        cache: &RecipeCache,
        folder: &Folder,
        snapshots: &[SnapshotEntry],
        s: &SnapshotEntry,
    ) -> Result<Self> {
        let behind = snapshots.iter().position(|e| e.id == s.id).map_or(snapshots.len(), |n| n + 1);
        let recipe = Link::of(s);
        let mut newer: Vec<Link> = Vec::new();
        for next in &snapshots[behind..] {
            if !newer.last().unwrap_or(&recipe).is_reversed {
                break;
            }
            newer.push(Link::of(next));
        }
        Ok(RecipeReader {
            folder: folder.clone(),
            root: read_root(folder, s)?,
            recipe,
            newer: newer.into(),
            cache: cache.clone(),
            no: cache.reader(),
            band: None,
        })
    }

    /// The folder of its disk.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Another reader of the same recipe, which shares what is read.
    pub fn again(&self) -> Self {
        RecipeReader {
            folder: self.folder.clone(),
            root: self.root.clone(),
            recipe: self.recipe,
            newer: self.newer.clone(),
            cache: self.cache.clone(),
            no: self.cache.reader(),
            band: None,
        }
    }

    /// Forgets pages that take more memory than they usually do: who has planned by them needs it for something else.
    pub fn forget_large(&self) {
        self.cache.forget_large();
    }

    /// Memory that it takes beside its cache, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let band = self.root.pages.len().min(BAND_PAGES as usize) * size_of::<Option<PagePlace>>();
        self.root.pages.len() * size_of::<PageAt>() + band + size_of_val(&*self.newer)
    }

    /// A page with direct references only; `None` where all its segments are null.
    pub fn page(&mut self, no: PageNo) -> Result<Option<Arc<RecipePage>>> {
        if let Some(page) = self.cache.resolved(self.no, no) {
            return Ok(Some(page));
        }
        let Some((level, at)) = self.find(no)? else { return Ok(None) };
        let CachedPage { page, has_indirect } = self.cache.stored_to_resolve(&self.folder, &at)?;
        if !has_indirect {
            return Ok(Some(page));
        }
        let page = Arc::new(match Arc::try_unwrap(page) {
            Ok(page) => self.trace(level, usize::MAX, &at, Cow::Owned(page))?,
            Err(shared) => self.trace(level, usize::MAX, &at, Cow::Borrowed(&shared))?,
        });
        self.cache.keep_resolved(self.no, no, &page);
        Ok(Some(page))
    }

    /// The numbers of the pages that are not null here.
    pub fn page_numbers(&self) -> Vec<PageNo> {
        let there = self.root.pages.iter().enumerate().filter(|(_, p)| **p != PageAt::Null);
        there.map(|(no, _)| PageNo(no as u64)).collect()
    }

    /// A segment; `None` where it is null.
    pub fn segment(&mut self, no: SegmentNo) -> Result<Option<SegmentRecipe>> {
        let Some(page) = self.page(no.page())? else { return Ok(None) };
        Ok(segment_of(&page, no).cloned())
    }

    /// The first segment from `no` on that is not null.
    pub fn next_segment(&mut self, no: SegmentNo) -> Result<Option<SegmentNo>> {
        let pages = PageNo(self.root.pages.len() as u64);
        let mut page_no = no.page();
        while page_no < pages {
            if let Some(page) = self.page(page_no)? {
                let at = page.segments.partition_point(|s| page_no.segment(s.0) < no);
                if let Some((index, _)) = page.segments.get(at) {
                    return Ok(Some(page_no.segment(*index)));
                }
            }
            page_no = page_no.next();
        }
        Ok(None)
    }

    /// Where a page stands whose references are all direct.
    pub fn direct_page(&mut self, no: PageNo) -> Result<Option<RecipePageRef>> {
        let Some((level, at)) = self.find(no)? else { return Ok(None) };
        let direct = !self.is_traced(level) || !self.cache.stored(&self.folder, &at)?.has_indirect;
        Ok(direct.then_some(at))
    }

    /// What a page references in the end, directly or through newer snapshots.
    pub fn summary(&mut self, no: PageNo) -> Result<Summary> {
        match self.direct_page(no)? {
            Some(at) => summary_of(&self.folder, &at),
            None => Ok(self.page(no)?.map_or_else(Summary::default, |p| Summary::of(&p))),
        }
    }

    /// The object that a page stands in.
    pub fn pages_object(&mut self, no: PageNo) -> String {
        let at = self.find(no).ok().flatten();
        at.map(|(_, p)| names::recipe_pages(&self.folder.path, p.recipe)).unwrap_or_default()
    }

    /// Page `no` as it must be after the `gone` next newer recipes are deleted: references through them are traced to the
    /// snapshot after those.
    pub fn unlink(&mut self, no: PageNo, gone: usize) -> Result<Unlinked> {
        let mut level = 0;
        let at = loop {
            match self.slot(level, no)? {
                PageAt::Newer if level < gone => level += 1,
                PageAt::Page(at) => break at,
                other => return Ok(Unlinked::At(other)),
            }
        };
        if level == gone || !self.is_traced(level) {
            return Ok(Unlinked::At(PageAt::Page(at)));
        }
        let CachedPage { page, has_indirect } = self.cache.stored(&self.folder, &at)?;
        if !has_indirect {
            return Ok(Unlinked::At(PageAt::Page(at)));
        }
        Ok(Unlinked::Fresh(self.trace(level, gone, &at, Cow::Borrowed(&page))?))
    }

    /// Whether references of a level may be indirect.
    fn is_traced(&self, level: usize) -> bool {
        level.checked_sub(1).map_or(&self.recipe, |n| &self.newer[n]).is_reversed
    }

    /// The first recipe from this one on that has page `no`, and where.
    fn find(&mut self, no: PageNo) -> Result<Option<(usize, RecipePageRef)>> {
        match self.slot(0, no)? {
            PageAt::Null => return Ok(None),
            PageAt::Page(at) => return Ok(Some((0, at))),
            PageAt::Newer => {}
        }
        let first = PageNo(no.0 / BAND_PAGES * BAND_PAGES);
        let band = match self.band.take().filter(|b| b.first == first) {
            Some(band) => band,
            None => self.band_from(first),
        };
        let place = band.places[(no.0 - first.0) as usize];
        self.band = Some(band);
        if let Some(place) = place {
            return Ok(place.map(|(level, at)| (level as usize, at)));
        }
        // A root on the way cannot be read: if this page needs it, its error is told.
        let mut level = 1;
        loop {
            match self.slot(level, no)? {
                PageAt::Null => return Ok(None),
                PageAt::Page(at) => return Ok(Some((level, at))),
                PageAt::Newer => level += 1,
            }
        }
    }

    /// Looks for the pages from `first` on that newer recipes have. Each root is read once for all of them: the roots of a
    /// long chain may not be in memory together.
    fn band_from(&mut self, first: PageNo) -> Band {
        let from = first.0 as usize;
        let own = self.root.pages[from..].iter().take(BAND_PAGES as usize);
        let mut wanted: Vec<u32> =
            (0..).zip(own).filter(|(_, p)| **p == PageAt::Newer).map(|(n, _)| n).collect();
        let mut places = vec![None; wanted.last().map_or(0, |n| *n as usize + 1)];
        for (n, level) in (0..self.newer.len()).zip(1..) {
            if wanted.is_empty() {
                break;
            }
            let Ok(root) = self.newer_root(n) else { break };
            wanted.retain(|n| {
                let at = root.pages.get(from + *n as usize).copied().unwrap_or(PageAt::Null);
                let place = match at {
                    PageAt::Null => Some(None),
                    PageAt::Page(at) => Some(Some((level, at))),
                    PageAt::Newer => None,
                };
                places[*n as usize] = place;
                place.is_none()
            });
        }
        Band { first, places }
    }

    /// What the root of a level says of a page.
    fn slot(&mut self, level: usize, no: PageNo) -> Result<PageAt> {
        let Some(n) = level.checked_sub(1) else {
            return Ok(self.root.pages.get(no.0 as usize).copied().unwrap_or(PageAt::Null));
        };
        if n >= self.newer.len() {
            let last = self.newer.last().unwrap_or(&self.recipe);
            let object = names::recipe_root(&self.folder.path, last.name);
            return Err(VaultError::corrupt(&object, "refers to a newer snapshot, and there is none"));
        }
        Ok(self.newer_root(n)?.pages.get(no.0 as usize).copied().unwrap_or(PageAt::Null))
    }

    /// The root of a newer recipe. If it is not in memory, some of those behind it are read with it: else a chain waits for
    /// one after the other.
    fn newer_root(&self, n: usize) -> Result<Arc<RecipeRoot>> {
        let Link { name, size, .. } = self.newer[n];
        if self.stay_together(AHEAD) && !self.cache.has_root(&self.folder, name) {
            // Twice as many as were needed so far: few chains are followed to their ends.
            let next = &self.newer[n..(n + n.clamp(1, AHEAD)).min(self.newer.len())];
            let next: Vec<(RecipeName, u64)> = next.iter().map(|newer| (newer.name, newer.size)).collect();
            self.cache.load_roots(&self.folder, &next);
        }
        self.cache.root(&self.folder, name, size)
    }

    /// Whether so many roots stay in memory together.
    fn stay_together(&self, roots: usize) -> bool {
        roots * self.root.pages.len() * size_of::<PageAt>() <= ROOTS_BYTES
    }

    /// Reads what some levels have of the pages that are wanted. Most references lead to the place that they stand at, so
    /// these are about what will be asked for; what is wrong with one is told then.
    fn load_pages(&mut self, levels: RangeInclusive<usize>, pages: &[PageNo]) {
        // Roots that are not in memory together would be read for each page.
        if !self.stay_together(AHEAD) {
            return;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (level, no) in levels.flat_map(|level| pages.iter().map(move |no| (level, *no))) {
            if let Ok(PageAt::Page(at)) = self.slot(level, no) {
                bytes += u64::from(at.page_len);
                if bytes <= AHEAD_BYTES {
                    found.push(at);
                }
            }
        }
        self.cache.load_pages(&self.folder, &found);
    }

    /// Follows the indirect references of a page of `level`, up to level `last`; what leads further stays indirect.
    fn trace(
        &mut self,
        level: usize,
        last: usize,
        at: &RecipePageRef,
        page: Cow<'_, RecipePage>,
    ) -> Result<RecipePage> {
        let object = names::recipe_pages(&self.folder.path, at.recipe);
        resolve(&object, self.root.segment_bytes, page, &mut |batch| {
            let (from, mut level, mut read) = (level, level, level);
            while !batch.is_done() && level < last {
                if level == read {
                    read = last.min(level + (level - from).clamp(1, AHEAD));
                    self.load_pages(level + 1..=read.min(self.newer.len()), &batch.pages_wanted());
                }
                level += 1;
                batch.follow(&mut |no| self.place(level, no))?;
            }
            Ok(())
        })
    }

    /// Where the recipe of a level has a segment.
    fn place(&mut self, level: usize, no: SegmentNo) -> Result<Place> {
        Ok(match self.slot(level, no.page())? {
            PageAt::Newer => Place::Newer,
            PageAt::Page(at) => {
                let object = names::recipe_pages(&self.folder.path, at.recipe);
                Place::Here(Some(self.cache.page(&self.folder, &at)?), object)
            }
            PageAt::Null => {
                Place::Here(None, names::recipe_root(&self.folder.path, self.newer[level - 1].name))
            }
        })
    }
}

impl Drop for RecipeReader {
    fn drop(&mut self) {
        self.cache.forget(self.no);
    }
}
