//! The Gear hash: shift by a bit, add a random number for the byte.

const GEAR: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut seed = 0x5a9_0d00;
    let mut n = 0;
    while n < table.len() {
        table[n] = random(&mut seed);
        n += 1;
    }
    table
}

/// The next of a series of random numbers (SplitMix64).
pub(super) const fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed(*seed)
}

/// A number all of whose bits depend on all bits of another.
pub(super) const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Calls a function with each value that has zeros under the mask.
pub(super) fn sampled(chunk: &[u8], mask: u64, take: &mut impl FnMut(u64)) {
    let mut hash = 0u64;
    for byte in chunk {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if hash & mask == 0 {
            take(hash);
        }
    }
}

/// The largest value in each of so many parts of a chunk, which has as many bytes at least.
pub(super) fn largest<const N: usize>(chunk: &[u8]) -> [u64; N] {
    let (mut hash, mut rest) = (0u64, chunk);
    std::array::from_fn(|part| {
        let (own, after) = rest.split_at(rest.len() / (N - part));
        rest = after;
        own.iter().fold(0, |most, byte| {
            hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
            hash.max(most)
        })
    })
}
