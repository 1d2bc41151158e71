//! A bounded cache that forgets the oldest first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Values by their keys, each with a weight; together they weigh at most `capacity`, or are one.
pub(super) struct Cache<K, V> {
    values: HashMap<K, (V, usize)>,
    /// Oldest first.
    order: VecDeque<K>,
    weight: usize,
    capacity: usize,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    pub fn new(capacity: usize) -> Self {
        Cache { values: HashMap::new(), order: VecDeque::new(), weight: 0, capacity }
    }

    pub fn get(&self, key: K) -> Option<V> {
        self.values.get(&key).map(|(value, _)| value.clone())
    }

    /// Adds a value, unless its key has one.
    pub fn add(&mut self, key: K, value: V, weight: usize) {
        if self.values.contains_key(&key) {
            return;
        }
        while self.weight.saturating_add(weight) > self.capacity {
            let Some(oldest) = self.order.pop_front() else { break };
            self.weight -= self.values.remove(&oldest).map_or(0, |(_, weight)| weight);
        }
        self.values.insert(key, (value, weight));
        self.order.push_back(key);
        self.weight += weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let mut cache = Cache::new(10);
        for (key, weight) in [(1, 4), (2, 4), (1, 9), (3, 3)] {
            cache.add(key, key * 10, weight);
        }
        assert_eq!([1, 2, 3].map(|key| cache.get(key)), [None, Some(20), Some(30)]);
        cache.add(4, 40, 100);
        assert_eq!([2, 3, 4].map(|key| cache.get(key)), [None, None, Some(40)]);
        cache.add(5, 50, 1);
        assert_eq!([4, 5].map(|key| cache.get(key)), [None, Some(50)]);
    }
}
