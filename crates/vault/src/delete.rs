//! Deletion of snapshots.
//!
//! 1. The snapshots are marked deleted by one swap: users no longer see them, whatever happens next.
//! 2. An older snapshot whose references lead through them gets a recipe without them. What they alone referenced is
//!    found by comparing their summaries with those of all other snapshots of the disk, or with their filters
//!    ([`crate::filters`]).
//! 3. The dead chunks are logged beside their containers; containers without a live chunk leave the table. A second
//!    swap makes that true and forgets the snapshots.
//! 4. Containers with too much dead space are compacted ([`crate::compact`]).
//! 5. What the swaps released is deleted, once no reader that came before can need it.
//!
//! A snapshot that is the parent of a running backup waits at step 2 for the next deletion or `gc`; so do all where
//! other maintenance is at work on the disk, or where damage hides what the remaining snapshots reference.

use crate::chain::{RecipeReader, Without};
use crate::compact::compact_folder;
use crate::dead::read_dead;
use crate::disks;
use crate::error::{Result, VaultError};
use crate::filters::{self, Merged};
use crate::folder::{list_unswept, release, release_object, Containers, Edits, Folder};
use crate::leaks;
use crate::recipe::{read_page, read_root, read_summary, recipe_of};
use crate::recipe_writer::{PageWriter, WrittenRecipe};
use crate::released::delete_released;
use crate::reverse::ReverseReport;
use crate::rollback::{self, load_checked};
use crate::session::{is_alive, Session};
use crate::snapshot_spec::{find_ids, find_live};
use crate::sweep::sweep_unswept;
use crate::tables::read_table;
use crate::vault::Vault;
use format::{
    names, ContainerEntry, ContainerId, DataName, DeadLog, Manifest, Owner, PageAt, RecipeName,
    RecipePageRef, RecipeRoot, Release, Reverse, RunSet, SnapId, SnapshotEntry, SnapshotState, Summary,
    Table, WriterKind, WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use store::Reserve;

/// Share of dead chunks from which deletion compacts a container.
pub const COMPACT_AT_DELETION: f64 = 0.5;

/// Memory for chunks that may be dead, in bytes, but for one page with more.
const CANDIDATE_BYTES: usize = 32 << 20;

/// What a deletion did.
#[derive(Debug, Default)]
pub struct DeleteReport {
    /// The snapshots that are gone for users.
    pub deleted: Vec<SnapshotEntry>,
    /// Deleted snapshots whose space waits for a running backup.
    pub waiting: usize,
    /// Where other maintenance of the disk is waited for instead: which.
    pub waiting_for: Option<String>,
    /// Bytes given back to the store.
    pub freed_bytes: u64,
    /// Why space was not given back although nothing runs that needs it. The snapshots are gone all the same.
    pub held_up: Option<VaultError>,
    /// Chunks that earlier deletions had left because of what filters found by mistake.
    pub repaired_chunks: u64,
}

impl Vault {
    /// Deletes snapshots of a disk. `specs` are as in [`Vault::restore`]; all of them are found, or nothing is deleted.
    pub fn delete(&self, disk: &str, specs: &[&str]) -> Result<DeleteReport> {
        // It gives space back: it must work where none is left.
        let (folder, deleted) = disks::begin_on(self, disk, |at| {
            let folder = at.folder.with_reserve(Reserve::Whole);
            // Once: when the swap is tried again, `latest` may be another snapshot.
            let (m, evidence) = load_checked(&folder)?;
            let ids = find_ids(&m, disk, specs)?;
            let (m, deleted) = folder.update(|m, _| mark(m, disk, &ids))?;
            rollback::record(&folder, m.sequence, &evidence);
            Ok((folder, deleted))
        })?;
        let mut report = DeleteReport { deleted, ..DeleteReport::default() };
        // The snapshots are gone for users: whatever fails from here on concerns their space only.
        if let Err(e) = self.give_space_back(&folder, &mut report) {
            report.held_up.get_or_insert(e);
        }
        self.fill_reserve();
        Ok(report)
    }

    /// Steps 2 to 5.
    fn give_space_back(&self, folder: &Folder, report: &mut DeleteReport) -> Result<()> {
        let mut session = match Session::begin(folder, WriterKind::Maintenance) {
            Err(e @ VaultError::Busy { .. }) => {
                report.waiting = report.deleted.len();
                report.waiting_for = Some(e.to_string());
                return Ok(());
            }
            other => other?,
        };
        match carry_through(&session, COMPACT_AT_DELETION) {
            Err(e) if e.is_damage() || e.is_full() => report.held_up = Some(e),
            other => report.waiting = other?,
        }
        match repair_if_due(&mut session) {
            Err(e) if e.is_damage() || e.is_full() => {
                report.held_up.get_or_insert(e);
            }
            other => report.repaired_chunks = other?,
        }
        report.freed_bytes = delete_released(folder, Some(session.writer))?;
        compact_folder(&session, COMPACT_AT_DELETION, None)?;
        report.freed_bytes += delete_released(folder, Some(session.writer))?;
        session.end()?;
        let mut swept = ReverseReport::default();
        sweep_unswept(self, folder, COMPACT_AT_DELETION, &mut swept)?;
        report.freed_bytes += swept.freed_bytes;
        Ok(())
    }
}

/// Leaks of deletions by filters are repaired before they are too many.
fn repair_if_due(session: &mut Session) -> Result<u64> {
    match leaks::estimated(&session.folder, &session.folder.load()?)? > leaks::LEAK_MAX {
        true => leaks::repair(session, COMPACT_AT_DELETION),
        false => Ok(0),
    }
}

/// Step 1.
fn mark(m: &mut Manifest, disk: &str, ids: &BTreeSet<SnapId>) -> Result<Vec<SnapshotEntry>> {
    let mut deleted = Vec::new();
    for id in ids {
        let s = find_live(m, disk, *id)?;
        if s.held {
            let why = format!("{disk}@{id}: is held; `sapwood release` it first");
            return Err(VaultError::Refused(why));
        }
        deleted.push(s.clone());
        s.state = SnapshotState::Deleted;
    }
    Ok(deleted)
}

/// Steps 2 and 3 for every snapshot marked deleted. Returns how many must wait.
pub(crate) fn carry_through(session: &Session, punch_below: f64) -> Result<usize> {
    loop {
        let m = session.folder.load()?;
        let parents = parents_of_living(&session.folder, &m)?;
        let (doomed, waiting) = doomed(&m, &parents);
        if doomed.is_empty() {
            return Ok(waiting);
        }
        let rewritten = rewrite_older(session, &m, &doomed)?;
        let change = Change { doomed, rewritten, neighbours: None };
        let dead = match find_dead(&session.folder, &m, &change) {
            Err(e) => {
                let rewritten = |s: &&SnapshotEntry| change.rewritten.iter().any(|r| r.id == s.id);
                m.snapshots.iter().filter(rewritten).try_for_each(|s| remove_rewritten(session, s))?;
                return Err(e);
            }
            other => other?,
        };
        if apply(session, &m, &change, &dead, punch_below)? {
            return Ok(waiting);
        }
        // A backup has committed meanwhile: what it references was not looked at.
    }
}

/// The snapshots marked deleted that can go now, and how many must wait: parents of living backups, and what the
/// references of such a parent lead through, since its recipe must stay as it is.
fn doomed(m: &Manifest, parents: &HashSet<SnapId>) -> (BTreeSet<SnapId>, usize) {
    let (mut doomed, mut waiting) = (BTreeSet::new(), 0);
    let mut led_through = false;
    for s in &m.snapshots {
        let is_parent = parents.contains(&s.id);
        let deleted = s.state == SnapshotState::Deleted;
        if deleted && !is_parent && !led_through {
            doomed.insert(s.id);
        } else {
            waiting += usize::from(deleted);
        }
        led_through = s.reverse == Reverse::Done && (is_parent || (led_through && deleted));
    }
    (doomed, waiting)
}

/// Recipes whose references lead through doomed snapshots, without them: at most one for each row of doomed ones.
fn rewrite_older(session: &Session, m: &Manifest, doomed: &BTreeSet<SnapId>) -> Result<Vec<Rewritten>> {
    let mut all = Vec::new();
    for (n, s) in m.snapshots.iter().enumerate() {
        let gone = m.snapshots[n + 1..].iter().take_while(|s| doomed.contains(&s.id)).count();
        if s.reverse != Reverse::Done || gone == 0 || doomed.contains(&s.id) {
            continue;
        }
        let mut recipe = RecipeReader::open(&session.folder, m, s)?;
        let mut root = recipe.root.clone();
        let mut out = PageWriter::new(&session.folder, rewritten_name(session, s));
        for no in 0..root.pages.len() {
            root.pages[no] = match recipe.without(no as u64, gone)? {
                Without::At(at) => at,
                Without::Fresh(page) => PageAt::Page(out.put(session, &page)?),
            };
        }
        let written = out.finish(session, &root)?;
        let kept: HashSet<&PageAt> = root.pages.iter().collect();
        let loose = recipe.root.pages.iter().filter(|p| !kept.contains(p)).filter_map(|p| p.page()).collect();
        // As far as all of them lead further, it does; the first one that does not has nothing but direct references.
        let row = &m.snapshots[n + 1..=n + gone];
        let reverse = row.iter().map(|s| s.reverse).find(|r| *r != Reverse::Done).unwrap_or(Reverse::Done);
        all.push(Rewritten { id: s.id, generation: session.writer, root, recipe: written, loose, reverse });
    }
    Ok(all)
}

/// Snapshots that living writers compare with.
fn parents_of_living(folder: &Folder, m: &Manifest) -> Result<HashSet<SnapId>> {
    let mut parents = HashSet::new();
    for w in &m.writers {
        if let Some(p) = w.parent {
            if is_alive(&*folder.store, w.token)? {
                parents.insert(p);
            }
        }
    }
    Ok(parents)
}

/// A change of a disk's snapshots: some go, some get other recipes for the same content.
#[derive(Default)]
pub(crate) struct Change {
    pub doomed: BTreeSet<SnapId>,
    pub rewritten: Vec<Rewritten>,
    /// Snapshots that must be live neighbours when it takes effect: a backup that began after the newer one was
    /// deleted compares with the older one, whose recipe must stay as it is.
    pub neighbours: Option<[SnapId; 2]>,
}

/// A recipe that was written anew for a snapshot that stays.
pub(crate) struct Rewritten {
    pub id: SnapId,
    /// The generation of the new recipe.
    pub generation: WriterNo,
    pub root: RecipeRoot,
    pub recipe: WrittenRecipe,
    /// Pages of the old recipe that the new one has no longer.
    pub loose: Vec<RecipePageRef>,
    pub reverse: Reverse,
}

/// The name of a recipe that a session writes for a snapshot that is there.
pub(crate) fn rewritten_name(session: &Session, s: &SnapshotEntry) -> RecipeName {
    RecipeName { snap: s.id, generation: session.writer }
}

/// Removes a recipe that was written for a snapshot and that nothing names yet.
pub(crate) fn remove_rewritten(session: &Session, s: &SnapshotEntry) -> Result<()> {
    let (folder, name) = (&session.folder, rewritten_name(session, s));
    folder.store.delete(&names::recipe_root(&folder.path, name))?;
    folder.store.delete(&names::recipe_pages(&folder.path, name))?;
    Ok(())
}

/// What becomes unreferenced.
#[derive(Default)]
pub(crate) struct Dead {
    /// Chunks of the disk's own containers.
    pub chunks: BTreeMap<ContainerId, RunSet>,
    /// Shared containers some of whose chunks the disk no longer references; other disks may.
    pub shared: BTreeSet<ContainerId>,
    /// Shared containers that the disk no longer references at all.
    pub foreign: BTreeSet<ContainerId>,
    /// Filters of recipes that go.
    pub filters: Vec<String>,
    /// What becomes of the count of deletions by filters.
    pub counted: Counted,
}

/// A change of [`Manifest::by_filter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
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
            if id.owner() == Owner::Disk {
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
        dead.counted = Counted::ByFilter(change.doomed.len() as u32);
    }
    let is_gone =
        |s: &&SnapshotEntry| change.doomed.contains(&s.id) || change.rewritten.iter().any(|r| r.id == s.id);
    dead.filters = filters::existing(folder, m.snapshots.iter().filter(is_gone).map(recipe_of))?;
    Ok(dead)
}

fn pages_of_change(folder: &Folder, m: &Manifest, change: &Change) -> Result<Pages> {
    let doomed = &change.doomed;
    let mut seen: HashSet<RecipePageRef> = HashSet::new();
    let mut pages = Pages { lost: Vec::new(), kept: Vec::new(), filters: Merged::default() };
    let mut filtered = Vec::new();
    // Newest first: it holds most of what is wanted.
    for s in m.snapshots.iter().rev().filter(|s| !doomed.contains(&s.id)) {
        let rewritten = change.rewritten.iter().find(|r| r.id == s.id);
        // Only deletion goes by filters, which are of recipes as they were.
        let by_filter = !doomed.is_empty() && rewritten.is_none() && pages.filters.add(folder, s)?;
        let read;
        let root = match rewritten {
            Some(r) => &r.root,
            None => {
                read = read_root(folder, s)?;
                &read
            }
        };
        let of_root = root.pages.iter().filter_map(|p| p.page());
        match by_filter {
            true => filtered.extend(of_root),
            false => pages.kept.extend(of_root.filter(|p| seen.insert(*p))),
        }
    }
    seen.extend(filtered);
    let loose = change.rewritten.iter().flat_map(|r| &r.loose).copied();
    pages.lost.extend(loose.filter(|p| seen.insert(*p)).map(|p| (p, true)));
    for s in m.snapshots.iter().filter(|s| doomed.contains(&s.id)) {
        let root = match read_root(folder, s) {
            // What a recipe that cannot be read references stays: it costs space, not data.
            Err(e) if e.is_damage() => continue,
            other => other?,
        };
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
                Some(e) if id.owner() == Owner::Disk => u64::from(e.chunks).min(Table::CHUNKS_MAX),
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

    /// Takes out what filters have, and the popular set, of which they say nothing.
    fn without_filtered(&mut self, filters: &Merged) {
        self.chunks.retain(|id, chunks| {
            *chunks = filters.without_what_is_in(*id, chunks);
            id.owner() != Owner::Popular && !chunks.is_empty()
        });
    }
}

/// A page's summary, made anew from the page where it is damaged.
pub(crate) fn summary_of(folder: &Folder, page: &RecipePageRef) -> Result<Summary> {
    match read_summary(folder, page) {
        Err(e) if e.is_damage() => Ok(Summary::of(&read_page(folder, page)?)),
        other => other,
    }
}

/// Step 3, in one swap. `false`: there is a snapshot that `known` has not, and nothing was done.
pub(crate) fn apply(
    session: &Session,
    known: &Manifest,
    change: &Change,
    dead: &Dead,
    punch_below: f64,
) -> Result<bool> {
    let folder = &session.folder;
    let known: HashSet<SnapId> = known.snapshots.iter().map(|s| s.id).collect();
    let m = folder.load()?;
    let containers = Containers::new(folder.clone(), &m);
    let mut released = Vec::new();
    let (mut edits, leaks) = match bury_all(session, &containers, dead, punch_below, &mut released) {
        // Containers without a live chunk need no list. What is dead in the others leaks until it is repaired.
        Err(e) if e.is_full() => {
            released.clear();
            (unlisted(session, &containers, dead, &mut released)?, true)
        }
        edits => (edits?, false),
    };
    edits.extend(dead.foreign.iter().map(|id| (*id, None)));
    release_data(&containers, &edits, &mut released)?;
    let (_, done) = session.swap(|m, put, counter| {
        if m.snapshots.iter().any(|s| !known.contains(&s.id)) {
            return Ok(false);
        }
        let is_pair = |w: &[SnapshotEntry], ids: [SnapId; 2]| {
            [w[0].id, w[1].id] == ids && w.iter().all(|s| s.state == SnapshotState::Live)
        };
        if change.neighbours.is_some_and(|ids| !m.snapshots.windows(2).any(|w| is_pair(w, ids))) {
            return Ok(false);
        }
        folder.edit_containers(m, put, session.writer, counter, &edits)?;
        change_snapshots(folder, m, change);
        // Popular containers are swept by `gc` only: what one disk no longer needs, others have.
        list_unswept(m, dead.shared.iter().filter(|id| id.owner() == Owner::Shared));
        released.iter().for_each(|what| release(m, what.clone()));
        dead.filters.iter().for_each(|object| release_object(m, object.clone()));
        m.by_filter = match dead.counted {
            _ if leaks => m.by_filter.saturating_add(1),
            Counted::Exactly => m.by_filter,
            Counted::ByFilter(snapshots) => m.by_filter.saturating_add(snapshots),
            Counted::Repaired => 0,
        };
        Ok(true)
    })?;
    if !done {
        // The next attempt writes the same names.
        for s in m.snapshots.iter().filter(|s| change.rewritten.iter().any(|r| r.id == s.id)) {
            remove_rewritten(session, s)?;
        }
    }
    Ok(done)
}

/// Logs everything dead in a disk's own containers. Where there is no space for all of the lists, none is left.
fn bury_all(
    session: &Session,
    containers: &Containers,
    dead: &Dead,
    punch_below: f64,
    released: &mut Vec<Release>,
) -> Result<Edits> {
    let mut edits = Edits::new();
    for (id, chunks) in &dead.chunks {
        let Some(entry) = containers.get(*id)? else { continue };
        match bury(session, &entry, chunks, punch_below, released) {
            Err(e) if e.is_full() => {
                let path = &session.folder.path;
                for id in edits.iter().filter_map(|(id, fresh)| fresh.map(|_| *id)) {
                    session.folder.store.delete(&names::dead(path, id, session.writer))?;
                }
                return Err(e);
            }
            fresh => drop(edits.insert(*id, fresh?)),
        }
    }
    Ok(edits)
}

/// What can be done without a list of dead chunks: containers without a live chunk go.
fn unlisted(
    session: &Session,
    containers: &Containers,
    dead: &Dead,
    released: &mut Vec<Release>,
) -> Result<Edits> {
    let mut edits = Edits::new();
    for (id, chunks) in &dead.chunks {
        let Some(entry) = containers.get(*id)? else { continue };
        let old = match read_dead(&session.folder, &entry) {
            Err(e) if e.is_damage() => continue,
            old => old?,
        };
        if old.union(chunks).len() >= u64::from(entry.chunks) {
            let none = bury(session, &entry, chunks, 0.0, released)?;
            edits.insert(*id, none);
        }
    }
    Ok(edits)
}

/// Takes doomed snapshots out, puts new recipes in, and releases what no snapshot needs any more.
fn change_snapshots(folder: &Folder, m: &mut Manifest, change: &Change) {
    let doomed = &change.doomed;
    let mut unneeded: BTreeSet<RecipeName> = BTreeSet::new();
    let mut roots = Vec::new();
    m.snapshots.retain(|s| {
        if doomed.contains(&s.id) {
            roots.push(recipe_of(s));
            unneeded.extend(&s.depends);
        }
        !doomed.contains(&s.id)
    });
    for s in &mut m.snapshots {
        if let Some(r) = change.rewritten.iter().find(|r| r.id == s.id) {
            roots.push(recipe_of(s));
            unneeded.extend(&s.depends);
            s.generation = r.generation;
            s.depends = r.recipe.depends.clone();
            s.reverse = r.reverse;
        }
    }
    // Those who have them as parents were found dead: they are fenced.
    m.writers.retain(|w| !w.parent.is_some_and(|p| doomed.contains(&p)));
    for root in roots {
        release_object(m, names::recipe_root(&folder.path, root));
    }
    let needed: HashSet<RecipeName> = m.snapshots.iter().flat_map(|s| s.depends.clone()).collect();
    for recipe in unneeded.into_iter().filter(|r| !needed.contains(r)) {
        release_object(m, names::recipe_pages(&folder.path, recipe));
    }
}

/// Chunks of a container that the snapshots of a disk reference. Used where a list of dead chunks is damaged.
pub(crate) fn live_chunks(folder: &Folder, m: &Manifest, id: ContainerId) -> Result<RunSet> {
    let mut live = RunSet::default();
    let mut seen = HashSet::new();
    for s in &m.snapshots {
        for page in read_root(folder, s)?.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
            if let Some(chunks) = summary_of(folder, &page)?.containers.get(&id) {
                live = live.union(chunks);
            }
        }
    }
    Ok(live)
}

/// Logs chunks of a container as dead. Returns its new entry, `None` where no live chunk is left.
///
/// With a smaller share of dead chunks than `punch_below` the container is punched; others wait for compaction
/// (RevDedup 3.2.4).
pub(crate) fn bury(
    session: &Session,
    entry: &ContainerEntry,
    chunks: &RunSet,
    punch_below: f64,
    released: &mut Vec<Release>,
) -> Result<Option<ContainerEntry>> {
    let folder = &session.folder;
    let old = match read_dead(folder, entry) {
        // A log that cannot be read is written anew from the truth. (That of a shared container: `chunks` is all.)
        Err(e) if e.is_damage() && folder.owner == Owner::Disk => {
            let live = live_chunks(folder, &folder.load()?, entry.id)?;
            read_table(folder, entry.id, entry.table)?.numbers.minus(&live)
        }
        Err(e) if e.is_damage() => RunSet::default(),
        other => other?,
    };
    let dead = old.union(chunks);
    if entry.dead != WriterNo(0) {
        released.push(Release::Object(names::dead(&folder.path, entry.id, entry.dead)));
    }
    let dead_chunks = dead.len().min(u64::from(u32::MAX)) as u32;
    if dead_chunks >= entry.chunks {
        released.push(Release::Object(names::table(&folder.path, entry.id, entry.table)));
        return Ok(None);
    }
    let name = names::dead(&folder.path, entry.id, session.writer);
    let frame = DeadLog { container: entry.id, dead }.encode(folder.context(&name));
    match folder.store.put(&name, &[&frame]) {
        // From an attempt of this session that found the manifest changed.
        Err(store::StoreError::AlreadyExists { .. }) => {
            folder.store.delete(&name)?;
            folder.store.put(&name, &[&frame])?;
        }
        other => other?,
    }
    session.wrote(name);
    if f64::from(dead_chunks) < punch_below * f64::from(entry.chunks) {
        released.push(Release::Punch { container: entry.id, dead: session.writer });
    }
    Ok(Some(ContainerEntry { dead: session.writer, dead_chunks, ..*entry }))
}

/// Releases the data objects that no entry names any more once `edits` are carried out.
pub(crate) fn release_data(
    containers: &Containers,
    edits: &Edits,
    released: &mut Vec<Release>,
) -> Result<()> {
    let mut before = BTreeSet::new();
    for id in edits.keys() {
        if let Some(e) = containers.get(*id)? {
            before.insert(e.data);
        }
    }
    let kept: HashSet<DataName> = edits.values().flatten().map(|e| e.data).collect();
    before.retain(|d| d.generation != WriterNo(0) && !kept.contains(d));
    if before.is_empty() {
        return Ok(());
    }
    containers.each(|e| {
        if !edits.contains_key(&e.id) {
            before.remove(&e.data);
        }
        Ok(())
    })?;
    let path = &containers.folder().path;
    released.extend(before.into_iter().map(|d| Release::Object(names::data(path, d))));
    Ok(())
}
