//! Looks again at containers in which readers have met damage, and records it as a verification does: no later backup
//! references them, and `status` tells of them.

use super::findings::containers::ContainerFindings;
use super::owner::{Owner, Reads};
use super::run::{Purpose, Verification};
use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use format::{names, ContainerId, DiskId};
use std::collections::BTreeMap;
use store::StoreError;

impl Vault {
    /// Looks at the containers in which restores and open snapshots have met damage since the vault was opened, or since the
    /// last call, and records those that are damaged. Returns how many were not recorded before.
    ///
    /// Nothing is recorded of an object that cannot be read at all, because of its permissions, say: that may pass. Nor where
    /// this process cannot register as a reader: who may not do that does not change anything. The next call looks at these
    /// again.
    ///
    /// # Errors
    /// If it is cancelled, or something cannot be recorded: the next call tries again. The other owners are recorded.
    pub fn record_damage_met(&self, progress: &Progress) -> Result<u64> {
        let mut of_owners: BTreeMap<DiskId, Vec<(ContainerId, String)>> = BTreeMap::new();
        for object in self.damage_met.take() {
            if let Some((owner, id)) = container_of(&object) {
                of_owners.entry(owner).or_default().push((id, object));
            }
        }
        let (mut recorded, mut failed) = (0, None);
        for (owner, met) in of_owners {
            let (readable, later): (Vec<_>, Vec<_>) =
                met.into_iter().partition(|(_, object)| self.tells_of_damage(object));
            let mut later: Vec<String> = later.into_iter().map(|(_, object)| object).collect();
            if readable.is_empty() {
                self.damage_met.add(later);
                continue;
            }
            match progress.check().and_then(|()| self.look_again(&self.folder(owner), &readable, progress)) {
                Ok(Some(new)) => recorded += new,
                // The disk has been deleted, or its manifest cannot be read, which `status` tells.
                Err(e)
                    if e.is_damage()
                        || matches!(e, VaultError::NotFound { .. } | VaultError::Gone { .. }) => {}
                not_now => {
                    later.extend(readable.into_iter().map(|(_, object)| object));
                    failed = failed.or(not_now.err());
                }
            }
            self.damage_met.add(later);
        }
        failed.map_or(Ok(recorded), Err)
    }

    /// Whether damage has been met, and not been recorded.
    pub fn has_met_damage(&self) -> bool {
        !self.damage_met.is_empty()
    }

    /// Whether an object is gone, or can be read at least in part.
    fn tells_of_damage(&self, object: &str) -> bool {
        let read = self.store.len(object).and_then(|_| self.store.read_at(object, 0, &mut [0]));
        matches!(read, Ok(()) | Err(StoreError::NotFound { .. } | StoreError::OutOfRange { .. }))
    }

    /// Returns how many are recorded that were not; `None` if it cannot be told now.
    fn look_again(
        &self,
        folder: &Folder,
        met: &[(ContainerId, String)],
        progress: &Progress,
    ) -> Result<Option<u64>> {
        let view = self.view(folder, TABLE_CACHE_BYTES)?;
        if !view.is_leased() {
            return Ok(None);
        }
        let (mut set, mut ids) = (ContainerSet::default(), Vec::new());
        let (mut objects, mut bytes, mut is_later) = (Vec::new(), 0, false);
        for (id, object) in met {
            if set.contains(*id) || view.manifest.damaged.contains(id) {
                continue;
            }
            // Of one whose page is lost, that is what is told.
            let Some(entry) = view.tables.own().get(*id).unless_damaged()?.flatten() else { continue };
            let of_it = [names::data(&folder.path, entry.data), names::table(&folder.path, *id, entry.table)];
            // It may have been repaired since, which an open snapshot does not see.
            if !of_it.contains(object) {
                continue;
            }
            if of_it.iter().any(|object| !self.tells_of_damage(object)) {
                is_later = true;
            } else {
                set.insert(*id);
                ids.push(*id);
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
        if !objects.iter().all(|object| self.tells_of_damage(object)) {
            return Ok(None);
        }
        run.known.record(folder, &own);
        match run.known.unrecorded {
            Some(why) => Err(VaultError::Refused(why)),
            None if is_later => Ok(None),
            None => Ok(Some(ids.iter().filter(|id| own.damaged.get(**id).is_some()).count() as u64)),
        }
    }
}

/// The container whose data or table an object is, and its owner.
fn container_of(object: &str) -> Option<(DiskId, ContainerId)> {
    let folder = names::folder_of(object)?;
    let owner = match folder.strip_prefix(names::DISKS) {
        Some(disk) => disk.strip_suffix('/')?.parse().ok()?,
        None => DiskId::POPULAR,
    };
    let is_read = object.ends_with(".data") || object.ends_with(".table");
    is_read.then(|| names::container_of(object)).flatten().map(|(id, _)| (owner, id))
}
