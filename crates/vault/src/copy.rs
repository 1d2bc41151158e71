//! Copies snapshots of a disk to another vault (`docs/flows/copy.md`).
//!
//! 1. The snapshots that the other vault lacks are those behind the newest one that both have. They are copied oldest
//!    first, each as a backup there: what is committed stays, whatever stops the copy.
//! 2. Segments that do not differ from the snapshot before are taken over there. Of the others, where both vaults cut
//!    disks alike, the fingerprints are looked up there, and only chunks that are not found are read here
//!    ([`stored`]). Otherwise the changed ranges are read and cut anew.
//! 3. Every chunk that is read is compared with its fingerprint.

pub(crate) mod stored;

use crate::backup::pipeline::Input;
use crate::backup::{BackupOptions, BackupReport, Identity};
use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::policy::Policy;
use crate::base::progress::Progress;
use crate::base::snapshot_spec::find_snapshot;
use crate::lookup::since::Since;
use crate::manifest::disks;
use crate::manifest::snapshots::hold::{held_for, HELD_FOR};
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::recipe::stored::read_root;
use crate::restore::open_snapshot::OpenSnapshot;
use crate::restore::read_cache::ReadCache;
use format::{SnapId, SnapshotEntry};
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
        let mut view = self.view_of(disk, 0)?;
        let from = format!("{}/{}", self.id(), view.folder.disk);
        let Due { entries, mut newest } = choose(view.whole()?, disk, &from, to, options, report)?;
        view.forget_whole();
        let mut damage = None;
        for entry in entries {
            progress.check()?;
            let mut tags = entry.tags.clone();
            tags.retain(|(name, _)| {
                ![COPIED_FROM, HELD_FOR].contains(&name.as_str()) && !options.tags_left_out.contains(name)
            });
            tags.push((COPIED_FROM.into(), from.clone()));
            // A snapshot without its root is known to be damaged by one read: there may be very many.
            let root = read_root(&view.folder, &entry).map_err(|e| view.explain(e));
            let copied = root.and_then(|_| self.copy_one(disk, &entry, newest, tags, to, progress));
            // Those behind a damaged one may be sound.
            let copied = copied.if_damaged(|e| {
                damage.get_or_insert(e);
                Ok(None)
            })?;
            // Otherwise it was deleted here since the manifest was read.
            if let Some(copied) = copied {
                newest = Some(entry.id);
                report.copied.push(copied);
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Copies one snapshot behind the newest one there; `None` where it is no more.
    fn copy_one(
        &self,
        disk: &str,
        entry: &SnapshotEntry,
        newest: Option<SnapId>,
        tags: Vec<(String, String)>,
        to: &Vault,
        progress: &Progress,
    ) -> Result<Option<Copied>> {
        let spec = entry.id.to_string();
        let open = match self.open_snapshot(disk, &spec, &ReadCache::new(GROUPS_BYTES)) {
            Err(VaultError::NotFound { .. }) => return Ok(None),
            open => open?,
        };
        let since = match newest {
            Some(newest) => self.changes(disk, newest, &spec)?,
            None => None,
        };
        // A restore, say, that needs it here does not need the copy.
        let held = entry.held && held_for(entry).is_none();
        let backup = to.begin_snapshot(disk, Identity { id: entry.id, held }, true)?;
        if backup.newest().map(|s| s.id) != newest || backup.has(entry.id)? {
            let why =
                format!("{disk}: another process has just changed it in {}; run it again", to.location());
            return Err(VaultError::Refused(why));
        }
        let alike = is_cut_alike(&open, &to.policy()?);
        let counted = Arc::new(CountedDisk::new(open));
        let input = if alike {
            Input::Fingerprinted(Box::new(StoredSegments::new(counted.clone())))
        } else {
            Input::Disk(counted.source())
        };
        let options = BackupOptions { time: Some(entry.time), tags, since, ..BackupOptions::default() };
        let done = backup.run_input(input, &options, progress);
        let BackupReport { snapshot, .. } = done.map_err(|e| {
            let e = counted.failure().unwrap_or(e);
            // It may be of the other vault, which remembers it, too: then nothing is found here.
            if let Ok(at) = disks::one(self, disk) {
                self.damage_met.note(at.folder.disk, &e);
            }
            e
        })?;
        Ok(Some(Copied { snapshot, read_bytes: counted.read_bytes() }))
    }

    /// What differs from an older snapshot; `None` where that is not here, or damaged: then all segments are compared.
    fn changes(&self, disk: &str, old: SnapId, new: &str) -> Result<Option<Since>> {
        let (mut ranges, snapshot) = (Vec::new(), old.to_string());
        let compared = self.diff((disk, &snapshot), (disk, new), &mut |range| ranges.push(range));
        match compared.unless_damaged() {
            Err(VaultError::NotFound { .. }) => Ok(None),
            compared => Ok(compared?.map(|_| Since { snapshot, changes: Changes::new(ranges) })),
        }
    }
}

/// The manifest of a disk of this name in the other vault, if it has one.
fn manifest_of(to: &Vault, disk: &str) -> Result<Option<Whole>> {
    match disks::find(to, disk)? {
        Some(at) => at.folder.load_unless_empty(),
        None => Ok(None),
    }
}

/// Whether fingerprints of the snapshot's chunks are those that the other vault would compute.
pub(crate) fn is_cut_alike(open: &OpenSnapshot, policy: &Policy) -> bool {
    open.cut() == (policy.segment_bytes, policy.chunking.to_string())
}

/// What is to be copied.
struct Due {
    /// Oldest first, without what they depend on.
    entries: Vec<SnapshotEntry>,
    /// The newest snapshot there.
    newest: Option<SnapId>,
}

/// The snapshots to copy.
fn choose(
    here: &Whole,
    disk: &str,
    from: &str,
    to: &Vault,
    options: &CopyOptions,
    report: &mut CopyReport,
) -> Result<Due> {
    // Before anything that is wrong with the other vault.
    let wanted = match &options.snapshot {
        None => None,
        Some(spec) => Some(find_snapshot(&here.snapshots, disk, spec)?.id),
    };
    let there = manifest_of(to, disk)?;
    let all: Vec<&SnapshotEntry> = here.live().collect();
    let has = |id: SnapId| there.as_ref().is_some_and(|m| m.snapshots.iter().any(|s| s.id == id));
    let newest_there = there.as_ref().and_then(Whole::newest);
    let common = all.iter().rposition(|s| has(s.id));
    let is_copy = |s: &SnapshotEntry| s.tags.iter().any(|(k, v)| k == COPIED_FROM && v == from);
    let copies = there.iter().flat_map(|m| m.live()).filter(|s| is_copy(s));
    let newest_copy = copies.map(|s| s.time).next_back();
    let first = match (common, newest_there) {
        (Some(common), _) => common + 1,
        (None, None) => 0,
        // All that both had has been deleted in one of them.
        (None, Some(_)) if newest_copy.is_some() => {
            let time = newest_copy.unwrap_or_default();
            all.iter().rposition(|s| s.time <= time).map_or(0, |n| n + 1)
        }
        (None, Some(_)) => {
            let why = format!(
                "{}: has another disk that is called {disk}; `sapwood rename` one of them",
                to.location()
            );
            return Err(VaultError::Refused(why));
        }
    };
    let mut due = Due { entries: Vec::new(), newest: newest_there.map(|s| s.id) };
    for (n, s) in all.into_iter().enumerate().filter(|(_, s)| wanted.is_none_or(|id| s.id == id)) {
        match (has(s.id), n < first) {
            (true, _) => report.there += 1,
            (false, true) if wanted.is_some() => {
                let why = format!(
                    "{disk}@{}: is older than the newest snapshot that both vaults have; the other vault would list it as \
                     its newest",
                    s.id
                );
                return Err(VaultError::Refused(why));
            }
            (false, true) => report.older += 1,
            (false, false) => due.entries.push(s.without_depends()),
        }
    }
    Ok(due)
}
