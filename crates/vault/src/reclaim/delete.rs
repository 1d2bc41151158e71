//! Deletion of snapshots (`docs/flows/delete.md`).
//!
//! 1. One swap marks the snapshots deleted: users no longer see them, whatever fails later.
//! 2. An older snapshot whose indirect references go through them gets a new recipe without these references. The chunks
//!    that only the deleted snapshots referenced are found by comparing their summaries with those of all other snapshots
//!    of the disk, or with their filters ([`crate::recipe::filters`]).
//! 3. Containers with much dead space are written again, and lists of dead chunks are put beside the others. A second swap
//!    makes them count, takes containers without a live chunk out of the table, and removes the snapshots.
//! 4. What was too much to be written again at once is compacted ([`crate::reclaim::compact`]). Objects that the swaps
//!    released are deleted, as soon as no older reader may need them ([`crate::reclaim::released`]).
//! 5. Shared containers that the disk no longer references are swept ([`crate::reclaim::sweep`]), or left to `gc` where
//!    many disks may reference them.
//!
//! Steps 2 and 3 of a snapshot wait for the next deletion or `gc` if it is the parent of a running backup, if other
//! maintenance has the disk, or if damage hides what the remaining snapshots reference.

use crate::base::error::{Result, VaultError};
use crate::base::retention::{Clock, Keeps, RetentionRules};
use crate::base::snapshot_spec::{find_ids, find_live};
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::rollback::{self, load_checked_closely};
use crate::manifest::session::{is_alive, remove_if_empty, Session};
use crate::manifest::snapshots::known::Known;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::recipe::chain::{RecipeReader, Unlinked};
use crate::recipe::writer::PageWriter;
use crate::reclaim::apply::{apply, Applied};
use crate::reclaim::change::{new_recipe_name, remove_new_recipe, Change, Rewritten};
use crate::reclaim::compact::compact_folder;
use crate::reclaim::leaks;
use crate::reclaim::released::end_and_delete_released;
use crate::reclaim::sweep::{sweep_unswept, SweepLimits};
use crate::reclaim::unreferenced::find_dead;
use format::{Manifest, PageAt, PageNo, Reverse, SnapId, SnapshotEntry, SnapshotState, WriterKind};
use std::collections::{BTreeSet, HashSet};
use store::Reserve;

/// Share of dead chunks from which deletion compacts a container.
pub const COMPACT_AT_DELETION: f64 = 0.5;

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
    /// Containers that many disks share, some of whose space `gc` may give back.
    pub left_shared: u64,
    /// Why space was not given back although nothing runs that needs it. The snapshots are gone all the same.
    pub held_up: Option<VaultError>,
    /// Chunks that earlier deletions had left because of what filters found by mistake.
    pub repaired_chunks: u64,
}

/// What retention did, or would do.
#[derive(Debug, Default)]
pub struct RetainReport {
    /// The snapshots of the disk, oldest first, and why each stays. Those without a reason go.
    pub snapshots: Vec<(SnapshotEntry, Vec<Keeps>)>,
    /// The deletion of these.
    pub deletion: DeleteReport,
}

/// What the removal of a disk did.
#[derive(Debug, Default)]
pub struct RemoveReport {
    /// The deletion of its snapshots.
    pub deletion: DeleteReport,
    /// Whether the disk is gone: other disks may use something of it, or something waits.
    pub is_gone: bool,
}

impl Vault {
    /// Deletes the snapshots of a disk that no rule keeps, by this clock, and that are not held, in one swap. With `dry_run`
    /// nothing changes.
    ///
    /// # Errors
    /// Rules that keep nothing.
    pub fn retain(
        &self,
        disk: &str,
        rules: &RetentionRules,
        clock: Clock<'_>,
        dry_run: bool,
    ) -> Result<RetainReport> {
        if rules.is_empty() {
            return Err(VaultError::Usage(
                "these rules keep no snapshot; `sapwood remove` takes a disk away".into(),
            ));
        }
        let mut report = RetainReport::default();
        let done = disks::begin_on(self, disk, |at| {
            let folder = at.folder.with_reserve(Reserve::Whole);
            let (m, evidence) = folder.load_checked_closely()?;
            let judged = judge(&m, rules, clock);
            let without_reason = |(s, why): &(SnapshotEntry, Vec<Keeps>)| why.is_empty().then_some(s.id);
            let ids: BTreeSet<SnapId> = judged.iter().filter_map(without_reason).collect();
            report.snapshots = judged;
            if dry_run || ids.is_empty() {
                return Ok(None);
            }
            let (m, deleted) = folder.update_whole(|_, all| mark(all, disk, &ids))?;
            rollback::record(&folder, &m, &evidence);
            Ok(Some((folder, deleted)))
        })?;
        if let Some((folder, deleted)) = done {
            report.deletion = self.after_marking(&folder, deleted);
        }
        Ok(report)
    }

    /// Deletes all snapshots of a disk, and the disk with them, unless other disks use something of it.
    ///
    /// # Errors
    /// `Refused` where a snapshot is held: nothing is deleted then.
    pub fn remove(&self, disk: &str) -> Result<RemoveReport> {
        let (folder, deleted) = disks::begin_on(self, disk, |at| {
            let folder = at.folder.with_reserve(Reserve::Whole);
            let (_, evidence) = load_checked_closely(&folder)?;
            let (m, deleted) = folder.update_whole(|_, all| {
                let live = all.iter().filter(|s| s.state == SnapshotState::Live);
                let ids: BTreeSet<SnapId> = live.map(|s| s.id).collect();
                mark(all, disk, &ids)
            })?;
            rollback::record(&folder, &m, &evidence);
            Ok((folder, deleted))
        })?;
        let deletion = self.after_marking(&folder, deleted);
        remove_if_empty(&folder)?;
        Ok(RemoveReport { deletion, is_gone: !folder.has_content()? })
    }

    /// Deletes snapshots of a disk. `specs` are as in [`Vault::restore`]; all of them are found, or nothing is deleted.
    pub fn delete(&self, disk: &str, specs: &[&str]) -> Result<DeleteReport> {
        // It gives space back: it must work where none is left.
        let (folder, deleted) = disks::begin_on(self, disk, |at| {
            let folder = at.folder.with_reserve(Reserve::Whole);
            // Once: when the swap is tried again, `latest` may be another snapshot.
            let (m, evidence) = folder.load_checked_closely()?;
            let ids = find_ids(&m.snapshots, disk, specs)?;
            let (m, deleted) = folder.update_whole(|_, all| mark(all, disk, &ids))?;
            rollback::record(&folder, &m, &evidence);
            Ok((folder, deleted))
        })?;
        Ok(self.after_marking(&folder, deleted))
    }

    /// The snapshots are gone for users: whatever fails from here on concerns their space only.
    fn after_marking(&self, folder: &Folder, deleted: Vec<SnapshotEntry>) -> DeleteReport {
        let mut report = DeleteReport { deleted, ..DeleteReport::default() };
        let done = self.reclaim_space(folder, &mut report);
        report.held_up = match report.held_up.take().or(done.err()) {
            // A collection has taken the disk away, with its last snapshot.
            Some(VaultError::Missing { .. }) if matches!(folder.load_root_unless_empty(), Ok(None)) => None,
            held_up => held_up,
        };
        if let Some(e) = &report.held_up {
            folder.damage_met.note(folder.disk, e);
        }
        self.fill_reserve();
        report
    }

    /// Steps 2 to 5.
    fn reclaim_space(&self, folder: &Folder, report: &mut DeleteReport) -> Result<()> {
        let mut session = match Session::begin(folder, WriterKind::Maintenance) {
            Err(e @ VaultError::Busy { .. }) => {
                report.waiting = report.deleted.len();
                report.waiting_for = Some(e.to_string());
                return Ok(());
            }
            other => other?,
        };
        let mut applied = Applied::default();
        match finish_deletions(&session, COMPACT_AT_DELETION, &mut applied) {
            Err(e) if e.is_damage_or_full() => report.held_up = Some(e),
            other => report.waiting = other?,
        }
        match repair_if_due(&mut session, &mut applied) {
            Err(e) if e.is_damage_or_full() => {
                report.held_up.get_or_insert(e);
            }
            other => report.repaired_chunks = other?,
        }
        // A repair finds dead chunks anywhere. Other containers were looked at when they lost chunks; `gc` looks at all.
        let only = (report.repaired_chunks == 0).then_some(&applied.lost);
        report.freed_bytes = compact_folder(&session, COMPACT_AT_DELETION, only)?.1;
        report.freed_bytes += end_and_delete_released(session)?.1;
        let swept = sweep_unswept(self, folder, SweepLimits::of_few_disks(COMPACT_AT_DELETION))?;
        report.freed_bytes += swept.freed_bytes;
        report.left_shared = swept.left;
        report.held_up = report.held_up.take().or(swept.held_up);
        Ok(())
    }
}

/// Leaks of deletions by filters are repaired before they are too many.
fn repair_if_due(session: &mut Session, applied: &mut Applied) -> Result<u64> {
    if leaks::estimated(&session.folder, &session.folder.load()?)? > leaks::LEAK_MAX {
        leaks::repair(session, COMPACT_AT_DELETION, applied)
    } else {
        Ok(0)
    }
}

/// Why each snapshot that users see stays.
fn judge(m: &Whole, rules: &RetentionRules, clock: Clock<'_>) -> Vec<(SnapshotEntry, Vec<Keeps>)> {
    let times: Vec<i64> = m.live().map(|s| s.time).collect();
    let judged = m.live().cloned().zip(rules.apply(&times, clock));
    let with_holds = judged.map(|(s, mut why)| {
        why.extend(s.held.then_some(Keeps::Held));
        (s, why)
    });
    with_holds.collect()
}

/// Step 1.
fn mark(all: &mut [SnapshotEntry], disk: &str, ids: &BTreeSet<SnapId>) -> Result<Vec<SnapshotEntry>> {
    let mut deleted = Vec::new();
    for id in ids {
        let s = find_live(all, disk, *id)?;
        if s.held {
            let why = format!("{disk}@{id}: is held; `sapwood release` it first");
            return Err(VaultError::Refused(why));
        }
        deleted.push(s.clone());
        s.state = SnapshotState::Deleted;
    }
    Ok(deleted)
}

/// Steps 2 and 3 for every snapshot marked deleted. Returns how many must wait. `applied` tells what became of
/// containers.
pub(crate) fn finish_deletions(session: &Session, rebuild_at: f64, applied: &mut Applied) -> Result<usize> {
    loop {
        let m = session.folder.load()?;
        let parents = parents_of_living(&session.folder, &m)?;
        let (to_delete, waiting) = deletable(&m, &parents);
        if to_delete.is_empty() {
            return Ok(waiting);
        }
        let rewritten = rewrite_older(session, &m, &to_delete)?;
        let change = Change { to_delete, rewritten, neighbours: None };
        let dead = match find_dead(&session.folder, Known::all(&m), &change) {
            Err(e) => {
                let rewritten = |s: &&SnapshotEntry| change.rewritten.iter().any(|r| r.id == s.id);
                m.snapshots.iter().filter(rewritten).try_for_each(|s| remove_new_recipe(session, s))?;
                return Err(e);
            }
            other => other?,
        };
        if apply(session, Known::all(&m), &change, &dead, rebuild_at, applied)?.is_some() {
            return Ok(waiting);
        }
        // A backup has committed meanwhile: what it references was not looked at.
    }
}

/// The snapshots marked deleted that can go now, and how many must wait: parents of living backups, and what the
/// references of such a parent lead through, since its recipe must stay as it is.
fn deletable(m: &Whole, parents: &HashSet<SnapId>) -> (BTreeSet<SnapId>, usize) {
    let (mut to_delete, mut waiting) = (BTreeSet::new(), 0);
    let mut is_needed = false;
    for s in &m.snapshots {
        let is_parent = parents.contains(&s.id);
        let deleted = s.state == SnapshotState::Deleted;
        if deleted && !is_parent && !is_needed {
            to_delete.insert(s.id);
        } else {
            waiting += usize::from(deleted);
        }
        is_needed = s.reverse == Reverse::Done && (is_parent || (is_needed && deleted));
    }
    (to_delete, waiting)
}

/// Recipes whose references lead through to_delete snapshots, without them: at most one for each row of snapshots to delete.
fn rewrite_older(session: &Session, m: &Whole, to_delete: &BTreeSet<SnapId>) -> Result<Vec<Rewritten>> {
    let mut all = Vec::new();
    for (n, s) in m.snapshots.iter().enumerate() {
        if s.reverse != Reverse::Done || to_delete.contains(&s.id) {
            continue;
        }
        let gone = m.snapshots[n + 1..].iter().take_while(|s| to_delete.contains(&s.id)).count();
        if gone == 0 {
            continue;
        }
        let mut recipe = RecipeReader::open(&session.folder, &m.snapshots, s)?;
        let mut root = recipe.root.clone();
        let mut out = PageWriter::new(&session.folder, new_recipe_name(session, s));
        for no in 0..root.pages.len() {
            root.pages[no] = match recipe.unlink(PageNo(no as u64), gone)? {
                Unlinked::At(at) => at,
                Unlinked::Fresh(page) => PageAt::Page(out.put(session, &page)?),
            };
        }
        let written = out.finish(session, &root)?;
        let kept: HashSet<&PageAt> = root.pages.iter().collect();
        let unreferenced =
            recipe.root.pages.iter().filter(|p| !kept.contains(p)).filter_map(|p| p.page()).collect();
        // As far as all of them lead further, it does; the first one that does not has nothing but direct references.
        let row = &m.snapshots[n + 1..=n + gone];
        let reverse = row.iter().map(|s| s.reverse).find(|r| *r != Reverse::Done).unwrap_or(Reverse::Done);
        all.push(Rewritten {
            id: s.id,
            generation: session.writer,
            root,
            recipe: written,
            unreferenced,
            reverse,
        });
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
