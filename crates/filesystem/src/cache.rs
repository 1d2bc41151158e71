//! What was read last, in memory of a bounded size.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Values by their keys. Together they take at most `bytes_max`, or there is one only.
///
/// The oldest go first; what was used meanwhile is spared once.
pub(crate) struct Cache<K, V> {
    bytes_max: usize,
    held: Mutex<Held<K, V>>,
}

struct Held<K, V> {
    values: HashMap<K, Value<V>>,
    /// All keys, in the order in which their values came or were spared.
    order: VecDeque<K>,
    bytes: usize,
}

struct Value<V> {
    value: V,
    bytes: usize,
    is_used: bool,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    /// An empty cache for `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let held = Held { values: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Cache { bytes_max, held: Mutex::new(held) }
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<V> {
        let mut held = self.held.lock();
        let found = held.values.get_mut(&key)?;
        found.is_used = true;
        Some(found.value.clone())
    }

    /// Keeps a value that takes so many bytes.
    pub fn put(&self, key: K, value: V, bytes: usize) {
        let mut held = self.held.lock();
        held.shrink(self.bytes_max.saturating_sub(bytes));
        match held.values.insert(key, Value { value, bytes, is_used: false }) {
            Some(old) => held.bytes -= old.bytes,
            None => held.order.push_back(key),
        }
        held.bytes += bytes;
    }
}

impl<K: Copy + Eq + Hash, V> Held<K, V> {
    /// Lets values go until the others take at most so many bytes.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(key) = self.order.pop_front() else { break };
            match self.values.get_mut(&key).filter(|value| value.is_used) {
                Some(value) => {
                    value.is_used = false;
                    self.order.push_back(key);
                }
                None => self.bytes -= self.values.remove(&key).map_or(0, |value| value.bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_and_was_not_used_goes() {
        let cache = Cache::new(10);
        cache.put(1, "one", 4);
        cache.put(2, "two", 4);
        assert_eq!(cache.get(1), Some("one"));
        cache.put(3, "three", 4);
        assert_eq!([1, 2, 3].map(|key| cache.get(key)), [Some("one"), None, Some("three")]);
        cache.put(1, "again", 6);
        assert_eq!([1, 3].map(|key| cache.get(key)), [Some("again"), Some("three")]);
        cache.put(4, "large", 11);
        assert_eq!([1, 3, 4].map(|key| cache.get(key)), [None, None, Some("large")]);
        cache.put(5, "small", 1);
        assert_eq!([4, 5].map(|key| cache.get(key)), [None, Some("small")]);
    }
}
