//! Announcing to the system which part of a file is read next.

use std::ops::Range;

/// How far ahead of the reader the system is told what comes next.
const AHEAD_BYTES: u64 = 8 << 20;

/// Tells which part of the disk to announce to the system while it is read in order.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The range last told to the caller, to which reading ahead keeps: holes would fill the page cache with zeros.
    data: Range<u64>,
    advised: u64,
}

impl ReadAhead {
    /// The caller was told that `data` comes next.
    pub fn told(&mut self, data: &Range<u64>) {
        self.advised = if self.data.end == data.start { self.advised.max(data.start) } else { data.start };
        self.data = data.clone();
    }

    /// The caller has read up to `at`: what to announce, in steps large enough to be worth a system call.
    pub fn next(&mut self, at: u64) -> Option<Range<u64>> {
        if !self.data.contains(&at) {
            return None;
        }
        let start = at.max(self.advised);
        let end = at.saturating_add(AHEAD_BYTES).min(self.data.end);
        if start >= end || (end - start < AHEAD_BYTES / 2 && end < self.data.end) {
            return None;
        }
        self.advised = end;
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::{ReadAhead, AHEAD_BYTES};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reading_ahead_announces_each_byte_once(step in 1u64..3 * AHEAD_BYTES, len in 1u64..9 * AHEAD_BYTES) {
            let mut ahead = ReadAhead::default();
            ahead.told(&(100..100 + len));
            let mut announced = 100;
            let mut at = 100;
            while at < 100 + len {
                at += step;
                if let Some(range) = ahead.next(at) {
                    prop_assert!(range.start >= announced && range.end <= 100 + len && range.start >= at.min(announced));
                    announced = range.end;
                }
            }
        }
    }
}
