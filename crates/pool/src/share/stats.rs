//! What is counted of background sharing.

use std::sync::atomic::{AtomicU64, Ordering};

/// What background sharing did since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Scans that have ended.
    pub scans: u64,
    /// Blocks that were read and hashed.
    pub hashed_blocks: u64,
    /// Blocks that were given up because another one has their content.
    pub shared_blocks: u64,
}

/// The same, while it goes on.
#[derive(Default)]
pub(crate) struct ScanCounters {
    scans: AtomicU64,
    hashed: AtomicU64,
    shared: AtomicU64,
}

impl ScanCounters {
    /// What they show.
    pub fn stats(&self) -> ScanStats {
        let [scans, hashed_blocks, shared_blocks] =
            [&self.scans, &self.hashed, &self.shared].map(|counter| counter.load(Ordering::Relaxed));
        ScanStats { scans, hashed_blocks, shared_blocks }
    }

    pub(super) fn add_scan(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_hashed(&self, blocks: u64) {
        self.hashed.fetch_add(blocks, Ordering::Relaxed);
    }

    pub(super) fn add_shared(&self, blocks: u64) {
        self.shared.fetch_add(blocks, Ordering::Relaxed);
    }
}
