//! The reverse pass (RevDedup 3.2.2 and 3.2.3, `docs/flows/reverse-pass.md`): an older snapshot refers to the next newer
//! one for the chunks that both contain, and its own copies of them are removed.
//!
//! 1. The pass takes the oldest pending snapshot and the next newer one.
//! 2. Page by page, every chunk of the older one that the newer one contains becomes an indirect reference
//!    (`Pass::redirect`).
//! 3. The chunks that no snapshot of the disk references any more are found as in a deletion
//!    ([`crate::reclaim::unreferenced`]).
//! 4. The new recipe is made durable, then one swap makes recipe, dead chunks and released objects count.
//! 5. Space is freed by deleting, punching and compacting.
//!
//! What other disks may reference is only counted: when it is enough, and the disks are few, a sweep follows. A pass costs no
//! more where there are more disks.
//!
//! Only the older snapshot's recipe is written. A chunk that is not found in the newer one keeps its direct reference:
//! that costs space only.

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::policy::Policy;
use crate::container::tables::{Cache, Tables};
use crate::container::view::View;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::manifest::snapshots::known::{is_pending, may_have_older_pending, pending_pair, Known};
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use crate::recipe::indirect::{push, segment_of};
use crate::recipe::reference_index::extend;
use crate::recipe::writer::{PageWriter, WrittenRecipe};
use crate::reclaim::apply::{apply, Applied};
use crate::reclaim::change::{new_recipe_name, remove_new_recipe, Change, Rewritten};
use crate::reclaim::compact::compact_folder;
use crate::reclaim::released::end_and_delete_released;
use crate::reclaim::sweep::{sweep_unswept, SweepLimits};
use crate::reclaim::unreferenced::find_dead;
use format::{
    ChunkNo, ContainerId, Manifest, Ordinal, PageAt, PageNo, RecipeName, RecipePage, RecipeRoot, Reference,
    Reverse, SegmentNo, SegmentRecipe,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use store::Reserve;

/// Chunks of changed segments that are indexed at most, to find data that moved (about 100 MiB, for 4 GiB of 4 KiB
/// chunks).
const MOVED_CHUNKS_MAX: usize = 1 << 20;

/// About what a chunk of a container has.
const CHUNK_BYTES: u64 = 4096;
/// One of so many bytes of the newest snapshot is left in shared containers before these are swept.
const SWEEP_SHARE: u64 = 32;
/// Nor are they swept for less than that.
const SWEEP_BYTES_MIN: u64 = 4 << 20;

/// What a reverse pass did.
#[derive(Clone, Debug, Default)]
pub struct ReverseReport {
    /// Snapshots whose recipe was written anew.
    pub snapshots: u64,
    /// Chunks that became indirect in pages that were written.
    pub redirected_chunks: u64,
    /// Bytes given back to the store.
    pub freed_bytes: u64,
    /// Containers written again.
    pub compacted: u64,
    /// Why it was left for later: other maintenance, or damage.
    pub held_up: Option<String>,
}

impl Vault {
    /// Carries the pending reverse passes of a disk out. Called after each backup; `gc` finds what a crash left.
    ///
    /// `m`: the manifest that the backup has left. `cache`: tables that it has read or written.
    pub(crate) fn reverse(
        &self,
        folder: &Folder,
        m: &Manifest,
        policy: &Policy,
        cache: Cache,
    ) -> Result<ReverseReport> {
        let mut report = ReverseReport::default();
        let is_due = m.recent.iter().any(is_pending)
            || (may_have_older_pending(m) && folder.load()?.snapshots.iter().any(is_pending));
        if !is_due {
            return Ok(report);
        }
        let mut session = match Session::begin_if_free(folder) {
            Err(e @ VaultError::Busy { .. }) => {
                report.held_up = Some(e.to_string());
                return Ok(report);
            }
            other => other?,
        };
        let mut applied = Applied::default();
        let reversed =
            reverse_pending(self, &mut session, true, policy.rebuild_at, cache, &mut applied, &mut report);
        let mut left = None;
        match reversed {
            Err(e) if e.is_damage() => {
                folder.damage_met.note(folder.disk, &e);
                report.held_up = Some(e.to_string());
            }
            other => left = other?,
        }
        index_reversed(&session, policy.index_at, left)?;
        report.compacted += applied.compacted.containers;
        // Others were looked at when they lost chunks; `gc` looks at all.
        let (compacted, freed_bytes) = compact_folder(&session, policy.rebuild_at, Some(&applied.lost))?;
        report.compacted += compacted.containers;
        report.freed_bytes += freed_bytes;
        let (m, freed_bytes) = end_and_delete_released(session)?;
        report.freed_bytes += freed_bytes;
        if is_worth_a_sweep(&m) {
            // The passes stand.
            if let Err(e) = self.sweep_after_passes(folder, policy, &mut report) {
                report.held_up.get_or_insert(e.to_string());
            }
        }
        Ok(report)
    }

    /// Sweeps what the last passes have left in containers that other disks may reference, where these are few.
    fn sweep_after_passes(&self, folder: &Folder, policy: &Policy, report: &mut ReverseReport) -> Result<()> {
        let limits = SweepLimits::of_few_disks(policy.rebuild_at);
        // Damage is for `verify` to tell, and what finds no room is done later.
        let swept = sweep_unswept(self, folder, limits).unless_damaged_or_full()?.unwrap_or_default();
        report.compacted += swept.compacted;
        report.freed_bytes += swept.freed_bytes;
        folder.update(|m| {
            // What many disks may reference is for `gc`. What others were busy with is for the next backup.
            if swept.left > 0 || m.unswept.is_empty() {
                m.unswept_chunks = 0;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Whether containers that others may reference have lost so many chunks that it pays to look who needs them.
fn is_worth_a_sweep(m: &Manifest) -> bool {
    let data_bytes = m.recent.last().map_or(0, |newest| newest.data_bytes);
    m.unswept_chunks.saturating_mul(CHUNK_BYTES) >= (data_bytes / SWEEP_SHARE).max(SWEEP_BYTES_MIN)
}

/// Puts recipes that were reversed into the reference index, where so many wait. Where there is no room, they wait.
/// `known` as for [`extend`].
pub(crate) fn index_reversed(session: &Session, at: usize, known: Option<Manifest>) -> Result<()> {
    extend(session, at, known).unless_damaged_or_full().map(drop)
}

/// Whether a snapshot may wait for its reverse pass.
fn may_be_pending(m: &Manifest) -> bool {
    m.recent.iter().any(is_pending) || may_have_older_pending(m)
}

/// Steps 1 to 4 for every pending pair.
///
/// Each pair needs a writer's number of its own: the names of what it writes have it. `is_fresh`: the session has
/// written nothing under its number yet. `applied` tells what became of containers. Returns the manifest that the last pass has
/// left, if nothing changed it since.
pub(crate) fn reverse_pending(
    vault: &Vault,
    session: &mut Session,
    mut is_fresh: bool,
    rebuild_at: f64,
    mut cache: Cache,
    applied: &mut Applied,
    report: &mut ReverseReport,
) -> Result<Option<Manifest>> {
    loop {
        let view = vault.view_with(&session.folder, cache)?;
        match reverse_one(&view, session, &mut is_fresh, rebuild_at, applied, report)? {
            One::Missing => return Ok(None),
            One::Tried => {}
            One::Done(m) if may_be_pending(&m) => {}
            One::Done(m) => return Ok(Some(*m)),
        }
        cache = view.tables.into_cache();
    }
}

/// What became of the oldest pending pair.
enum One {
    /// There was none.
    Missing,
    /// It is to be looked again whether there is one.
    Tried,
    /// This manifest was left.
    Done(Box<Manifest>),
}

/// The same for the oldest pending pair.
fn reverse_one(
    view: &View,
    session: &mut Session,
    is_fresh: &mut bool,
    rebuild_at: f64,
    applied: &mut Applied,
    report: &mut ReverseReport,
) -> Result<One> {
    let m = match Known::newest(&view.manifest) {
        Some(newest) => newest,
        None => Known::all(view.whole()?),
    };
    let Some([older, newer]) = pending_pair(m.snapshots) else { return Ok(One::Missing) };
    // Nothing in a recipe is of a later writer than its generation says: backups may have committed since the session
    // began.
    let is_later = older.generation.max(older.made_by) > session.writer;
    if !std::mem::take(is_fresh) || is_later {
        session.renew()?;
    }
    let mut pass = Pass {
        session,
        view,
        older: RecipeReader::open(&view.folder, m.snapshots, older)?,
        newer: RecipeReader::open(&view.folder, m.snapshots, newer)?,
        damaged: m.damaged.iter().copied().collect(),
        moved: None,
        redirected_chunks: 0,
    };
    let name = new_recipe_name(session, older);
    let Some((root, recipe)) = pass.run(name)? else {
        // Cut in another way: nothing of it can be found in the newer one.
        let id = older.id;
        session.swap(|m| {
            m.change_snapshots(|_, all| {
                all.iter_mut().filter(|s| s.id == id).for_each(|s| s.reverse = Reverse::No);
                Ok(())
            })
        })?;
        return Ok(One::Tried);
    };
    let kept: HashSet<&PageAt> = root.pages.iter().collect();
    let unreferenced =
        pass.older.root.pages.iter().filter(|p| !kept.contains(p)).filter_map(|p| p.page()).collect();
    let rewritten = Rewritten {
        id: older.id,
        generation: session.writer,
        root,
        recipe,
        unreferenced,
        reverse: Reverse::Done,
    };
    let neighbours = Some([older.id, newer.id]);
    let change = Change { to_delete: BTreeSet::new(), rewritten: vec![rewritten], neighbours };
    let dead = match find_dead(&view.folder, m, &change) {
        Err(e) => {
            remove_new_recipe(session, older)?;
            return Err(e);
        }
        other => other?,
    };
    let Some(left) = apply(session, m, &change, &dead, rebuild_at, applied)? else { return Ok(One::Tried) };
    report.snapshots += 1;
    report.redirected_chunks += pass.redirected_chunks;
    Ok(One::Done(Box::new(left)))
}

/// One pair of neighbours.
struct Pass<'a> {
    session: &'a Session,
    view: &'a View,
    older: RecipeReader,
    newer: RecipeReader,
    /// Containers that nothing is given up for.
    /// Containers of the disk itself that are known to be damaged.
    damaged: HashSet<ContainerId>,
    /// Chunks of the newer one's segments that differ from the older one's: where they are.
    moved: Option<HashMap<[u8; 32], (SegmentNo, Ordinal)>>,
    redirected_chunks: u64,
}

impl Pass<'_> {
    /// Writes the older one's recipe anew; `None` where the two are not cut alike.
    fn run(&mut self, name: RecipeName) -> Result<Option<(RecipeRoot, WrittenRecipe)>> {
        let (a, b) = (&self.older.root, &self.newer.root);
        if a.segment_bytes != b.segment_bytes || a.chunking != b.chunking {
            return Ok(None);
        }
        // Left for later where there is no room.
        let mut out = PageWriter::new(&self.view.folder.with_reserve(Reserve::None), name);
        let mut root = self.older.root.clone();
        for (n, slot) in root.pages.iter_mut().enumerate() {
            let PageAt::Page(_) = slot else { continue };
            if self.newer.root.pages.get(n) == Some(slot) {
                *slot = PageAt::Newer;
                continue;
            }
            let no = PageNo(n as u64);
            let Some(page) = self.older.page(no)? else { continue };
            let newer = self.newer.page(no)?.unwrap_or_default();
            let mut sound = true;
            for (_, s) in &newer.segments {
                sound = sound && self.is_sound(s)?;
            }
            if sound && has_same_content(&page, &newer) {
                *slot = PageAt::Newer;
                continue;
            }
            let redirected = self.redirect(no, &page, &newer)?;
            if redirected != *page {
                *slot = PageAt::Page(out.put(self.session, &redirected)?);
            }
        }
        let recipe = out.finish(self.session, &root)?;
        Ok(Some((root, recipe)))
    }

    /// Redirects the references of a page.
    fn redirect(&mut self, page_no: PageNo, page: &RecipePage, newer: &RecipePage) -> Result<RecipePage> {
        let mut redirected = RecipePage::default();
        for (index, s) in &page.segments {
            let no = page_no.segment(*index);
            let of_newer = match segment_of(newer, no) {
                Some(n) if self.is_sound(n)? => Some(n),
                _ => None,
            };
            let references = match of_newer {
                Some(n) if n.fingerprint == s.fingerprint => {
                    self.redirected_chunks += s.references.iter().map(Reference::chunks).sum::<u64>();
                    redirect_whole(no, &s.references)
                }
                same_place => self.redirect_chunks(no, s, same_place)?,
            };
            redirected.segments.push((*index, SegmentRecipe { references, ..s.clone() }));
        }
        Ok(redirected)
    }

    /// Redirects the chunks of a segment that has changed.
    fn redirect_chunks(
        &mut self,
        no: SegmentNo,
        s: &SegmentRecipe,
        same_place: Option<&SegmentRecipe>,
    ) -> Result<Vec<Reference>> {
        let tables = &self.view.tables;
        let Some(wanted) = fingerprints_of(tables, s)? else { return Ok(s.references.clone()) };
        let there = match same_place {
            Some(n) => fingerprints_of(tables, n)?.unwrap_or_default(),
            None => Vec::new(),
        };
        let place_of: HashMap<[u8; 32], Ordinal> =
            there.iter().enumerate().rev().map(|(n, f)| (*f, Ordinal(n as u32))).collect();
        let mut out = Vec::new();
        let (mut at, mut expected) = (0, (no, Ordinal(0)));
        for r in &s.references {
            let Reference::Direct { container, first, count } = *r else {
                push(&mut out, *r);
                continue;
            };
            for n in 0..count {
                let f = &wanted[at];
                at += 1;
                // Where the one before it was found, so that runs stay runs.
                let next =
                    (expected.0 == no && there.get(expected.1 .0 as usize) == Some(f)).then_some(expected);
                let found = match next.or_else(|| place_of.get(f).map(|o| (no, *o))) {
                    None => self.find_moved(f)?,
                    found => found,
                };
                let redirected = match found {
                    Some((segment, ordinal)) => {
                        expected = (segment, Ordinal(ordinal.0 + 1));
                        self.redirected_chunks += 1;
                        Reference::Indirect { segment, ordinal, count: 1 }
                    }
                    None => Reference::Direct { container, first: ChunkNo(first.0 + n), count: 1 },
                };
                push(&mut out, redirected);
            }
        }
        Ok(out)
    }

    /// Whether none of a segment's containers is known to be damaged.
    fn is_sound(&self, s: &SegmentRecipe) -> Result<bool> {
        for r in &s.references {
            if let Reference::Direct { container, .. } = r {
                if self.view.tables.is_damaged(*container, &self.damaged)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn find_moved(&mut self, f: &[u8; 32]) -> Result<Option<(SegmentNo, Ordinal)>> {
        if self.moved.is_none() {
            self.moved = Some(self.index_changed()?);
        }
        Ok(self.moved.as_ref().and_then(|m| m.get(f).copied()))
    }

    /// Indexes the chunks of the newer one's segments that are not the older one's, as far as the budget goes.
    fn index_changed(&self) -> Result<HashMap<[u8; 32], (SegmentNo, Ordinal)>> {
        let (mut older, mut newer) = (self.older.again(), self.newer.again());
        let mut index = HashMap::new();
        for no in newer.page_numbers() {
            if older.root.pages.get(no.0 as usize) == newer.root.pages.get(no.0 as usize) {
                continue;
            }
            let Some(page) = newer.page(no)? else { continue };
            let old = older.page(no)?.unwrap_or_default();
            for (i, s) in &page.segments {
                let segment = no.segment(*i);
                if !self.is_sound(s)? {
                    continue;
                }
                if segment_of(&old, segment).is_some_and(|o| o.fingerprint == s.fingerprint) {
                    continue;
                }
                let Some(fingerprints) = fingerprints_of(&self.view.tables, s)? else { continue };
                if index.len() + fingerprints.len() > MOVED_CHUNKS_MAX {
                    return Ok(index);
                }
                for (ordinal, f) in fingerprints.into_iter().enumerate() {
                    index.entry(f).or_insert((segment, Ordinal(ordinal as u32)));
                }
            }
        }
        Ok(index)
    }
}

/// Whether two pages have the same segments with the same content, wherever that is stored.
fn has_same_content(a: &RecipePage, b: &RecipePage) -> bool {
    let of = |p: &RecipePage| p.segments.iter().map(|(n, s)| (*n, s.fingerprint)).collect::<Vec<_>>();
    a.segments.len() == b.segments.len() && of(a) == of(b)
}

/// All chunks of a segment, as the newer one has them at the same place.
fn redirect_whole(segment: SegmentNo, references: &[Reference]) -> Vec<Reference> {
    let mut out = Vec::new();
    let mut ordinal = Ordinal(0);
    for r in references {
        let count = r.chunks() as u32;
        match r {
            Reference::Null { .. } => push(&mut out, *r),
            _ => push(&mut out, Reference::Indirect { segment, ordinal, count }),
        }
        ordinal = Ordinal(ordinal.0.saturating_add(count));
    }
    out
}

/// The fingerprints of a segment's chunks, in order; `None` where a table of theirs is damaged.
fn fingerprints_of(tables: &Tables, s: &SegmentRecipe) -> Result<Option<Vec<[u8; 32]>>> {
    let mut all = Vec::new();
    for r in &s.references {
        let Reference::Direct { container, first, count } = *r else { continue };
        let Some(table) = tables.own().folder().unless_damaged(tables.get(container))? else {
            return Ok(None);
        };
        let last = ChunkNo(first.0.saturating_add(count - 1));
        match (table.index_of(first), table.index_of(last)) {
            (Some(from), Some(to)) if to.0 - from.0 == count - 1 => {
                all.extend_from_slice(from.range(count).of(&table.fingerprints));
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(all))
}
