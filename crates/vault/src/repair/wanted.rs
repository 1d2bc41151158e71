//! Lost chunks by their fingerprints, and the bytes of those that were found elsewhere.

use std::collections::{HashMap, HashSet};

/// Bytes of chunks that are looked for at a time.
pub(super) const WANTED_BYTES: usize = 64 << 20;

/// Chunks that are looked for.
#[derive(Default)]
pub(super) struct ChunkSearch {
    chunks: HashMap<[u8; 32], Option<Vec<u8>>>,
    /// Those that are not anywhere.
    given_up: HashSet<[u8; 32]>,
    bytes: usize,
    missing: usize,
}

impl ChunkSearch {
    /// Whether no more are to be looked for at once.
    pub fn is_full(&self) -> bool {
        self.bytes >= WANTED_BYTES
    }

    /// Looks for a chunk, too. One whose fingerprint is not known cannot be looked for, nor one that was not found before.
    pub fn want(&mut self, fingerprint: &[u8; 32], length: u32) {
        if *fingerprint == [0; 32] || self.given_up.contains(fingerprint) {
            return;
        }
        if self.chunks.insert(*fingerprint, None).is_none() {
            self.bytes += length as usize;
            self.missing += 1;
        }
    }

    /// Whether some have not been found yet.
    pub fn is_missing_any(&self) -> bool {
        self.missing > 0
    }

    /// Whether a chunk is looked for and has not been found yet.
    pub fn is_missing(&self, fingerprint: &[u8; 32]) -> bool {
        matches!(self.chunks.get(fingerprint), Some(None))
    }

    /// Takes the bytes of a chunk that was found; they have been compared with the fingerprint.
    pub fn found(&mut self, fingerprint: &[u8; 32], bytes: &[u8]) {
        if let Some(place @ None) = self.chunks.get_mut(fingerprint) {
            *place = Some(bytes.to_vec());
            self.missing -= 1;
        }
    }

    /// The bytes of a chunk, if it was found.
    pub fn get(&self, fingerprint: &[u8; 32]) -> Option<&[u8]> {
        self.chunks.get(fingerprint)?.as_deref()
    }

    /// Forgets all chunks. Those that were not found are not looked for again.
    pub fn next_round(&mut self) {
        let all = std::mem::take(&mut self.chunks);
        self.given_up.extend(all.into_iter().filter(|(_, found)| found.is_none()).map(|(f, _)| f));
        (self.bytes, self.missing) = (0, 0);
    }
}
