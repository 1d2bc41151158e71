//! The fingerprint filter: the only index in memory (LiveDFS, 2.2).
//!
//! It leads from the first `n + 24` bits of a fingerprint to the blocks that may have it. `n` bits choose a bucket, 24 are
//! stored: an entry takes 7 bytes, 8 where block numbers need more than 32 bits. A bucket is packed and sorted.
//! What it says is a hint: a fingerprint store decides. So it may be out of date; a missing entry costs space only.

use chunk::Fingerprint;
use format::pool::{FilterEntry, PoolBlock};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bits of a fingerprint in an entry (k in the paper).
const KEY_BITS: u32 = 24;
const KEY_BYTES: usize = 3;
/// Entries of a bucket of a full pool, on average.
const BUCKET_ENTRIES: u64 = 512;
/// How far from where it would be in proportion an entry is looked for one by one.
const NEAR: usize = 64;
/// Entries that a bucket grows by: little memory is unused.
const GROW_ENTRIES: usize = 32;

/// The filter.
pub(crate) struct Filter {
    buckets: Box<[Mutex<Vec<u8>>]>,
    /// Bits that choose a bucket (n in the paper).
    index_bits: u32,
    block_bytes: usize,
    /// Whether it has all that is there.
    is_complete: AtomicBool,
}

impl Filter {
    /// An empty filter for a pool of so many blocks.
    pub fn new(blocks: u64) -> Self {
        let index_bits = (blocks / BUCKET_ENTRIES).max(1).ilog2().max(4);
        let buckets = (0..1usize << index_bits).map(|_| Mutex::new(Vec::new())).collect();
        Filter {
            buckets,
            index_bits,
            block_bytes: if blocks > 1 << 32 { 5 } else { 4 },
            is_complete: AtomicBool::new(false),
        }
    }

    /// Whether what it does not find is not there, but for what could not be read.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::SeqCst)
    }

    /// Notes that all is in it that is there.
    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::SeqCst);
    }

    /// Adds blocks that may have a fingerprint to `out`.
    pub fn candidates(&self, fingerprint: &Fingerprint, out: &mut Vec<PoolBlock>) {
        let (bucket, key) = self.place(prefix(fingerprint));
        let bytes = self.entry_bytes();
        let bucket = bucket.lock();
        let mut at = lower_bound(&bucket, bytes, &key) * bytes;
        while bucket.get(at..at + KEY_BYTES) == Some(&key[..]) {
            out.push(self.block(&bucket[at..at + bytes]));
            at += bytes;
        }
    }

    /// Adds a block, once: a fingerprint store may be read while its blocks are written.
    pub fn insert(&self, prefix: u64, block: PoolBlock) {
        let (bucket, key) = self.place(prefix);
        let bytes = self.entry_bytes();
        let mut bucket = bucket.lock();
        let at = lower_bound(&bucket, bytes, &key) * bytes;
        let equal_keys = bucket[at..].chunks_exact(bytes).take_while(|entry| entry[..KEY_BYTES] == key);
        if equal_keys.into_iter().any(|entry| self.block(entry) == block) {
            return;
        }
        if bucket.len() == bucket.capacity() {
            bucket.reserve_exact(GROW_ENTRIES * bytes);
        }
        let old = bucket.len();
        bucket.resize(old + bytes, 0);
        bucket.copy_within(at..old, at + bytes);
        bucket[at..at + KEY_BYTES].copy_from_slice(&key);
        bucket[at + KEY_BYTES..at + bytes].copy_from_slice(&block.0.to_le_bytes()[..self.block_bytes]);
    }

    /// Adds blocks that may have some fingerprints, each once. For many it takes far less time than [`insert`](Self::insert):
    /// they are sorted, and each bucket is written anew once.
    pub fn insert_all(&self, entries: &mut [FilterEntry]) {
        entries.sort_unstable_by_key(|e| e.prefix);
        let index = |e: &FilterEntry| e.prefix >> (64 - self.index_bits);
        for of_bucket in entries.chunk_by(|a, b| index(a) == index(b)) {
            self.merge(of_bucket);
        }
    }

    /// Entries that are worth to be added at once: 16 for a bucket. They take a seventh of the memory of a full filter, and
    /// 128 MiB at most.
    pub fn batch_entries(&self) -> usize {
        (self.buckets.len() * 16).min(8 << 20)
    }

    /// Merges sorted entries of one bucket into it.
    fn merge(&self, entries: &[FilterEntry]) {
        let bytes = self.entry_bytes();
        let (bucket, _) = self.place(entries[0].prefix);
        let mut bucket = bucket.lock();
        let count = (bucket.len() / bytes + entries.len()).next_multiple_of(GROW_ENTRIES);
        let mut merged = Vec::with_capacity(count * bytes);
        let mut old = bucket.chunks_exact(bytes).peekable();
        for entry in entries {
            let (_, key) = self.place(entry.prefix);
            while let Some(before) = old.next_if(|o| o[..KEY_BYTES] <= key[..]) {
                merged.extend_from_slice(before);
            }
            // Those with the same key stand at the end of what is merged.
            let mut same = merged.rchunks_exact(bytes).take_while(|o| o[..KEY_BYTES] == key);
            if !same.any(|o| self.block(o) == entry.block) {
                merged.extend_from_slice(&key);
                merged.extend_from_slice(&entry.block.0.to_le_bytes()[..self.block_bytes]);
            }
        }
        old.for_each(|rest| merged.extend_from_slice(rest));
        *bucket = merged;
    }

    /// Removes a block, if it is there.
    pub fn remove(&self, prefix: u64, block: PoolBlock) {
        let (bucket, key) = self.place(prefix);
        let bytes = self.entry_bytes();
        let mut bucket = bucket.lock();
        let mut at = lower_bound(&bucket, bytes, &key) * bytes;
        while bucket.get(at..at + KEY_BYTES) == Some(&key[..]) {
            if self.block(&bucket[at..at + bytes]) == block {
                bucket.drain(at..at + bytes);
                return;
            }
            at += bytes;
        }
    }

    /// All entries, by prefix. Others may change buckets meanwhile.
    pub fn for_each(&self, mut each: impl FnMut(FilterEntry)) {
        let bytes = self.entry_bytes();
        for (index, bucket) in self.buckets.iter().enumerate() {
            for entry in bucket.lock().chunks_exact(bytes) {
                let key = u64::from(u32::from_be_bytes([0, entry[0], entry[1], entry[2]]));
                let prefix =
                    (index as u64) << (64 - self.index_bits) | key << (64 - self.index_bits - KEY_BITS);
                each(FilterEntry { prefix, block: self.block(entry) });
            }
        }
    }

    /// Entries, and the bytes of memory that they take.
    pub fn size(&self) -> (u64, u64) {
        let fixed = size_of_val(&*self.buckets) as u64;
        self.buckets.iter().fold((0, fixed), |(entries, bytes), bucket| {
            let bucket = bucket.lock();
            (entries + (bucket.len() / self.entry_bytes()) as u64, bytes + bucket.capacity() as u64)
        })
    }

    fn entry_bytes(&self) -> usize {
        KEY_BYTES + self.block_bytes
    }

    fn block(&self, entry: &[u8]) -> PoolBlock {
        let mut bytes = [0; 8];
        bytes[..self.block_bytes].copy_from_slice(&entry[KEY_BYTES..]);
        PoolBlock(u64::from_le_bytes(bytes))
    }

    fn place(&self, prefix: u64) -> (&Mutex<Vec<u8>>, [u8; KEY_BYTES]) {
        let index = prefix >> (64 - self.index_bits);
        let key = (prefix >> (64 - self.index_bits - KEY_BITS)) as u32 & ((1 << KEY_BITS) - 1);
        let [_, a, b, c] = key.to_be_bytes();
        (&self.buckets[index as usize], [a, b, c])
    }
}

/// What the filter knows a fingerprint by.
pub(crate) fn prefix(fingerprint: &Fingerprint) -> u64 {
    fingerprint.prefix().swap_bytes()
}

/// The first entry whose key is not below `key`. Keys are parts of fingerprints, so they are spread evenly: of 512 entries it
/// is some eleven from where its key would be in proportion, which is a cache line or two.
fn lower_bound(bucket: &[u8], bytes: usize, key: &[u8; KEY_BYTES]) -> usize {
    let number =
        |key: &[u8]| key[..KEY_BYTES].iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
    let key = number(key);
    let at = |n: usize| number(&bucket[n * bytes..]);
    let count = bucket.len() / bytes;
    let guess = ((key as u64 * count as u64) >> KEY_BITS) as usize;
    // Where they are not, the rest is halved.
    let (mut low, mut high) = (guess.saturating_sub(NEAR), (guess + NEAR).min(count));
    if low > 0 && at(low - 1) >= key {
        (low, high) = (0, low);
    } else if high < count && at(high) < key {
        (low, high) = (high, count);
    } else {
        let mut found = guess.min(count);
        while found > low && at(found - 1) >= key {
            found -= 1;
        }
        while found < high && at(found) < key {
            found += 1;
        }
        return found;
    }
    while low < high {
        let middle = (low + high) / 2;
        if at(middle) < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_a_sorted_list() {
        // Spread evenly, and by no means: all below, all above, many of one key.
        let spread: Vec<u32> = (0..600).map(|n| n * 27_000).collect();
        let low: Vec<u32> = (0..600).collect();
        let high: Vec<u32> = (0..600).map(|n| (1 << KEY_BITS) - 600 + n).collect();
        let one: Vec<u32> = (0..600).map(|n| if n < 200 { 5 } else { 7_000_000 }).collect();
        for keys in [&spread, &low, &high, &one, &Vec::new()] {
            for bytes in [7, 8] {
                let mut bucket = vec![0xff; keys.len() * bytes];
                for (entry, key) in bucket.chunks_exact_mut(bytes).zip(keys) {
                    entry[..KEY_BYTES].copy_from_slice(&key.to_be_bytes()[1..]);
                }
                let near = keys.iter().flat_map(|key| [key.saturating_sub(1), *key, key + 1]);
                for key in near.chain([0, 1 << 23, (1 << KEY_BITS) - 1]).filter(|key| *key < 1 << KEY_BITS) {
                    let [_, a, b, c] = key.to_be_bytes();
                    let expected = keys.partition_point(|other| *other < key);
                    assert_eq!(lower_bound(&bucket, bytes, &[a, b, c]), expected, "{key}");
                }
            }
        }
    }

    #[test]
    fn it_finds_what_is_in_and_forgets_what_was_removed() {
        for blocks in [1 << 14, 1 << 33] {
            let filter = Filter::new(blocks);
            let of = |n: u64| Fingerprint::of(&n.to_le_bytes());
            for n in 1..5_000 {
                filter.insert(prefix(&of(n)), PoolBlock(n));
                filter.insert(prefix(&of(n)), PoolBlock(n));
                filter.insert(prefix(&of(n)), PoolBlock(n + 10_000));
            }
            for n in (1..5_000).step_by(2) {
                filter.remove(prefix(&of(n)), PoolBlock(n));
            }
            for n in 1..5_000 {
                let mut found = Vec::new();
                filter.candidates(&of(n), &mut found);
                assert_eq!(found.contains(&PoolBlock(n)), n % 2 == 0, "{n}");
                assert!(found.contains(&PoolBlock(n + 10_000)));
            }
            let (entries, _) = filter.size();
            let mut all = Vec::new();
            filter.for_each(|e| all.push(e));
            assert_eq!(all.len() as u64, entries);
            assert!(all.windows(2).all(|w| w[0].prefix <= w[1].prefix));
            // Many at once, of which the half is there.
            let batch = Filter::new(blocks);
            all.iter().step_by(2).for_each(|e| batch.insert(e.prefix, e.block));
            let mut twice: Vec<FilterEntry> = all.iter().rev().chain(&all).copied().collect();
            batch.insert_all(&mut twice[..entries as usize]);
            batch.insert_all(&mut twice);
            let mut found = Vec::new();
            batch.for_each(|e| found.push((e.prefix, e.block)));
            let mut wanted: Vec<_> = all.iter().map(|e| (e.prefix, e.block)).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert!(found == wanted);
            let again = Filter::new(blocks);
            all.iter().for_each(|e| again.insert(e.prefix, e.block));
            let mut found = Vec::new();
            again.candidates(&of(2), &mut found);
            assert!(found.contains(&PoolBlock(2)));
        }
    }
}
