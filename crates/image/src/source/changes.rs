//! What changed on a disk since an earlier point in time, as ranges of bytes.

mod parse;

use crate::error::Result;
use std::ops::Range;

/// Ranges that may have changed; everything else is as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Sorted, apart from each other, none empty.
    ranges: Vec<Range<u64>>,
    /// Whole blocks of this many bytes are named: the last one may reach beyond the disk. 0 and 1 are the same.
    block_bytes: u64,
}

impl Changes {
    /// The changes in ranges that may be in any order and may overlap.
    pub fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|r| r.start < r.end);
        ranges.sort_unstable_by_key(|r| r.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for r in ranges {
            match merged.last_mut() {
                Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
                _ => merged.push(r),
            }
        }
        Changes { ranges: merged, block_bytes: 1 }
    }

    /// Reads a list; its form is told by its content:
    ///
    /// - lines of an offset and a length in bytes, decimal or with `0x`, after `#` a comment; no bytes are no changes;
    /// - JSON: an array of objects with `offset` and `length` (`rbd diff --format json`); those of
    ///   `nbdinfo --map=qemu:dirty-bitmap:NAME --json` have a `description`, which is `clean` or `dirty`;
    /// - the XML of `thin_delta`: everything but `same`.
    ///
    /// `path` is for errors only.
    ///
    /// # Errors
    /// `Corrupt` where the list is cut off or not understood: a backup of a part of the changes would be wrong.
    pub fn parse(path: &str, text: &[u8]) -> Result<Self> {
        let (ranges, block_bytes) = parse::parse(path, text)?;
        Ok(Changes { block_bytes, ..Self::new(ranges) })
    }

    /// Whole blocks of this many bytes are named: the last one may reach beyond the end of the disk.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.max(1)
    }

    /// Whether anything of a range may have changed.
    pub fn touch(&self, range: Range<u64>) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(at).is_some_and(|r| r.start < range.end)
    }

    /// The ranges, sorted and apart from each other.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_and_joined() {
        let c = Changes::new(vec![20..30, 5..5, 0..10, 25..40, 10..12]);
        assert_eq!(c.ranges(), [0..12, 20..40]);
        assert_eq!(c.bytes(), 32);
        for (range, touched) in
            [(0..1, true), (11..12, true), (12..20, false), (12..21, true), (40..99, false)]
        {
            assert_eq!(c.touch(range.clone()), touched, "{range:?}");
        }
        assert!(!Changes::default().touch(0..u64::MAX));
    }
}
