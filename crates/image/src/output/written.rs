//! Which parts of a device were written, so that the rest can be zeroed.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of addresses as ranges that do not touch each other.
#[derive(Debug, Default)]
pub(crate) struct WrittenRanges {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl WrittenRanges {
    /// Adds `range`.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // From the back, every range that overlaps or touches this one becomes part of it.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// The parts of `0..size` that were never added.
    pub fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (&start, &end) in &self.ranges {
            if at < start.min(size) {
                gaps.push(at..start.min(size));
            }
            at = end;
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::WrittenRanges;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gaps_are_what_was_not_added(ranges in prop::collection::vec((0u64..200, 0u64..30), 0..40)) {
            let mut written = WrittenRanges::default();
            let mut model = [false; 256];
            for (start, len) in ranges {
                written.add(start..start + len);
                model[start as usize..(start + len) as usize].fill(true);
            }
            let mut gaps = [false; 256];
            let mut last_end = None;
            for gap in written.gaps(220) {
                prop_assert!(gap.start < gap.end && last_end < Some(gap.start));
                last_end = Some(gap.end);
                gaps[gap.start as usize..gap.end as usize].fill(true);
            }
            for at in 0..220 {
                prop_assert_eq!(gaps[at], !model[at]);
            }
        }
    }
}
