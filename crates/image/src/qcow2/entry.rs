//! The bits of L1 and L2 entries.

/// The offset of a cluster in the file.
pub(super) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// The reference count of the cluster is 1.
pub(super) const COPIED: u64 = 1 << 63;
/// The cluster is compressed.
pub(super) const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros.
pub(super) const ZERO: u64 = 1;
