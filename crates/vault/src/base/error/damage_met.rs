//! The damage that readers have met, until it is looked at and recorded.

use super::VaultError;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Objects that are remembered, of those that have not been looked at, and of the others.
const MET_MAX: usize = 64;

/// The objects of a vault in which readers have met damage since it was opened.
#[derive(Default)]
pub(crate) struct DamageMet(Mutex<Met>);

#[derive(Default)]
struct Met {
    new: BTreeSet<String>,
    /// Those that were looked at, and of which it could not be told or recorded.
    later: BTreeSet<String>,
}

impl DamageMet {
    /// Remembers the object of an error, if that tells of damage.
    pub fn note(&self, error: &VaultError) {
        let (VaultError::Corrupt { object, .. } | VaultError::Missing { object }) = error else { return };
        let new = &mut self.0.lock().new;
        if new.len() < MET_MAX {
            // Behind it may be a place in it.
            let object = object.split('#').next().unwrap_or_default();
            new.insert(object.to_owned());
        }
    }

    /// Remembers objects for the next look.
    pub fn add(&self, objects: Vec<String>) {
        let later = &mut self.0.lock().later;
        let room = MET_MAX.saturating_sub(later.len());
        later.extend(objects.into_iter().take(room));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        let met = self.0.lock();
        met.new.is_empty() && met.later.is_empty()
    }

    /// All of them, which are forgotten.
    pub fn take(&self) -> BTreeSet<String> {
        let Met { mut new, mut later } = std::mem::take(&mut *self.0.lock());
        later.append(&mut new);
        later
    }
}
