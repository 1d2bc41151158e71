//! What was used last, within a budget of memory.
//!
//! Not `quick_cache`, which the other caches use: that one refuses a value larger than its budget, spreads the budget over
//! shards, and does not say what it has taken out. Here the newest value always stays, however large it is (a page is read
//! again for each of its references otherwise), and who reads the next one makes room for it first.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// A cache that several have.
pub(crate) type SharedLru<K, V> = Arc<Mutex<Lru<K, V>>>;

/// Values of which those used last stay: as many as a budget allows, but at least the newest one.
pub(crate) struct Lru<K, V> {
    budget: usize,
    used: usize,
    clock: u64,
    values: HashMap<K, Slot<V>>,
    /// The keys by when they were used last.
    used_at: BTreeMap<u64, K>,
}

struct Slot<V> {
    used_at: u64,
    bytes: usize,
    value: V,
}

impl<K: Copy + Eq + Hash, V: Clone> Lru<K, V> {
    /// One that keeps about so many bytes.
    pub fn new(budget: usize) -> Self {
        Lru { budget, used: 0, clock: 0, values: HashMap::new(), used_at: BTreeMap::new() }
    }

    /// The bytes that the values take.
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        let slot = self.values.get_mut(key)?;
        self.clock += 1;
        self.used_at.remove(&slot.used_at);
        self.used_at.insert(self.clock, *key);
        slot.used_at = self.clock;
        Some(slot.value.clone())
    }

    /// Adds a value of `bytes`, and takes out those that were not used for longest where there are too many. One that is
    /// there stays. Returns the bytes that were taken out.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) -> usize {
        if self.get(&key).is_some() {
            return 0;
        }
        let removed = self.shrink_to(self.budget.saturating_sub(bytes));
        self.clock += 1;
        self.used += bytes;
        self.values.insert(key, Slot { used_at: self.clock, bytes, value });
        self.used_at.insert(self.clock, key);
        removed
    }

    /// Takes out what was not used for longest, until no more than so many bytes are left. Returns the bytes that were taken
    /// out.
    pub fn shrink_to(&mut self, bytes: usize) -> usize {
        let before = self.used;
        while self.used > bytes {
            let Some((_, oldest)) = self.used_at.pop_first() else { break };
            if let Some(slot) = self.values.remove(&oldest) {
                self.used -= slot.bytes;
            }
        }
        before - self.used
    }

    /// Takes out all values whose key is `unwanted`.
    pub fn remove_all(&mut self, unwanted: impl Fn(&K) -> bool) {
        let Lru { used, values, used_at, .. } = self;
        values.retain(|key, slot| {
            let stays = !unwanted(key);
            if !stays {
                used_at.remove(&slot.used_at);
                *used -= slot.bytes;
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_used_last_stay_within_the_budget() {
        let mut lru = Lru::new(10);
        for n in 0..5 {
            lru.insert(n, n * 10, 3);
        }
        assert_eq!((0..5).filter_map(|n| lru.get(&n)).collect::<Vec<_>>(), [20, 30, 40]);
        assert_eq!(lru.get(&2), Some(20));
        lru.insert(9, 90, 4);
        assert_eq!((0..10).filter_map(|n| lru.get(&n)).collect::<Vec<_>>(), [20, 40, 90]);
        lru.remove_all(|n| *n == 4);
        assert_eq!((lru.get(&4), lru.used), (None, 7));
        // One that is larger than the budget stays alone.
        lru.insert(7, 70, 50);
        assert_eq!((lru.get(&7), lru.get(&2), lru.used), (Some(70), None, 50));
        lru.insert(2, 20, 1);
        assert_eq!((lru.get(&7), lru.get(&2), lru.used), (None, Some(20), 1));
    }
}
