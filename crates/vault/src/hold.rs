//! Holding snapshots: what is held is not deleted.

use crate::error::Result;
use crate::snapshot_spec::find_snapshot;
use crate::vault::Vault;
use format::SnapshotEntry;

impl Vault {
    /// Keeps a snapshot from being deleted, or, with `held` false, lets it be deleted again. Returns it, and whether that
    /// changed anything.
    pub fn set_held(&self, disk: &str, spec: &str, held: bool) -> Result<(SnapshotEntry, bool)> {
        let folder = self.disk(disk)?;
        let found = find_snapshot(&folder.load()?, disk, spec)?.clone();
        if found.held == held {
            return Ok((found, false));
        }
        let id = found.id.to_string();
        let (_, entry) = folder.update(|m, _| {
            // It may have been deleted meanwhile.
            find_snapshot(m, disk, &id)?;
            let entry = m.snapshots.iter_mut().find(|s| s.id == found.id);
            Ok(entry.map(|s| {
                s.held = held;
                s.clone()
            }))
        })?;
        Ok((entry.unwrap_or(found), true))
    }
}
