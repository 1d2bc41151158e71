//! What a guest is told of its disk: features, and the fields of its configuration space (virtio 1.2, section 5.2.4).

use crate::device::BlockDevice;
use vhost::vhost_user::VhostUserVirtioFeatures;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// The unit of addresses, whatever the size of blocks.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Requests of one queue at most.
pub(super) const QUEUE_SIZE_MAX: u16 = 1024;
/// Queues at most: a guest has one for each of its processors.
pub(super) const QUEUES_MAX: usize = 64;
/// Pieces of memory of one request, which need two more descriptors, in the shortest queue that QEMU makes by itself.
const SEGMENTS_MAX: u32 = 128 - 2;
/// Ranges of one request that discards or zeroes.
pub(super) const RANGES_MAX: usize = 64;
/// The longest range of them: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;
/// Blocks are written whole in pools: 4 KiB, 2^3 sectors.
const BLOCK_SECTORS_LOG: u8 = 3;
/// Where the configuration space ends.
const CONFIG_BYTES: usize = 60;

/// The features that a device has.
pub(super) fn features(device: &dyn BlockDevice) -> u64 {
    let always = [
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
    ];
    let others: &[u32] = if device.is_writable() {
        &[VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES]
    } else {
        &[VIRTIO_BLK_F_RO]
    };
    let bits = always.iter().chain(others).map(|bit| 1 << bit);
    bits.fold(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), |all, bit: u64| all | bit)
}

/// Whether a feature is among those that were agreed on.
pub(super) fn has(features: u64, feature: u32) -> bool {
    features & 1 << feature != 0
}

/// A part of the configuration space; zeros behind its end.
pub(super) fn config(device: &dyn BlockDevice, offset: u32, len: u32) -> Vec<u8> {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(device.size() / SECTOR_BYTES).to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &(SECTOR_BYTES as u32).to_le_bytes());
    put(24, &[BLOCK_SECTORS_LOG]);
    put(26, &(1_u16 << BLOCK_SECTORS_LOG).to_le_bytes());
    put(34, &(QUEUES_MAX as u16).to_le_bytes());
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &(RANGES_MAX as u32).to_le_bytes());
    put(44, &(1_u32 << BLOCK_SECTORS_LOG).to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &(RANGES_MAX as u32).to_le_bytes());
    // Zeroing may free the space.
    put(56, &[1]);
    let part = space.into_iter().chain(std::iter::repeat(0));
    part.skip(offset as usize).take(len as usize).collect()
}
