//! The sweep of containers that more than one disk may reference (`docs/flows/sweep.md`): of the popular set, of one
//! owner for all disks, and of what one disk has given up. The sweep itself is in [`containers`].

mod containers;

use crate::base::error::{Result, VaultError};
use crate::lookup::referrers;
use crate::manifest::folder::{list_unswept, Folder};
use crate::manifest::session::{fence_dead, Session};
use crate::manifest::vault::Vault;
use crate::reclaim::compact::compact_folder;
use crate::reclaim::gc_report::GcReport;
use crate::reclaim::orphans::{list_checked, remove_orphans};
use crate::reclaim::released::end_and_delete_released;
use containers::{candidates, sweep};
use format::{ContainerId, Manifest, OwnerNo, WriterKind, WriterNo};
use std::collections::{BTreeMap, BTreeSet};
use store::Reserve;

/// Sweeps and compacts the popular set, if the vault has one.
pub(crate) fn sweep_popular(vault: &Vault, threshold: f64, report: &mut GcReport) -> Result<()> {
    let folder = vault.popular().with_reserve(Reserve::Whole);
    if folder.load_tagged()?.is_none() {
        return Ok(());
    }
    let listed = list_checked(&folder)?;
    let session = Session::begin(&folder, WriterKind::Maintenance)?;
    fence_dead(&session)?;
    let swept = sweep(vault, &session, candidates(&session, None)?.0, threshold)?;
    remove_orphans(&session, &listed, report)?;
    let (compacted, freed_bytes) = compact_folder(&session, threshold, None)?;
    report.compacted.add(compacted);
    report.freed_bytes += freed_bytes + end_and_delete_released(session)?.1;
    swept.full.map_or(Ok(()), Err)
}

/// Which containers of an owner a collection sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepOf {
    /// Those that some disk references less than before.
    Unswept,
    /// Also all others that other disks reference, or have referenced.
    Referred,
}

/// Sweeps and compacts a disk's containers, for all disks that reference them.
pub(crate) fn sweep_disk(
    vault: &Vault,
    folder: &Folder,
    of: SweepOf,
    threshold: f64,
    report: &mut GcReport,
) -> Result<()> {
    let folder = &folder.with_reserve(Reserve::Whole);
    let Some((m, _)) = folder.load_tagged()? else { return Ok(()) };
    let is_referred = || Ok::<_, VaultError>(!referrers::referred(folder)?.is_empty());
    if !m.unswept.iter().any(|id| id.is_own()) && (of == SweepOf::Unswept || !is_referred()?) {
        return Ok(());
    }
    // Before a writer is registered: its number may be the one that proves a rollback.
    list_checked(folder)?;
    let session = Session::begin(folder, WriterKind::Maintenance)?;
    let swept = sweep_own(vault, &session, of, threshold);
    if swept.as_ref().is_err_and(|e| !e.is_damage_or_full()) {
        return swept;
    }
    let (compacted, freed_bytes) = compact_folder(&session, threshold, None)?;
    report.compacted.add(compacted);
    report.freed_bytes += freed_bytes + end_and_delete_released(session)?.1;
    swept
}

/// Sweeps containers of the session's folder, and takes them off its list.
fn sweep_own(vault: &Vault, session: &Session, of: SweepOf, threshold: f64) -> Result<()> {
    let listed = session.folder.load_root()?.unswept;
    let unswept: BTreeSet<ContainerId> = listed.into_iter().filter(|id| id.is_own()).collect();
    let (entries, about_to_be_named) = match of {
        SweepOf::Unswept => candidates(session, Some(&unswept))?,
        SweepOf::Referred => {
            let referred = referrers::referred(&session.folder)?;
            let (mut entries, about_to_be_named) = candidates(session, None)?;
            entries.retain(|e| referred.contains(&e.id.writer()) || unswept.contains(&e.id));
            (entries, about_to_be_named)
        }
    };
    if entries.is_empty() && unswept.is_empty() {
        return Ok(());
    }
    let mut swept = sweep(vault, session, entries, threshold)?;
    swept.skipped.extend(about_to_be_named.iter().map(|e| e.id));
    if !unswept.is_empty() {
        unlist(session, &unswept, &swept.skipped)?;
    }
    swept.full.map_or(Ok(()), Err)
}

/// Takes containers off the list of their owner, but for those that were skipped. Only maintenance of the owner lists its
/// own containers there, and there is one at a time.
fn unlist(session: &Session, unswept: &BTreeSet<ContainerId>, skipped: &BTreeSet<ContainerId>) -> Result<()> {
    session.swap(|m| {
        m.unswept.retain(|id| !unswept.contains(id) || skipped.contains(id));
        Ok(())
    })?;
    Ok(())
}

/// What a sweep for one disk did.
#[derive(Debug, Default)]
pub(crate) struct SweepReport {
    pub freed_bytes: u64,
    /// Containers written again.
    pub compacted: u64,
    /// Containers that were left for `gc`, since many disks reference what their owner has.
    pub left: u64,
    /// Why some were left for later: damage, or no room.
    pub held_up: Option<VaultError>,
}

/// How far a sweep for one disk goes.
#[derive(Clone, Copy)]
pub(crate) struct SweepLimits {
    /// Share of dead chunks from which containers are compacted.
    pub threshold: f64,
    /// Disks that may reference a container, at most: the summaries of all of them are read.
    pub referrers: usize,
    /// Whether the others are handed over to their owner, or stay on the disk's list.
    pub hands_over: bool,
}

impl SweepLimits {
    /// Those of a deletion or a backup: shared containers that few disks may reference. Where there are more, `gc` looks, once
    /// for all.
    pub fn of_few_disks(threshold: f64) -> SweepLimits {
        SweepLimits { threshold, referrers: 8, hands_over: false }
    }
}

/// Sweeps the containers that a disk references less than before and other disks may reference. Those that too many disks
/// may reference are left to `gc`, which hands them over to their owner's list and sweeps that. What cannot be done now,
/// the next deletion of the disk or of their owner does, or `gc`.
pub(crate) fn sweep_unswept(vault: &Vault, disk: &Folder, limits: SweepLimits) -> Result<SweepReport> {
    let mut report = SweepReport::default();
    let m = disk.load_root()?;
    let mut by_owner: BTreeMap<OwnerNo, BTreeSet<ContainerId>> = BTreeMap::new();
    for id in &m.unswept {
        by_owner.entry(id.owner()).or_default().insert(*id);
    }
    // Of owners that are gone, or that the disk does not count.
    let mut gone = BTreeSet::new();
    for (no, unswept) in by_owner {
        let done = match m.owner(no) {
            Some(owner) => {
                let folder = vault.folder(owner).with_reserve(disk.reserve);
                match folder.load_tagged() {
                    Ok(None) => {
                        gone.extend(unswept);
                        continue;
                    }
                    Ok(Some(_)) => sweep_of_owner(vault, disk, &folder, &unswept, limits, &mut report),
                    Err(e) => Err(e),
                }
            }
            None => {
                gone.extend(unswept);
                continue;
            }
        };
        match done {
            // They stay on the list.
            Err(VaultError::Busy { .. }) => {}
            // The owner has been removed meanwhile: nobody needs it any more.
            Err(VaultError::Missing { .. }) if is_gone(vault, &m, no)? => {}
            Err(e) if e.is_damage_or_full() => drop(report.held_up.get_or_insert(e)),
            other => other?,
        }
    }
    if !gone.is_empty() {
        forget(disk, &gone)?;
    }
    Ok(report)
}

/// Whether an owner that a disk counts is no more. Then the next sweep takes its containers off the list.
fn is_gone(vault: &Vault, m: &Manifest, no: OwnerNo) -> Result<bool> {
    match m.owner(no) {
        Some(owner) => Ok(vault.folder(owner).load_root_unless_empty()?.is_none()),
        None => Ok(true),
    }
}

fn forget(disk: &Folder, unswept: &BTreeSet<ContainerId>) -> Result<()> {
    disk.update(|m| {
        m.unswept.retain(|id| !unswept.contains(id));
        Ok(())
    })?;
    Ok(())
}

/// Sweeps containers of one owner for a disk, or leaves them to their owner.
fn sweep_of_owner(
    vault: &Vault,
    disk: &Folder,
    owner: &Folder,
    unswept: &BTreeSet<ContainerId>,
    SweepLimits { threshold, referrers, hands_over }: SweepLimits,
    report: &mut SweepReport,
) -> Result<()> {
    let local: BTreeSet<ContainerId> = unswept.iter().map(|id| id.local()).collect();
    let writers: BTreeSet<WriterNo> = local.iter().map(|id| id.writer()).collect();
    let leaves = referrers::are_more(owner, &writers, referrers)?;
    if leaves {
        report.left += local.len() as u64;
        if !hands_over || disk.disk == owner.disk {
            return Ok(());
        }
    }
    // Before a writer is registered: its number may be the one that proves a rollback.
    list_checked(owner)?;
    let session = Session::begin_if_free(owner)?;
    if disk.disk != owner.disk {
        // Whatever ends this sweep, they stay on one of the lists. What the disk lists from now on is looked at again.
        session.swap(|m| {
            list_unswept(m, &local);
            Ok(())
        })?;
        forget(disk, unswept)?;
    }
    if leaves {
        return session.end();
    }
    let (entries, about_to_be_named) = candidates(&session, Some(&local))?;
    let mut swept = sweep(vault, &session, entries, threshold)?;
    swept.skipped.extend(about_to_be_named.iter().map(|e| e.id));
    unlist(&session, &local, &swept.skipped)?;
    let (compacted, freed_bytes) = compact_folder(&session, threshold, Some(&local))?;
    report.compacted += compacted.containers;
    report.freed_bytes += freed_bytes + end_and_delete_released(session)?.1;
    swept.full.map_or(Ok(()), Err)
}
