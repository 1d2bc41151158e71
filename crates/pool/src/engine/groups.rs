//! Which blocks are free, in memory.
//!
//! A block is free on the device if its count is 0. It can be allocated if also no allocation has it, and the batch that
//! freed it is durable, and nobody reads it any more. What a block group has free is known when its fingerprint store was read
//! once.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use format::pool::BlockGroupNo;
use parking_lot::{Mutex, MutexGuard};

/// Some data blocks of a block group: a bit for each.
pub struct BlockSet(Box<[u64]>);

impl BlockSet {
    /// None of so many.
    pub(super) fn new(blocks: u32) -> Self {
        BlockSet(vec![0; blocks.div_ceil(64) as usize].into())
    }

    fn contains(&self, block: u32) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, block: u32) {
        self.0[block as usize / 64] |= 1 << (block % 64);
    }

    fn remove(&mut self, block: u32) {
        self.0[block as usize / 64] &= !(1 << (block % 64));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Those that are in another set as well.
    fn intersection(&self, other: &BlockSet) -> BlockSet {
        BlockSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// Takes the first blocks out, at most so many.
    pub fn take_first(&mut self, most: usize) -> Vec<u32> {
        let mut blocks = Vec::new();
        for (index, word) in (0..).zip(&mut self.0) {
            while *word != 0 && blocks.len() < most {
                blocks.push(index * 64 + word.trailing_zeros());
                *word &= *word - 1;
            }
        }
        blocks
    }

    /// The first block at or behind `from` that is not in it.
    fn next_missing(&self, from: u32, blocks: u32) -> Option<u32> {
        let mut at = from;
        while at < blocks {
            let missing = !self.0[at as usize / 64] >> (at % 64);
            if missing != 0 {
                return Some(at + missing.trailing_zeros()).filter(|found| *found < blocks);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

/// Which blocks of a block group are taken.
#[derive(Default)]
pub(super) struct BlockGroup {
    /// Data blocks that cannot be allocated; `None` before its fingerprint store was read.
    pub taken: Option<BlockSet>,
    /// Blocks that the last scan saw without a fingerprint, and that were not allocated since.
    seen: Option<BlockSet>,
    /// In this generation of the catalog, a scan has found nothing to do.
    pub settled: Option<u64>,
}

impl BlockGroup {
    /// Takes up to `most` blocks in a row that can be allocated, the first such row at or behind `from`.
    pub fn take(&mut self, from: u32, most: u32, blocks: u32) -> Option<(u32, u32)> {
        let taken = self.taken.as_mut()?;
        let first = taken.next_missing(from, blocks)?;
        let mut count = 0;
        while count < most && first + count < blocks && !taken.contains(first + count) {
            taken.insert(first + count);
            if let Some(seen) = &mut self.seen {
                seen.remove(first + count);
            }
            count += 1;
        }
        Some((first, count))
    }

    /// Remembers what a scan sees, and returns those that the one before saw: nobody has written them in between.
    pub fn see(&mut self, found: BlockSet) -> BlockSet {
        let none = BlockSet(vec![0; found.0.len()].into());
        let cold = self.seen.as_ref().map_or(none, |seen| seen.intersection(&found));
        self.seen = (!found.is_empty()).then_some(found);
        cold
    }

    /// Lets a block be allocated again.
    pub fn give_back(&mut self, block: u32) {
        if let Some(taken) = &mut self.taken {
            taken.remove(block);
        }
    }
}

/// All block groups of a pool.
pub(super) struct BlockGroups {
    groups: Box<[Mutex<BlockGroup>]>,
    /// Blocks of each group that can be allocated.
    available: Box<[AtomicU32]>,
    total: AtomicI64,
    /// Block groups that got blocks without a fingerprint since a scan began to look at them. Set with the commit lock.
    unseen: Box<[AtomicBool]>,
}

impl BlockGroups {
    /// Block groups with so many free blocks each.
    pub fn new(free: impl Iterator<Item = u32>) -> Self {
        let available: Box<[AtomicU32]> = free.map(AtomicU32::new).collect();
        let total = available.iter().map(|n| i64::from(n.load(Ordering::Relaxed))).sum();
        let groups = available.iter().map(|_| Mutex::default()).collect();
        let unseen = available.iter().map(|_| AtomicBool::default()).collect();
        BlockGroups { groups, available, total: AtomicI64::new(total), unseen }
    }

    /// A block group, locked.
    pub fn lock(&self, group: BlockGroupNo) -> MutexGuard<'_, BlockGroup> {
        self.groups[group.0 as usize].lock()
    }

    /// Whether a group got blocks without a fingerprint since a scan began to look at it.
    pub fn has_unseen(&self, group: BlockGroupNo) -> bool {
        self.unseen[group.0 as usize].load(Ordering::SeqCst)
    }

    /// Notes that it got some, or that a scan begins.
    pub fn set_unseen(&self, group: BlockGroupNo, value: bool) {
        self.unseen[group.0 as usize].store(value, Ordering::SeqCst);
    }

    /// Blocks that can be allocated, of all groups.
    pub fn total(&self) -> i64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Notes that blocks of a group were taken (negative) or given back.
    pub fn count(&self, group: BlockGroupNo, change: i64) {
        let available = &self.available[group.0 as usize];
        if change < 0 {
            available.fetch_sub(change.unsigned_abs() as u32, Ordering::Relaxed);
        } else {
            available.fetch_add(change as u32, Ordering::Relaxed);
        }
        self.total.fetch_add(change, Ordering::Relaxed);
    }

    /// What is free is known to be so much, and read again before a block is taken.
    pub fn reset(&self, group: BlockGroupNo, free: u32) {
        let before = self.available[group.0 as usize].swap(free, Ordering::Relaxed);
        self.total.fetch_add(i64::from(free) - i64::from(before), Ordering::Relaxed);
        *self.lock(group) = BlockGroup::default();
    }

    /// The block group with the most blocks that can be allocated.
    pub fn emptiest(&self) -> Option<BlockGroupNo> {
        let (index, most) = self
            .available
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .enumerate()
            .max_by_key(|(index, n)| (*n, std::cmp::Reverse(*index)))?;
        (most > 0).then_some(BlockGroupNo(index as u32))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_order_and_given_back() {
        let mut group = BlockGroup { taken: Some(BlockSet::new(200)), ..BlockGroup::default() };
        assert_eq!(group.take(0, 100, 200), Some((0, 100)));
        assert_eq!(group.take(0, 100, 200), Some((100, 100)));
        assert_eq!(group.take(0, 1, 200), None);
        (60..70).for_each(|b| group.give_back(b));
        group.give_back(150);
        assert_eq!(group.take(65, 100, 200), Some((65, 5)));
        assert_eq!(group.take(65, 100, 200), Some((150, 1)));
        assert_eq!(group.take(0, 100, 200), Some((60, 5)));
        assert_eq!(group.take(0, 100, 200), None);
    }

    #[test]
    fn what_two_scans_saw_is_cold_unless_it_was_written() {
        let mut group = BlockGroup { taken: Some(BlockSet::new(200)), ..BlockGroup::default() };
        let set = |blocks: &[u32]| {
            let mut set = BlockSet::new(200);
            blocks.iter().for_each(|block| set.insert(*block));
            set
        };
        assert_eq!(group.take(0, 200, 200), Some((0, 200)));
        assert!(group.see(set(&[1, 64, 199])).is_empty());
        // Freed, and used again.
        group.give_back(64);
        assert_eq!(group.take(0, 1, 200), Some((64, 1)));
        let mut cold = group.see(set(&[1, 2, 64, 199]));
        assert_eq!(cold.take_first(1), [1]);
        assert_eq!(cold.take_first(5), [199]);
        assert_eq!(group.see(set(&[2, 64])).take_first(5), [2, 64]);
        assert!(group.see(set(&[])).is_empty());
        assert!(group.see(set(&[2])).is_empty());
    }
}
