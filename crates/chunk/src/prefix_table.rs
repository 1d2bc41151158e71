//! A hash table from fingerprint prefixes to eight bytes, in bounded memory.
//!
//! A prefix is a piece of a uniform hash, so its bits are used as they are, each for one purpose:
//! the top ones choose a shard, those below them the slot, and the lowest ones decide whether the
//! prefix is in the sample. A full shard doubles until the shards' share of the memory is used up;
//! from then on whenever a shard is full the sample is halved, in every shard. Shards bound both
//! the memory that growing takes on top and the time one insertion can take.
//! Every prefix of the sample has been held since it was first inserted.

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_SLOTS_MIN: usize = 64;
/// Greatest load of a shard: linear probing then looks at three cache lines in the mean for a
/// prefix that is absent.
const LOAD: (usize, usize) = (4, 5);
const SAMPLED_BITS_MAX: u32 = 20;

/// Eight bytes kept for a prefix.
pub(crate) type Value = [u32; 2];

/// Key 0 marks an empty slot; prefix 0 is kept as 1.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: u64,
    value: Value,
}
const _: () = assert!(size_of::<Slot>() == 16);

/// A hash table from prefixes to values in bounded memory: when it is full, it keeps half of its sample.
pub(crate) struct PrefixTable {
    shards: Vec<Shard>,
    shard_slots_max: usize,
    sampled_bits: u32,
}

impl PrefixTable {
    /// A table that takes at most about `bytes`, and never less than 64 KiB when in use.
    pub(crate) fn with_capacity_bytes(bytes: usize) -> Self {
        // One shard may be held twice while it grows.
        let slots = bytes / size_of::<Slot>() / (SHARDS + 1);
        Self {
            shards: vec![Shard::default(); SHARDS],
            shard_slots_max: slots.max(SHARD_SLOTS_MIN),
            sampled_bits: 0,
        }
    }

    /// The value of `prefix`, if the table holds it.
    pub(crate) fn get(&self, prefix: u64) -> Option<Value> {
        let key = prefix.max(1);
        let shard = &self.shards[shard_of(key)];
        match shard.find(key) {
            Place::Held(at) => Some(shard.slots[at].value),
            Place::Absent => None,
        }
    }

    /// The value of `prefix`, which is inserted with `value` when it is new, and whether it was
    /// new. `None` when the sample does not hold it.
    pub(crate) fn get_or_insert(&mut self, prefix: u64, value: Value) -> Option<(&mut Value, bool)> {
        let key = prefix.max(1);
        let shard_no = shard_of(key);
        if !is_sampled(key, self.sampled_bits) {
            return None;
        }
        if let Place::Held(at) = self.shards[shard_no].find(key) {
            return Some((&mut self.shards[shard_no].slots[at].value, false));
        }
        while self.shards[shard_no].is_full() {
            if !self.shards[shard_no].grow(self.shard_slots_max) && !self.halve_sample() {
                return None;
            }
        }
        if !is_sampled(key, self.sampled_bits) {
            return None;
        }
        let at = self.shards[shard_no].insert(Slot { key, value });
        Some((&mut self.shards[shard_no].slots[at].value, true))
    }

    /// False when the sample is so small that halving would not be sampling any more.
    fn halve_sample(&mut self) -> bool {
        if self.sampled_bits == SAMPLED_BITS_MAX {
            return false;
        }
        self.sampled_bits += 1;
        for shard in &mut self.shards {
            shard.keep_sampled(self.sampled_bits);
        }
        true
    }

    /// All prefixes with their values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Value)> + '_ {
        let slots = self.shards.iter().flat_map(|shard| &shard.slots);
        slots.filter(|slot| slot.key != 0).map(|slot| (slot.key, slot.value))
    }

    /// Prefixes held.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.held).sum()
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.len()).sum();
        slots * size_of::<Slot>() + SHARDS * size_of::<Shard>()
    }

    /// How many bits of a prefix decide whether it is in the sample: one in 2^bits is held.
    pub(crate) fn sampled_bits(&self) -> u32 {
        self.sampled_bits
    }
}

fn shard_of(key: u64) -> usize {
    (key >> (u64::BITS - SHARD_BITS)) as usize
}

fn is_sampled(key: u64, bits: u32) -> bool {
    key & ((1 << bits) - 1) == 0
}

enum Place {
    Held(usize),
    Absent,
}

#[derive(Clone, Default)]
struct Shard {
    slots: Vec<Slot>,
    held: usize,
}

impl Shard {
    fn find(&self, key: u64) -> Place {
        if self.slots.is_empty() {
            return Place::Absent;
        }
        let home = self.home(key);
        let (before, after) = self.slots.split_at(home);
        for (at, slot) in (home..).zip(after).chain((0..).zip(before)) {
            if slot.key == key {
                return Place::Held(at);
            }
            if slot.key == 0 {
                return Place::Absent;
            }
        }
        Place::Absent
    }

    /// The 32 bits below the shard's, scaled to the number of slots.
    fn home(&self, key: u64) -> usize {
        let bits = (key << SHARD_BITS) >> 32;
        ((bits * self.slots.len() as u64) >> 32) as usize
    }

    fn is_full(&self) -> bool {
        (self.held + 1) * LOAD.1 > self.slots.len() * LOAD.0
    }

    /// False when the shard has `slots_max` already.
    fn grow(&mut self, slots_max: usize) -> bool {
        let slots = (self.slots.len() * 2).clamp(SHARD_SLOTS_MIN, slots_max);
        if slots <= self.slots.len() {
            return false;
        }
        self.rebuild(slots, |_| true);
        true
    }

    fn keep_sampled(&mut self, bits: u32) {
        self.rebuild(self.slots.len(), |key| is_sampled(key, bits));
    }

    fn rebuild(&mut self, slots: usize, keep: impl Fn(u64) -> bool) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        self.held = 0;
        for slot in old {
            if slot.key != 0 && keep(slot.key) {
                self.insert(slot);
            }
        }
    }

    /// Puts a slot whose key is absent where a lookup will find it. The shard is not full.
    fn insert(&mut self, slot: Slot) -> usize {
        let home = self.home(slot.key);
        let slots = self.slots.len();
        let mut at = home;
        while self.slots[at].key != 0 {
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        self.slots[at] = slot;
        self.held += 1;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_zero_is_a_prefix() {
        let mut table = PrefixTable::with_capacity_bytes(1 << 20);
        assert_eq!(table.get(0), None);
        table.get_or_insert(0, [3, 4]);
        assert_eq!(table.get(0), Some([3, 4]));
        assert_eq!(table.len(), 1);
    }
}
