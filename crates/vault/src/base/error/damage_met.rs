//! The damage that readers and backups have met, until it is looked at and recorded.

use super::VaultError;
use format::{names, ContainerId, DiskId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Objects of containers that are remembered, of those that have not been looked at, and of the others.
const OBJECTS_MAX: usize = 64;
/// Disks that are remembered.
const DISKS_MAX: usize = 10_000;
/// How long a disk is not looked at again, whatever is met: a look may take seconds.
const LOOKED_FOR: Duration = Duration::from_secs(3600);

/// Where in a vault readers and backups have met damage since it was opened.
#[derive(Default)]
pub(crate) struct DamageMet(Mutex<Met>);

#[derive(Default)]
struct Met {
    to_look_at: ToLookAt,
    /// Objects of containers that were looked at, and of which it could not be told or recorded.
    later: BTreeSet<String>,
    /// When disks were looked at.
    looked: BTreeMap<DiskId, Instant>,
}

/// What is to be looked at.
#[derive(Default)]
pub(crate) struct ToLookAt {
    /// Data and tables of containers.
    pub of_containers: BTreeSet<String>,
    /// Disks for which other objects were read, and those in whose folders they lie.
    pub disks: BTreeSet<DiskId>,
}

impl DamageMet {
    /// Remembers what an error that tells of damage names, which was read for a disk.
    pub fn note(&self, reader: DiskId, error: &VaultError) {
        let (VaultError::Corrupt { object, .. } | VaultError::Missing { object }) = error else { return };
        // Behind it may be a place in it.
        let object = object.split('#').next().unwrap_or_default();
        let met = &mut *self.0.lock();
        if container_of(object).is_some() {
            let all = &mut met.to_look_at.of_containers;
            if all.len() < OBJECTS_MAX {
                all.insert(object.to_owned());
            }
            return;
        }
        for disk in [Some(reader), owner_of(object)].into_iter().flatten() {
            let was_looked_at = met.looked.get(&disk).is_some_and(|at| at.elapsed() < LOOKED_FOR);
            if disk != DiskId::POPULAR && !was_looked_at && met.to_look_at.disks.len() < DISKS_MAX {
                met.to_look_at.disks.insert(disk);
            }
        }
    }

    /// Remembers objects of containers for the next look.
    pub fn add(&self, objects: impl IntoIterator<Item = String>) {
        let later = &mut self.0.lock().later;
        let room = OBJECTS_MAX.saturating_sub(later.len());
        later.extend(objects.into_iter().take(room));
    }

    /// Remembers disks for the next look.
    pub fn add_disks(&self, disks: BTreeSet<DiskId>) {
        self.0.lock().to_look_at.disks.extend(disks);
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        let met = self.0.lock();
        met.to_look_at.of_containers.is_empty() && met.to_look_at.disks.is_empty() && met.later.is_empty()
    }

    /// All that is to be looked at, which is forgotten; but for the last look, disks stay that were looked at a short while ago.
    pub fn take(&self, is_last: bool) -> ToLookAt {
        let met = &mut *self.0.lock();
        let mut all = std::mem::take(&mut met.to_look_at);
        all.of_containers.append(&mut met.later);
        if !is_last {
            let was_looked_at =
                |disk: &DiskId| met.looked.get(disk).is_some_and(|at| at.elapsed() < LOOKED_FOR);
            met.to_look_at.disks = all.disks.iter().copied().filter(was_looked_at).collect();
            all.disks.retain(|disk| !met.to_look_at.disks.contains(disk));
        }
        if met.looked.len() >= DISKS_MAX {
            met.looked.retain(|_, at| at.elapsed() < LOOKED_FOR);
        }
        met.looked.extend(all.disks.iter().map(|disk| (*disk, Instant::now())));
        all
    }
}

/// The owner in whose folder an object lies.
fn owner_of(object: &str) -> Option<DiskId> {
    let folder = names::folder_of(object)?;
    match folder.strip_prefix(names::DISKS) {
        Some(disk) => disk.strip_suffix('/')?.parse().ok(),
        None => Some(DiskId::POPULAR),
    }
}

/// The container whose data or table an object is, and its owner.
pub(crate) fn container_of(object: &str) -> Option<(DiskId, ContainerId)> {
    let is_read = object.ends_with(".data") || object.ends_with(".table");
    let (id, _) = is_read.then(|| names::container_of(object)).flatten()?;
    Some((owner_of(object)?, id))
}
