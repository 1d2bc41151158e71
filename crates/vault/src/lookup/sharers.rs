//! Tells which shared containers other disks use, from the container tables of these disks.
//!
//! A hint for placement: chunks that only one disk references are freed when its newest snapshot no longer contains
//! them; chunks that other disks reference stay. An outdated answer costs space or a seek, and so does damage of
//! another disk.

use crate::base::error::{fault, Result, VaultError};
use crate::manifest::container_table::Containers;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use format::{ContainerId, DiskId};
use std::collections::HashMap;

/// The other disks of a vault, read when they are asked for the first time.
pub(crate) struct Sharers<'a> {
    vault: &'a Vault,
    own: DiskId,
    others: Option<Vec<Other>>,
    known: HashMap<ContainerId, bool>,
}

/// Another disk's containers; `None` where it cannot be read.
struct Other {
    folder: Folder,
    listed: Option<Containers>,
}

impl<'a> Sharers<'a> {
    /// The disks of the vault but for `own`. Nothing is read yet.
    pub fn new(vault: &'a Vault, own: DiskId) -> Self {
        Sharers { vault, own, others: None, known: HashMap::new() }
    }

    /// Whether another disk may reference a shared container.
    pub fn share(&mut self, id: ContainerId) -> Result<bool> {
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let others = match &mut self.others {
            Some(others) => others,
            none => none.insert(read(self.vault, self.own)?),
        };
        let mut shared = false;
        for other in others {
            shared = shared || other.lists(id)?;
        }
        self.known.insert(id, shared);
        Ok(shared)
    }
}

fn read(vault: &Vault, own: DiskId) -> Result<Vec<Other>> {
    let others = disks::folder_ids(vault)?.into_iter().filter(|id| *id != own).map(|id| vault.folder(id));
    others.map(|folder| Ok(Other { listed: load(&folder)?, folder })).collect()
}

fn load(folder: &Folder) -> Result<Option<Containers>> {
    match folder.load() {
        Err(e) => fault(e).map(|_| None),
        Ok(m) => Ok(Some(Containers::new(folder.clone(), &m))),
    }
}

impl Other {
    fn lists(&mut self, id: ContainerId) -> Result<bool> {
        for _ in 0..2 {
            let Some(listed) = &self.listed else { return Ok(false) };
            match listed.get(id) {
                // It has committed since, and its old pages are gone.
                Err(VaultError::Missing { .. }) => self.listed = load(&self.folder)?,
                Err(e) => return fault(e).map(|_| false),
                Ok(entry) => return Ok(entry.is_some()),
            }
        }
        Ok(false)
    }
}
