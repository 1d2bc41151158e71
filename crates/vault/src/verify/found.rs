//! Collects the findings of the threads of a verification.

use crate::verify::findings::{CheckCounts, ContainerFindings};
use format::{ContainerId, Owner};
use parking_lot::{Mutex, MutexGuard};

/// What the threads find, by owner.
pub(super) struct ThreadFindings<'a> {
    pub own: &'a mut ContainerFindings,
    pub shared: &'a mut ContainerFindings,
    pub counts: CheckCounts,
}

impl ThreadFindings<'_> {
    /// The findings on the containers of the owner of this one.
    pub fn of(&mut self, id: ContainerId) -> &mut ContainerFindings {
        match id.owner() {
            Owner::Disk => self.own,
            Owner::Shared | Owner::Popular => self.shared,
        }
    }
}

pub(super) fn lock<'a, 'b>(found: &'a Mutex<ThreadFindings<'b>>) -> MutexGuard<'a, ThreadFindings<'b>> {
    found.lock()
}
