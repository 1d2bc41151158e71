//! Which shared containers other disks reference, by what they list.
//!
//! A hint for placement: what a disk alone references is given back once its newest snapshot no longer holds it, what
//! others reference stays.

use crate::error::Result;
use crate::folder::Containers;
use crate::vault::Vault;
use format::{ContainerId, DiskId};
use std::collections::HashMap;

/// The other disks of a vault, read when they are asked for the first time.
pub(crate) struct Sharers<'a> {
    vault: &'a Vault,
    own: DiskId,
    others: Option<Vec<Containers>>,
    known: HashMap<ContainerId, bool>,
}

impl<'a> Sharers<'a> {
    pub fn new(vault: &'a Vault, own: DiskId) -> Self {
        Sharers { vault, own, others: None, known: HashMap::new() }
    }

    /// Whether another disk may reference a shared container. A disk that cannot be read does not count.
    pub fn share(&mut self, id: ContainerId) -> Result<bool> {
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let others = match self.others.take() {
            Some(others) => others,
            None => self.read()?,
        };
        let mut shared = false;
        for containers in &others {
            match containers.get(id) {
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(e),
                Ok(entry) => shared |= entry.is_some(),
            }
            if shared {
                break;
            }
        }
        self.others = Some(others);
        self.known.insert(id, shared);
        Ok(shared)
    }

    fn read(&self) -> Result<Vec<Containers>> {
        let mut others = Vec::new();
        for folder in self.vault.all_folders()?.into_iter().filter(|f| f.disk != self.own) {
            match folder.load() {
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(e),
                Ok(m) => others.push(Containers::new(folder, &m)),
            }
        }
        Ok(others)
    }
}
