//! Clusters of similar chunks, first fit, of any number of chunks in bounded memory.
//!
//! It gives what tables with all first chunks in memory give (the greedy matching of Lin 2015, 2.4.1.1, FirstFit of Kulkarni
//! 2004). A chunk joins the cluster of the
//! first of its super-features that a cluster's first chunk has; any other is the first chunk of its own. So all that a chunk
//! must know is for each of its super-features the first chunk of a cluster that has it, if there is one before it. Sorting
//! tells for each super-feature of a chunk which chunk is the next that has it. Then the chunks are gone through in order,
//! and each tells these next chunks what they must know (time-forward processing).

use super::post::Post;
use super::sorter::Sorter;
use super::tape::Tape;
use chunk::{SuperFeatures, SUPER_FEATURES};
use std::io;
use std::path::{Path, PathBuf};

/// No chunk.
const NONE: u64 = u64::MAX;
/// Ranges of chunks whose messages wait apart, at most.
const RANGES_MAX: u64 = 1024;
/// Bits of the number of a super-feature.
const KIND_BITS: u32 = 2;
const _: () = assert!(SUPER_FEATURES == 1 << KIND_BITS);

/// Takes the super-features of chunks.
pub(super) struct FirstFit {
    /// Of each kind: super-feature, chunk.
    features: [Sorter<2>; SUPER_FEATURES],
    memory: usize,
    scratch: PathBuf,
    /// Chunks of a range at least.
    range_min: u64,
}

impl FirstFit {
    /// With about so many bytes of memory, and temporary files in a directory.
    pub(super) fn new(memory: usize, scratch: &Path) -> Self {
        FirstFit {
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
        let FirstFit { features, memory, scratch, range_min } = self;
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
        // What the chunks of the range know: for each super-feature the first chunk of a cluster.
        let mut known: Vec<[u64; SUPER_FEATURES]> = Vec::new();
        for begin in (0..chunks).step_by(range_chunks as usize) {
            let range = begin..(begin + range_chunks).min(chunks);
            known.clear();
            known.resize((range.end - range.start) as usize, [NONE; SUPER_FEATURES]);
            for message in post.receive((begin / range_chunks) as usize) {
                let [to, first] = message?;
                known[((to >> KIND_BITS) - begin) as usize][to as usize % SUPER_FEATURES] = first;
            }
            for chunk in range.clone() {
                let own = known[(chunk - begin) as usize];
                let found = own.into_iter().find(|first| *first != NONE);
                if let Some(first) = found {
                    joined.push([chunk, first], &scratch)?;
                }
                let is_its = |next: &io::Result<[u64; 2]>| {
                    !next.as_ref().is_ok_and(|[of, _]| of >> KIND_BITS != chunk)
                };
                while let Some(next) = next_of.next_if(is_its) {
                    let [of, next] = next?;
                    let kind = of as usize % SUPER_FEATURES;
                    // A chunk that joined has put nothing into the tables; one that did not, all.
                    let first = if found.is_some() { own[kind] } else { chunk };
                    if first == NONE {
                        continue;
                    }
                    if next < range.end {
                        known[(next - begin) as usize][kind] = first;
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
            let mut fit = FirstFit::new(memory, &std::env::temp_dir());
            fit.range_min = range_min;
            let mut tables: [HashMap<u64, u64>; SUPER_FEATURES] = Default::default();
            let mut expected = Vec::new();
            for (chunk, of) in (0..).zip(&features) {
                let Some(of) = of else { continue };
                fit.push(chunk, &SuperFeatures(*of)).unwrap();
                match tables.iter().zip(of).find_map(|(table, value)| table.get(value)) {
                    Some(first) => expected.push([chunk, *first]),
                    None => {
                        for (table, value) in tables.iter_mut().zip(of) {
                            table.insert(*value, chunk);
                        }
                    }
                }
            }
            let joined = fit.joined(features.len() as u64).unwrap();
            let joined: Vec<[u64; 2]> = joined.records().map(Result::unwrap).collect();
            prop_assert_eq!(joined, expected);
        }
    }
}
