//! Hooks: sampled fingerprints that lead to the containers that have their chunks (sparse indexing, Lillibridge et al.,
//! FAST 2009, 3).
//!
//! An object has its hooks first, in order of their prefixes, then a footer, so that it can be written in one pass and is
//! searched where it stands: the footer says between which hooks a prefix is, and prefixes are spread evenly. It also has
//! the checksum of all hooks, for those who read all.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ContainerId, DiskId};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a hook: prefix, owner, container.
pub const HOOK_BYTES: usize = 18;
/// Hooks of a bucket, about, as far as there are buckets.
const HOOKS_PER_BUCKET: u64 = 512;
/// Most buckets, as a power of two.
const BUCKET_BITS_MAX: u32 = 16;
/// Bytes of the checksum of all hooks.
const SUM_BYTES: usize = 16;
/// The length of the footer's frame, and a magic number, end the object.
const TAIL_BYTES: usize = 8;
const MAGIC: [u8; 4] = *b"HOOK";

/// A sampled fingerprint, and where its chunk is. A hint, never trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// First 8 bytes of the fingerprint, as they stand.
    pub prefix: u64,
    /// The container's owner, by its place in the footer's list.
    pub owner: u32,
    /// The container, as its owner names it.
    pub container: ContainerId,
}

impl Hook {
    /// The number by which hooks are sorted: a fingerprint's first 8 bytes as they stand.
    pub fn prefix(fingerprint: &[u8; 32]) -> u64 {
        fingerprint[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// As it is stored.
    pub fn encode(&self) -> [u8; HOOK_BYTES] {
        let mut bytes = [0; HOOK_BYTES];
        bytes[..8].copy_from_slice(&self.prefix.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.owner.to_le_bytes());
        bytes[12..].copy_from_slice(&self.container.local().raw().to_le_bytes()[..6]);
        bytes
    }

    /// From its bytes; `None` where they are no hook.
    pub fn decode(bytes: &[u8; HOOK_BYTES]) -> Option<Hook> {
        let mut i = In::new(bytes);
        let prefix = u64::from_be_bytes(i.array().ok()?);
        let owner = i.u32().ok()?;
        let mut raw = [0; 8];
        raw[..6].copy_from_slice(i.bytes(6).ok()?);
        let container = ContainerId::from_raw(u64::from_le_bytes(raw)).ok()?;
        container.is_own().then_some(Hook { prefix, owner, container })
    }
}

/// Hooks of an object among which those of a prefix are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRange {
    /// All that may be.
    pub all: Range<u64>,
    /// About where they are: prefixes are spread evenly.
    pub guess: u64,
}

/// The checksum of the hooks of an object.
#[derive(Default)]
pub struct HooksSum(Xxh3);

impl HooksSum {
    /// Goes on with hooks, as they stand in the object.
    pub fn feed(&mut self, hooks: &[u8]) {
        self.0.update(hooks);
    }

    fn bytes(&self) -> [u8; SUM_BYTES] {
        self.0.digest128().to_le_bytes()
    }
}

/// What stands behind the hooks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HooksFooter {
    /// The number of hooks before each bucket, and in the end of all. A power of two of buckets, by the first bits of the
    /// prefix.
    starts: Vec<u64>,
    /// The owners that hooks count.
    pub owners: Vec<DiskId>,
    /// The checksum of the hooks. The first programs wrote none.
    sum: Option<[u8; SUM_BYTES]>,
}

impl HooksFooter {
    /// Most owners of one object.
    pub const OWNERS_MAX: usize = 1 << 20;

    /// A footer of `hooks` hooks or fewer, of which [`Self::count`] has counted none so far.
    pub fn for_hooks(hooks: u64, owners: Vec<DiskId>) -> Self {
        assert!(owners.len() <= Self::OWNERS_MAX, "hooks of {} owners", owners.len());
        let bits = (hooks / HOOKS_PER_BUCKET).max(1).ilog2().min(BUCKET_BITS_MAX);
        HooksFooter { starts: vec![0; (1 << bits) + 1], owners, sum: None }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.starts.len() * size_of::<u64>() + self.owners.len() * size_of::<DiskId>()
    }

    fn bucket(&self, prefix: u64) -> usize {
        let bits = (self.starts.len() - 1).ilog2();
        prefix.checked_shr(64 - bits).unwrap_or(0) as usize
    }

    /// Counts a hook that stands in the object. Hooks come in order.
    pub fn count(&mut self, prefix: u64) {
        let bucket = self.bucket(prefix);
        self.starts[bucket + 1] += 1;
    }

    /// As it stands behind the hooks that were counted, which it ends. Without their checksum nobody can tell whether they
    /// are as they were written.
    pub fn encode(mut self, context: Context<'_>, sum: Option<&HooksSum>) -> Vec<u8> {
        let mut o = Out::default();
        o.u8((self.starts.len() - 1).ilog2() as u8);
        for n in std::mem::take(&mut self.starts).into_iter().skip(1) {
            o.varint(n);
        }
        o.varint(self.owners.len() as u64);
        self.owners.iter().for_each(|d| o.bytes(&d.0));
        if let Some(sum) = sum {
            o.bytes(&sum.bytes());
        }
        let mut bytes = encode_frame(Kind::Hooks, context, &o.0);
        let len = bytes.len() as u32;
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes
    }

    /// Where the footer of an object of `len` bytes begins that ends in `tail`.
    ///
    /// # Errors
    /// An object that is cut short or is none of hooks.
    pub fn begins_at(len: u64, tail: &[u8; TAIL_BYTES]) -> Result<u64> {
        let mut i = In::new(tail);
        let footer = u64::from(i.u32()?) + TAIL_BYTES as u64;
        if i.array()? != MAGIC || footer > len || (len - footer) % HOOK_BYTES as u64 != 0 {
            return Err(Malformed::new("is cut short, or no hooks"));
        }
        Ok(len - footer)
    }

    /// From its frame, behind `hooks` hooks. The frame is all behind them but for the last 8 bytes.
    ///
    /// # Errors
    /// A count that differs, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, frame: &[u8], hooks: u64) -> Result<Self> {
        let body = decode_frame(Kind::Hooks, context, frame)?;
        let mut i = In::new(&body);
        let bits = u32::from(i.u8()?);
        if bits > BUCKET_BITS_MAX {
            return Err(Malformed::new(format!("2^{bits} buckets")));
        }
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        starts.push(0u64);
        for n in 0..1usize << bits {
            let end = i.varint()?.checked_add(starts[n]).filter(|end| *end <= hooks);
            starts.push(end.ok_or_else(|| Malformed::new("counts more hooks than there are"))?);
        }
        if starts.last() != Some(&hooks) {
            return Err(Malformed::new("counts fewer hooks than there are"));
        }
        let n = i.count(16)?;
        if n > Self::OWNERS_MAX {
            return Err(Malformed::new(format!(
                "has {n} owners, at most {} are plausible",
                Self::OWNERS_MAX
            )));
        }
        let owners = (0..n).map(|_| Ok(DiskId(i.array()?))).collect::<Result<_>>()?;
        let sum = if i.remaining() > 0 { Some(i.array()?) } else { None };
        i.end()?;
        Ok(HooksFooter { starts, owners, sum })
    }

    /// Whether these are the hooks before it, all of them; `None` where it has no checksum of them.
    pub fn is_of(&self, hooks: &HooksSum) -> Option<bool> {
        self.sum.map(|sum| sum == hooks.bytes())
    }

    /// Where the hooks of a prefix are, of a footer that was decoded.
    pub fn find(&self, prefix: u64) -> HookRange {
        let bucket = self.bucket(prefix);
        let all = self.starts[bucket]..self.starts[bucket + 1];
        let bits = (self.starts.len() - 1).ilog2();
        let within = prefix.checked_shl(bits).unwrap_or(0);
        let guess = all.start + ((u128::from(within) * u128::from(all.end - all.start)) >> 64) as u64;
        HookRange { all, guess }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ids::{OwnerNo, VaultId, WriterNo};
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "hooks" };

    #[test]
    fn every_hook_is_where_the_footer_says() {
        for count in [0u64, 1, 511, 1024, 70_000] {
            let mut prefixes: Vec<u64> = (0..count).map(|n| xxh3_64_with_seed(b"", n)).collect();
            prefixes.sort_unstable();
            let mut footer = HooksFooter::for_hooks(count, vec![DiskId([1; 16])]);
            prefixes.iter().for_each(|p| footer.count(*p));
            let bytes = footer.encode(HERE, None);
            let tail: [u8; TAIL_BYTES] = bytes[bytes.len() - TAIL_BYTES..].try_into().unwrap();
            let len = count * HOOK_BYTES as u64 + bytes.len() as u64;
            assert_eq!(HooksFooter::begins_at(len, &tail), Ok(count * HOOK_BYTES as u64));
            assert!(HooksFooter::begins_at(len - 1, &tail).is_err());
            let frame = &bytes[..bytes.len() - TAIL_BYTES];
            let footer = HooksFooter::decode(HERE, frame, count).unwrap();
            assert!(HooksFooter::decode(HERE, frame, count + 1).is_err());
            for (n, p) in prefixes.iter().enumerate() {
                let range = footer.find(*p);
                assert!(range.all.contains(&(n as u64)), "{n} is not in {range:?}");
                assert!(range.guess.abs_diff(n as u64) < 100, "{n} is far from {range:?}");
            }
        }
    }

    #[test]
    fn a_footer_knows_its_hooks() {
        let sum = |hooks: &[u8]| {
            let mut sum = HooksSum::default();
            hooks.chunks(7).for_each(|some| sum.feed(some));
            sum
        };
        let hooks = [5; 2 * HOOK_BYTES];
        for (with, known) in [(None, None), (Some(sum(&hooks)), Some(true))] {
            let mut footer = HooksFooter::for_hooks(2, Vec::new());
            (0..2).for_each(|_| footer.count(0));
            let bytes = footer.encode(HERE, with.as_ref());
            let footer = HooksFooter::decode(HERE, &bytes[..bytes.len() - TAIL_BYTES], 2).unwrap();
            assert_eq!(footer.is_of(&sum(&hooks)), known);
            for bit in 0..hooks.len() * 8 {
                let mut flipped = hooks;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(footer.is_of(&sum(&flipped)), known.map(|_| false), "bit {bit}");
            }
        }
    }

    #[test]
    fn hooks_come_back() {
        let container = ContainerId::new(OwnerNo::OWN, WriterNo::MAX, ContainerId::MAX_NUMBER);
        let hook = Hook { prefix: 0x0102_0304_0506_0708, owner: 9, container };
        assert_eq!(Hook::decode(&hook.encode()), Some(hook));
        assert_eq!(Hook::decode(&[0; HOOK_BYTES]), None);
    }
}
