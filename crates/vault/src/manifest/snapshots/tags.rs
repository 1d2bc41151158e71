//! Tags of snapshots.

use crate::base::error::Result;
use crate::base::snapshot_spec::find_live;
use crate::manifest::disks;
use crate::manifest::rollback;
use crate::manifest::vault::Vault;
use format::SnapshotEntry;
use std::collections::BTreeMap;

impl Vault {
    /// Sets tags of a snapshot, or, without a value, takes them away. Returns the snapshot as it is then.
    pub fn set_tags(
        &self,
        disk: &str,
        spec: &str,
        changes: &BTreeMap<String, Option<String>>,
    ) -> Result<SnapshotEntry> {
        disks::begin_on(self, disk, |at| {
            // Once: when the swap is tried again, `latest` may be another snapshot.
            let (found, evidence) = at.folder.find_checked(disk, spec)?;
            let (m, entry) = at.folder.update_whole(|_, all| {
                let entry = find_live(all, disk, found.id)?;
                entry.tags.retain(|(name, _)| !changes.contains_key(name));
                let set = changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
                entry.tags.extend(set);
                Ok(entry.clone())
            })?;
            rollback::record(&at.folder, &m, &evidence);
            Ok(entry)
        })
    }
}
