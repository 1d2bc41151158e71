//! Looks again at containers in which readers have met damage, and records it as a verification does: no later backup
//! references them, and `status` tells of them.

use super::findings::{ContainerFindings, More, Reads};
use super::settle::{Known, Owner};
use super::{After, Verification, VerifyReport};
use crate::base::error::{Result, VaultError};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::folder::Folder;
use crate::manifest::vault::{now, Vault};
use format::{names, ContainerId, DiskId};
use std::collections::{BTreeMap, BTreeSet};
use store::StoreError;

impl Vault {
    /// Looks at all of the containers in which restores and open snapshots have met damage since the vault was opened, or since
    /// the last call, and records those that are damaged. Returns how many there are.
    ///
    /// Nothing is recorded of an object that cannot be read at all, because of its permissions, say: that may pass. Nor where
    /// this process cannot register as a reader: who may not do that does not change anything.
    ///
    /// # Errors
    /// If it is cancelled, or cannot be recorded: what was met is forgotten then.
    pub fn record_damage_met(&self, progress: &Progress) -> Result<u64> {
        let mut of_owners: BTreeMap<DiskId, BTreeSet<ContainerId>> = BTreeMap::new();
        for object in self.damage_met.take() {
            if let Some((owner, id)) = container_of(&object).filter(|_| self.tells_of_damage(&object)) {
                of_owners.entry(owner).or_default().insert(id);
            }
        }
        let mut damaged = 0;
        for (owner, ids) in of_owners {
            damaged += self.look_again(&self.folder(owner), ids, progress)?;
        }
        Ok(damaged)
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

    fn look_again(&self, folder: &Folder, ids: BTreeSet<ContainerId>, progress: &Progress) -> Result<u64> {
        let view = self.view(folder, TABLE_CACHE_BYTES)?;
        if !view.is_leased() {
            return Ok(0);
        }
        let mut set = ContainerSet::default();
        let (mut listed, mut objects, mut bytes) = (Vec::new(), Vec::new(), 0);
        for id in ids {
            let Some(entry) = view.tables.own().get(id)? else { continue };
            let of_it = [names::data(&folder.path, entry.data), names::table(&folder.path, id, entry.table)];
            if of_it.iter().all(|object| self.tells_of_damage(object)) {
                set.insert(id);
                listed.push(id);
                bytes += entry.stored_bytes;
                objects.extend(of_it);
            }
        }
        progress.set_total(progress.total() + bytes);
        let reads = Reads::Only(BTreeMap::from([(folder.disk, set)]));
        let mut run = Verification {
            vault: self,
            reads: &reads,
            after: After::Nothing,
            progress,
            report: VerifyReport::default(),
            began: now(),
            looked: Vec::new(),
            known: Known::new(self, progress),
            more: More::default(),
        };
        let mut own = ContainerFindings::within(&run.known.others.room);
        run.containers(Owner { folder: &view.folder, tables: &view.tables, disk: None }, &listed, &mut own)?;
        view.check()?;
        if !objects.iter().all(|object| self.tells_of_damage(object)) {
            return Ok(0);
        }
        run.known.record(folder, &own);
        match run.known.unrecorded {
            Some(why) => Err(VaultError::Refused(why)),
            None => Ok(listed.iter().filter(|id| own.damaged.get(**id).is_some()).count() as u64),
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
