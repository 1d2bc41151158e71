//! What was found in the containers of one owner.

use super::bad_chunks::BadChunks;
use super::objects::Findings;
use super::room::Room;
use crate::container::container_set::ContainerSet;
use crate::container::versions::{generations, ContainerVersions, Generations};
use format::{ContainerEntry, ContainerId, RunSet};

/// What was found in the containers of one owner, which names them, and in the rest of its folder.
#[derive(Default)]
pub(crate) struct ContainerFindings {
    pub found: Findings,
    pub bad: BadChunks,
    /// Those that were looked at: in another version, one is looked at anew.
    seen: ContainerVersions,
    /// Those of them whose chunks were read.
    read: ContainerSet,
    /// Those whose data or table is damaged.
    pub damaged: ContainerVersions,
    /// Those whose list of dead chunks is damaged.
    unlisted: ContainerSet,
    /// The memory of all this, as it was counted.
    weighed: usize,
}

impl ContainerFindings {
    /// None so far. They share this room with others.
    pub fn within(room: &Room) -> ContainerFindings {
        ContainerFindings { found: Findings::within(room), ..ContainerFindings::default() }
    }

    /// Whether a container was looked at as it is now.
    pub fn has_seen(&self, e: &ContainerEntry) -> bool {
        self.seen.get(e.id.local()) == Some(generations(e))
    }

    /// Whether a container has not been looked at as it is now.
    pub fn begin(&mut self, e: &ContainerEntry) -> bool {
        let id = e.id.local();
        let fresh = self.seen.insert(id, generations(e));
        if fresh {
            self.read.remove(id);
            self.unlisted.remove(id);
            self.bad.remove(id);
            self.damaged.remove(id);
        }
        self.weigh();
        fresh
    }

    /// Whether all that is known to be damaged are chunks of containers that were read.
    pub fn has_read_all_bad(&self) -> bool {
        self.bad.is_within(&self.read)
    }

    /// The chunks of a container are read.
    pub fn reads(&mut self, id: ContainerId) {
        self.read.insert(id.local());
        self.weigh();
    }

    /// Whether the chunks of a container were read as it is in this version, and none is damaged.
    pub fn is_whole(&self, id: ContainerId, of: Generations) -> bool {
        self.read.contains(id) && self.seen.get(id) == Some(of) && self.damaged.get(id).is_none()
    }

    /// Whether any container was looked at.
    pub fn has_looked(&self) -> bool {
        !self.seen.is_empty() || !self.damaged.is_empty()
    }

    /// Whether there is anything that the owner's manifest may not say yet.
    pub fn has_to_record(&self) -> bool {
        !self.read.is_empty() || !self.damaged.is_empty()
    }

    /// The list of dead chunks of a container is damaged.
    pub fn unlist(&mut self, id: ContainerId, object: &str, why: &str) {
        self.found.add(object, why);
        self.unlisted.insert(id.local());
        self.weigh();
    }

    /// Nothing of a container can be found because of an object that is not its own.
    pub fn lost(&mut self, id: ContainerId, object: &str, why: &str) {
        let at = self.found.add(object, why);
        self.bad.all(id.local(), at);
        self.weigh();
    }

    /// The table or data of a container is damaged: all its chunks, some, or (`None`) none that matters to restores.
    pub fn damage(
        &mut self,
        id: ContainerId,
        of: Generations,
        object: &str,
        whys: impl IntoIterator<Item = impl AsRef<str>>,
        chunks: Option<&RunSet>,
    ) {
        self.damaged.insert(id.local(), of);
        let at = whys.into_iter().map(|why| self.found.add(object, why.as_ref())).last();
        if let (Some(at), Some(chunks)) = (at, chunks) {
            self.bad.some(id.local(), at, chunks);
        }
        self.weigh();
    }

    /// The table or data of a container is damaged, and nothing of it can be read.
    pub fn ruin(&mut self, e: &ContainerEntry, object: &str, why: &str) {
        self.damaged.insert(e.id.local(), generations(e));
        self.lost(e.id, object, why);
    }

    /// The containers that a repair looks at.
    pub fn to_repair(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.damaged.iter().map(|(id, _)| id).chain(self.unlisted.iter())
    }

    /// Memory of what is known of containers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let sets = self.read.memory_bytes() + self.unlisted.memory_bytes();
        self.bad.memory_bytes() + self.seen.memory_bytes() + self.damaged.memory_bytes() + sets
    }

    fn weigh(&mut self) {
        let now = self.memory_bytes();
        self.found.weigh(self.weighed, now);
        self.weighed = now;
    }

    /// Forgets what is known of damaged containers. The damaged objects stay.
    pub fn forget(&mut self) {
        self.bad = BadChunks::default();
        self.damaged = ContainerVersions::default();
        (self.read, self.unlisted) = (ContainerSet::default(), ContainerSet::default());
        self.weigh();
    }

    /// Forgets which containers were looked at.
    pub fn forget_seen(&mut self) {
        self.seen = ContainerVersions::default();
        self.weigh();
    }
}

/// Room for counting while several threads look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckCounts {
    pub objects: u64,
    pub containers: u64,
    pub data_bytes: u64,
    pub stored_bytes_read: u64,
}
