//! Clusters of similar chunks, first fit: the greedy matching of Lin 2015, 2.4.1.1 (FirstFit of Kulkarni 2004).

use super::SUPER_FEATURES;

/// No chunk.
const NONE: u64 = u64::MAX;

/// What a chunk must know to find its cluster: for each of its super-features the first chunk of a cluster that has it, if
/// one before it does.
///
/// The super-features are looked at in order: a chunk joins the cluster of the first one for which that is known. If there is
/// none, the chunk is the first one of its own cluster. No table of super-features is needed for it: chunks are gone through
/// in order, and each tells the next chunk that has the same super-feature what that must know.
#[derive(Clone, Copy, Debug)]
pub struct KnownFirsts([u64; SUPER_FEATURES]);

impl Default for KnownFirsts {
    /// Of a chunk that nobody has told anything.
    fn default() -> Self {
        KnownFirsts([NONE; SUPER_FEATURES])
    }
}

impl KnownFirsts {
    /// Takes what an earlier chunk tells: the first chunk of a cluster has the super-feature of this number.
    ///
    /// # Panics
    /// If the number is not less than [`SUPER_FEATURES`].
    pub fn learn(&mut self, super_feature: usize, first: u64) {
        self.0[super_feature] = first;
    }

    /// The first chunk of the cluster that the chunk joins; `None` if it is the first one of its own.
    pub fn joins(&self) -> Option<u64> {
        self.0.into_iter().find(|first| *first != NONE)
    }

    /// What this chunk, of a number, tells the next one with the same super-feature: one that joins hands on what it knows,
    /// and the first one of a cluster tells of itself.
    ///
    /// # Panics
    /// If the number of the super-feature is not less than [`SUPER_FEATURES`].
    pub fn tells(&self, chunk: u64, super_feature: usize) -> Option<u64> {
        match self.joins() {
            None => Some(chunk),
            Some(_) => Some(self.0[super_feature]).filter(|first| *first != NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Tables with the super-features of all first chunks are the definition.
        #[test]
        fn clusters_are_those_of_tables(
            chunks in prop::collection::vec([0u64..40, 0u64..40, 30u64..60, 0u64..200], 0..300),
        ) {
            let mut tables: [HashMap<u64, u64>; SUPER_FEATURES] = Default::default();
            // What was told last, of each super-feature of each kind, to the next one that has it.
            let mut told: HashMap<(usize, u64), u64> = HashMap::new();
            for (number, features) in (0..).zip(&chunks) {
                let expected = tables.iter().zip(features).find_map(|(table, value)| table.get(value).copied());
                if expected.is_none() {
                    for (table, value) in tables.iter_mut().zip(features) {
                        table.insert(*value, number);
                    }
                }
                let mut known = KnownFirsts::default();
                for (kind, value) in features.iter().enumerate() {
                    if let Some(first) = told.remove(&(kind, *value)) {
                        known.learn(kind, first);
                    }
                }
                prop_assert_eq!(known.joins(), expected);
                for (kind, value) in features.iter().enumerate() {
                    if let Some(first) = known.tells(number, kind) {
                        told.insert((kind, *value), first);
                    }
                }
            }
        }
    }
}
