//! What the last verifications found: one small object that no operation needs. Where it cannot be read, nothing is known
//! of them, and the next verification makes it anew.

use crate::base::error::Result;
use crate::manifest::vault::Vault;
use crate::report::listing::SnapshotInfo;
use format::{names, DiskId, Verification, Verifications};
use store::StoreError;

/// How often the object is changed anew because another process was faster.
const SWAP_TRIES: usize = 100;

/// What the last verifications of all disks found.
#[derive(Clone, Debug, Default)]
pub struct LastVerifications(Verifications);

/// What one of them found of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskVerification {
    /// When it began, in seconds since 1970.
    pub time: i64,
    /// Whether it read all chunks.
    pub read_chunks: bool,
    /// Damaged objects that the disk has or needs.
    pub damaged_objects: u64,
    /// Its snapshots that cannot be restored whole because of them.
    pub damaged_snapshots: u64,
}

/// What they found of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotVerification {
    /// When the last one began, in seconds since 1970.
    pub time: i64,
    /// When the last one began that read all its chunks, if there was one.
    pub data_time: Option<i64>,
    /// Whether one found that it cannot be restored whole.
    pub is_damaged: bool,
}

impl LastVerifications {
    /// Whether there was none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    /// Whether there was one of which something holds.
    pub(crate) fn has(&self, holds: impl Fn(&Verification) -> bool) -> bool {
        self.0.all.iter().any(holds)
    }

    fn of_disk(&self, disk: DiskId) -> impl DoubleEndedIterator<Item = &Verification> {
        self.0.all.iter().filter(move |v| v.disk == disk)
    }

    /// The last verification of a disk.
    pub(crate) fn last(&self, disk: DiskId) -> Option<DiskVerification> {
        self.of_disk(disk).next_back().map(DiskVerification::of)
    }

    /// The last one that read all its chunks.
    pub(crate) fn last_of_data(&self, disk: DiskId) -> Option<DiskVerification> {
        self.of_disk(disk).rfind(|v| v.read_chunks).map(DiskVerification::of)
    }

    /// What they found of a snapshot; `None` where it was not there yet.
    pub fn of_snapshot(&self, s: &SnapshotInfo) -> Option<SnapshotVerification> {
        let was_there = |v: &&Verification| s.entry.made_by < v.next_writer;
        let looked = || self.of_disk(s.disk_id).filter(was_there);
        Some(SnapshotVerification {
            time: looked().next_back()?.began,
            data_time: looked().rfind(|v| v.read_chunks).map(|v| v.began),
            is_damaged: looked().any(|v| v.damaged_snapshots.contains(&s.entry.id)),
        })
    }
}

impl DiskVerification {
    fn of(v: &Verification) -> DiskVerification {
        DiskVerification {
            time: v.began,
            read_chunks: v.read_chunks,
            damaged_objects: v.damaged_objects,
            damaged_snapshots: v.damaged_snapshots.len() as u64,
        }
    }
}

impl Vault {
    /// What the last verifications found.
    pub fn last_verifications(&self) -> LastVerifications {
        let loaded = self.store.load(names::VERIFICATIONS).ok().flatten();
        let decoded = loaded
            .map(|(bytes, _)| Verifications::decode(self.context(names::VERIFICATIONS), &bytes))
            .and_then(std::result::Result::ok);
        LastVerifications(decoded.unwrap_or_default())
    }

    /// Changes what is kept of them, in one step.
    pub(crate) fn update_verifications(&self, change: impl Fn(&mut Vec<Verification>)) -> Result<()> {
        let name = names::VERIFICATIONS;
        let mut tries = 0;
        loop {
            let loaded = self.store.load(name)?;
            let tag = loaded.as_ref().map(|(_, tag)| *tag);
            let mut last = loaded
                .and_then(|(bytes, _)| Verifications::decode(self.context(name), &bytes).ok())
                .unwrap_or_default();
            change(&mut last.all);
            last.all.sort_by_key(|v| v.disk);
            let Some(frame) = last.encode(self.context(name)) else { return Ok(()) };
            match self.store.swap(name, tag, &frame) {
                Err(StoreError::Conflict { .. }) if tries < SWAP_TRIES => tries += 1,
                other => return Ok(other.map(drop)?),
            }
        }
    }
}
