//! Lists snapshots.

use crate::base::error::{damage_line, fault, Result};
use crate::base::memory::{give_back, KEPT_BYTES};
use crate::base::snapshot_spec::live_by_time;
use crate::manifest::disks;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use format::{DiskId, SnapshotEntry};

/// One snapshot as users see it.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// `vm/disk`.
    pub disk: String,
    /// The disk's id.
    pub disk_id: DiskId,
    /// Its entry in the manifest.
    pub entry: SnapshotEntry,
}

/// The snapshots of one disk or of all. What is damaged hides nothing else.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// By disk, oldest first within each.
    pub snapshots: Vec<SnapshotInfo>,
    /// Why there may be more: damaged names and manifests.
    pub damaged: Vec<String>,
}

impl Vault {
    /// All snapshots, or those of one disk.
    pub fn snapshots(&self, disk: Option<&str>) -> Result<Listing> {
        let mut listing = Listing::default();
        if let Some(name) = disk {
            return disks::begin_on(self, name, |at| {
                listing.add(name, at.folder.load()?);
                listing.damaged.extend(at.name_fault.clone().map(damage_line));
                Ok(listing)
            });
        }
        let (all, nowhere) = disks::all(self)?;
        listing.damaged.extend(nowhere.into_iter().map(damage_line));
        for at in all {
            listing.damaged.extend(at.name_fault.clone().map(damage_line));
            match disks::unless_gone(self, &at, at.folder.load()) {
                Ok(Some(m)) => listing.add(&at.name, m),
                Ok(None) => {}
                Err(e) => {
                    let line = damage_line(fault(e)?);
                    if !listing.damaged.contains(&line) {
                        listing.damaged.push(line);
                    }
                }
            }
        }
        Ok(listing)
    }
}

impl Vault {
    /// The snapshot that `spec` names, as for [`Vault::restore`].
    pub fn find(&self, disk: &str, spec: &str) -> Result<SnapshotEntry> {
        disks::begin_on(self, disk, |at| at.folder.find_now(disk, spec))
    }

    /// The names of all disks, in order; and damage that may hide others.
    pub fn disk_names(&self) -> Result<(Vec<String>, Vec<String>)> {
        let (all, nowhere) = disks::all(self)?;
        let faults = all.iter().filter_map(|at| at.name_fault.clone()).chain(nowhere);
        let damaged = faults.map(damage_line).collect();
        let mut names: Vec<String> = all.into_iter().map(|at| at.name).collect();
        names.sort_unstable();
        Ok((names, damaged))
    }
}

impl Listing {
    fn add(&mut self, disk: &str, m: Whole) {
        let (disk_id, is_large) = (m.disk, m.memory_bytes() > KEPT_BYTES);
        let all = live_by_time(m.into_snapshots()).into_iter();
        self.snapshots.extend(all.map(|entry| SnapshotInfo { disk: disk.into(), disk_id, entry }));
        if is_large {
            give_back();
        }
    }
}
