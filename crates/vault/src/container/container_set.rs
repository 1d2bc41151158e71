//! A set of containers in little memory: a session numbers those that it makes without gaps.

use format::ContainerId;
use std::collections::BTreeMap;

/// The containers of one block have ids that differ in so many last bits.
const BLOCK_BITS: u32 = 6;
/// Memory of a block, in bytes, about.
const BLOCK_BYTES: usize = 32;

/// Containers, each once, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerSet {
    /// The blocks that have any, and which.
    blocks: BTreeMap<u64, u64>,
}

/// The block of a container, and its bit there.
pub(crate) fn place_of(id: ContainerId) -> (u64, u64) {
    (id.raw() >> BLOCK_BITS, 1 << (id.raw() & ((1 << BLOCK_BITS) - 1)))
}

impl ContainerSet {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Memory that it takes, in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Whether a container is one of them.
    pub fn contains(&self, id: ContainerId) -> bool {
        let (block, bit) = place_of(id);
        self.blocks.get(&block).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds a container. Returns whether it was not one of them.
    pub fn insert(&mut self, id: ContainerId) -> bool {
        let (block, bit) = place_of(id);
        let bits = self.blocks.entry(block).or_default();
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    /// Takes a container out.
    pub fn remove(&mut self, id: ContainerId) {
        let (block, bit) = place_of(id);
        if let Some(bits) = self.blocks.get_mut(&block) {
            *bits &= !bit;
            if *bits == 0 {
                self.blocks.remove(&block);
            }
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ContainerId> + '_ {
        let of_block = |(block, bits): (&u64, &u64)| {
            let (block, bits) = (*block, *bits);
            (0..1 << BLOCK_BITS).filter(move |n| bits >> n & 1 != 0).map(move |n| block << BLOCK_BITS | n)
        };
        self.blocks.iter().flat_map(of_block).filter_map(|raw| ContainerId::from_raw(raw).ok())
    }
}

impl Extend<ContainerId> for ContainerSet {
    fn extend<I: IntoIterator<Item = ContainerId>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl FromIterator<ContainerId> for ContainerSet {
    fn from_iter<I: IntoIterator<Item = ContainerId>>(ids: I) -> Self {
        let mut set = ContainerSet::default();
        set.extend(ids);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{OwnerNo, WriterNo};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::BTreeSet;

    fn id(n: u32) -> ContainerId {
        ContainerId::new(OwnerNo(n % 3), WriterNo(1 + n / 400), n % 400 * 7 / 4)
    }

    #[test]
    fn it_has_what_a_plain_set_has() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut set, mut plain) = (ContainerSet::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let id = id(rng.random_range(0..1600));
            let adds = rng.random_bool(0.6);
            if adds {
                assert_eq!(set.insert(id), plain.insert(id));
            } else {
                set.remove(id);
                plain.remove(&id);
            }
            assert_eq!((set.contains(id), set.is_empty()), (adds, plain.is_empty()));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), plain.iter().copied().collect::<Vec<_>>());
        plain.into_iter().for_each(|id| set.remove(id));
        assert!(set.is_empty());
    }

    #[test]
    fn a_million_in_a_row_take_a_byte_or_two_each() {
        let number = |n| ContainerId::new(OwnerNo::OWN, WriterNo(9), n);
        let set: ContainerSet = (0..1 << 20).map(number).collect();
        assert!(set.memory_bytes() < 1 << 20, "{}", set.memory_bytes());
    }
}
