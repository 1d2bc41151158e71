//! Fields of fixed length with a checksum behind them.

use crate::bytes::{Malformed, Out, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Puts the checksum of the fields behind them.
pub(super) fn sealed<const N: usize>(mut out: Out) -> [u8; N] {
    let checksum = xxh3_64(&out.0);
    out.u64(checksum);
    let mut bytes = [0; N];
    bytes.copy_from_slice(&out.0);
    bytes
}

/// Compares the checksum behind fields with them.
pub(super) fn check_seal(bytes: &[u8]) -> Result<()> {
    let end = bytes.len() - 8;
    let (expected, got) = (u64_at(bytes, end), xxh3_64(&bytes[..end]));
    if expected == got {
        return Ok(());
    }
    Err(Malformed::new(format!("its checksum is {got:016x}, expected {expected:016x}")))
}

/// The number in four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// The number in eight bytes.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
