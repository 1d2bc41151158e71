//! A look at parts of a long file, to see whether it is worth reading twice.

use super::base::error::{MzipError, Result};
use super::base::progress::Progress;
use super::base::read_at::ReadAt;
use super::plan::Totals;
use super::scan::{scan, Scan};
use chunk::ChunkSpec;
use std::sync::Arc;

/// Shorter files are read whole.
const INPUT_BYTES_MIN: u64 = 64 << 20;
/// One run of the length of `RUN_BYTES`, at a random place, is looked at in each range of this length.
const RANGE_BYTES: u64 = 2 << 20;
const RUN_BYTES: u64 = 256 << 10;

/// Whether chunks of the input probably do not resemble each other.
///
/// Of two similar chunks that are far apart, both are in the sample only once in [`RANGE_BYTES`] / [`RUN_BYTES`] times that
/// one of them is: what is found counts as many times.
pub(super) fn is_in_vain(input: &dyn ReadAt, how: &Scan<'_>, progress: &Progress) -> Result<bool> {
    let len = input.len();
    if len < INPUT_BYTES_MIN {
        return Ok(false);
    }
    let unit = match how.spec {
        ChunkSpec::Fixed { bytes } => bytes.into(),
        ChunkSpec::ContentDefined { .. } => 1,
    };
    let mut ranges = (0..len / RANGE_BYTES).map(|n| n * RANGE_BYTES);
    // The places are the same each time, so that a file always gives the same archive.
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        progress.check()?;
        let Some(begin) = ranges.next() else { return Ok(None) };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = begin + random % (RANGE_BYTES - RUN_BYTES);
        let mut run = vec![0; RUN_BYTES as usize];
        input.read_at(&mut run, at / unit * unit).map_err(MzipError::of_reading)?;
        Ok(Some(Arc::new(run)))
    };
    let unseen = Progress::default();
    let found = scan(how, &unseen, next)?;
    Ok(!pays(&found.totals))
}

fn pays(found: &Totals) -> bool {
    let share = RANGE_BYTES / RUN_BYTES;
    let together = found.duplicate_bytes + found.similar_bytes;
    found.zero_bytes + together * share > found.original_bytes / Totals::WORTH
}
