//! Containers as they are at one time: compaction writes another table, and another data object.

use crate::container::container_set::ContainerSet;
use format::{ContainerEntry, ContainerId, WriterNo};
use std::collections::BTreeMap;

/// Generations of a container's table and data.
pub(crate) type Generations = (WriterNo, WriterNo);

/// Memory of a container that was written again, in bytes, about.
const LATER_BYTES: usize = 40;

/// The generations that an entry names.
pub(crate) fn generations(e: &ContainerEntry) -> Generations {
    (e.table, e.data.generation)
}

/// Containers, each in one version. Most are as their writer has made them, and take little memory.
#[derive(Default)]
pub(crate) struct ContainerVersions {
    /// Those whose table and data are of the writer that made them.
    first: ContainerSet,
    /// The others.
    later: BTreeMap<ContainerId, Generations>,
}

impl ContainerVersions {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.later.is_empty()
    }

    /// Memory that they take, in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.first.memory_bytes() + self.later.len() * LATER_BYTES
    }

    /// The version of a container.
    pub fn get(&self, id: ContainerId) -> Option<Generations> {
        match self.later.get(&id) {
            None if self.first.contains(id) => Some((id.writer(), id.writer())),
            later => later.copied(),
        }
    }

    /// Puts a container in this version. Returns whether it was not there in this one.
    pub fn insert(&mut self, id: ContainerId, of: Generations) -> bool {
        if of == (id.writer(), id.writer()) {
            self.later.remove(&id);
            return self.first.insert(id);
        }
        self.first.remove(id);
        self.later.insert(id, of) != Some(of)
    }

    /// Takes a container out.
    pub fn remove(&mut self, id: ContainerId) {
        self.first.remove(id);
        self.later.remove(&id);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ContainerId, Generations)> + '_ {
        let first = self.first.iter().map(|id| (id, (id.writer(), id.writer())));
        first.chain(self.later.iter().map(|(id, of)| (*id, *of)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::OwnerNo;

    #[test]
    fn a_container_is_there_in_one_version() {
        let id = ContainerId::new(OwnerNo::OWN, WriterNo(3), 5);
        let (first, again) = ((WriterNo(3), WriterNo(3)), (WriterNo(8), WriterNo(3)));
        let mut all = ContainerVersions::default();
        for of in [first, again, first, again] {
            assert_eq!((all.insert(id, of), all.insert(id, of)), (true, false));
            assert_eq!(all.get(id), Some(of));
            assert_eq!(all.iter().collect::<Vec<_>>(), [(id, of)]);
        }
        all.remove(id);
        assert!(all.is_empty() && all.get(id).is_none());
    }
}
