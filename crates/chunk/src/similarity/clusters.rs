//! Chunks in clusters of similar ones, first fit.

use super::features::{SuperFeatures, SUPER_FEATURES};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes that a place in a table takes.
const PLACE_BYTES: usize = size_of::<(u64, u32)>() + 1;

/// The first chunks of clusters, by their super-features (the greedy matching of Lin 2015, 2.4.1.1, FirstFit of Kulkarni
/// 2004).
#[derive(Default)]
pub struct Clusters {
    first: [HashMap<u64, u32, BuildHasherDefault<Itself>>; SUPER_FEATURES],
}

impl Clusters {
    /// The first chunk of the cluster that a chunk belongs to. If it resembles none, it becomes the first of its own.
    pub fn join(&mut self, chunk: u32, of: &SuperFeatures) -> u32 {
        let found = self.first.iter().zip(of.0).find_map(|(table, value)| table.get(&value));
        if let Some(first) = found {
            return *first;
        }
        for (table, value) in self.first.iter_mut().zip(of.0) {
            table.insert(value, chunk);
        }
        chunk
    }

    /// Bytes that the tables take.
    pub fn bytes(&self) -> usize {
        self.first.iter().map(|table| table.capacity() * PLACE_BYTES).sum()
    }
}

/// The order in which chunks stand if those of a cluster stand together: clusters in the order of their first chunks,
/// chunks of a cluster in their own order (the migrate recipe of Lin 2015, 2.4.1.2).
///
/// `first_of` has for each chunk the first one of its cluster.
///
/// # Panics
/// If the first one of a cluster is not itself in it.
pub fn migrated_order(first_of: impl ExactSizeIterator<Item = u32> + Clone) -> Vec<u32> {
    let mut at = vec![0u32; first_of.len()];
    for first in first_of.clone() {
        at[first as usize] += 1;
    }
    let mut sum = 0;
    for place in &mut at {
        sum += std::mem::replace(place, sum);
    }
    let mut order = vec![0; at.len()];
    for (chunk, first) in first_of.enumerate() {
        let place = &mut at[first as usize];
        order[*place as usize] = chunk as u32;
        *place += 1;
    }
    order
}

/// Super-features are hashes already.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_that_fits_takes_a_chunk() {
        let mut clusters = Clusters::default();
        assert_eq!(clusters.join(0, &SuperFeatures([1, 2, 3, 4])), 0);
        assert_eq!(clusters.join(1, &SuperFeatures([5, 6, 7, 8])), 1);
        // By its second, before its third.
        assert_eq!(clusters.join(2, &SuperFeatures([9, 6, 3, 9])), 1);
        // One that has joined takes none.
        assert_eq!(clusters.join(3, &SuperFeatures([9, 9, 9, 9])), 3);
        // Tables are apart.
        assert_eq!(clusters.join(4, &SuperFeatures([2, 1, 4, 3])), 4);
        assert!(clusters.bytes() > 0);
    }

    #[test]
    fn the_example_of_the_paper() {
        // A B C A' D B': figure 2.2.
        assert_eq!(migrated_order([0, 1, 2, 0, 4, 1].into_iter()), [0, 3, 1, 5, 2, 4]);
    }

    proptest! {
        #[test]
        fn an_order_keeps_clusters_together(seeds in proptest::collection::vec(any::<u32>(), 0..200)) {
            let mut first_of: Vec<u32> = Vec::new();
            for (n, seed) in seeds.iter().enumerate() {
                let wanted = seed % (n as u32 + 1);
                first_of.push(if wanted == n as u32 { wanted } else { first_of[wanted as usize] });
            }
            let order = migrated_order(first_of.iter().copied());
            let mut expected: Vec<u32> = (0..seeds.len() as u32).collect();
            expected.sort_by_key(|chunk| (first_of[*chunk as usize], *chunk));
            prop_assert_eq!(order, expected);
        }
    }
}
