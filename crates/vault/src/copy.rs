//! Copies snapshots of a disk to another vault (`docs/flows/copy.md`).
//!
//! 1. The snapshots that the other vault lacks are those behind the newest one that both have. They are copied oldest
//!    first, each as a backup there: what is committed stays, whatever stops the copy.
//! 2. Segments that do not differ from the snapshot before are taken over there. Of the others, where both vaults cut
//!    disks alike, the fingerprints are looked up there, and only chunks that are not found are read here
//!    ([`stored`]). Otherwise the changed ranges are read and cut anew.
//! 3. Every chunk that is read is compared with its fingerprint.

mod stored;

use crate::backup::pipeline::Input;
use crate::backup::{BackupOptions, BackupReport, Identity};
use crate::base::error::{Result, VaultError};
use crate::base::policy::Policy;
use crate::base::progress::Progress;
use crate::base::snapshot_spec::find_snapshot;
use crate::container::group_cache::GroupCache;
use crate::container::view::View;
use crate::lookup::since::Since;
use crate::manifest::disks;
use crate::manifest::vault::Vault;
use crate::restore::open_snapshot::OpenSnapshot;
use format::{Manifest, SnapId, SnapshotEntry};
use image::Changes;
use std::sync::Arc;
use stored::{CountedDisk, StoredSegments};

/// The tag of a copied snapshot: vault and disk that it was copied from.
pub const COPIED_FROM: &str = "copied-from";

/// Memory for groups of the snapshot that is copied, in bytes.
const GROUPS_BYTES: u64 = 64 << 20;

/// What a copy may be told.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Only this snapshot, as for [`Vault::restore`]; all, where it is not given.
    pub snapshot: Option<String>,
    /// Names of tags that mean nothing in another vault.
    pub tags_left_out: Vec<String>,
}

/// A snapshot that was copied.
#[derive(Clone, Debug)]
pub struct Copied {
    /// As it is in the other vault.
    pub snapshot: SnapshotEntry,
    /// Bytes of chunks that were read here.
    pub read_bytes: u64,
}

/// What a copy of a disk did.
#[derive(Clone, Debug, Default)]
pub struct CopyReport {
    /// The snapshots that were copied, oldest first.
    pub copied: Vec<Copied>,
    /// How many of those asked for were there before.
    pub there: usize,
    /// How many of those asked for are older than the newest one that both vaults have, and not there: they are not
    /// copied, since a retention may have deleted them.
    pub older: usize,
}

impl Vault {
    /// Copies the snapshots of a disk that another vault lacks, in order, with ids, times, tags and holds. `report` is
    /// filled as the work goes on: what it names is in the other vault even if an error is returned.
    ///
    /// # Errors
    /// `Refused` where the other vault has a disk of this name that is not a copy of this one.
    pub fn copy(
        &self,
        disk: &str,
        to: &Vault,
        options: &CopyOptions,
        progress: &Progress,
        report: &mut CopyReport,
    ) -> Result<()> {
        // Held until the end: what is to be copied is not deleted meanwhile.
        let view = self.view_of(disk, 0)?;
        let from = format!("{}/{}", self.id(), view.folder.disk);
        let due = choose(&view.manifest, disk, &from, to, options, report)?;
        for due in due {
            progress.check()?;
            let mut tags = due.entry.tags.clone();
            tags.retain(|(name, _)| name != COPIED_FROM && !options.tags_left_out.contains(name));
            tags.push((COPIED_FROM.into(), from.clone()));
            let copied = self.copy_one(disk, &view, &due, tags, to, progress)?;
            report.copied.push(copied);
        }
        Ok(())
    }

    fn copy_one(
        &self,
        disk: &str,
        view: &View,
        Due { before, entry }: &Due,
        tags: Vec<(String, String)>,
        to: &Vault,
        progress: &Progress,
    ) -> Result<Copied> {
        let before = *before;
        let spec = entry.id.to_string();
        let backup = to.begin_snapshot(disk, Identity { id: entry.id, held: entry.held })?;
        if backup.newest().map(|s| s.id) != before {
            let why =
                format!("{disk}: another process has just added to it in {}; run it again", to.location());
            return Err(VaultError::Refused(why));
        }
        let since = match before.filter(|id| view.manifest.live().any(|s| s.id == *id)) {
            Some(before) => {
                let (mut ranges, old) = (Vec::new(), before.to_string());
                self.diff((disk, &old), (disk, &spec), &mut |range| ranges.push(range))?;
                Some(Since { snapshot: old, changes: Changes::new(ranges) })
            }
            None => None,
        };
        let open = self.open_snapshot(disk, &spec, &GroupCache::new(GROUPS_BYTES))?;
        let alike = is_cut_alike(&open, &to.policy()?);
        let counted = Arc::new(CountedDisk::new(open));
        let input = if alike {
            Input::Fingerprinted(Box::new(StoredSegments::new(counted.clone())))
        } else {
            Input::Disk(counted.source())
        };
        let options = BackupOptions { time: Some(entry.time), tags, since, ..BackupOptions::default() };
        let done = backup.run_input(input, &options, progress);
        let BackupReport { snapshot, .. } = done.map_err(|e| counted.failure().unwrap_or(e))?;
        Ok(Copied { snapshot, read_bytes: counted.read_bytes() })
    }
}

/// The manifest of a disk of this name in the other vault, if it has one.
fn manifest_of(to: &Vault, disk: &str) -> Result<Option<Manifest>> {
    match disks::find(to, disk)? {
        Some(at) => at.folder.load_unless_empty(),
        None => Ok(None),
    }
}

/// Whether fingerprints of the snapshot's chunks are those that the other vault would compute.
fn is_cut_alike(open: &OpenSnapshot, policy: &Policy) -> bool {
    open.cut() == (policy.segment_bytes, policy.chunking.to_string())
}

/// A snapshot to copy.
struct Due {
    /// The newest one that the other vault will have by then.
    before: Option<SnapId>,
    entry: SnapshotEntry,
}

/// The snapshots to copy, oldest first.
fn choose(
    here: &Manifest,
    disk: &str,
    from: &str,
    to: &Vault,
    options: &CopyOptions,
    report: &mut CopyReport,
) -> Result<Vec<Due>> {
    // Before anything that is wrong with the other vault.
    let wanted = match &options.snapshot {
        None => None,
        Some(spec) => Some(find_snapshot(here, disk, spec)?.id),
    };
    let there = manifest_of(to, disk)?;
    let all: Vec<&SnapshotEntry> = here.live().collect();
    let has = |id: SnapId| there.as_ref().is_some_and(|m| m.snapshots.iter().any(|s| s.id == id));
    let newest_there = there.as_ref().and_then(Manifest::newest);
    let common = all.iter().rposition(|s| has(s.id));
    let is_copy = |s: &SnapshotEntry| s.tags.iter().any(|(k, v)| k == COPIED_FROM && v == from);
    let first = match (common, newest_there) {
        (Some(common), _) => common + 1,
        (None, None) => 0,
        // All that both had has been deleted in one of them.
        (None, Some(newest)) if is_copy(newest) => {
            all.iter().rposition(|s| s.time <= newest.time).map_or(0, |n| n + 1)
        }
        (None, Some(_)) => {
            let why = format!(
                "{}: has another disk that is called {disk}; `sapwood rename` one of them",
                to.location()
            );
            return Err(VaultError::Refused(why));
        }
    };
    let mut before = newest_there.map(|s| s.id);
    let mut due = Vec::new();
    for (n, s) in all.into_iter().enumerate().filter(|(_, s)| wanted.is_none_or(|id| s.id == id)) {
        match (has(s.id), n < first) {
            (true, _) => report.there += 1,
            (false, true) => report.older += 1,
            (false, false) => {
                due.push(Due { before, entry: s.clone() });
                before = Some(s.id);
            }
        }
    }
    Ok(due)
}
