//! Collects the findings of the threads of a verification.

use super::containers::{CheckCounts, ContainerFindings};
use super::gone::GoneOwners;
use super::room::Room;
use crate::container::tables::Tables;
use format::{ContainerId, DiskId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// What was found in owners other than the disk that is looked at.
#[derive(Default)]
pub(crate) struct OtherFindings {
    pub owners: BTreeMap<DiskId, ContainerFindings>,
    /// Those of which nothing can be read.
    pub gone: GoneOwners,
    /// What the findings of all owners may name.
    pub room: Room,
}

impl OtherFindings {
    /// What was found in the folder of an owner.
    pub fn of(&mut self, owner: DiskId) -> &mut ContainerFindings {
        self.owners.entry(owner).or_insert_with(|| ContainerFindings::within(&self.room))
    }

    /// The same, taken out.
    pub fn take(&mut self, owner: DiskId) -> ContainerFindings {
        self.owners.remove(&owner).unwrap_or_else(|| ContainerFindings::within(&self.room))
    }

    /// Whether there is anything that snapshots of other disks may need and that cannot be read.
    pub fn is_any_bad(&self) -> bool {
        !self.gone.is_empty() || self.owners.values().any(|o| !o.bad.is_empty())
    }

    /// The same, but for chunks that cannot be read of containers that were read.
    pub fn is_any_bad_unread(&self) -> bool {
        !self.gone.is_empty() || self.owners.values().any(|o| !o.has_read_all_bad())
    }
}

/// What the threads find, by owner.
pub(crate) struct ThreadFindings<'a> {
    pub tables: &'a Tables,
    pub own: &'a mut ContainerFindings,
    pub others: &'a mut OtherFindings,
    pub counts: CheckCounts,
}

impl ThreadFindings<'_> {
    /// The findings on the containers of the owner of this one.
    pub fn of(&mut self, id: ContainerId) -> &mut ContainerFindings {
        if id.is_own() {
            return self.own;
        }
        self.others.of(self.tables.folder_of(id).disk)
    }

    /// Nothing of a container can be found because of an object that is not its own.
    pub fn lost(&mut self, id: ContainerId, object: &str, why: &str) {
        let folder = self.tables.folder_of(id);
        if self.tables.is_unreadable(id.owner()) && object == folder.manifest_name() {
            self.others.gone.add(folder.disk, why);
        } else {
            self.of(id).lost(id, object, why);
        }
    }
}

pub(crate) fn lock<'a, 'b>(found: &'a Mutex<ThreadFindings<'b>>) -> MutexGuard<'a, ThreadFindings<'b>> {
    found.lock()
}
