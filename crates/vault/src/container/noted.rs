//! Puts containers that a reader has found damaged on their owner's list, so that no backup references them again and
//! `status` tells of them before the next verification.
//!
//! A verification that reads all their chunks and finds them whole takes them off the list, as it does with its own.

use crate::base::error::{Result, VaultError};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::rollback::load_checked;
use format::{names, ContainerId, Manifest};
use parking_lot::Mutex;
use std::collections::HashSet;
use store::Reserve;

/// Containers on the list of a manifest at most. More would take the room of its snapshots.
pub(crate) const LISTED_MAX: usize = 1 << 16;
/// Objects that one reader looks at.
const NOTED_MAX: usize = 1 << 10;

/// The objects that a reader has told of.
#[derive(Default)]
pub(crate) struct Noted(Mutex<HashSet<String>>);

impl Noted {
    /// Notes damage in an object of a container, as far as that is possible: the reader fails all the same. `owners` are those
    /// whose containers are read.
    pub fn note(&self, error: &VaultError, owners: &[Folder]) {
        let (VaultError::Corrupt { object, .. } | VaultError::Missing { object }) = error else { return };
        let Some(damaged) = Damaged::of(object, owners) else { return };
        {
            let mut told = self.0.lock();
            if told.len() >= NOTED_MAX || !told.insert(damaged.object.to_owned()) {
                return;
            }
        }
        let _ = damaged.list();
    }
}

/// A damaged object of a container.
struct Damaged<'a> {
    object: &'a str,
    folder: &'a Folder,
    id: ContainerId,
}

impl<'a> Damaged<'a> {
    /// `None` where it is an object of something else.
    fn of(object: &'a str, owners: &'a [Folder]) -> Option<Damaged<'a>> {
        // Behind it may be a place in it.
        let object = object.split('#').next()?;
        let folder = owners.iter().find(|f| names::folder_of(object) == Some(f.path.as_str()))?;
        let (id, _) = names::container_of(object)?;
        let is_read = object.ends_with(".data") || object.ends_with(".table");
        is_read.then_some(Damaged { object, folder, id })
    }

    fn list(&self) -> Result<()> {
        // What is listed in an older manifest would be lost with it, and make it look newer.
        let (m, _) = load_checked(self.folder)?;
        if self.is_listed(&m)? {
            return Ok(());
        }
        self.folder.with_reserve(Reserve::Whole).update(|m| {
            if !self.is_listed(m)? {
                m.damaged.push(self.id);
                m.damaged.sort_unstable();
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Whether there is nothing to do: it is on the list, there is no room, or its container has been written again.
    fn is_listed(&self, m: &Manifest) -> Result<bool> {
        if m.damaged.contains(&self.id) || m.damaged.len() >= LISTED_MAX {
            return Ok(true);
        }
        let entry = Containers::new(self.folder.clone(), m).get(self.id)?;
        let path = &self.folder.path;
        let is_named = entry.is_some_and(|e| {
            [names::data(path, e.data), names::table(path, e.id, e.table)].iter().any(|o| o == self.object)
        });
        Ok(!is_named)
    }
}
