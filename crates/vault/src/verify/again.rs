//! Looks again at what readers and backups have found damaged, and records it as a verification does: no later backup references
//! it, and `status` tells of it.

use super::findings::containers::ContainerFindings;
use super::findings::damage::{Damage, More};
use super::owner::{Owner, Reads};
use super::report::RecordedDamage;
use super::run::{Purpose, Verification};
use super::Scope;
use crate::base::error::{container_of, Result, ToLookAt, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::vault::{now, Vault};
use format::{names, DiskId};
use std::collections::{BTreeMap, BTreeSet};
use store::StoreError;

/// How long what a verification has found of a disk is known well enough, in seconds.
const KNOWN_FOR: i64 = 3600;

impl Vault {
    /// Looks at what was met of damage since the vault was opened, or since the last call, and records it.
    ///
    /// A container is looked at by itself. Because of any other object, such as a page of a recipe, its disks are verified as a whole:
    /// so the snapshots that need it are found. Not one of which a verification of the last hour has found damage.
    ///
    /// Nothing is recorded where this process cannot register as a reader: who may not do that does not change anything. What cannot
    /// be looked at or recorded now, because of permissions, say, or because this is cancelled, the next call tries again; a
    /// disk is tried once in an hour, and in the last call.
    pub fn record_damage_met(&self, is_last: bool, progress: &Progress) -> RecordedDamage {
        let ToLookAt { of_containers, disks } = self.damage_met.take(is_last);
        let mut recorded = RecordedDamage::default();
        let mut of_owners: BTreeMap<DiskId, Vec<String>> = BTreeMap::new();
        for object in of_containers {
            let Some((owner, _)) = container_of(&object) else { continue };
            match self.read_any(&object) {
                Ok(()) => of_owners.entry(owner).or_default().push(object),
                Err(e) => {
                    recorded.leave(e);
                    self.damage_met.add([object]);
                }
            }
        }
        for (owner, objects) in of_owners {
            let folder = self.folder(owner);
            match progress.check().and_then(|()| self.look_at_containers(&folder, &objects, progress)) {
                Ok(Some(damaged)) => recorded.damaged.extend(damaged),
                // The disk has been deleted, or its manifest cannot be read, which `status` tells.
                Err(e)
                    if e.is_damage()
                        || matches!(e, VaultError::NotFound { .. } | VaultError::Gone { .. }) => {}
                not_now => {
                    not_now.err().into_iter().for_each(|e| recorded.leave(e));
                    self.damage_met.add(objects);
                }
            }
        }
        match progress.check().and_then(|()| self.look_at_disks(&disks, progress, &mut recorded)) {
            Ok(()) => {}
            Err(e) => {
                self.damage_met.add_disks(disks);
                recorded.leave(e);
            }
        }
        // A container's objects are told by the look at its disk, too.
        recorded.damaged.sort_by(|a, b| a.object.cmp(&b.object));
        recorded.damaged.dedup_by(|a, b| a.object == b.object);
        recorded
    }

    /// Whether damage has been met, and not been recorded.
    pub fn has_met_damage(&self) -> bool {
        !self.damage_met.is_empty()
    }

    /// An error where an object is there, and nothing of it can be read: that tells nothing of what is in it.
    fn read_any(&self, object: &str) -> Result<()> {
        match self.store.len(object).and_then(|_| self.store.read_at(object, 0, &mut [0])) {
            Ok(()) | Err(StoreError::NotFound { .. } | StoreError::OutOfRange { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Verifies disks as a whole, but for those that were found to be damaged a short while ago.
    fn look_at_disks(
        &self,
        disks: &BTreeSet<DiskId>,
        progress: &Progress,
        recorded: &mut RecordedDamage,
    ) -> Result<()> {
        let (before, mut all) = (self.last_verifications(), Vec::new());
        let is_known = |disk: DiskId| {
            before.has(|v| {
                v.disk == disk && v.damaged_objects > 0 && (0..KNOWN_FOR).contains(&(now() - v.began))
            })
        };
        for &disk in disks.iter().filter(|disk| !is_known(**disk)) {
            let folder = self.folder(disk);
            match self.view(&folder, 0) {
                Ok(view) if view.is_leased() => all.push(disks::of_folder(self, folder, &view.manifest.name)),
                Ok(_) => self.damage_met.add_disks(BTreeSet::from([disk])),
                Err(VaultError::NotFound { .. }) => {}
                // One that is gone is not damaged; what is wrong with another one is told by the verification.
                Err(e) if e.is_damage() => {
                    if folder.has_content()? {
                        all.push(disks::of_folder(self, folder, ""));
                    }
                }
                Err(e) => recorded.leave(e),
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let report = self.verify_reading(Scope::At(&all), &Reads::Recorded, Purpose::Verify, progress)?;
        recorded.damaged.extend(report.damaged);
        let why = report.not_kept.or(report.unrecorded);
        why.map_or(Ok(()), |why| Err(VaultError::Refused(why)))
    }

    /// Looks at containers of one owner. Returns what is recorded that was not; `None` if it cannot be told now.
    fn look_at_containers(
        &self,
        folder: &Folder,
        met: &[String],
        progress: &Progress,
    ) -> Result<Option<Vec<Damage>>> {
        let view = self.view(folder, TABLE_CACHE_BYTES)?;
        if !view.is_leased() {
            return Ok(None);
        }
        let (mut set, mut ids) = (ContainerSet::default(), Vec::new());
        let (mut objects, mut bytes, mut is_later) = (Vec::new(), 0, false);
        for object in met {
            let Some((_, id)) = container_of(object) else { continue };
            if set.contains(id) || view.manifest.damaged.contains(&id) {
                continue;
            }
            // Of one whose page is lost, that is what is told.
            let Some(entry) = view.tables.own().get(id).unless_damaged()?.flatten() else { continue };
            let of_it = [names::data(&folder.path, entry.data), names::table(&folder.path, id, entry.table)];
            // It may have been repaired since, which an open snapshot does not see.
            if !of_it.contains(object) {
                continue;
            }
            if of_it.iter().any(|object| self.read_any(object).is_err()) {
                is_later = true;
            } else {
                set.insert(id);
                ids.push(id);
                bytes += entry.stored_bytes;
                objects.extend(of_it);
            }
        }
        progress.set_total(progress.total() + bytes);
        let reads = Reads::Only(BTreeMap::from([(folder.disk, set)]));
        let mut run = Verification::new(self, &reads, Purpose::Verify, progress);
        let mut own = ContainerFindings::within(&run.known.others.room);
        let listed = ContainerSet::default();
        let of = Owner { folder: &view.folder, tables: &view.tables, listed: &listed, disk: None };
        run.containers(of, &ids, &mut own)?;
        view.check()?;
        if objects.iter().any(|object| self.read_any(object).is_err()) {
            return Ok(None);
        }
        run.known.record(folder, &own);
        match run.known.unrecorded {
            Some(why) => Err(VaultError::Refused(why)),
            None if is_later => Ok(None),
            None => {
                let mut damaged = Vec::new();
                own.found.report(&mut damaged, &mut More::default());
                Ok(Some(damaged))
            }
        }
    }
}
