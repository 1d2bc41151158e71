//! How fast background sharing may be.

use std::time::Duration;

use format::pool::BLOCK_BYTES;

use super::scanner::ScanStep;

/// Steps in a second at the given rate.
const STEPS_PER_SECOND: u64 = 10;
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How fast blocks are shared in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanning {
    /// Bytes a second that are read for it, at most; hashing them takes a part of a core.
    pub bytes_per_second: u64,
    /// The time from one scan to the next. A block is shared after two scans have seen it.
    pub pause: Duration,
}

impl Scanning {
    /// Blocks of a step.
    pub(crate) fn budget(&self) -> u64 {
        (self.bytes_per_second / BLOCK_BYTES as u64 / STEPS_PER_SECOND).max(1)
    }

    /// How long one rests after a step.
    pub(crate) fn rest(&self, step: ScanStep) -> Duration {
        let bytes = step.blocks * BLOCK_BYTES as u64;
        let paid = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.max(1) as f64);
        let pause = if step.is_end { self.pause } else { Duration::ZERO };
        paid.clamp(SHORTEST_REST, LONGEST_REST) + pause
    }
}
