//! A sector of a map's bits, with its checksum: docs/format/arriving.md.

use super::id::MapId;
use super::layout::{SECTOR_BYTES, SECTOR_WORDS};
use crate::file::bytes::{le_u32, le_u64};

const CHECKSUM_AT: usize = SECTOR_BYTES as usize - 4;

/// Which of the two sets of bits a sector is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    First = 1,
    Durable = 2,
}

/// The sector as the file has it. One without a bit is all zeros.
pub(super) fn encode(
    id: &MapId,
    set: Set,
    sector: u64,
    words: &[u64; SECTOR_WORDS as usize],
) -> [u8; SECTOR_BYTES as usize] {
    let mut bytes = [0; SECTOR_BYTES as usize];
    for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
        at.copy_from_slice(&word.to_le_bytes());
    }
    if words.iter().any(|w| *w != 0) {
        let sum = checksum(id, set, sector, &bytes);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// The words of a sector; `None` where it does not match its checksum.
pub(super) fn decode(
    id: &MapId,
    set: Set,
    sector: u64,
    bytes: &[u8],
) -> Option<[u64; SECTOR_WORDS as usize]> {
    let is_empty = bytes.iter().all(|b| *b == 0);
    if !is_empty && le_u32(bytes, CHECKSUM_AT) != checksum(id, set, sector, bytes) {
        return None;
    }
    Some(std::array::from_fn(|n| le_u64(bytes, n * 8)))
}

/// The checksum covers the place, so that a sector of another map or another place does not match.
fn checksum(id: &MapId, set: Set, sector: u64, bytes: &[u8]) -> u32 {
    let place = [&id.0[..], &(set as u64).to_le_bytes(), &sector.to_le_bytes()].concat();
    crc32c::crc32c_append(crc32c::crc32c(&place), &bytes[..CHECKSUM_AT])
}
