//! Which blocks are free, in memory.
//!
//! A block is free on the device if its count is 0. It can be allocated if also no allocation has it, and the chunk that
//! freed it is durable, and nobody reads it any more. What a group has free is known when its store was read once.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use format::pool::GroupNo;
use parking_lot::{Mutex, MutexGuard};

/// A group's blocks.
#[derive(Default)]
pub(super) struct Group {
    /// A bit for each data block that cannot be allocated; `None` before its store was read.
    pub taken: Option<Box<[u64]>>,
}

impl Group {
    /// Takes up to `most` blocks in a row that can be allocated, the first such row at or behind `from`.
    pub fn take(&mut self, from: u32, most: u32, blocks: u32) -> Option<(u32, u32)> {
        let taken = self.taken.as_mut()?;
        let first = next_free(taken, from, blocks)?;
        let mut count = 0;
        while count < most && first + count < blocks && !is_taken(taken, first + count) {
            mark(taken, first + count, true);
            count += 1;
        }
        Some((first, count))
    }

    /// Lets a block be allocated again.
    pub fn give_back(&mut self, block: u32) {
        if let Some(taken) = &mut self.taken {
            mark(taken, block, false);
        }
    }
}

fn is_taken(taken: &[u64], block: u32) -> bool {
    taken[block as usize / 64] >> (block % 64) & 1 == 1
}

pub(super) fn mark(taken: &mut [u64], block: u32, value: bool) {
    let word = &mut taken[block as usize / 64];
    if value {
        *word |= 1 << (block % 64);
    } else {
        *word &= !(1 << (block % 64));
    }
}

/// The first block at or behind `from` that is not taken.
fn next_free(taken: &[u64], from: u32, blocks: u32) -> Option<u32> {
    let mut at = from;
    while at < blocks {
        let free = !taken[at as usize / 64] >> (at % 64);
        if free != 0 {
            return Some(at + free.trailing_zeros()).filter(|found| *found < blocks);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// All groups.
pub(super) struct Groups {
    groups: Box<[Mutex<Group>]>,
    /// Blocks of each group that can be allocated.
    available: Box<[AtomicU32]>,
    total: AtomicI64,
}

impl Groups {
    /// Groups with so many free blocks each.
    pub fn new(free: impl Iterator<Item = u32>) -> Self {
        let available: Box<[AtomicU32]> = free.map(AtomicU32::new).collect();
        let total = available.iter().map(|n| i64::from(n.load(Ordering::Relaxed))).sum();
        let groups = available.iter().map(|_| Mutex::default()).collect();
        Groups { groups, available, total: AtomicI64::new(total) }
    }

    /// A group, locked.
    pub fn lock(&self, group: GroupNo) -> MutexGuard<'_, Group> {
        self.groups[group.0 as usize].lock()
    }

    /// Blocks that can be allocated, of all groups.
    pub fn total(&self) -> i64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Notes that blocks of a group were taken (negative) or given back.
    pub fn count(&self, group: GroupNo, change: i64) {
        let available = &self.available[group.0 as usize];
        if change < 0 {
            available.fetch_sub(change.unsigned_abs() as u32, Ordering::Relaxed);
        } else {
            available.fetch_add(change as u32, Ordering::Relaxed);
        }
        self.total.fetch_add(change, Ordering::Relaxed);
    }

    /// The group with the most blocks that can be allocated.
    pub fn emptiest(&self) -> Option<GroupNo> {
        let (index, most) = self
            .available
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .enumerate()
            .max_by_key(|(index, n)| (*n, std::cmp::Reverse(*index)))?;
        (most > 0).then_some(GroupNo(index as u32))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_order_and_given_back() {
        let mut group = Group { taken: Some(vec![0; 4].into()) };
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
}
