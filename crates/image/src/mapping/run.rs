//! Runs of a disk's addresses: where their bytes are, and which of them may be other than zero.

use std::ops::Range;

use crate::error::Result;
use crate::mapping::unpack::CompressedCluster;

/// Where the bytes of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not in this image: in its backing file, or zero.
    Absent,
    /// Nowhere: they are zero.
    Zero,
    /// In the file from this offset on, as they are.
    At(u64),
    /// In the file, as part of one compressed cluster.
    Packed(CompressedCluster),
}

/// Consecutive addresses of a disk whose bytes are consecutive too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Bytes of the disk.
    pub len: u64,
    /// Where the first of them is.
    pub place: Place,
}

impl Run {
    /// The run at `offset` of what a table maps: `units` entries of `unit` bytes each, joined while their places follow
    /// each other. It ends with the table and after `max_len` at most. A compressed cluster is a run of its own.
    pub fn in_table(
        offset: u64,
        max_len: u64,
        unit: u64,
        units: u64,
        place_of: impl Fn(u64) -> std::result::Result<Place, String>,
    ) -> std::result::Result<Run, String> {
        let (first, skip) = (offset / unit, offset % unit);
        let place = place_of(first)?;
        let mut len = unit - skip;
        for next in first + 1..units {
            let follows = match place {
                Place::At(host) => Place::At(host + (next - first) * unit),
                Place::Packed(_) => break,
                other => other,
            };
            // An error in a later entry is reported when that is asked for.
            if len >= max_len || place_of(next) != Ok(follows) {
                break;
            }
            len += unit;
        }
        let place = match place {
            Place::At(host) => Place::At(host + skip),
            other => other,
        };
        Ok(Run { len: len.min(max_len), place })
    }
}

/// The last answer of a `next_data`, so that stepping through a fragmented layer does not ask the layer below for the
/// same far answer again and again.
#[derive(Debug, Default)]
pub(crate) struct DataMemo {
    /// Where was asked, and the answer.
    last: Option<(u64, Option<Range<u64>>)>,
}

impl DataMemo {
    /// The first data in `within`, by `ask`, which is a `next_data`.
    pub fn first_in(
        &mut self,
        within: Range<u64>,
        ask: impl FnOnce(u64) -> Result<Option<Range<u64>>>,
    ) -> Result<Option<Range<u64>>> {
        let answer = match &self.last {
            Some((asked, None)) if *asked <= within.start => None,
            Some((asked, Some(data))) if *asked <= within.start && within.start < data.end => {
                Some(data.clone())
            }
            _ => {
                let answer = ask(within.start)?;
                self.last = Some((within.start, answer.clone()));
                answer
            }
        };
        Ok(answer
            .map(|data| data.start.max(within.start)..data.end.min(within.end))
            .filter(|data| !data.is_empty()))
    }
}

/// Collects data ranges that touch into one.
#[derive(Debug, Default)]
pub(crate) struct DataRange {
    range: Option<Range<u64>>,
}

/// The search ends at a range of this length; looking further would read mapping tables twice.
const JOIN_BYTES: u64 = 16 << 20;

impl DataRange {
    /// Whether data at `at` could still become part of the range.
    pub fn goes_on_at(&self, at: u64) -> bool {
        self.range.as_ref().is_none_or(|r| r.end == at && r.end - r.start < JOIN_BYTES)
    }

    /// Adds `data`; false: it does not touch, so that the range is complete.
    pub fn add(&mut self, data: Range<u64>) -> bool {
        match &mut self.range {
            None => self.range = Some(data),
            Some(range) if range.end == data.start => range.end = data.end,
            Some(_) => return false,
        }
        true
    }

    /// The range, if any data was added.
    pub fn into_range(self) -> Option<Range<u64>> {
        self.range
    }
}

#[cfg(test)]
mod tests {
    use super::DataMemo;
    use proptest::prelude::*;
    use std::ops::Range;

    /// The first run of `true` at or after `from`.
    fn next_data(map: &[bool], from: u64) -> Option<Range<u64>> {
        let start = (from as usize..map.len()).find(|&i| map[i])?;
        let end = (start..map.len()).find(|&i| !map[i]).unwrap_or(map.len());
        Some(start as u64..end as u64)
    }

    proptest! {
        #[test]
        fn a_memo_answers_as_if_it_asked(
            map in prop::collection::vec(any::<bool>(), 1..40),
            questions in prop::collection::vec((0u64..40, 1u64..20), 1..40),
        ) {
            let mut memo = DataMemo::default();
            for (start, len) in questions {
                let within = start..start + len;
                let wanted = next_data(&map, start)
                    .map(|d| d.start..d.end.min(within.end))
                    .filter(|d| !d.is_empty());
                let got = memo.first_in(within, |from| Ok(next_data(&map, from))).unwrap();
                prop_assert_eq!(got, wanted);
            }
        }
    }
}
