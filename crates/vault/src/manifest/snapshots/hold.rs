//! Holds: a held snapshot cannot be deleted.
//!
//! A user holds it, or something that needs it and says what it is ([`HELD_FOR`]).

use crate::base::error::Result;
use crate::base::snapshot_spec::find_live;
use crate::manifest::disks;
use crate::manifest::rollback;
use crate::manifest::vault::Vault;
use format::SnapshotEntry;
use store::Reserve;

/// The tag that says what a snapshot is held for, where that is no user.
pub const HELD_FOR: &str = "held-for";

impl Vault {
    /// Keeps a snapshot from being deleted, or, with `held` false, lets it be deleted again, as a user wants it: what it was
    /// held for before counts no more. Returns it, and whether that changed anything.
    pub fn set_held(&self, disk: &str, spec: &str, held: bool) -> Result<(SnapshotEntry, bool)> {
        self.change_hold(disk, spec, &|s| s.held != held || held_for(s).is_some(), &|s| {
            s.held = held;
            s.tags.retain(|(name, _)| name != HELD_FOR);
        })
    }

    /// Keeps a snapshot from being deleted for something that needs it, unless it is held already. Returns it, and whether
    /// that changed anything.
    pub fn hold_for(&self, disk: &str, spec: &str, what: &str) -> Result<(SnapshotEntry, bool)> {
        self.change_hold(disk, spec, &|s| !s.held, &|s| {
            s.held = true;
            s.tags.push((HELD_FOR.into(), what.into()));
        })
    }

    /// Ends a hold of [`Vault::hold_for`]. One that a user has taken over meanwhile stays.
    pub fn end_hold_for(&self, disk: &str, spec: &str, what: &str) -> Result<()> {
        let ended = self.change_hold(disk, spec, &|s| s.held && held_for(s) == Some(what), &|s| {
            s.held = false;
            s.tags.retain(|(name, _)| name != HELD_FOR);
        });
        ended.map(drop)
    }

    fn change_hold(
        &self,
        disk: &str,
        spec: &str,
        is_needed: &dyn Fn(&SnapshotEntry) -> bool,
        change: &dyn Fn(&mut SnapshotEntry),
    ) -> Result<(SnapshotEntry, bool)> {
        disks::begin_on(self, disk, |at| {
            let folder = &at.folder.with_reserve(Reserve::Whole);
            // Once: when the swap is tried again, `latest` may be another snapshot.
            let (found, evidence) = folder.find_checked(disk, spec)?;
            if !is_needed(&found) {
                return Ok((found, false));
            }
            let (m, (entry, changed)) = folder.update_whole(|_, all| {
                let entry = find_live(all, disk, found.id)?;
                let is_needed = is_needed(entry);
                if is_needed {
                    change(entry);
                }
                Ok((entry.clone(), is_needed))
            })?;
            rollback::record(folder, &m, &evidence);
            Ok((entry, changed))
        })
    }
}

/// What a snapshot is held for, where that is no user.
pub(crate) fn held_for(s: &SnapshotEntry) -> Option<&str> {
    s.tags.iter().find(|(name, _)| name == HELD_FOR).map(|(_, what)| what.as_str())
}
