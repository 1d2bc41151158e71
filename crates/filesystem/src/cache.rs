//! What was read last, in memory of a bounded size.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Values by their keys; those that were not used for longest go first.
pub(crate) struct Cache<K, V> {
    bytes_max: usize,
    held: Mutex<Held<K, V>>,
}

struct Held<K, V> {
    values: HashMap<K, Value<V>>,
    /// The keys by the tick of their last use.
    by_use: BTreeMap<u64, K>,
    tick: u64,
    bytes: usize,
}

struct Value<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    /// An empty cache for `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let held = Held { values: HashMap::new(), by_use: BTreeMap::new(), tick: 0, bytes: 0 };
        Cache { bytes_max, held: Mutex::new(held) }
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<V> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Held { values, by_use, tick, .. } = &mut *held;
        let found = values.get_mut(&key)?;
        *tick += 1;
        by_use.remove(&found.used);
        by_use.insert(*tick, key);
        found.used = *tick;
        Some(found.value.clone())
    }

    /// Keeps a value that takes so many bytes, unless it alone is too large.
    pub fn put(&self, key: K, value: V, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(key);
        while held.bytes + bytes > self.bytes_max {
            let Some(oldest) = held.by_use.first_key_value().map(|(_, key)| *key) else { break };
            held.remove(oldest);
        }
        held.tick += 1;
        let used = held.tick;
        held.by_use.insert(used, key);
        held.values.insert(key, Value { value, bytes, used });
        held.bytes += bytes;
    }
}

impl<K: Copy + Eq + Hash, V> Held<K, V> {
    fn remove(&mut self, key: K) {
        if let Some(old) = self.values.remove(&key) {
            self.by_use.remove(&old.used);
            self.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let cache = Cache::new(10);
        cache.put(1, "one", 4);
        cache.put(2, "two", 4);
        assert_eq!(cache.get(1), Some("one"));
        cache.put(3, "three", 4);
        assert_eq!((cache.get(1), cache.get(2), cache.get(3)), (Some("one"), None, Some("three")));
        cache.put(4, "too large", 11);
        assert_eq!((cache.get(4), cache.get(1)), (None, Some("one")));
        cache.put(1, "again", 10);
        assert_eq!((cache.get(1), cache.get(3)), (Some("again"), None));
    }
}
