//! The newest record of the log.

use super::record::{Record, MAGIC};
use super::ring::{Position, Ring};
use crate::bytes::be32;
use crate::error::Result;
use crate::xfs::error::corrupt;
use crate::xfs::volume::SECTOR;

/// What may be on its way to the disk at once is 2 MiB: this many blocks, and room for the record before.
const WINDOW_BLOCKS: u32 = 3 << 11;

/// The newest record that is whole; `None` where nothing was ever written.
///
/// All blocks before the head were written in one round, all behind it in the one before. Writes of the last
/// records may have reached the disk in any order: the first that is not whole ends the log.
pub(super) fn newest(ring: &Ring) -> Result<Option<Record>> {
    let cycle = cycle_of(ring, 0)?;
    if cycle == 0 {
        return Ok(None);
    }
    let head = head(ring, cycle)?;
    let window = head.min(WINDOW_BLOCKS);
    if let Some(newest) = newest_within(ring, Position { cycle, block: head - window }, window)? {
        // The records before may lie in the round before, and one of them be the last whole one.
        return Ok(Some(newest));
    }
    let rest = (WINDOW_BLOCKS - window).min((ring.blocks - head) / 2).max(1);
    let from = Position { cycle: cycle.wrapping_sub(1), block: ring.blocks - rest };
    match newest_within(ring, from, rest)? {
        Some(newest) => Ok(Some(newest)),
        None => Err(corrupt(format!("the log has no whole record before block {head} of {}", ring.blocks))),
    }
}

/// Follows the records that begin in a window, from its first one that is whole.
fn newest_within(ring: &Ring, from: Position, count: u32) -> Result<Option<Record>> {
    let bytes = ring.read(from.block, count)?;
    for (block, bytes) in (from.block..).zip(bytes.chunks_exact(SECTOR)) {
        if be32(bytes, 0) != Some(MAGIC) {
            continue;
        }
        let Some(mut newest) = Record::read(ring, Position { block, ..from })? else { continue };
        while let Some(next) = Record::read(ring, newest.end)? {
            newest = next;
        }
        return Ok(Some(newest));
    }
    Ok(None)
}

/// The first block that was not written in the round of block 0.
fn head(ring: &Ring, cycle: u32) -> Result<u32> {
    let (mut same, mut other) = (0, ring.blocks);
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if cycle_of(ring, middle)? == cycle {
            same = middle;
        } else {
            other = middle;
        }
    }
    Ok(other)
}

/// The round in which a block was written.
fn cycle_of(ring: &Ring, block: u32) -> Result<u32> {
    let bytes = ring.read(block, 1)?;
    let at = if be32(&bytes, 0) == Some(MAGIC) { 4 } else { 0 };
    Ok(be32(&bytes, at).unwrap_or_default())
}
