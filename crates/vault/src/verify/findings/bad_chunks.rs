//! The chunks of one owner that cannot be read, and the objects to blame.

use crate::container::container_set::{place_of, ContainerSet};
use format::{ChunkNo, ContainerId, RunSet, Summary};
use std::collections::BTreeMap;

/// Memory of a block of containers of which nothing can be read, in bytes, about.
const LOST_BYTES: usize = 48;
/// Memory of an entry of containers of which something cannot be read, in bytes, about, but for its runs of chunks.
const PART_BYTES: usize = 128;
/// The same of a run.
const RUN_BYTES: usize = 8;

/// Objects to blame that are collected before equal ones are taken out.
const HITS_MAX: usize = 1 << 16;

/// A damaged object, by its number in the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectNo(pub u32);

impl ObjectNo {
    /// The number of all objects for which the findings had no room.
    pub const UNLISTED: ObjectNo = ObjectNo(u32::MAX);
}

/// Chunks that cannot be read, by container, and the object that is to blame.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadChunks {
    /// Containers of which nothing can be read: by block and object, which of the block.
    lost: BTreeMap<(u64, ObjectNo), u64>,
    /// Those of which something cannot be read.
    parts: BTreeMap<ContainerId, Vec<(ObjectNo, RunSet)>>,
    /// Memory of these, in bytes, about.
    parts_bytes: usize,
}

impl BadChunks {
    /// Whether nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.parts.is_empty()
    }

    /// Whether there are none but some chunks of these containers.
    pub fn is_within(&self, containers: &ContainerSet) -> bool {
        self.lost.is_empty() && self.parts.keys().all(|id| containers.contains(id.local()))
    }

    /// Memory that it takes, in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.lost.len() * LOST_BYTES + self.parts_bytes
    }

    /// Nothing of a container can be read because of an object.
    pub fn all(&mut self, id: ContainerId, object: ObjectNo) {
        let (block, bit) = place_of(id);
        *self.lost.entry((block, object)).or_default() |= bit;
    }

    /// Some chunks of a container cannot be read because of an object.
    pub fn some(&mut self, id: ContainerId, object: ObjectNo, chunks: &RunSet) {
        let list = self.parts.entry(id).or_default();
        self.parts_bytes -= list.iter().map(part_bytes).sum::<usize>();
        match list.iter_mut().find(|(o, _)| *o == object) {
            Some((_, have)) => *have = have.union(chunks),
            None => {
                list.reserve_exact(1);
                list.push((object, chunks.clone()));
            }
        }
        self.parts_bytes += list.iter().map(part_bytes).sum::<usize>();
    }

    /// Forgets what is known of a container.
    pub fn remove(&mut self, id: ContainerId) {
        let (block, bit) = place_of(id);
        let of_block: Vec<(u64, ObjectNo)> = self.lost_in(block).map(|(key, _)| *key).collect();
        for key in of_block {
            if let Some(bits) = self.lost.get_mut(&key) {
                *bits &= !bit;
                if *bits == 0 {
                    self.lost.remove(&key);
                }
            }
        }
        let parts = self.parts.remove(&id).unwrap_or_default();
        self.parts_bytes -= parts.iter().map(part_bytes).sum::<usize>();
    }

    fn lost_in(&self, block: u64) -> impl Iterator<Item = (&(u64, ObjectNo), &u64)> {
        self.lost.range((block, ObjectNo(0))..=(block, ObjectNo::UNLISTED))
    }

    /// The objects because of which nothing of a container can be read.
    fn lost_by(&self, id: ContainerId) -> impl Iterator<Item = ObjectNo> + '_ {
        let (block, bit) = place_of(id);
        self.lost_in(block).filter(move |(_, bits)| **bits & bit != 0).map(|((_, object), _)| *object)
    }

    /// Of chunks of a container, from `first` on, those that cannot be read.
    pub fn among(&self, id: ContainerId, first: ChunkNo, count: u32) -> RunSet {
        let asked = RunSet::from_unsorted(vec![(first.0, count)]);
        if self.lost_by(id.local()).next().is_some() {
            return asked;
        }
        let mut bad = RunSet::default();
        for (_, chunks) in self.parts.get(&id.local()).into_iter().flatten() {
            bad = bad.union(chunks);
        }
        asked.minus(&asked.minus(&bad))
    }

    /// The objects that are to blame where what a summary references cannot be read.
    pub fn hits(&self, summary: &Summary) -> Vec<ObjectNo> {
        let (mut hits, mut full) = (Vec::new(), HITS_MAX);
        for (id, wanted) in &summary.containers {
            hits.extend(self.lost_by(*id));
            for (object, bad) in self.parts.get(id).into_iter().flatten() {
                if bad.runs().iter().any(|r| wanted.count_within(ChunkNo(r.0), r.1) > 0) {
                    hits.push(*object);
                }
            }
            // Most may be one object.
            if hits.len() >= full {
                hits.sort_unstable();
                hits.dedup();
                full = hits.len() + HITS_MAX;
            }
        }
        hits.sort_unstable();
        hits.dedup();
        hits
    }
}

fn part_bytes((_, chunks): &(ObjectNo, RunSet)) -> usize {
    PART_BYTES + chunks.runs().len() * RUN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{OwnerNo, WriterNo};

    fn container(n: u32) -> ContainerId {
        ContainerId::new(OwnerNo::OWN, WriterNo(n / 100 + 1), n % 100)
    }

    fn runs(first: u32, count: u32) -> RunSet {
        RunSet::from_unsorted(vec![(first, count)])
    }

    fn of(summary: &[(u32, RunSet)]) -> Summary {
        Summary { containers: summary.iter().map(|(n, chunks)| (container(*n), chunks.clone())).collect() }
    }

    #[test]
    fn those_are_blamed_that_keep_a_chunk_from_being_read() {
        let mut bad = BadChunks::default();
        bad.all(container(5), ObjectNo(3));
        bad.all(container(5), ObjectNo::UNLISTED);
        bad.all(container(6), ObjectNo(9));
        bad.some(container(7), ObjectNo(4), &runs(10, 5));
        bad.some(container(7), ObjectNo(4), &runs(30, 1));
        bad.some(container(7), ObjectNo(8), &runs(12, 1));
        assert_eq!(bad.hits(&of(&[(5, runs(0, 1))])), [ObjectNo(3), ObjectNo::UNLISTED]);
        assert_eq!(
            bad.hits(&of(&[(4, runs(0, 99)), (6, runs(0, 1)), (7, runs(13, 9))])),
            [ObjectNo(4), ObjectNo(9)]
        );
        assert_eq!(bad.hits(&of(&[(7, runs(0, 10)), (8, runs(0, 99))])), []);
        assert_eq!(bad.among(container(7), ChunkNo(11), 20), RunSet::from_unsorted(vec![(11, 4), (30, 1)]));
        assert_eq!(bad.among(container(5), ChunkNo(2), 3), runs(2, 3));
        assert!(bad.among(container(8), ChunkNo(2), 3).is_empty());
        bad.remove(container(5));
        bad.remove(container(7));
        assert_eq!(bad.hits(&of(&[(5, runs(0, 1)), (6, runs(0, 1)), (7, runs(10, 9))])), [ObjectNo(9)]);
        bad.remove(container(6));
        assert!(bad.is_empty() && bad.memory_bytes() == 0);
    }

    #[test]
    fn a_million_that_are_lost_in_a_row_take_a_byte_or_two_each() {
        let mut bad = BadChunks::default();
        for n in 0..1 << 20 {
            bad.all(ContainerId::new(OwnerNo::OWN, WriterNo(1), n), ObjectNo::UNLISTED);
        }
        assert!(bad.memory_bytes() < 1 << 20, "{}", bad.memory_bytes());
    }
}
