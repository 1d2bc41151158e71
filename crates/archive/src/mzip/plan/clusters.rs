//! Clusters of any number of chunks, in bounded memory.
//!
//! The rule is [`KnownFirsts`]: all that a chunk must know is told by earlier chunks that have its super-features. Sorting
//! tells for each super-feature of a chunk which chunk is the next that has it. Then the chunks are gone through in order,
//! and each tells these next chunks what they must know (time-forward processing).

use super::post::Post;
use super::sorter::Sorter;
use super::tape::Tape;
use chunk::{KnownFirsts, SuperFeatures, SUPER_FEATURES};
use std::io;
use std::path::{Path, PathBuf};

/// Ranges of chunks whose messages wait apart, at most.
const RANGES_MAX: u64 = 1024;
/// Bits of the number of a super-feature.
const KIND_BITS: u32 = 2;
const _: () = assert!(SUPER_FEATURES == 1 << KIND_BITS);

/// Takes the super-features of chunks.
pub(super) struct Clusters {
    /// Of each kind: super-feature, chunk.
    features: [Sorter<2>; SUPER_FEATURES],
    memory: usize,
    scratch: PathBuf,
    /// Chunks of a range at least.
    range_min: u64,
}

impl Clusters {
    /// With about so many bytes of memory, and temporary files in a directory.
    pub(super) fn new(memory: usize, scratch: &Path) -> Self {
        Clusters {
            features: std::array::from_fn(|_| Sorter::new(memory / SUPER_FEATURES)),
            memory,
            scratch: scratch.into(),
            range_min: 64 << 10,
        }
    }

    /// The super-features of a chunk, whose number is greater than that of all before.
    pub(super) fn push(&mut self, chunk: u64, features: &SuperFeatures) -> io::Result<()> {
        for (sorter, value) in self.features.iter_mut().zip(features.0) {
            sorter.push([value, chunk], &self.scratch)?;
        }
        Ok(())
    }

    /// Chunks that joined the cluster of another one, in order, each with the cluster's first one. There are so many chunks.
    pub(super) fn joined(self, chunks: u64) -> io::Result<Tape<2>> {
        let Clusters { features, memory, scratch, range_min } = self;
        let range_chunks = chunks.div_ceil(RANGES_MAX).max(range_min);
        // Chunk and kind, and the next chunk that has the same super-feature.
        let mut next_of = Sorter::new(memory / 2);
        for (kind, sorter) in features.into_iter().enumerate() {
            let mut last: Option<[u64; 2]> = None;
            for record in sorter.sorted() {
                let [value, chunk] = record?;
                if let Some([_, before]) = last.filter(|[same, _]| *same == value) {
                    next_of.push([before << KIND_BITS | kind as u64, chunk], &scratch)?;
                }
                last = Some([value, chunk]);
            }
        }
        let mut next_of = next_of.sorted().peekable();
        let mut post = Post::new(chunks.div_ceil(range_chunks) as usize);
        let mut joined = Tape::new(memory / 4);
        // What the chunks of the range know.
        let mut known: Vec<KnownFirsts> = Vec::new();
        for begin in (0..chunks).step_by(range_chunks as usize) {
            let range = begin..(begin + range_chunks).min(chunks);
            known.clear();
            known.resize((range.end - range.start) as usize, KnownFirsts::default());
            for message in post.receive((begin / range_chunks) as usize) {
                let [to, first] = message?;
                known[((to >> KIND_BITS) - begin) as usize].learn(to as usize % SUPER_FEATURES, first);
            }
            for chunk in range.clone() {
                let own = known[(chunk - begin) as usize];
                if let Some(first) = own.joins() {
                    joined.push([chunk, first], &scratch)?;
                }
                let is_its = |next: &io::Result<[u64; 2]>| {
                    !next.as_ref().is_ok_and(|[of, _]| of >> KIND_BITS != chunk)
                };
                while let Some(next) = next_of.next_if(is_its) {
                    let [of, next] = next?;
                    let kind = of as usize % SUPER_FEATURES;
                    let Some(first) = own.tells(chunk, kind) else { continue };
                    if next < range.end {
                        known[(next - begin) as usize].learn(kind, first);
                    } else {
                        let message = [next << KIND_BITS | kind as u64, first];
                        post.send((next / range_chunks) as usize, message, &scratch)?;
                    }
                }
            }
        }
        Ok(joined)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Chunks without super-features take part as well, and so do equal ones: they join, and change nothing.
        #[test]
        fn clusters_are_those_of_tables(
            features in proptest::collection::vec(proptest::option::of([0u64..40, 0u64..40, 30u64..60, 0u64..200]), 0..400),
            (memory, range_min) in (1usize..3000, 1u64..200),
        ) {
            let mut clusters = Clusters::new(memory, &std::env::temp_dir());
            clusters.range_min = range_min;
            let mut tables: [HashMap<u64, u64>; SUPER_FEATURES] = Default::default();
            let mut expected = Vec::new();
            for (chunk, of) in (0..).zip(&features) {
                let Some(of) = of else { continue };
                clusters.push(chunk, &SuperFeatures(*of)).unwrap();
                match tables.iter().zip(of).find_map(|(table, value)| table.get(value)) {
                    Some(first) => expected.push([chunk, *first]),
                    None => {
                        for (table, value) in tables.iter_mut().zip(of) {
                            table.insert(*value, chunk);
                        }
                    }
                }
            }
            let joined = clusters.joined(features.len() as u64).unwrap();
            let joined: Vec<[u64; 2]> = joined.records().map(Result::unwrap).collect();
            prop_assert_eq!(joined, expected);
        }
    }
}
