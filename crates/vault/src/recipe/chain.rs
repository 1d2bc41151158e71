//! Chains of indirect references: a recipe is read as if all its references were direct (RevDedup 3.2.2, 3.3).
//!
//! References are resolved one page and one snapshot at a time. The references of a page into the next newer recipe are
//! sorted, so that each page there is decoded once. A page that is the same as in the newer recipe is not decoded on
//! the way.

use crate::base::error::{Result, VaultError};
use crate::manifest::folder::Folder;
use crate::recipe::cache::{CachedPage, ReaderNo, RecipeCache, ROOTS_BYTES};
use crate::recipe::stored::{read_root, recipe_of, summary_of};
use format::{
    names, ChunkNo, Ordinal, PageAt, PageNo, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference,
    Reverse, SegmentNo, SegmentRecipe, SnapshotEntry, Summary,
};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Chunks that are followed at once, but for one segment that has more (about 100 bytes each).
const BATCH_CHUNKS: u64 = 128 << 10;

/// No chunk but a segment's last one is shorter.
const CHUNK_BYTES_MIN: u64 = 64;

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

/// Chunks that are looked for in the next newer recipe.
#[derive(Clone, Copy)]
struct Want {
    segment: SegmentNo,
    ordinal: u64,
    count: u64,
    /// Whose they are: index of the segment in the page, and their ordinal there.
    of: usize,
    at: u64,
}

/// References by segment (index in the page) and ordinal.
type FoundReferences = Vec<(usize, u64, Reference)>;

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
    fn load_pages(&mut self, levels: RangeInclusive<usize>, wants: &[Want]) {
        let mut pages: Vec<PageNo> = wants.iter().map(|w| w.segment.page()).collect();
        pages.sort_unstable();
        pages.dedup();
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
            while !batch.wants.is_empty() && level < last {
                if level == read {
                    read = last.min(level + (level - from).clamp(1, AHEAD));
                    self.load_pages(level + 1..=read.min(self.newer.len()), &batch.wants);
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

/// Where a recipe has a segment.
pub(crate) enum Place {
    /// Where the next newer recipe has it.
    Newer,
    /// In a page, and the object to blame if it is not there.
    Here(Option<Arc<RecipePage>>, String),
}

/// Segments of a page whose references are being followed.
pub(crate) struct Batch {
    /// What is still looked for.
    wants: Vec<Want>,
    found: FoundReferences,
}

/// Follows the indirect references of a page, which stands in `object`, some segments at a time: `each` follows a batch
/// of them level by level. What is still looked for then stays indirect.
///
/// A few bytes of references may lead to any number of others: what a page leads to is held to the limits of a page. One
/// that is owned gives its references up on the way.
pub(crate) fn resolve(
    object: &str,
    segment_bytes: u32,
    mut page: Cow<'_, RecipePage>,
    each: &mut dyn FnMut(&mut Batch) -> Result<()>,
) -> Result<RecipePage> {
    let mut out = RecipePage::default();
    let (mut from, mut references) = (0, 0);
    while from < page.segments.len() {
        let (mut to, mut size) = (from, 0);
        while let Some((index, s)) = page.segments.get(to) {
            let chunks = s.references.iter().map(Reference::chunks).sum::<u64>();
            if chunks > chunks_max(segment_bytes) {
                let why = format!("segment {index} of a page has {chunks} chunks");
                return Err(VaultError::corrupt(object, why));
            }
            if to > from && size + chunks + s.references.len() as u64 > BATCH_CHUNKS {
                break;
            }
            size += chunks + s.references.len() as u64;
            to += 1;
        }
        let mut batch = Batch::of(&page.segments[from..to]);
        each(&mut batch)?;
        let Batch { wants, mut found } = batch;
        found.extend(wants.iter().map(|w| (w.of, w.at, indirect(w))));
        let segments = assemble(&page.segments[from..to], found);
        references += segments.iter().map(|(_, s)| s.references.len()).sum::<usize>();
        if references > RecipePage::REFERENCES_MAX {
            return Err(VaultError::corrupt(object, "leads to more references than a page may have"));
        }
        out.segments.extend(segments);
        if let Cow::Owned(page) = &mut page {
            page.segments[from..to].iter_mut().for_each(|(_, s)| s.references = Vec::new());
        }
        from = to;
    }
    Ok(out)
}

/// Most chunks of a segment.
pub(crate) fn chunks_max(segment_bytes: u32) -> u64 {
    // Its last one may be shorter.
    u64::from(segment_bytes) / CHUNK_BYTES_MIN + 1
}

impl Batch {
    fn of(segments: &[(u16, SegmentRecipe)]) -> Self {
        let (mut wants, mut found) = (Vec::new(), FoundReferences::new());
        for (of, (_, s)) in segments.iter().enumerate() {
            let mut at = 0;
            for r in &s.references {
                match *r {
                    Reference::Indirect { segment, ordinal, count } => {
                        let (ordinal, count) = (u64::from(ordinal.0), u64::from(count));
                        wants.push(Want { segment, ordinal, count, of, at });
                    }
                    _ => found.push((of, at, *r)),
                }
                at += r.chunks();
            }
        }
        Batch { wants, found }
    }

    /// Looks for what is wanted in the next newer recipe, whose segments `place` finds. What leads further is wanted then.
    pub fn follow(&mut self, place: &mut dyn FnMut(SegmentNo) -> Result<Place>) -> Result<()> {
        self.wants.sort_unstable_by_key(|w| (w.segment, w.ordinal));
        let mut further = Vec::new();
        for of_segment in self.wants.chunk_by(|a, b| a.segment == b.segment) {
            let no = of_segment[0].segment;
            let (page, object) = match place(no)? {
                Place::Newer => {
                    further.extend_from_slice(of_segment);
                    continue;
                }
                Place::Here(page, object) => (page, object),
            };
            let segment = page.as_ref().and_then(|p| segment_of(p, no));
            let followed =
                segment.and_then(|s| look_up(of_segment, &s.references, &mut self.found, &mut further));
            if followed.is_none() {
                let why = format!("has not the chunks of segment {no} that an older snapshot refers to");
                return Err(VaultError::corrupt(&object, why));
            }
        }
        self.wants = further;
        Ok(())
    }
}

/// A segment of a page, by its number on the disk.
pub(crate) fn segment_of(page: &RecipePage, no: SegmentNo) -> Option<&SegmentRecipe> {
    page.segments.binary_search_by_key(&no.index(), |s| s.0).ok().map(|n| &page.segments[n].1)
}

/// Looks chunks of one segment up, in order of their ordinals. `None` where it has fewer chunks.
fn look_up(
    wants: &[Want],
    references: &[Reference],
    found: &mut FoundReferences,
    further: &mut Vec<Want>,
) -> Option<()> {
    // Zeros have no ordinal. Left in, any number of them could stand in the way of every want.
    let references: Vec<Reference> = references.iter().filter(|r| r.chunks() > 0).copied().collect();
    let (mut first, mut before) = (0, 0u64);
    for w in wants {
        // Those before it are before all that follow.
        while before + references.get(first)?.chunks() <= w.ordinal {
            before += references[first].chunks();
            first += 1;
        }
        let (mut n, mut start, mut from) = (first, before, w.ordinal);
        let (mut at, end) = (w.at, w.ordinal + w.count);
        while from < end {
            let reference = references.get(n)?;
            let (skip, take) = (from - start, (start + reference.chunks()).min(end) - from);
            match *reference {
                Reference::Null { .. } => {}
                Reference::Direct { container, first, .. } => {
                    let first = ChunkNo(first.0 + skip as u32);
                    found.push((w.of, at, Reference::Direct { container, first, count: take as u32 }));
                }
                Reference::Indirect { segment, ordinal, .. } => {
                    let ordinal = u64::from(ordinal.0) + skip;
                    further.push(Want { segment, ordinal, count: take, of: w.of, at });
                }
            }
            start += reference.chunks();
            from += take;
            at += take;
            n += 1;
        }
    }
    Some(())
}

fn indirect(w: &Want) -> Reference {
    // Ordinals and counts of a decoded page fit, and so do parts of them.
    Reference::Indirect { segment: w.segment, ordinal: Ordinal(w.ordinal as u32), count: w.count as u32 }
}

/// Segments with other references for the same chunks.
fn assemble(segments: &[(u16, SegmentRecipe)], mut found: FoundReferences) -> Vec<(u16, SegmentRecipe)> {
    // Zeros stand before the chunk whose ordinal they have.
    found.sort_unstable_by_key(|(of, at, r)| (*of, *at, r.chunks() > 0));
    let mut out = Vec::with_capacity(segments.len());
    let mut next = found.into_iter().peekable();
    for (of, (index, s)) in segments.iter().enumerate() {
        let mut references = Vec::new();
        while let Some((_, _, r)) = next.next_if(|f| f.0 == of) {
            push(&mut references, r);
        }
        references.shrink_to_fit();
        let SegmentRecipe { fingerprint, signature, .. } = *s;
        out.push((*index, SegmentRecipe { fingerprint, signature, references }));
    }
    out
}

/// Appends a reference, joined with the last one where it goes on from there.
pub(crate) fn push(references: &mut Vec<Reference>, r: Reference) {
    match (references.last_mut(), r) {
        (
            Some(Reference::Direct { container, first, count }),
            Reference::Direct { container: c, first: f, count: n },
        ) if *container == c
            && first.0.checked_add(*count) == Some(f.0)
            && count.checked_add(n).is_some() =>
        {
            *count += n;
        }
        (
            Some(Reference::Indirect { segment, ordinal, count }),
            Reference::Indirect { segment: s, ordinal: o, count: n },
        ) if *segment == s
            && ordinal.0.checked_add(*count) == Some(o.0)
            && count.checked_add(n).is_some() =>
        {
            *count += n;
        }
        _ => references.push(r),
    }
}
