//! What a collection did.

use crate::reclaim::compact::CompactReport;

/// What a collection did, or would do.
#[derive(Clone, Debug, Default)]
pub struct GcReport {
    /// Objects that nothing named.
    pub orphans: u64,
    /// Their bytes, and those of what was released.
    pub freed_bytes: u64,
    /// Dead sessions and readers.
    pub dead_sessions: u64,
    /// Deleted snapshots that wait for a running backup.
    pub waiting: usize,
    /// Snapshots whose pending reverse pass was carried out.
    pub reversed: u64,
    /// Chunks that deletion by filters had left.
    pub repaired_chunks: u64,
    /// Damaged parts of reference indexes that were taken away. What was in them is put in again.
    pub index_parts: u64,
    /// Compaction.
    pub compacted: CompactReport,
    /// Bytes of containers that were to be packed again when the time for it was over; 0 where it was not.
    pub left_bytes: u64,
    /// Disks whose names lead to them again.
    pub names_put_back: Vec<String>,
    /// Folders that could not be collected because of damage, and what it is.
    pub skipped: Vec<String>,
    /// Folders that other maintenance kept busy for too long.
    pub busy: Vec<String>,
}

impl GcReport {
    /// Adds what packing again has done.
    pub fn add_packed(&mut self, other: GcReport) {
        self.freed_bytes += other.freed_bytes;
        self.left_bytes += other.left_bytes;
        self.compacted.add(other.compacted);
        let is_new = |known: &[String], line: &String| !known.contains(line);
        self.skipped
            .extend(other.skipped.into_iter().filter(|l| is_new(&self.skipped, l)).collect::<Vec<_>>());
        self.busy.extend(other.busy.into_iter().filter(|l| is_new(&self.busy, l)).collect::<Vec<_>>());
    }

    pub(crate) fn add_removed(&mut self, (objects, bytes): (u64, u64)) {
        self.orphans += objects;
        self.freed_bytes += bytes;
    }
}
