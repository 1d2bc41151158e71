//! Where a chunk may be: an index over fingerprint prefixes, in bounded memory.

use crate::fingerprint::Fingerprint;
use crate::prefix_table::PrefixTable;

/// Where a chunk was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Number that the caller gives a container, for as long as the index lives.
    pub container_slot: u32,
    /// The chunk within the container.
    pub chunk_no: u32,
}

/// Finds a chunk's location by the first 8 bytes of its fingerprint.
///
/// An answer is a hint: compare the full fingerprint at the location. Takes 16 bytes a slot and
/// fills at most four slots of five. Beyond its capacity it keeps only the prefixes whose lowest
/// [`sampled_bits`](Self::sampled_bits) bits are zero, one in two, then one in four, and so on;
/// these bits take no part in choosing slots. A hit on a sampled chunk then leads to its
/// neighbours in the same container.
pub struct PrefixIndex {
    table: PrefixTable,
}

impl PrefixIndex {
    /// An empty index that grows to at most `bytes` of memory, growing itself included; 65 KiB is
    /// the least that it works with.
    pub fn with_capacity_bytes(bytes: usize) -> Self {
        Self { table: PrefixTable::with_capacity_bytes(bytes) }
    }

    /// Remembers where a chunk is, unless the prefix is known already (the first location wins)
    /// or is not in the sample.
    pub fn insert(&mut self, fingerprint: &Fingerprint, location: Location) {
        let value = [location.container_slot, location.chunk_no];
        self.table.get_or_insert(fingerprint.prefix(), value);
    }

    /// Where the chunk may be.
    pub fn get(&self, fingerprint: &Fingerprint) -> Option<Location> {
        let [container_slot, chunk_no] = self.table.get(fingerprint.prefix())?;
        Some(Location { container_slot, chunk_no })
    }

    /// Prefixes held.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// How many low bits of a prefix must be zero for it to be held: 0 while every chunk is.
    pub fn sampled_bits(&self) -> u32 {
        self.table.sampled_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn fingerprint(no: u64) -> Fingerprint {
        Fingerprint::of(&no.to_le_bytes())
    }

    fn location(no: u64) -> Location {
        Location { container_slot: (no >> 10) as u32, chunk_no: no as u32 }
    }

    #[test]
    fn memory_stays_within_the_cap_and_the_sample_is_whole() {
        let cap = 1 << 20;
        let mut index = PrefixIndex::with_capacity_bytes(cap);
        for no in 0..400_000 {
            index.insert(&fingerprint(no), location(no));
            assert!(index.memory_bytes() <= cap);
        }
        let bits = index.sampled_bits();
        assert!((3..=4).contains(&bits), "{bits}");
        let mut held = 0;
        for no in 0..400_000 {
            let sampled = fingerprint(no).prefix() % (1 << bits) == 0;
            assert_eq!(index.get(&fingerprint(no)), sampled.then(|| location(no)));
            held += usize::from(sampled);
        }
        assert_eq!(index.len(), held);
    }

    #[test]
    fn nothing_is_sampled_away_below_the_cap() {
        let mut index = PrefixIndex::with_capacity_bytes(4 << 20);
        for no in 0..190_000 {
            index.insert(&fingerprint(no), location(no));
        }
        assert_eq!((index.sampled_bits(), index.len()), (0, 190_000));
        assert!(!index.is_empty());
    }

    /// Prefixes that crowd into few slots: ends of shards, zero, equal ones.
    fn crowded() -> impl Strategy<Value = Fingerprint> {
        let prefix = prop_oneof![
            any::<u64>(),
            0u64..50,
            (0u64..300).prop_map(|low| u64::MAX - low),
            (0u64..4, 0u64..300).prop_map(|(shard, low)| (shard << 58) + (u64::MAX >> 6) - low),
        ];
        prefix.prop_map(|prefix| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&prefix.to_le_bytes());
            Fingerprint(bytes)
        })
    }

    proptest! {
        #[test]
        fn equals_a_hash_map(
            inserted in prop::collection::vec((crowded(), any::<u32>()), 0..3000),
            absent in prop::collection::vec(crowded(), 0..50),
            cap in 0usize..400_000,
        ) {
            let mut index = PrefixIndex::with_capacity_bytes(cap);
            let mut model = HashMap::new();
            for (fingerprint, no) in &inserted {
                let location = Location { container_slot: *no, chunk_no: !*no };
                index.insert(fingerprint, location);
                model.entry(fingerprint.prefix().max(1)).or_insert(location);
            }
            let mask = (1u64 << index.sampled_bits()) - 1;
            model.retain(|prefix, _| prefix & mask == 0);
            prop_assert_eq!(index.len(), model.len());
            for fingerprint in inserted.iter().map(|(f, _)| f).chain(&absent) {
                let expected = model.get(&fingerprint.prefix().max(1)).copied();
                prop_assert_eq!(index.get(fingerprint), expected);
            }
        }
    }
}
