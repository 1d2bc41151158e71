//! Slots of fingerprint stores, of map nodes and of the summary.

use super::{PoolBlock, VolumeBlock, VolumeId};

/// The most references that a block may have.
pub const COUNT_MAX: u32 = 1 << 29;
const IS_NODE: u32 = 1 << 31;
const NO_FINGERPRINT: u32 = 1 << 30;
const CHECK_BITS: u32 = 20;
const BLOCK_BITS: u32 = 36;
const IN_USE: u32 = 1 << 31;
const HAS_UNSHARED: u32 = 1 << 30;

/// A slot of a fingerprint store, without the fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FingerprintEntry {
    /// Slots that name the block; 0: it is free.
    pub count: u32,
    /// It is a map node.
    pub is_node: bool,
    /// Its content has the fingerprint in the slot.
    pub has_fingerprint: bool,
}

impl FingerprintEntry {
    /// Bytes of a whole slot.
    pub const BYTES: usize = 36;
    /// Bytes of it in front of the fingerprint.
    pub const COUNT_BYTES: usize = 4;

    /// Whether it is data that was not hashed: its home stands in the place of the fingerprint.
    pub fn is_unshared(self) -> bool {
        self.count > 0 && !self.is_node && !self.has_fingerprint
    }

    /// The bytes in front of the fingerprint.
    pub fn encode(self) -> [u8; 4] {
        let mut word = self.count;
        if self.is_node {
            word |= IS_NODE;
        }
        if !self.has_fingerprint {
            word |= NO_FINGERPRINT;
        }
        word.to_le_bytes()
    }

    /// What a slot of zeros or [`FingerprintEntry::encode`] has.
    pub fn decode(bytes: [u8; 4]) -> Self {
        let word = u32::from_le_bytes(bytes);
        FingerprintEntry {
            count: word & (NO_FINGERPRINT - 1),
            is_node: word & IS_NODE != 0,
            has_fingerprint: word & (IS_NODE | NO_FINGERPRINT) == 0,
        }
    }
}

/// Where a block without a fingerprint was written: it stands in the place of the fingerprint. Snapshots and clones may name
/// the block as well, at the same number of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The volume.
    pub volume: VolumeId,
    /// The block of it.
    pub block: VolumeBlock,
}

impl Home {
    /// Bytes of it: as many as of a fingerprint.
    pub const BYTES: usize = 32;

    /// Its bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.block.0.to_le_bytes());
        bytes
    }

    /// What [`Home::encode`] wrote.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let (mut volume, mut block) = ([0; 4], [0; 8]);
        volume.copy_from_slice(&bytes[..4]);
        block.copy_from_slice(&bytes[8..16]);
        Home { volume: VolumeId(u32::from_le_bytes(volume)), block: VolumeBlock(u64::from_le_bytes(block)) }
    }
}

/// A slot of a map node: nothing, or a block and, in a leaf, bits that its content is checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MapEntry(u64);

impl MapEntry {
    /// Bytes of a slot.
    pub const BYTES: usize = 7;
    /// Nothing: zeros; of a volume that is being filled: it has not arrived.
    pub const NONE: MapEntry = MapEntry(0);
    /// Zeros, also of a volume that is being filled.
    pub const ZEROS: MapEntry = MapEntry(1 << BLOCK_BITS);

    /// A data block and the hash (xxh3-64) of its content.
    pub fn data(block: PoolBlock, content_hash: u64) -> Self {
        MapEntry(block.0 | (content_hash & ((1 << CHECK_BITS) - 1)) << BLOCK_BITS)
    }

    /// A child node.
    pub fn child(block: PoolBlock) -> Self {
        MapEntry(block.0)
    }

    /// The block, if there is one.
    pub fn block(self) -> Option<PoolBlock> {
        let block = self.0 & ((1 << BLOCK_BITS) - 1);
        (block != 0).then_some(PoolBlock(block))
    }

    /// Whether content with this hash may be the block's.
    pub fn checks(self, content_hash: u64) -> bool {
        self.0 >> BLOCK_BITS == content_hash & ((1 << CHECK_BITS) - 1)
    }

    /// The bytes of a slot.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d, e, f, g, _] = self.0.to_le_bytes();
        [a, b, c, d, e, f, g]
    }

    /// What [`MapEntry::encode`] wrote.
    pub fn decode([a, b, c, d, e, f, g]: [u8; Self::BYTES]) -> Self {
        MapEntry(u64::from_le_bytes([a, b, c, d, e, f, g, 0]))
    }
}

/// A group's slot in the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SummaryEntry {
    /// Free data blocks.
    pub free: u32,
    /// Its fingerprint store was initialised.
    pub in_use: bool,
    /// Some of its blocks may have no fingerprint.
    pub has_unshared: bool,
    /// The epoch in which its fingerprints last changed.
    pub changed: u32,
}

impl SummaryEntry {
    /// Bytes of a slot.
    pub const BYTES: usize = 8;

    /// The bytes of a slot.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut free = self.free;
        if self.in_use {
            free |= IN_USE;
        }
        if self.has_unshared {
            free |= HAS_UNSHARED;
        }
        (u64::from(free) | u64::from(self.changed) << 32).to_le_bytes()
    }

    /// What [`SummaryEntry::encode`] wrote.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let word = u64::from_le_bytes(bytes);
        SummaryEntry {
            free: word as u32 & (HAS_UNSHARED - 1),
            in_use: word as u32 & IN_USE != 0,
            has_unshared: word as u32 & HAS_UNSHARED != 0,
            changed: (word >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_come_back(block in 1u64..1 << 36, hash: u64, other: u64, free in 0u32..1 << 20, changed: u32) {
            let entry = MapEntry::data(PoolBlock(block), hash);
            prop_assert_eq!(MapEntry::decode(entry.encode()), entry);
            prop_assert_eq!(entry.block(), Some(PoolBlock(block)));
            prop_assert!(entry.checks(hash));
            prop_assert_eq!(entry.checks(other), other & 0xf_ffff == hash & 0xf_ffff);
            let summary =
                SummaryEntry { free, in_use: hash & 1 == 1, has_unshared: hash & 2 == 2, changed };
            prop_assert_eq!(SummaryEntry::decode(summary.encode()), summary);
        }

        #[test]
        fn counts_come_back(count in 0..=COUNT_MAX, node: bool, fingerprint: bool) {
            let entry = FingerprintEntry { count, is_node: node, has_fingerprint: fingerprint && !node };
            prop_assert_eq!(FingerprintEntry::decode(entry.encode()), entry);
            prop_assert_eq!(entry.is_unshared(), count > 0 && !node && !fingerprint);
        }

        #[test]
        fn homes_come_back(volume: u32, block: u64) {
            let home = Home { volume: VolumeId(volume), block: VolumeBlock(block) };
            prop_assert_eq!(Home::decode(&home.encode()), home);
        }
    }

    #[test]
    fn zeros_are_a_free_block_and_no_mapping() {
        assert_eq!(FingerprintEntry::decode([0; 4]).count, 0);
        assert_eq!(MapEntry::decode([0; 7]).block(), None);
    }
}
