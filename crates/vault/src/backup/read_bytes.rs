//! How much of a source a backup reads and hashes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a source by what a backup did with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceBytes {
    /// Read.
    pub read: u64,
    /// Fingerprinted.
    pub hashed: u64,
    /// Of which the source had the fingerprints.
    pub known: u64,
}

/// The same, while it goes on.
#[derive(Debug, Default)]
pub(crate) struct ReadBytes {
    read: AtomicU64,
    hashed: AtomicU64,
    known: AtomicU64,
}

impl ReadBytes {
    /// What they show.
    pub fn get(&self) -> SourceBytes {
        let [read, hashed, known] =
            [&self.read, &self.hashed, &self.known].map(|counter| counter.load(Ordering::Relaxed));
        SourceBytes { read, hashed, known }
    }

    pub fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_hashed(&self, bytes: u64) {
        self.hashed.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_known(&self, bytes: u64) {
        self.known.fetch_add(bytes, Ordering::Relaxed);
    }
}
