//! What all parts use: errors, progress, threads, compressors, random reads and writes.

pub(super) mod codec;
pub(super) mod delta;
pub(super) mod error;
pub(super) mod far;
pub(super) mod memory;
pub(super) mod packing;
pub(super) mod parallel;
pub(super) mod progress;
pub(super) mod read_at;
