//! A sample of the chunks of a disk, to compare disks by: of two samples it is known which chunks are in both.

use std::collections::HashSet;

/// Chunks that a sample has at most; 3 MiB of memory.
const CHUNKS_MAX: usize = 1 << 17;

/// The chunks of a disk, or, of a large one, those whose fingerprints end in so many zero bits: the same ones of every
/// disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    zero_bits: u32,
    /// Parts of fingerprints.
    chunks: HashSet<u64>,
}

impl Sample {
    /// Adds a chunk. If the sample becomes too large, half of it goes.
    pub fn add(&mut self, fingerprint: &[u8; 32]) {
        let mut part = [0; 8];
        part.copy_from_slice(&fingerprint[16..24]);
        let part = u64::from_le_bytes(part);
        if part.trailing_zeros() < self.zero_bits || !self.chunks.insert(part) {
            return;
        }
        while self.chunks.len() > CHUNKS_MAX {
            self.zero_bits += 1;
            self.chunks.retain(|c| c.trailing_zeros() >= self.zero_bits);
        }
    }

    fn has(&self, chunk: u64) -> bool {
        self.chunks.contains(&chunk)
    }

    /// How many of its chunks all of `others` have too and none of `unlike` has, and how many of these are in `found`.
    /// Only chunks count that all samples would have.
    pub fn count(&self, others: &[&Sample], unlike: &[&Sample], found: &Sample) -> (usize, usize) {
        let samples = others.iter().chain(unlike).chain([&found, &self]);
        let zero_bits = samples.map(|s| s.zero_bits).max().unwrap_or(0);
        let chunks = self.chunks.iter().filter(|c| c.trailing_zeros() >= zero_bits);
        let own = chunks.filter(|c| others.iter().all(|s| s.has(**c)) && !unlike.iter().any(|s| s.has(**c)));
        own.fold((0, 0), |(all, there), c| (all + 1, there + usize::from(found.has(*c))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(chunks: std::ops::Range<u32>) -> Sample {
        let mut sample = Sample::default();
        for n in chunks {
            let mut fingerprint = [0; 32];
            // Evenly spread, as fingerprints are.
            let spread = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
            fingerprint[16..24].copy_from_slice(&spread.wrapping_mul(0xD6E8_FEB8_6659_FD93).to_le_bytes());
            sample.add(&fingerprint);
        }
        sample
    }

    #[test]
    fn small_disks_are_counted_exactly() {
        let (a, b, found) = (sample(0..1000), sample(500..1500), sample(900..1200));
        assert_eq!(a.count(&[], &[], &found), (1000, 100));
        assert_eq!(a.count(&[], &[&b], &found), (500, 0));
        assert_eq!(b.count(&[], &[&a], &found), (500, 200));
        assert_eq!(b.count(&[&a], &[], &found), (500, 100));
    }

    #[test]
    fn large_disks_are_estimated_within_bounds() {
        let (large, small) = (sample(0..1_000_000), sample(900_000..1_010_000));
        assert!(large.chunks.len() <= CHUNKS_MAX && large.chunks.len() > CHUNKS_MAX / 4);
        let (all, there) = large.count(&[], &[], &small);
        let part = there as f64 / all as f64;
        assert!((0.09..0.11).contains(&part), "{there} of {all}");
        // The same chunks of both, whichever is the larger one.
        assert_eq!(small.count(&[], &[], &large).1, there);
    }
}
