//! A Bloom filter over the chunks that a snapshot references directly (VM-centric 3.2): for policies with approximate
//! deletion.
//!
//! It has false positives, but no false negatives.

use crate::bytes::{Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ChunkNo, ContainerId};
use xxhash_rust::xxh3::xxh3_128;

/// Bits of the smallest filter, and of the largest (32 MiB), as powers of two.
const LOG2_BITS: std::ops::RangeInclusive<u8> = 10..=28;
/// Bits for each item: with [`HASHES`] one in a hundred items that were not put in is found (VM-centric 3.2).
const BITS_PER_ITEM: u64 = 10;
/// The paper's j.
const HASHES: u8 = 7;
/// Exponent, hash functions, items.
const HEADER_BYTES: usize = 1 + 1 + 8;

/// A filter. Those of one size can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom {
    log2_bits: u8,
    hashes: u8,
    items: u64,
    bits: Vec<u8>,
}

impl Bloom {
    /// One that is right for so many items: the next power of two of bits.
    pub fn with_room(items: u64) -> Self {
        let most = 1 << LOG2_BITS.end();
        let bits =
            items.saturating_mul(BITS_PER_ITEM).clamp(1 << LOG2_BITS.start(), most).next_power_of_two();
        let log2_bits = bits.trailing_zeros() as u8;
        Bloom { log2_bits, hashes: HASHES, items: 0, bits: vec![0; 1 << (log2_bits - 3)] }
    }

    /// Its size in bits: the paper's z.
    pub fn len_bits(&self) -> u64 {
        1 << self.log2_bits
    }

    /// How many hash functions: the paper's j.
    pub fn hashes(&self) -> u32 {
        u32::from(self.hashes)
    }

    /// How many items were put in.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Puts a chunk in.
    pub fn insert(&mut self, container: ContainerId, chunk: ChunkNo) {
        for n in places(self.log2_bits, self.hashes, container, chunk) {
            self.bits[n / 8] |= 1 << (n % 8);
        }
        self.items = self.items.saturating_add(1);
    }

    /// Whether a chunk may be in it. `false` is certain.
    pub fn may_have(&self, container: ContainerId, chunk: ChunkNo) -> bool {
        places(self.log2_bits, self.hashes, container, chunk).all(|n| self.bits[n / 8] & (1 << (n % 8)) != 0)
    }

    /// Adds what another one has. `false`, and nothing done, where they are not of one shape.
    pub fn merge(&mut self, other: &Bloom) -> bool {
        if (self.log2_bits, self.hashes) != (other.log2_bits, other.hashes) {
            return false;
        }
        self.bits.iter_mut().zip(&other.bits).for_each(|(a, b)| *a |= b);
        self.items = self.items.max(other.items);
        true
    }

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.u8(self.log2_bits);
        o.u8(self.hashes);
        o.u64(self.items);
        o.bytes(&self.bits);
        encode_frame(Kind::Bloom, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Bloom, context, bytes)?;
        let Some((header, bits)) = body.split_at_checked(HEADER_BYTES) else {
            return Err(Malformed::new("is cut short"));
        };
        let (log2_bits, hashes) = (header[0], header[1]);
        if !LOG2_BITS.contains(&log2_bits) || bits.len() != 1 << (log2_bits - 3) {
            return Err(Malformed::new(format!("has {} bytes for 2^{log2_bits} bits", bits.len())));
        }
        // One number for all: filters of one size can be merged, and those of all sizes together take twice the largest.
        if hashes != HASHES {
            return Err(Malformed::new(format!("has {hashes} hash functions, {HASHES} expected")));
        }
        let items = header[2..].try_into().map(u64::from_le_bytes).unwrap_or_default();
        Ok(Bloom { log2_bits, hashes, items, bits: bits.to_vec() })
    }
}

/// The bits of a chunk: a + i b, of the two halves of one hash (Kirsch and Mitzenmacher 2006).
fn places(log2_bits: u8, hashes: u8, container: ContainerId, chunk: ChunkNo) -> impl Iterator<Item = usize> {
    let mut item = [0; 12];
    item[..8].copy_from_slice(&container.raw().to_le_bytes());
    item[8..].copy_from_slice(&chunk.0.to_le_bytes());
    let hash = xxh3_128(&item);
    let (a, b) = (hash as u64, (hash >> 64) as u64 | 1);
    let mask = (1_u64 << log2_bits) - 1;
    (0..u64::from(hashes)).map(move |i| (a.wrapping_add(i.wrapping_mul(b)) & mask) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OwnerNo;

    fn of(numbers: impl Iterator<Item = u32>, room: u64) -> Bloom {
        let mut b = Bloom::with_room(room);
        numbers.for_each(|n| b.insert(container(n), ChunkNo(n)));
        b
    }

    fn container(n: u32) -> ContainerId {
        ContainerId::new(OwnerNo::OWN, crate::ids::WriterNo(n % 7 + 1), n % 3)
    }

    #[test]
    fn what_is_in_is_found_and_little_else() {
        let b = of(0..100_000, 100_000);
        assert!((0..100_000).all(|n| b.may_have(container(n), ChunkNo(n))));
        let wrong = (100_000..200_000).filter(|n| b.may_have(container(*n), ChunkNo(*n))).count();
        // 2^20 bits, 10.5 for each item: 0.7 % by formula 1.
        assert!((300..1100).contains(&wrong), "{wrong} of 100,000 by mistake");
    }

    #[test]
    fn merged_it_has_what_both_have() {
        let (mut a, b) = (of(0..500, 1000), of(500..1000, 1000));
        assert!(a.merge(&b));
        assert!((0..1000).all(|n| a.may_have(container(n), ChunkNo(n))));
        assert!(!a.merge(&Bloom::with_room(1_000_000)));
        assert_eq!(
            (Bloom::with_room(0).len_bits(), Bloom::with_room(u64::MAX).len_bits()),
            (1 << 10, 1 << 28)
        );
    }
}
