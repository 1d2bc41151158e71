//! Keeps what a verification found of each disk ([`crate::report::verifications`]).

use crate::base::error::Result;
use crate::manifest::vault::Vault;
use crate::report::verifications::LastVerifications;
use crate::verify::findings::damage::Damage;
use format::{names, DiskId, Manifest, SnapId, Verification, WriterKind, WriterNo};
use std::collections::{BTreeSet, HashMap};

/// Damaged snapshots of one disk that are kept.
const SNAPSHOTS_MAX: usize = 1000;

/// What a verification was.
pub(super) struct Run {
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// Whether it read all chunks; else those of what is listed as damaged.
    pub read_chunks: bool,
    /// Whether damaged containers that it found are on no list.
    pub is_unlisted: bool,
    /// What was kept when it began.
    pub before: LastVerifications,
}

impl Run {
    /// Takes out of what was kept what is not found any more, of that which was there when this began, and which it has read
    /// again.
    fn lessen(&self, all: &mut [Verification], found: &[Verification]) {
        let found: HashMap<DiskId, &Verification> = found.iter().map(|now| (now.disk, now)).collect();
        for v in all.iter_mut().filter(|v| self.read_chunks || !v.unlisted) {
            let was_there = || self.before.has(|b| (b.disk, b.began) == (v.disk, v.began));
            if let Some(now) = found.get(&v.disk).filter(|_| v.damaged_objects > 0 && was_there()) {
                v.damaged_objects = v.damaged_objects.min(now.damaged_objects);
                v.damaged_snapshots.retain(|id| now.damaged_snapshots.contains(id));
            }
        }
    }
}

/// A disk that was verified.
pub(super) struct CheckedDisk {
    disk: DiskId,
    name: String,
    /// Snapshots of this writer and of later ones may not have been there.
    next_writer: WriterNo,
}

impl CheckedDisk {
    /// `manifest`: the one by which it was verified; `None` where that cannot be read.
    pub fn at(disk: DiskId, name: &str, manifest: Option<&Manifest>) -> CheckedDisk {
        let next_writer = manifest.map_or(WriterNo::BEFORE_ALL, |m| {
            // A backup that is running commits under a number that was given out before.
            let running = m.writers.iter().filter(|w| w.kind == WriterKind::Backup).map(|w| w.no);
            running.chain([m.next_writer]).min().unwrap_or(WriterNo::BEFORE_ALL)
        });
        CheckedDisk { disk, name: name.to_owned(), next_writer }
    }

    /// Whether it is this one.
    pub fn is(&self, disk: DiskId) -> bool {
        self.disk == disk
    }

    /// What was found of it.
    fn found(&self, damaged: &[Damage], run: &Run) -> Verification {
        let (folder, prefix) = (names::folder(self.disk), format!("{}@", self.name));
        let mut objects = 0;
        let mut snapshots = BTreeSet::new();
        for d in damaged {
            let of_disk = d.snapshots.iter().filter_map(|s| s.strip_prefix(&prefix));
            let hit: Vec<SnapId> =
                of_disk.filter_map(|id| u64::from_str_radix(id, 16).ok()).map(SnapId).collect();
            objects += u64::from(d.object.starts_with(&folder) || !hit.is_empty());
            snapshots.extend(hit);
        }
        Verification {
            disk: self.disk,
            began: run.began,
            read_chunks: run.read_chunks,
            unlisted: run.is_unlisted,
            next_writer: self.next_writer,
            damaged_objects: objects,
            damaged_snapshots: snapshots.into_iter().take(SNAPSHOTS_MAX).collect(),
        }
    }
}

/// Keeps what was found. `whole`: all disks were looked at, others are gone.
pub(super) fn keep(
    vault: &Vault,
    looked: &[CheckedDisk],
    damaged: &[Damage],
    run: &Run,
    whole: bool,
) -> Result<()> {
    let found: Vec<Verification> = looked.iter().map(|l| l.found(damaged, run)).collect();
    let disks: BTreeSet<DiskId> = found.iter().map(|v| v.disk).collect();
    if found.is_empty() && vault.last_verifications().is_empty() {
        return Ok(());
    }
    vault.update_verifications(|all| {
        // One that read all chunks says more than those before it; one that did not leaves it.
        all.retain(|v| if disks.contains(&v.disk) { v.read_chunks && !run.read_chunks } else { !whole });
        run.lessen(all, &found);
        all.extend(found.iter().cloned());
    })
}

/// After a repair, which has looked at everything that was known to be damaged: what is no longer damaged goes.
pub(super) fn keep_repaired(
    vault: &Vault,
    looked: &[CheckedDisk],
    damaged: &[Damage],
    run: &Run,
) -> Result<()> {
    let found: Vec<Verification> = looked.iter().map(|l| l.found(damaged, run)).collect();
    let is_less = |v: &Verification, now: &Verification| v.disk == now.disk && v.damaged_objects > 0;
    if !found.iter().any(|now| run.before.has(|v| is_less(v, now))) {
        return Ok(());
    }
    vault.update_verifications(|all| run.lessen(all, &found))
}
