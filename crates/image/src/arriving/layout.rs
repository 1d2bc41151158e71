//! Where everything is in the file of a map: docs/format/arriving.md.

/// The piece of a disk that has arrived or has not.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// The unit in which the file is written.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Words of bits in a sector: 504 bytes.
pub(super) const SECTOR_WORDS: u64 = 63;

/// Bytes of the header.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Offset of the state.
pub(super) const STATE_AT: u64 = HEADER_BYTES;
/// Checksums of the displaced sector.
pub(super) const SUMS_AT: u64 = STATE_AT + SECTOR_BYTES;
/// The sector of the disk whose place the mark has.
pub(super) const DISPLACED_AT: u64 = SUMS_AT + SECTOR_BYTES;
/// Offset of the first set of bits; the durable set follows it.
pub(super) const BITS_AT: u64 = 2 * HEADER_BYTES;

/// The largest disk, in bytes: 64 TiB. What is known of its parts takes 17 MiB of memory, and its map is a
/// file of 4 GiB.
pub(super) const SIZE_MAX: u64 = 1 << 46;

/// Bytes of a map.
pub(super) fn map_bytes(size: u64) -> u64 {
    BITS_AT + 2 * set_bytes(size)
}

/// Sectors that one set of bits needs.
pub(super) fn sectors(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES).div_ceil(64 * SECTOR_WORDS)
}

/// Bytes of one set of bits.
pub(super) fn set_bytes(size: u64) -> u64 {
    (sectors(size) * SECTOR_BYTES).next_multiple_of(HEADER_BYTES)
}
