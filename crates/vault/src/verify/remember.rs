//! Keeps what a verification found of each disk ([`crate::report::verifications`]).

use crate::base::error::Result;
use crate::manifest::vault::Vault;
use crate::verify::findings::Damage;
use format::{names, DiskId, Manifest, SnapId, Verification, WriterKind, WriterNo};
use std::collections::{BTreeSet, HashSet};

/// Damaged snapshots of one disk that are kept.
const SNAPSHOTS_MAX: usize = 1000;

/// Other owners that are remembered of a disk.
const OWNERS_MAX: usize = 1000;

/// A disk that was verified.
pub(super) struct CheckedDisk {
    disk: DiskId,
    name: String,
    /// Snapshots of this writer and of later ones may not have been there.
    next_writer: WriterNo,
    /// The owners of the containers that it references, if they are not too many: itself, and others.
    owners: Vec<DiskId>,
}

impl CheckedDisk {
    /// `manifest`: the one by which it was verified; `None` where that cannot be read.
    pub fn at(disk: DiskId, name: &str, manifest: Option<&Manifest>) -> CheckedDisk {
        let next_writer = manifest.map_or(WriterNo::BEFORE_ALL, |m| {
            // A backup that is running commits under a number that was given out before.
            let running = m.writers.iter().filter(|w| w.kind == WriterKind::Backup).map(|w| w.no);
            running.chain([m.next_writer]).min().unwrap_or(WriterNo::BEFORE_ALL)
        });
        let others = manifest.map_or(&[][..], |m| &m.owners);
        let owners = match others.len() {
            ..OWNERS_MAX => others.iter().copied().chain([disk, DiskId::POPULAR]).collect(),
            _ => Vec::new(),
        };
        CheckedDisk { disk, name: name.to_owned(), next_writer, owners }
    }

    /// What was found of it.
    fn found(&self, damaged: &[Damage], began: i64, read_chunks: bool) -> Verification {
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
            began,
            read_chunks,
            next_writer: self.next_writer,
            damaged_objects: objects,
            damaged_snapshots: snapshots.into_iter().take(SNAPSHOTS_MAX).collect(),
        }
    }
}

/// Keeps what was found. `healed`: the owners of containers that were listed as damaged, and are whole. `whole`: all disks were
/// looked at, others are gone.
pub(super) fn keep(
    vault: &Vault,
    looked: &[CheckedDisk],
    damaged: &[Damage],
    began: i64,
    read_chunks: bool,
    healed: &HashSet<DiskId>,
    whole: bool,
) -> Result<()> {
    let found: Vec<Verification> = looked.iter().map(|l| l.found(damaged, began, read_chunks)).collect();
    let disks: BTreeSet<DiskId> = found.iter().map(|v| v.disk).collect();
    if found.is_empty() && vault.last_verifications().is_empty() {
        return Ok(());
    }
    vault.update_verifications(|all| {
        // One that read all chunks says more than those before it; one that did not leaves it.
        all.retain(|v| if disks.contains(&v.disk) { v.read_chunks && !read_chunks } else { !whole });
        // What that one had found is healed only where something was listed, and is whole: it may not have got on the list.
        for (now, at) in found.iter().zip(looked) {
            if at.owners.iter().any(|owner| healed.contains(owner)) {
                all.iter_mut().for_each(|v| lessen(v, now));
            }
        }
        all.extend(found.iter().cloned());
    })
}

/// After a repair, which has looked at everything that was known to be damaged: what is no longer damaged goes.
pub(super) fn keep_repaired(vault: &Vault, looked: &[CheckedDisk], damaged: &[Damage]) -> Result<()> {
    let found: Vec<Verification> = looked.iter().map(|l| l.found(damaged, 0, false)).collect();
    let is_less = |v: &Verification, now: &Verification| v.disk == now.disk && v.damaged_objects > 0;
    let last = vault.last_verifications();
    if !found.iter().any(|now| last.has(|v| is_less(v, now))) {
        return Ok(());
    }
    vault.update_verifications(|all| {
        all.iter_mut().for_each(|v| found.iter().for_each(|now| lessen(v, now)));
    })
}

/// Takes out of what was found of a disk what is not found any more.
fn lessen(v: &mut Verification, now: &Verification) {
    if v.disk == now.disk {
        v.damaged_objects = v.damaged_objects.min(now.damaged_objects);
        v.damaged_snapshots.retain(|id| now.damaged_snapshots.contains(id));
    }
}
