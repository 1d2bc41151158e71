//! Collection: removes what crashes, cancellations and running readers left behind (`docs/flows/gc.md`).
//!
//! In each folder it fences writers whose process is gone, removes orphans, completes pending deletions and reverse
//! passes, compacts containers, and deletes released objects. A folder whose manifest was rolled back is left as it is
//! ([`crate::manifest::rollback`]). Nothing locks the vault: backups, restores and deletions run beside it.

use crate::base::error::{damage_line, Result, UnlessDamaged, VaultError};
use crate::base::policy::INDEX_AT;
use crate::base::progress::Progress;
use crate::container::tables::{Cache, TABLE_CACHE_BYTES};
use crate::lookup::claims::{claim_state, is_left_behind, ClaimState};
use crate::lookup::{hooks, referrers};
use crate::manifest::disks::{self, DiskAt};
use crate::manifest::folder::Folder;
use crate::manifest::listing::list_names;
use crate::manifest::reader::Reader;
use crate::manifest::rename::tidy_names;
use crate::manifest::session::{fence_dead, is_alive, is_empty, remove_if_empty, Session};
use crate::manifest::vault::Vault;
use crate::recipe::reference_index::forget_damaged;
use crate::reclaim::apply::Applied;
use crate::reclaim::compact::compact_folder;
use crate::reclaim::compact::recompress::{bytes_due, recompress, LEVELS};
use crate::reclaim::delete::finish_deletions;
use crate::reclaim::gc_report::GcReport;
use crate::reclaim::leaks;
use crate::reclaim::orphans::{list_checked, orphans_of, remove_orphans};
use crate::reclaim::released::{delete_released, end_and_delete_released};
use crate::reclaim::reverse::{index_reversed, reverse_pending, ReverseReport};
use crate::reclaim::sweep::{sweep_disk, sweep_popular, sweep_unswept, SweepLimits, SweepOf};
use format::{names, DiskId, Manifest, WriterKind};
use std::collections::HashSet;
use std::time::Instant;
use store::{Reserve, StoreError};

/// Share of dead chunks from which collection compacts a container.
pub const COMPACT_AT_COLLECTION: f64 = 0.25;

impl Vault {
    /// Collects. With `dry_run` nothing changes, and the report says what is waiting.
    pub fn gc(&self, dry_run: bool) -> Result<GcReport> {
        if !dry_run {
            return self.collect(SweepOf::Unswept);
        }
        let mut report = GcReport::default();
        let mut full = None;
        for at in self.disks_to_collect(&mut report, false)? {
            let looked = look_for_orphans(&at.folder, &mut report);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), looked)?;
        }
        Ok(report)
    }

    /// Collects, and sweeps all containers that other disks reference, whether or not a disk has given something up. It
    /// finds chunks that damage has hidden from deletions, and referrer records that backups have left that failed.
    pub fn gc_all(&self) -> Result<GcReport> {
        self.collect(SweepOf::Referred)
    }

    fn collect(&self, of: SweepOf) -> Result<GcReport> {
        let mut report = GcReport::default();
        let mut full = None;
        report.freed_bytes += self.store.sweep()?;
        let disks = self.disks_to_collect(&mut report, true)?;
        // Before anything is removed for want of a record. Damage is told below.
        for at in &disks {
            referrers::put_back(&at.folder.with_reserve(Reserve::Whole)).unless_damaged_or_full()?;
        }
        let limits = SweepLimits { threshold: COMPACT_AT_COLLECTION, referrers: 0, hands_over: true };
        for at in &disks {
            let done = self.collect_disk(at, limits, &mut report);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        // Each owner once, for all disks that need less of it than before.
        for at in &disks {
            let done = self.sweep_disk(at, of, COMPACT_AT_COLLECTION, &mut report);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        let done = sweep_popular(self, COMPACT_AT_COLLECTION, &mut report);
        skip_damage(&mut report, &mut full, (&self.popular(), "popular"), done)?;
        // Owners may have lost their last referrers to what was collected after them.
        for at in &disks {
            let done = remove_if_empty(&at.folder);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        self.tidy_hooks(&mut report)?;
        self.remove_nameless(&mut report)?;
        self.remove_dead_holds(&mut report)?;
        report.freed_bytes += self.store.sweep()?;
        self.fill_reserve();
        full.map_or(Ok(report), Err)
    }

    /// Collects one disk, unless its failed first backup has taken it away meanwhile.
    fn collect_disk(&self, at: &DiskAt, limits: SweepLimits, report: &mut GcReport) -> Result<()> {
        let done = collect_folder(self, &at.folder, limits, report);
        disks::unless_gone(self, at, done).map(drop)
    }

    /// Sweeps containers of one disk.
    fn sweep_disk(&self, at: &DiskAt, of: SweepOf, threshold: f64, report: &mut GcReport) -> Result<()> {
        let done = sweep_disk(self, &at.folder, of, threshold, report);
        disks::unless_gone(self, at, done).map(drop)
    }

    /// Makes what was used of the reserve again. What cannot be made now is made by the next one who writes.
    pub(crate) fn fill_reserve(&self) {
        let _ = self.store.fill_reserve();
    }

    /// Compacts containers with a share of `threshold` dead chunks or more, of one disk or of all.
    pub fn compact(&self, disk: Option<&str>, threshold: f64) -> Result<GcReport> {
        let mut report = GcReport::default();
        let mut full = None;
        let disks = match disk {
            Some(name) => vec![disks::one(self, name)?],
            None => self.disks_to_collect(&mut report, false)?,
        };
        // What one disk has given up of others is looked at now, and of all disks once below.
        let referrers = if disk.is_some() { usize::MAX } else { 0 };
        let limits = SweepLimits { threshold, referrers, hands_over: true };
        for at in &disks {
            let done = self.collect_disk(at, limits, &mut report);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        for at in &disks {
            let done = self.sweep_disk(at, SweepOf::Unswept, threshold, &mut report);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        if disk.is_none() {
            let done = sweep_popular(self, threshold, &mut report);
            skip_damage(&mut report, &mut full, (&self.popular(), "popular"), done)?;
        }
        self.fill_reserve();
        full.map_or(Ok(report), Err)
    }

    /// Packs containers of one disk or of all again at a level of zstd from 1 to 19, those that have not been yet. It may
    /// be stopped at any time, and goes on where it was. At `until` it ends, and reports what is left.
    ///
    /// # Errors
    /// `Usage` for another level; `Cancelled`.
    pub fn recompress(
        &self,
        disk: Option<&str>,
        level: u8,
        until: Option<Instant>,
        progress: &Progress,
    ) -> Result<GcReport> {
        if !LEVELS.contains(&level) {
            let (least, most) = (LEVELS.start(), LEVELS.end());
            return Err(VaultError::Usage(format!("{level} is not a level of zstd from {least} to {most}")));
        }
        let mut report = GcReport::default();
        let mut full = None;
        let disks = match disk {
            Some(name) => vec![disks::one(self, name)?],
            None => self.disks_to_collect(&mut report, false)?,
        };
        let due_of = |at: &DiskAt| Ok(bytes_due(&at.folder, level).unless_damaged()?.unwrap_or(0));
        progress.set_total(disks.iter().map(due_of).sum::<Result<u64>>()?);
        for at in &disks {
            let (compacted, freed_bytes) = (&mut report.compacted, &mut report.freed_bytes);
            let done = recompress(&at.folder, level, until, progress, compacted, freed_bytes);
            let done = disks::unless_gone(self, at, done);
            if let Ok(Some(false)) = done {
                report.left_bytes += due_of(at)?;
            }
            let done = done.map(drop);
            skip_damage(&mut report, &mut full, (&at.folder, &at.name), done)?;
        }
        self.fill_reserve();
        full.map_or(Ok(report), Err)
    }

    /// All disks. One whose name is damaged is collected as well; the name is restored, or the damage is reported.
    fn disks_to_collect(&self, report: &mut GcReport, put_back: bool) -> Result<Vec<DiskAt>> {
        let (disks, nowhere) = disks::all(self)?;
        for at in &disks {
            match &at.name_fault {
                Some(_) if put_back && disks::put_name_back(self, at)? => {
                    report.names_put_back.push(at.name.clone());
                }
                Some(fault) => report.skipped.push(damage_line(fault.clone())),
                None => {}
            }
        }
        report.skipped.extend(nowhere.into_iter().map(damage_line));
        Ok(disks)
    }

    /// Folders of disks that have no name: their first backup lost a race or was killed before it began.
    fn remove_nameless(&self, report: &mut GcReport) -> Result<()> {
        let named: HashSet<DiskId> = disks::all(self)?.0.iter().map(|d| d.folder.disk).collect();
        for (folder, evidence) in self.listed_folders()?.into_iter().filter(|(f, _)| !named.contains(&f.disk))
        {
            let id = folder.disk;
            let m = match folder.load_root_unless_empty() {
                Ok(Some(m)) => m,
                // Commit records are all that is left, if anything is.
                Ok(None) => {
                    report.add_removed(folder.remove()?);
                    continue;
                }
                _ => {
                    report.skipped.push(format!("{}: has no readable manifest and no name", folder.path));
                    continue;
                }
            };
            if let Err(e) = evidence.check(&folder, &m) {
                report.skipped.push(format!("{}: {e}", folder.path));
                continue;
            }
            // Its name may have come since it was looked for, and one that is not empty may have lost its name by damage.
            if disks::may_lead_to(self, &m.name, id) || !is_empty(&m) || any_living(&folder, &m)? {
                continue;
            }
            // A session that has just ended may have given it its name.
            let is_same = folder.load_tagged()?.is_some_and(|(now, _)| now.sequence == m.sequence);
            if !is_same || disks::may_lead_to(self, &m.name, id) {
                continue;
            }
            report.add_removed(folder.remove()?);
        }
        Ok(())
    }

    /// Joins the hooks, without those of containers that are no more.
    fn tidy_hooks(&self, report: &mut GcReport) -> Result<()> {
        let folder = self.popular();
        match hooks::join(&folder, u64::MAX, true).and_then(|_| hooks::weed(&folder)) {
            Err(e) if e.is_damage() => report.skipped.push(format!("{}: {e}", names::HOOKS)),
            // They are joined as soon as there is room.
            Err(e) if e.is_full() => {}
            joined => drop(joined?),
        }
        Ok(())
    }

    /// Sessions, readers, claims and retiring records of processes that are no more. A claim or retiring record goes only
    /// when the writer whose work it protects is fenced.
    fn remove_dead_holds(&self, report: &mut GcReport) -> Result<()> {
        let all_fenced = report.skipped.is_empty() && report.busy.is_empty();
        for prefix in [names::CLAIMS, names::RETIRING, names::SESSIONS, names::READERS] {
            for object in list_names(&*self.store, prefix)? {
                match self.is_over(prefix, &object, all_fenced) {
                    // Whether its process lives cannot be told.
                    Err(VaultError::Store(StoreError::Unreadable { object, op, source })) => {
                        report.skipped.push(damage_line((object, format!("cannot {op}: {source}"))));
                    }
                    Err(e) if e.is_damage_or_full() => report.skipped.push(format!("{object}: {e}")),
                    over => report.dead_sessions += u64::from(over? && self.store.delete(&object)?),
                }
            }
        }
        Ok(())
    }

    /// Whether the process of one of these objects is no more, and can no longer commit. `all_fenced`: all dead writers of
    /// disks have been fenced.
    fn is_over(&self, prefix: &str, object: &str, all_fenced: bool) -> Result<bool> {
        let folder = self.popular().with_reserve(Reserve::Whole);
        match prefix {
            names::CLAIMS => Ok(match claim_state(&folder, object)? {
                ClaimState::Counts => false,
                ClaimState::Over => true,
                ClaimState::Unknown => all_fenced,
            }),
            names::RETIRING => {
                let owner = object.strip_prefix(prefix).and_then(|rest| rest.split_once('/'));
                match owner.and_then(|(owner, _)| owner.parse::<DiskId>().ok()) {
                    Some(owner) => is_left_behind(&folder.of(owner), object),
                    None => Ok(!self.store.is_leased(object)?),
                }
            }
            _ => Ok(!self.store.is_leased(object)?),
        }
    }
}

/// Reports what is wrong with one folder; the others are collected all the same.
fn skip_damage(
    report: &mut GcReport,
    full: &mut Option<VaultError>,
    (folder, name): (&Folder, &str),
    done: Result<()>,
) -> Result<()> {
    match done {
        Err(e) if e.is_damage() => {
            folder.damage_met.note(folder.disk, &e);
            let why = format!("{name}: {e}");
            if !report.skipped.contains(&why) {
                report.skipped.push(why);
            }
            Ok(())
        }
        // The other folders may give room; it is told at the end.
        Err(e) if e.is_full() => {
            full.get_or_insert(e);
            Ok(())
        }
        Err(e @ VaultError::Busy { .. }) => {
            let why = e.to_string();
            if !report.busy.contains(&why) {
                report.busy.push(why);
            }
            Ok(())
        }
        other => other,
    }
}

fn any_living(folder: &Folder, m: &Manifest) -> Result<bool> {
    for w in &m.writers {
        if is_alive(&*folder.store, w.token)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Collects one disk's folder.
fn collect_folder(vault: &Vault, folder: &Folder, limits: SweepLimits, report: &mut GcReport) -> Result<()> {
    let threshold = limits.threshold;
    // It gives space back: it must work where none is left.
    let folder = &folder.with_reserve(Reserve::Whole);
    // Before a writer is registered: its number may be the one that proves a rollback.
    let listed = list_checked(folder)?;
    tidy_names(folder, &folder.load_root()?)?;
    let mut session = Session::begin(folder, WriterKind::Maintenance)?;
    fence_dead(&session)?;
    // Room first: what follows needs some.
    remove_orphans(&session, &listed, report)?;
    report.freed_bytes += delete_released(folder, Some(&session))?;
    let mut reversed = ReverseReport::default();
    let mut applied = Applied::default();
    let deleted = finish_deletions(&session, threshold, &mut applied);
    let carried = deleted.map(|waiting| report.waiting += waiting).and_then(|()| {
        let cache = Cache::new(TABLE_CACHE_BYTES);
        reverse_pending(vault, &mut session, false, threshold, cache, &mut applied, &mut reversed).map(drop)
    });
    report.reversed += reversed.snapshots;
    let repaired =
        leaks::repair(&mut session, threshold, &mut applied).map(|chunks| report.repaired_chunks += chunks);
    let indexed = forget_damaged(&session).and_then(|parts| {
        report.index_parts += parts;
        index_reversed(&session, INDEX_AT, None)
    });
    let carried = carried.and(repaired).and(indexed);
    if carried.as_ref().is_err_and(|e| !e.is_damage_or_full()) {
        return carried;
    }
    report.compacted.add(applied.compacted);
    // All containers, not only those that have just lost chunks.
    let (compacted, freed_bytes) = compact_folder(&session, threshold, None)?;
    report.compacted.add(compacted);
    report.freed_bytes += freed_bytes + end_and_delete_released(session)?.1;
    let swept = sweep_unswept(vault, folder, limits)?;
    report.freed_bytes += swept.freed_bytes;
    report.compacted.containers += swept.compacted;
    carried.and(swept.held_up.map_or(Ok(()), Err))
}

/// Counts what a collection would remove.
fn look_for_orphans(folder: &Folder, report: &mut GcReport) -> Result<()> {
    let _reader = Reader::open(folder)?;
    let listed = list_checked(folder)?;
    for object in orphans_of(folder, &listed)? {
        report.freed_bytes += folder.store.allocated(object).unwrap_or(0);
        report.orphans += 1;
    }
    Ok(())
}
