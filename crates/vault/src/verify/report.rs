//! What a verification reports.

use crate::base::error::VaultError;
use crate::container::container_set::ContainerSet;
use crate::verify::findings::bad_chunks::BadChunks;
use crate::verify::findings::damage::Damage;
use format::DiskId;
use std::collections::BTreeMap;

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Disks looked at.
    pub disks: u64,
    /// Snapshots looked at.
    pub snapshots: u64,
    /// Containers looked at, each once.
    pub containers: u64,
    /// Objects looked at.
    pub objects_checked: u64,
    /// Bytes of chunks that were read and compared with their fingerprints.
    pub data_bytes: u64,
    /// Bytes of chunk groups that were read for that.
    pub stored_bytes_read: u64,
    /// What is damaged, by object.
    pub damaged: Vec<Damage>,
    /// Why damaged containers could not be recorded in a manifest, where that failed.
    pub unrecorded: Option<String>,
    /// Whether snapshots of other disks may be affected that are not named, because they were not compared with what is damaged.
    pub others_left: bool,
    /// Why what it found could not be kept for `status` and lists of snapshots, where that failed.
    pub not_kept: Option<String>,
    /// Containers whose data, table or list of dead chunks is damaged, by owner, as it names them.
    pub(crate) containers_damaged: BTreeMap<DiskId, ContainerSet>,
    /// Chunks that cannot be read, by owner.
    pub(crate) bad: BTreeMap<DiskId, BadChunks>,
    /// Whether there are owners of which nothing can be read.
    pub(crate) lacks_owners: bool,
    /// Whether there are more damaged containers, or chunks that cannot be read, than there was room for here.
    pub(crate) is_cut: bool,
}

/// What of the damage that was met is recorded by now.
#[derive(Debug, Default)]
pub struct RecordedDamage {
    /// What was not known before.
    pub damaged: Vec<Damage>,
    /// Why something could not be looked at, or recorded, where that failed: the first such thing.
    pub left: Option<VaultError>,
}

impl RecordedDamage {
    /// Something failed.
    pub(super) fn leave(&mut self, e: VaultError) {
        self.left.get_or_insert(e);
    }
}
