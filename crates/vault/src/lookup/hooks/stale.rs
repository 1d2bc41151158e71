//! Which hooks still lead to a container: those of containers that have gone are left out where hooks are joined.

use crate::base::error::{Result, UnlessDamaged};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use format::{ContainerId, DiskId, WriterNo};
use std::collections::{HashMap, HashSet};

/// Containers that are kept in memory, 32 MiB of them. Hooks of owners beyond stay.
const CONTAINERS_MAX: usize = 4 << 20;

/// The containers that owners have, looked up when they are asked for.
pub(crate) struct StaleHooks {
    folder: Folder,
    owners: HashMap<DiskId, Owner>,
    room: usize,
}

/// What is known of an owner.
enum Owner {
    /// There is none.
    Gone,
    /// What it has, in order, and who may still add to it: their hooks are put before their containers are listed.
    Known { containers: Vec<ContainerId>, writers: HashSet<WriterNo> },
    /// It cannot be read, or has too much.
    Unknown,
}

impl StaleHooks {
    /// Of the vault that a folder is in. It must be made after the hooks were listed.
    pub fn new(folder: &Folder) -> StaleHooks {
        StaleHooks { folder: folder.clone(), owners: HashMap::new(), room: CONTAINERS_MAX }
    }

    /// Whether a hook stays.
    pub fn keeps(&mut self, owner: DiskId, id: ContainerId) -> Result<bool> {
        if !self.owners.contains_key(&owner) {
            let known = self.look(owner).unless_unreadable()?.unwrap_or(Owner::Unknown);
            self.owners.insert(owner, known);
        }
        Ok(match &self.owners[&owner] {
            Owner::Gone => false,
            Owner::Known { containers, writers } => {
                containers.binary_search(&id).is_ok() || writers.contains(&id.writer())
            }
            Owner::Unknown => true,
        })
    }

    fn look(&mut self, owner: DiskId) -> Result<Owner> {
        let folder = self.folder.of(owner);
        let Some(m) = folder.load_unless_empty()? else { return Ok(Owner::Gone) };
        let mut containers = Vec::new();
        let room = self.room;
        Containers::new(folder, &m).each(|e| {
            if !e.is_foreign() && containers.len() < room {
                containers.push(e.id);
            }
            Ok(())
        })?;
        if containers.len() == room {
            return Ok(Owner::Unknown);
        }
        self.room -= containers.len();
        Ok(Owner::Known { containers, writers: m.writers.iter().map(|w| w.no).collect() })
    }
}
