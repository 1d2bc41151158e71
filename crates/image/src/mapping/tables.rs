//! The most recently used mapping tables of an image, within a budget: memory stays bounded however large the disk is.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Blame, Result};

/// The most that the top-level tables of one image may take; QEMU has the same bound.
pub(crate) const MAX_TOP_TABLE_BYTES: u64 = 32 << 20;

/// Memory for the top-level tables of all the images and extents that one disk consists of.
#[derive(Debug)]
pub(crate) struct TableBudget {
    bytes_left: u64,
}

impl Default for TableBudget {
    fn default() -> Self {
        Self { bytes_left: 2 * MAX_TOP_TABLE_BYTES }
    }
}

impl TableBudget {
    /// Takes `bytes` for good.
    pub fn charge(&mut self, bytes: u64, blame: &Blame) -> Result<()> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| blame.unsupported("a disk whose mapping tables are this large together", None))?;
        Ok(())
    }
}

#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    used: u64,
}

/// Tables by their place, the least recently used going first.
#[derive(Debug)]
pub(crate) struct TableCache {
    slots: HashMap<u64, Slot>,
    /// When a slot was used last, to its key.
    order: BTreeMap<u64, u64>,
    clock: u64,
    bytes: usize,
    max_bytes: usize,
}

impl TableCache {
    /// A cache of `max_bytes`; it always holds the table used last.
    pub fn new(max_bytes: usize) -> Self {
        Self { slots: HashMap::new(), order: BTreeMap::new(), clock: 0, bytes: 0, max_bytes }
    }

    /// The table `key` of `len` bytes, which `load` fills when it is not there.
    pub fn get(&mut self, key: u64, len: usize, load: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<&[u8]> {
        self.clock += 1;
        if let Some(slot) = self.slots.get_mut(&key) {
            self.order.remove(&slot.used);
            slot.used = self.clock;
        } else {
            let mut bytes = vec![0; len].into_boxed_slice();
            load(&mut bytes)?;
            while self.bytes + len > self.max_bytes {
                let Some((_, oldest)) = self.order.pop_first() else {
                    break;
                };
                if let Some(slot) = self.slots.remove(&oldest) {
                    self.bytes -= slot.bytes.len();
                }
            }
            self.bytes += len;
            let used = self.clock;
            self.slots.insert(key, Slot { bytes, used });
        }
        self.order.insert(self.clock, key);
        Ok(&self.slots[&key].bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::TableCache;

    #[test]
    fn keeps_the_recently_used_within_its_budget() {
        let mut cache = TableCache::new(30);
        let mut loads = Vec::new();
        for key in [1, 2, 3, 1, 4, 1, 2, 5] {
            let table = cache
                .get(key, 10, |bytes| {
                    loads.push(key);
                    bytes.fill(key as u8);
                    Ok(())
                })
                .unwrap();
            assert_eq!(table, [key as u8; 10]);
            assert!(cache.bytes <= 30 && cache.slots.len() == cache.order.len());
        }
        assert_eq!(loads, [1, 2, 3, 4, 2, 5]);
        // One that is larger than the budget is still served.
        assert_eq!(cache.get(9, 100, |_| Ok(())).unwrap().len(), 100);
        assert_eq!(cache.slots.len(), 1);
    }
}
