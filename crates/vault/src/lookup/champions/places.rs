//! Where fingerprints stand in a chunk table.

use format::TableIndex;

/// Slots that are looked at for a fingerprint. Half empty, even tables of a million chunks have it in fewer; a forged table
/// with one fingerprint many times would take quadratic time.
const PROBES: usize = 128;

/// Where the fingerprints of a table stand: a hash table of their indices, because fingerprints are hashes already.
pub(super) struct Places {
    /// An index and 1, or 0. A power of two of them, at most half of them taken.
    slots: Vec<u32>,
}

impl Places {
    /// Of a table.
    pub fn of(fingerprints: &[[u8; 32]]) -> Places {
        let mut slots = vec![0; (2 * fingerprints.len()).max(2).next_power_of_two()];
        for (n, f) in fingerprints.iter().enumerate() {
            let start = slot_of(f, slots.len());
            let mut probed = (start..start + PROBES).map(|at| at % slots.len());
            if let Some(at) = probed.find(|at| slots[*at] == 0) {
                slots[at] = n as u32 + 1;
            }
        }
        Places { slots }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<u32>()
    }

    /// The indices at which a fingerprint stands: all of them, unless there are very many.
    pub fn find<'a>(
        &'a self,
        fingerprints: &'a [[u8; 32]],
        f: &'a [u8; 32],
    ) -> impl Iterator<Item = TableIndex> + 'a {
        let start = slot_of(f, self.slots.len());
        let probed = PROBES.min(self.slots.len());
        let slots = (start..start + probed).map(|at| self.slots[at % self.slots.len()]);
        let indices = slots.take_while(|s| *s != 0).map(|s| TableIndex(s - 1));
        indices.filter(move |n| fingerprints[n.0 as usize] == *f)
    }
}

fn slot_of(f: &[u8; 32], slots: usize) -> usize {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&f[8..16]);
    u64::from_le_bytes(bytes) as usize & (slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::Fingerprint;

    #[test]
    fn every_fingerprint_has_its_places() {
        for count in [0usize, 1, 2, 3, 100, 1000] {
            let fingerprint = |n: usize| Fingerprint::of(&n.to_le_bytes()).0;
            // Every third one stands twice.
            let mut all: Vec<[u8; 32]> = (0..count).map(fingerprint).collect();
            all.extend((0..count).step_by(3).map(fingerprint));
            let places = Places::of(&all);
            for n in 0..count {
                let f = fingerprint(n);
                let mut found: Vec<usize> = places.find(&all, &f).map(|n| n.0 as usize).collect();
                found.sort_unstable();
                let expected: Vec<usize> = (0..all.len()).filter(|at| all[*at] == f).collect();
                assert_eq!(found, expected);
            }
            assert_eq!(places.find(&all, &fingerprint(count + 1)).count(), 0);
        }
        let same = vec![[7; 32]; 1 << 20];
        assert_eq!(Places::of(&same).find(&same, &[7; 32]).count(), PROBES);
    }
}
