//! Holds: a held snapshot cannot be deleted.

use crate::base::error::Result;
use crate::base::snapshot_spec::{find_live, find_snapshot};
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::rollback::{self, load_checked};
use crate::manifest::vault::Vault;
use format::SnapshotEntry;
use store::Reserve;

impl Vault {
    /// Keeps a snapshot from being deleted, or, with `held` false, lets it be deleted again. Returns it, and whether that
    /// changed anything.
    pub fn set_held(&self, disk: &str, spec: &str, held: bool) -> Result<(SnapshotEntry, bool)> {
        disks::begin_on(self, disk, |at| set_held(&at.folder.with_reserve(Reserve::Whole), disk, spec, held))
    }
}

fn set_held(folder: &Folder, disk: &str, spec: &str, held: bool) -> Result<(SnapshotEntry, bool)> {
    // Once: when the swap is tried again, `latest` may be another snapshot.
    let (m, evidence) = load_checked(folder)?;
    let found = find_snapshot(&m, disk, spec)?.clone();
    if found.held == held {
        return Ok((found, false));
    }
    let (m, entry) = folder.update(|m| {
        let entry = find_live(m, disk, found.id)?;
        entry.held = held;
        Ok(entry.clone())
    })?;
    rollback::record(folder, m.sequence, &evidence);
    Ok((entry, true))
}
