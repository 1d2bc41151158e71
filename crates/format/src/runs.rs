//! Sets of chunk numbers as sorted runs.

use crate::bytes::{In, Malformed, Out, Result};
use crate::ids::{ChunkNo, TableIndex};
use std::sync::OnceLock;

const U32_MAX: u64 = u32::MAX as u64;

/// A set of chunk numbers of one container: sorted runs `(first, count)` that neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub struct RunSet {
    runs: Vec<(u32, u32)>,
    /// How many numbers stand before each run, once that was asked for.
    before: OnceLock<Vec<u32>>,
}

impl PartialEq for RunSet {
    fn eq(&self, other: &Self) -> bool {
        self.runs == other.runs
    }
}

impl Eq for RunSet {}

impl RunSet {
    /// From runs in any order, overlapping or not.
    pub fn from_unsorted(mut runs: Vec<(u32, u32)>) -> Self {
        runs.sort_unstable();
        let mut set = RunSet::default();
        for (first, count) in runs {
            set.push(first, count);
        }
        set
    }

    /// Adds a run that starts at or behind the start of the last one.
    fn push(&mut self, first: u32, count: u32) {
        debug_assert!(self.before.get().is_none(), "a set that is still being made");
        if count == 0 {
            return;
        }
        if let Some(last) = self.runs.last_mut() {
            let end = u64::from(last.0) + u64::from(last.1);
            if u64::from(first) <= end {
                let new_end = end.max(u64::from(first) + u64::from(count));
                last.1 = (new_end - u64::from(last.0)).min(u64::from(u32::MAX)) as u32;
                return;
            }
        }
        self.runs.push((first, count));
    }

    /// The runs, sorted.
    pub fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.1)).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many numbers are before one that is in the set: its index in a table of them. `None` where it is not.
    pub fn index_of(&self, ChunkNo(no): ChunkNo) -> Option<TableIndex> {
        let at = self.runs.partition_point(|r| r.0 <= no).checked_sub(1)?;
        let (first, count) = self.runs[at];
        (no - first < count).then(|| TableIndex(self.before()[at] + (no - first)))
    }

    /// The number that so many others are before.
    pub fn number_at(&self, TableIndex(index): TableIndex) -> Option<ChunkNo> {
        let at = self.before().partition_point(|b| *b <= index).checked_sub(1)?;
        let (first, count) = self.runs[at];
        let within = index - self.before()[at];
        (within < count).then(|| ChunkNo(first + within))
    }

    fn before(&self) -> &[u32] {
        self.before.get_or_init(|| {
            // The numbers of a set fit 32 bits, and so does how many they are.
            let behind = |sum: &mut u32, r: &(u32, u32)| {
                let before = *sum;
                *sum = sum.saturating_add(r.1);
                Some(before)
            };
            self.runs.iter().scan(0, behind).collect()
        })
    }

    /// Whether a number is in the set.
    pub fn contains(&self, ChunkNo(no): ChunkNo) -> bool {
        let at = self.runs.partition_point(|r| r.0 <= no);
        at > 0 && no - self.runs[at - 1].0 < self.runs[at - 1].1
    }

    /// How many numbers of `first .. first + count` are in the set.
    pub fn count_within(&self, ChunkNo(first): ChunkNo, count: u32) -> u64 {
        let (lo, hi) = (u64::from(first), u64::from(first) + u64::from(count));
        let start = self.runs.partition_point(|r| u64::from(r.0) + u64::from(r.1) <= lo);
        self.runs[start..]
            .iter()
            .take_while(|r| u64::from(r.0) < hi)
            .map(|r| (u64::from(r.0) + u64::from(r.1)).min(hi) - u64::from(r.0).max(lo))
            .sum()
    }

    /// What is in either.
    pub fn union(&self, other: &RunSet) -> RunSet {
        let (mut a, mut b) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        let mut set = RunSet::default();
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
                (Some(_), None) => a.next(),
                (_, Some(_)) => b.next(),
                (None, None) => return set,
            };
            if let Some(&(first, count)) = next {
                set.push(first, count);
            }
        }
    }

    /// What is in `self` and not in `other`.
    pub fn minus(&self, other: &RunSet) -> RunSet {
        let mut set = RunSet::default();
        let mut from = 0;
        for &(first, count) in &self.runs {
            let (mut at, end) = (u64::from(first), u64::from(first) + u64::from(count));
            while from < other.runs.len()
                && u64::from(other.runs[from].0) + u64::from(other.runs[from].1) <= at
            {
                from += 1;
            }
            for r in &other.runs[from..] {
                let (lo, hi) = (u64::from(r.0), u64::from(r.0) + u64::from(r.1));
                if lo >= end {
                    break;
                }
                if lo > at {
                    set.push(at as u32, (lo - at) as u32);
                }
                at = at.max(hi);
            }
            if at < end {
                set.push(at as u32, (end - at) as u32);
            }
        }
        set
    }

    /// The number of runs, then for each the gap behind the one before and its length, all varints.
    pub(crate) fn encode(&self, out: &mut Out) {
        out.varint(self.runs.len() as u64);
        let mut end = 0u64;
        for &(first, count) in &self.runs {
            out.varint(u64::from(first) - end);
            out.varint(u64::from(count));
            end = u64::from(first) + u64::from(count);
        }
    }

    /// What [`RunSet::encode`] wrote; an error where runs touch, overlap or go beyond 32 bits.
    pub(crate) fn decode(i: &mut In<'_>) -> Result<Self> {
        let (n, mut runs) = i.list::<(u32, u32)>(2)?;
        let mut end = 0u64;
        for k in 0..n {
            let (gap, count) = (i.varint()?, i.varint32()?);
            let first = end.checked_add(gap).filter(|_| count > 0 && (k == 0 || gap > 0));
            let behind = first.and_then(|f| f.checked_add(u64::from(count)));
            let (Some(first), Some(behind @ 0..=U32_MAX)) = (first, behind) else {
                return Err(Malformed::new("chunk runs out of order or out of range"));
            };
            runs.push((first as u32, count));
            end = behind;
        }
        Ok(RunSet { runs, before: OnceLock::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn numbers(s: &RunSet) -> BTreeSet<u32> {
        s.runs.iter().flat_map(|&(f, c)| f..f + c).collect()
    }

    fn raw() -> impl Strategy<Value = Vec<(u32, u32)>> {
        proptest::collection::vec((0u32..200, 0u32..20), 0..20)
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(a in raw(), b in raw(), at in 0u32..230, n in 0u32..40) {
            let (x, y) = (RunSet::from_unsorted(a), RunSet::from_unsorted(b));
            let (nx, ny) = (numbers(&x), numbers(&y));
            prop_assert_eq!(numbers(&x.union(&y)), nx.union(&ny).copied().collect());
            prop_assert_eq!(numbers(&x.minus(&y)), nx.difference(&ny).copied().collect());
            prop_assert_eq!(x.len(), nx.len() as u64);
            prop_assert_eq!(x.contains(ChunkNo(at)), nx.contains(&at));
            let index = nx.iter().position(|v| *v == at);
            prop_assert_eq!(x.index_of(ChunkNo(at)), index.map(|n| TableIndex(n as u32)));
            prop_assert_eq!(x.number_at(TableIndex(n)), nx.iter().nth(n as usize).copied().map(ChunkNo));
            prop_assert_eq!(x.count_within(ChunkNo(at), n), nx.range(at..at + n).count() as u64);
            let mut o = Out::default();
            x.encode(&mut o);
            prop_assert_eq!(RunSet::decode(&mut In::within(&o.0, 1 << 20)).unwrap(), x);
        }
    }

    /// A first run near 2^64 overflowed when its length was added: a panic, or, without overflow checks, a set
    /// out of order that was believed. Found by fuzzing.
    #[test]
    fn runs_past_the_last_number_are_refused() {
        for (gap, count) in [(u64::MAX, 1), (u64::MAX - 5, 200), (U32_MAX, 1), (0, u32::MAX), (1, u32::MAX)] {
            let mut o = Out::default();
            o.varint(1);
            o.varint(gap);
            o.varint(u64::from(count));
            let fits = gap.checked_add(u64::from(count)).is_some_and(|end| end <= U32_MAX);
            assert_eq!(RunSet::decode(&mut In::within(&o.0, 8)).is_ok(), fits, "{gap} {count}");
        }
    }
}
