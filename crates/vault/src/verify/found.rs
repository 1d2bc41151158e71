//! Collects the findings of the threads of a verification.

use crate::container::tables::Tables;
use crate::verify::findings::{CheckCounts, ContainerFindings, OtherFindings};
use format::ContainerId;
use parking_lot::{Mutex, MutexGuard};

/// What the threads find, by owner.
pub(super) struct ThreadFindings<'a> {
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
        self.others.entry(self.tables.folder_of(id).disk).or_default()
    }
}

pub(super) fn lock<'a, 'b>(found: &'a Mutex<ThreadFindings<'b>>) -> MutexGuard<'a, ThreadFindings<'b>> {
    found.lock()
}
