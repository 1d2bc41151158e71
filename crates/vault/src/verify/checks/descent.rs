//! The recipes of a disk from a newer snapshot down to older ones, each resolved through the next newer one alone.
//!
//! A chain of reversed snapshots can be as long as the list of snapshots. If each were resolved to the end of its
//! chain, the recipes of n snapshots would be read up to n times. Here each is read once, because the next newer one is
//! already resolved.
//!
//! Resolved pages of two snapshots are kept at a time, for a band of pages that fits into memory. Most disks are one
//! band; a huge disk is processed band by band.

use crate::base::error::{fault, Fault, Result, VaultError};
use crate::container::view::View;
use crate::recipe::cache::{bytes_of, RecipeCache};
use crate::recipe::chain::RecipeReader;
use crate::recipe::indirect::{resolve, Place};
use crate::recipe::stored::{read_root, recipe_of};
use crate::verify::findings::affected::SnapshotIndex;
use format::{
    names, PageAt, PageNo, RecipePage, RecipePageRef, RecipeRoot, Reverse, SegmentNo, SnapshotEntry,
};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Memory for the resolved pages of one snapshot, in bytes, but for one page that takes more.
const RESOLVED_BYTES: usize = 24 << 20;
/// Pages in one band at most.
const BAND_PAGES: u64 = 1 << 16;

/// What a page of a recipe leads to.
#[derive(Clone)]
pub(crate) enum Resolved {
    /// Zeros.
    Null,
    /// A stored page whose references are all direct.
    Direct(RecipePageRef),
    /// A page some of whose references lead through newer snapshots, followed to their end.
    Traced {
        /// The stored page.
        at: RecipePageRef,
        /// What it leads to, with direct references only.
        page: Arc<RecipePage>,
    },
    /// It cannot be followed.
    Lost(Arc<Fault>),
}

impl Resolved {
    /// Whether this and another are one page.
    pub fn is(&self, other: &Resolved) -> bool {
        match (self, other) {
            (Resolved::Direct(a), Resolved::Direct(b)) => a == b,
            (Resolved::Traced { page: a, .. }, Resolved::Traced { page: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// One snapshot's recipe.
pub(crate) struct Level {
    pub no: SnapshotIndex,
    pub root: RecipeRoot,
    /// Pages that this descent looks at.
    band: Range<PageNo>,
    /// What they lead to.
    pages: Vec<Resolved>,
}

impl Level {
    /// The pages of the root that this descent looks at.
    pub fn page_numbers(&self) -> impl Iterator<Item = PageNo> {
        page_numbers(&self.band, &self.root)
    }

    /// What page `no`, which is in the band, leads to.
    pub fn page(&self, no: PageNo) -> &Resolved {
        self.pages.get(no.0.wrapping_sub(self.band.start.0) as usize).unwrap_or(&Resolved::Null)
    }

    /// Whether segments of a page are cut as those of the same page of another snapshot.
    pub fn is_cut_like(&self, other: &Level, no: PageNo) -> bool {
        let inner = no.next().0 < self.root.pages.len().min(other.root.pages.len()) as u64;
        self.root.segment_bytes == other.root.segment_bytes && (self.root.size == other.root.size || inner)
    }

    fn limit(&mut self, end: PageNo) {
        self.band.end = self.band.end.min(end);
        self.pages.truncate(self.band.end.0.saturating_sub(self.band.start.0) as usize);
    }
}

/// The pages of a root that are in a band.
fn page_numbers(band: &Range<PageNo>, root: &RecipeRoot) -> impl Iterator<Item = PageNo> {
    (band.start.0..band.end.0.min(root.pages.len() as u64)).map(PageNo)
}

/// A step of a descent.
pub(crate) struct Step<'a> {
    pub no: SnapshotIndex,
    pub entry: &'a SnapshotEntry,
    /// The recipe, or why its root cannot be read.
    pub level: std::result::Result<&'a Level, &'a Fault>,
    /// The recipe of the next newer snapshot, if the descent came by it.
    pub newer: Option<&'a Level>,
    /// Whether this snapshot comes for the first time.
    pub is_first_band: bool,
}

/// Descends from snapshot `top` of the disk to snapshot `lowest`, once for each band of pages.
pub(crate) fn descend(
    view: &View,
    cache: &RecipeCache,
    (top, lowest): (SnapshotIndex, SnapshotIndex),
    each: &mut dyn FnMut(Step<'_>) -> Result<()>,
) -> Result<()> {
    let mut from = PageNo(0);
    loop {
        let band = from..PageNo(from.0 + BAND_PAGES);
        let mut descent = Descent { view, cache, band, pages: 0 };
        let mut newer: Option<std::result::Result<Level, Fault>> = None;
        for no in (lowest.0..=top.0).rev().map(SnapshotIndex) {
            let level = match descent.level(no, newer.as_ref()) {
                Ok(level) => Ok(level),
                Err(e) => Err(fault(e)?),
            };
            if let Some(Ok(newer)) = &mut newer {
                newer.limit(descent.band.end);
            }
            each(Step {
                no,
                entry: &view.whole()?.snapshots[no.0],
                level: level.as_ref(),
                newer: newer.as_ref().and_then(|n| n.as_ref().ok()),
                is_first_band: from == PageNo(0),
            })?;
            newer = Some(level);
        }
        from = descent.band.end;
        if from.0 >= descent.pages {
            return Ok(());
        }
    }
}

/// The snapshot from which on the recipe of snapshot `no` can be resolved: the end of its chain.
pub(crate) fn end_of_chain(snapshots: &[SnapshotEntry], no: SnapshotIndex) -> SnapshotIndex {
    let chain = snapshots[no.0..].iter().take_while(|s| s.reverse == Reverse::Done).count();
    SnapshotIndex((no.0 + chain).min(snapshots.len() - 1))
}

struct Descent<'a> {
    view: &'a View,
    cache: &'a RecipeCache,
    /// Becomes shorter where resolved pages take too much memory.
    band: Range<PageNo>,
    /// Pages of the longest root.
    pages: u64,
}

type Newer<'n> = Option<&'n std::result::Result<Level, Fault>>;

impl Descent<'_> {
    /// Resolves the recipe of a snapshot.
    fn level(&mut self, no: SnapshotIndex, newer: Newer<'_>) -> Result<Level> {
        let entry = &self.view.whole()?.snapshots[no.0];
        let root = read_root(&self.view.folder, entry)?;
        self.pages = self.pages.max(root.pages.len() as u64);
        let numbers = page_numbers(&self.band, &root);
        let mut level = Level { no, root, band: self.band.clone(), pages: Vec::new() };
        let mut bytes = 0;
        for at in numbers {
            let resolved = self.page(&level, entry, at, newer)?;
            if let Resolved::Traced { page, .. } = &resolved {
                bytes += bytes_of(page);
                if bytes > RESOLVED_BYTES && at > self.band.start {
                    self.band.end = at;
                    break;
                }
            }
            level.pages.push(resolved);
        }
        level.limit(self.band.end);
        Ok(level)
    }

    fn page(&self, level: &Level, entry: &SnapshotEntry, no: PageNo, newer: Newer<'_>) -> Result<Resolved> {
        let lost = |e: VaultError| fault(e).map(|f| Resolved::Lost(Arc::new(f)));
        let at = match level.root.pages[no.0 as usize] {
            PageAt::Null => return Ok(Resolved::Null),
            PageAt::Newer => {
                return match self.next(entry, newer) {
                    Ok(newer) => Ok(newer.page(no).clone()),
                    Err(e) => lost(e),
                }
            }
            PageAt::Page(at) => at,
        };
        if entry.reverse != Reverse::Done {
            return Ok(Resolved::Direct(at));
        }
        let stored = match self.cache.page(&self.view.folder, &at) {
            Ok(page) if page.has_indirect() => page,
            Ok(_) => return Ok(Resolved::Direct(at)),
            // One of its own that cannot be read is damaged itself.
            Err(e) => return fault(e).map(|_| Resolved::Direct(at)),
        };
        match self.next(entry, newer).and_then(|newer| self.trace(&level.root, &at, &stored, newer)) {
            Ok(page) => Ok(Resolved::Traced { at, page: Arc::new(page) }),
            Err(e) => lost(e),
        }
    }

    /// The next newer snapshot's recipe, which a reversed one's leads through.
    fn next<'n>(&self, entry: &SnapshotEntry, newer: Newer<'n>) -> Result<&'n Level> {
        match newer {
            Some(Ok(newer)) if entry.reverse == Reverse::Done => Ok(newer),
            Some(Err((object, why))) if entry.reverse == Reverse::Done => {
                Err(VaultError::corrupt(object, why))
            }
            _ => {
                let object = names::recipe_root(&self.view.folder.path, recipe_of(entry));
                Err(VaultError::corrupt(&object, "refers to a newer snapshot, and there is none"))
            }
        }
    }

    /// Follows the indirect references of a page into the next newer recipe, where all have been followed.
    fn trace(
        &self,
        root: &RecipeRoot,
        at: &RecipePageRef,
        page: &RecipePage,
        newer: &Level,
    ) -> Result<RecipePage> {
        let (view, all) = (self.view, &self.view.whole()?.snapshots);
        let entry = &all[newer.no.0];
        let (folder, path) = (&view.folder, &view.folder.path);
        let of_newer = || names::recipe_root(path, recipe_of(entry));
        let mut beyond = None;
        let mut place = |no: SegmentNo| -> Result<Place> {
            let of_page = no.page();
            if !newer.band.contains(&of_page) {
                // In another band: followed to the end of its chain.
                if beyond.is_none() {
                    beyond = Some(RecipeReader::open_with(self.cache, folder, all, entry)?);
                }
                let page = beyond.as_mut().map_or(Ok(None), |b| b.page(of_page))?;
                return Ok(Place::Here(page, of_newer()));
            }
            match newer.page(of_page) {
                Resolved::Null => Ok(Place::Here(None, of_newer())),
                Resolved::Direct(at) => {
                    let page = self.cache.page(folder, at)?;
                    Ok(Place::Here(Some(page), names::recipe_pages(path, at.recipe)))
                }
                Resolved::Traced { at, page } => {
                    Ok(Place::Here(Some(page.clone()), names::recipe_pages(path, at.recipe)))
                }
                Resolved::Lost(fault) => Err(VaultError::corrupt(&fault.0, fault.1.clone())),
            }
        };
        let object = names::recipe_pages(path, at.recipe);
        resolve(&object, root.segment_bytes, Cow::Borrowed(page), &mut |batch| batch.follow(&mut place))
    }
}
