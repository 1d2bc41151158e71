//! Recipes: roots, pages, summaries, and that every reference leads to the chunks it was made for.

use super::findings::Findings;
use crate::chain::{bytes_of, segment_of, RecipeCache, RecipeReader};
use crate::dead::read_dead;
use crate::delete::summary_of;
use crate::error::{fault, Result, VaultError};
use crate::filters;
use crate::folder::Containers;
use crate::recipe::{read_page, read_root, read_summary, recipe_of};
use crate::recipe_writer::recipes_of;
use crate::vault::View;
use chunk::{Fingerprint, Piece};
use format::{
    names, ChunkNo, ContainerId, Owner, PageAt, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference,
    RunSet, SegmentRecipe, SnapshotEntry, Summary, Table, SEGMENTS_PER_PAGE,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Chunks whose fingerprints are in memory at once, but for one segment that has more.
const BATCH_CHUNKS: usize = 256 << 10;
/// No chunk but a segment's last ones is shorter.
const CHUNK_BYTES_MIN: u64 = 64;
/// Memory for pages to compare the next snapshot's with, in bytes.
const TRACED_BYTES: usize = 16 << 20;
/// Deletion logs kept in memory.
const DEAD_LOGS: usize = 1024;

/// Pages that cannot be restored, and the object that is to blame (its number in the findings).
pub(super) type BadPages = HashMap<RecipePageRef, usize>;

/// Looks at the recipes of one disk, snapshot by snapshot.
pub(super) struct RecipeCheck<'a> {
    view: &'a View,
    disk: &'a str,
    found: &'a mut Findings,
    bad_pages: BadPages,
    referenced: BTreeSet<ContainerId>,
    objects: BTreeSet<RecipeName>,
    roots: u64,
    /// The disk's own list of containers: says which shared ones it may reference.
    listed: Containers,
    dead: HashMap<ContainerId, Arc<RunSet>>,
    cache: RecipeCache,
    /// The snapshot looked at before, and where its pages were found.
    previous: Option<(RecipeRoot, Vec<Option<RecipePageRef>>)>,
    /// By number, sound pages some of whose references lead through newer snapshots: of this snapshot, and of the one
    /// looked at before if it is cut like this one.
    traced: HashMap<usize, Arc<RecipePage>>,
    traced_before: HashMap<usize, Arc<RecipePage>>,
    traced_bytes: usize,
}

/// A direct reference, and where its chunks belong in the batch.
struct Run {
    container: ContainerId,
    first: ChunkNo,
    count: u32,
    segment: usize,
    at: usize,
}

impl<'a> RecipeCheck<'a> {
    pub fn new(view: &'a View, disk: &'a str, found: &'a mut Findings) -> Self {
        RecipeCheck {
            view,
            disk,
            found,
            bad_pages: BadPages::new(),
            referenced: BTreeSet::new(),
            objects: BTreeSet::new(),
            roots: 0,
            listed: Containers::new(view.folder.clone(), &view.manifest),
            dead: HashMap::new(),
            cache: RecipeCache::default(),
            previous: None,
            traced: HashMap::new(),
            traced_before: HashMap::new(),
            traced_bytes: 0,
        }
    }

    /// The pages that cannot be restored, the containers referenced, and how many objects were looked at.
    pub fn finish(self) -> (BadPages, BTreeSet<ContainerId>, u64) {
        (self.bad_pages, self.referenced, self.roots + self.objects.len() as u64)
    }

    /// Looks at one snapshot. Pages that the one before had at the same place are not looked at again.
    pub fn snapshot(&mut self, s: &SnapshotEntry) -> Result<()> {
        self.roots += 1;
        let root = match read_root(&self.view.folder, s) {
            Ok(root) => root,
            Err(e) => {
                let (object, why) = fault(e)?;
                let at = self.found.add(&object, &why);
                self.found.affects(at, &format!("{}@{}", self.disk, s.id));
                return Ok(());
            }
        };
        self.check_depends(s, &root);
        self.check_filter(s, &root)?;
        let mut recipe = RecipeReader::open_with(&self.cache, &self.view.folder, &self.view.manifest, s)?;
        let previous = self.previous.take();
        self.traced_before = std::mem::take(&mut self.traced);
        self.traced_bytes = 0;
        let cut = |r: &RecipeRoot| (r.segment_bytes, r.size);
        if previous.as_ref().map(|(p, _)| cut(p)) != Some(cut(&root)) {
            self.traced_before.clear();
        }
        let mut found = Vec::new();
        for no in 0..root.pages.len() {
            let at = match recipe.direct_page(no as u64) {
                Ok(at) => at,
                // A page of its own that cannot be read is told of as such.
                Err(e) => match root.pages[no].page() {
                    Some(at) => fault(e).map(|_| Some(at))?,
                    None => {
                        self.cannot_trace(s, e)?;
                        found.push(None);
                        continue;
                    }
                },
            };
            found.push(at);
            let Some(at) = at else {
                self.traced_page(s, &mut recipe, no)?;
                continue;
            };
            let seen = previous.as_ref().is_some_and(|p| is_same_page(p, &root, no, at));
            if !seen && !self.bad_pages.contains_key(&at) {
                self.page(&root, no, &at)?;
            }
        }
        self.previous = Some((root, found));
        Ok(())
    }

    /// Looks at a page some of whose references lead through newer snapshots: at those of its segments that are not as
    /// the snapshot before had them.
    fn traced_page(&mut self, s: &SnapshotEntry, recipe: &mut RecipeReader, no: usize) -> Result<()> {
        if let PageAt::Page(own) = recipe.root.pages[no] {
            self.objects.insert(own.recipe);
            let folder = &self.view.folder;
            let object = names::recipe_pages(&folder.path, own.recipe);
            let of_page = Summary::of(&read_page(folder, &own)?);
            self.check_summary(&own, &object, &of_page)?;
        }
        let page = match recipe.page(no as u64) {
            Ok(None) => return Ok(()),
            Ok(Some(page)) => page,
            Err(e) => return self.cannot_trace(s, e),
        };
        let fresh = match self.traced_before.get(&no) {
            Some(before) => without_segments_of(&page, before),
            None => (*page).clone(),
        };
        let of_fresh = Summary::of(&fresh);
        self.check_listed(&of_fresh)?;
        self.referenced.extend(of_fresh.containers.keys());
        let root = recipe.root.clone();
        match self.check_page(&root, no as u64 * SEGMENTS_PER_PAGE, &fresh)? {
            Some(why) => {
                let object = self.found.add(&recipe.pages_object(no as u64), &why);
                self.found.affects(object, &format!("{}@{}", self.disk, s.id));
            }
            None if self.traced_bytes + bytes_of(&page) <= TRACED_BYTES => {
                self.traced_bytes += bytes_of(&page);
                self.traced.insert(no, page);
            }
            None => {}
        }
        Ok(())
    }

    /// A snapshot whose references cannot be followed.
    fn cannot_trace(&mut self, s: &SnapshotEntry, e: VaultError) -> Result<()> {
        let (object, why) = fault(e)?;
        let object = self.found.add(&object, &why);
        self.found.affects(object, &format!("{}@{}", self.disk, s.id));
        Ok(())
    }

    /// The manifest must say whose pages the recipe uses, or they would be deleted with their own snapshot.
    fn check_depends(&mut self, s: &SnapshotEntry, root: &RecipeRoot) {
        let used = recipes_of(root);
        if let Some(r) = used.iter().find(|r| !s.depends.contains(r)) {
            let root = names::recipe_root(&self.view.folder.path, recipe_of(s));
            let why = format!(
                "uses pages of recipe {}.{}, which the manifest does not say",
                r.snap, r.generation.0
            );
            self.found.add(&root, &why);
        }
    }

    /// A damaged filter keeps nothing from being restored; one that lacks what its snapshot references would let
    /// deletion take that.
    fn check_filter(&mut self, s: &SnapshotEntry, root: &RecipeRoot) -> Result<()> {
        let folder = &self.view.folder;
        let filter = match filters::read(folder, s) {
            Ok(None) => return Ok(()),
            Ok(Some(filter)) => filter,
            Err(e) => {
                let (object, why) = fault(e)?;
                self.found.add(&object, &format!("{why}; deletion goes without it"));
                return Ok(());
            }
        };
        for at in root.pages.iter().filter_map(|p| p.page()) {
            // What cannot be read is told of elsewhere.
            let Ok(summary) = summary_of(folder, &at) else { continue };
            let own = summary.containers.iter().filter(|(id, _)| id.owner() != Owner::Popular);
            for (id, chunks) in own {
                if let Some(no) = filters::numbers(chunks).find(|no| !filter.may_have(*id, *no)) {
                    let object = names::bloom(&folder.path, recipe_of(s));
                    let why = format!("lacks chunk {} of container {id}, which {} references", no.0, s.id);
                    self.found.add(&object, &why);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn page(&mut self, root: &RecipeRoot, no: usize, at: &RecipePageRef) -> Result<()> {
        self.objects.insert(at.recipe);
        let folder = &self.view.folder;
        let object = names::recipe_pages(&folder.path, at.recipe);
        let page = match read_page(folder, at) {
            Ok(page) => page,
            Err(e) => {
                let (object, why) = fault(e)?;
                let whole = why == "is missing";
                let why = if whole { why } else { format!("the page at offset {}: {why}", at.offset) };
                let object = self.found.add(&object, &why);
                self.bad_pages.insert(*at, object);
                return Ok(());
            }
        };
        let of_page = Summary::of(&page);
        self.check_summary(at, &object, &of_page)?;
        self.check_listed(&of_page)?;
        self.referenced.extend(of_page.containers.keys());
        if let Some(why) = self.check_page(root, no as u64 * SEGMENTS_PER_PAGE, &page)? {
            let object = self.found.add(&object, &why);
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
        self.found.add(object, &why);
        Ok(())
    }

    /// Shared containers that the disk's own table does not name would be taken for unused.
    fn check_listed(&mut self, of_page: &Summary) -> Result<()> {
        for id in of_page.containers.keys().filter(|id| id.owner() != Owner::Disk) {
            // A page of the table that cannot be read has been told of.
            if let Ok(None) = self.listed.get(*id) {
                let why = format!("does not list the shared container {id}, which a snapshot references");
                self.found.add(&self.view.folder.manifest_name(), &why);
            }
        }
        Ok(())
    }

    /// What is wrong with a page's segments, if anything.
    fn check_page(&mut self, root: &RecipeRoot, base: u64, page: &RecipePage) -> Result<Option<String>> {
        let most = u64::from(root.segment_bytes) / CHUNK_BYTES_MIN;
        let (mut from, mut chunks) = (0, 0);
        for (n, (index, s)) in page.segments.iter().enumerate() {
            let of_segment: u64 = s.references.iter().map(Reference::chunks).sum();
            if of_segment > most + s.references.len() as u64 {
                let place = (base + u64::from(*index)) * u64::from(root.segment_bytes);
                return Ok(Some(format!("the segment at {place} has {of_segment} chunks")));
            }
            if chunks + of_segment as usize > BATCH_CHUNKS && n > from {
                if let Some(why) = self.check_segments(root, base, &page.segments[from..n])? {
                    return Ok(Some(why));
                }
                (from, chunks) = (n, 0);
            }
            chunks += of_segment as usize;
        }
        self.check_segments(root, base, &page.segments[from..])
    }

    fn check_segments(
        &mut self,
        root: &RecipeRoot,
        base: u64,
        segments: &[(u16, SegmentRecipe)],
    ) -> Result<Option<String>> {
        let (mut runs, chunks) = runs_of(segments);
        runs.sort_by_key(|r| r.container);
        let mut lengths = vec![0u32; chunks];
        let mut fingerprints = vec![Fingerprint([0; 32]); chunks];
        let mut unknown = vec![false; segments.len()];
        for of_container in runs.chunk_by(|a, b| a.container == b.container) {
            let id = of_container[0].container;
            let Some((table, dead)) = self.container(id)? else {
                of_container.iter().for_each(|r| unknown[r.segment] = true);
                continue;
            };
            for r in of_container {
                if let Some(why) = resolve(r, &table, &dead, &mut lengths, &mut fingerprints) {
                    return Ok(Some(why));
                }
            }
        }
        let mut at = 0;
        for ((index, s), unknown) in segments.iter().zip(unknown) {
            let chunks = s.references.iter().map(Reference::chunks).sum::<u64>() as usize;
            let place = (base + u64::from(*index)) * u64::from(root.segment_bytes);
            let of_segment = at..at + chunks;
            at += chunks;
            if unknown {
                continue;
            }
            let wanted = u64::from(root.segment_bytes).min(root.size.saturating_sub(place));
            if let Some(why) =
                check_segment(s, wanted, &lengths[of_segment.clone()], &fingerprints[of_segment])
            {
                return Ok(Some(format!("the segment at {place} {why}")));
            }
        }
        Ok(None)
    }

    /// A container's table and dead chunks; `None` where its table cannot be read, which is told of elsewhere.
    fn container(&mut self, id: ContainerId) -> Result<Option<(Arc<Table>, Arc<RunSet>)>> {
        let read = || -> Result<_> {
            let entry = self.view.tables.entry(id)?;
            Ok((entry, self.view.tables.load(&entry)?))
        };
        let (entry, table) = match read() {
            Ok(both) => both,
            Err(e) => return fault(e).map(|_| None),
        };
        if let Some(dead) = self.dead.get(&id) {
            return Ok(Some((table, dead.clone())));
        }
        let dead = match read_dead(self.view.tables.folder_of(id), &entry) {
            Ok(dead) => Arc::new(dead),
            Err(e) => fault(e).map(|_| Arc::default())?,
        };
        if self.dead.len() >= DEAD_LOGS {
            self.dead.clear();
        }
        self.dead.insert(id, dead.clone());
        Ok(Some((table, dead)))
    }
}

/// The segments of a page that another one has not just so.
fn without_segments_of(page: &RecipePage, other: &RecipePage) -> RecipePage {
    let is_there = |(no, s): &&(u16, SegmentRecipe)| segment_of(other, u64::from(*no)) == Some(s);
    RecipePage { segments: page.segments.iter().filter(|s| !is_there(s)).cloned().collect() }
}

/// Whether a page was looked at with the snapshot before, as part of a disk that was cut like this one.
fn is_same_page(
    (previous, pages): &(RecipeRoot, Vec<Option<RecipePageRef>>),
    root: &RecipeRoot,
    no: usize,
    at: RecipePageRef,
) -> bool {
    let inner = no + 1 < previous.pages.len().min(root.pages.len());
    pages.get(no) == Some(&Some(at))
        && previous.segment_bytes == root.segment_bytes
        && (previous.size == root.size || inner)
}

/// The direct references of segments, and how many chunks all references have.
fn runs_of(segments: &[(u16, SegmentRecipe)]) -> (Vec<Run>, usize) {
    let (mut runs, mut at) = (Vec::new(), 0);
    for (segment, (_, s)) in segments.iter().enumerate() {
        for r in &s.references {
            if let Reference::Direct { container, first, count } = *r {
                runs.push(Run { container, first, count, segment, at });
            }
            at += r.chunks() as usize;
        }
    }
    (runs, at)
}

/// Fills in the lengths and fingerprints of a run. Returns what is wrong with it.
fn resolve(
    r: &Run,
    table: &Table,
    dead: &RunSet,
    lengths: &mut [u32],
    fingerprints: &mut [Fingerprint],
) -> Option<String> {
    let last = r.first.0.saturating_add(r.count - 1);
    let from = table.index_of(r.first);
    let to = table.index_of(ChunkNo(last));
    let indices = match (from, to) {
        (Some(from), Some(to)) if to - from == r.count as usize - 1 => from..to + 1,
        _ => {
            return Some(format!(
                "references chunks {} to {last} of container {}, which has not all of them",
                r.first.0, r.container
            ))
        }
    };
    if dead.count_within(r.first.0, r.count) > 0 {
        return Some(format!(
            "references chunks {} to {last} of container {}, some of them dead",
            r.first.0, r.container
        ));
    }
    let places = r.at..r.at + r.count as usize;
    lengths[places.clone()].copy_from_slice(&table.lengths[indices.clone()]);
    for (place, f) in places.zip(&table.fingerprints[indices]) {
        fingerprints[place] = Fingerprint(*f);
    }
    None
}

/// Whether the chunks are those that the segment was made of. Returns what is wrong.
fn check_segment(
    s: &SegmentRecipe,
    wanted: u64,
    lengths: &[u32],
    fingerprints: &[Fingerprint],
) -> Option<String> {
    let mut pieces = Vec::with_capacity(lengths.len());
    let mut lengths = lengths.iter();
    for r in &s.references {
        match r {
            Reference::Null { bytes } => pieces.push(Piece::Null { bytes: *bytes }),
            Reference::Direct { count, .. } => {
                pieces.extend(lengths.by_ref().take(*count as usize).map(|l| Piece::Data { bytes: *l }));
            }
            Reference::Indirect { .. } => return Some("refers to a newer snapshot".into()),
        }
    }
    let bytes: u64 = pieces.iter().map(|p| u64::from(p.bytes())).sum();
    if bytes != wanted {
        return Some(format!("has {bytes} bytes, {wanted} expected"));
    }
    if chunk::segment_fingerprint(&pieces, fingerprints).0 != s.fingerprint {
        return Some("does not have the content it was stored with".into());
    }
    None
}
