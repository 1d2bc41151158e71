//! Fingerprints whose blocks are being written: two writers of one content meet here.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use chunk::Fingerprint;
use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 64;

/// Finds fingerprints by a piece of their own bytes, which are as good as random.
pub(super) type ByOwnBytes = BuildHasherDefault<OwnBytes>;

#[derive(Default)]
pub(super) struct OwnBytes(u64);

impl Hasher for OwnBytes {
    fn write(&mut self, bytes: &[u8]) {
        // The first bytes choose the shard.
        if let Some(piece) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*piece);
        }
    }

    /// The length, which is the same for all.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Shard {
    claimed: Mutex<HashSet<Fingerprint, ByOwnBytes>>,
    changed: Condvar,
}

/// The fingerprints that somebody writes.
pub(crate) struct InFlight {
    shards: [Shard; SHARDS],
}

impl Default for InFlight {
    fn default() -> Self {
        InFlight { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

/// Claims of one write; they go with it.
pub(crate) struct Claims<'a> {
    in_flight: &'a InFlight,
    fingerprints: Vec<Fingerprint>,
}

impl InFlight {
    /// No claims yet.
    pub fn claims(&self) -> Claims<'_> {
        Claims { in_flight: self, fingerprints: Vec::new() }
    }

    /// Waits until nobody writes a block with this fingerprint. Who has claims must not wait.
    pub fn wait_for(&self, fingerprint: &Fingerprint) {
        let shard = self.shard(fingerprint);
        let mut claimed = shard.claimed.lock();
        while claimed.contains(fingerprint) {
            shard.changed.wait(&mut claimed);
        }
    }

    fn shard(&self, fingerprint: &Fingerprint) -> &Shard {
        &self.shards[fingerprint.prefix() as usize % SHARDS]
    }
}

impl Claims<'_> {
    /// Claims a fingerprint, if nobody has.
    pub fn claim(&mut self, fingerprint: Fingerprint) -> bool {
        let is_new = self.in_flight.shard(&fingerprint).claimed.lock().insert(fingerprint);
        if is_new {
            self.fingerprints.push(fingerprint);
        }
        is_new
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        for fingerprint in &self.fingerprints {
            let shard = self.in_flight.shard(fingerprint);
            shard.claimed.lock().remove(fingerprint);
            shard.changed.notify_all();
        }
    }
}
