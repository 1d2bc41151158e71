//! Records that are sorted: in memory, or, beyond a limit, as sorted runs in a temporary file, which are merged.

use super::run::{records_in, write, Run};
use super::tape::grow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// When there are so many runs they are made one: each takes a buffer when they are merged.
const RUNS_MAX: usize = 64;
/// Records that are written at a time when runs are made one.
const WRITE_RECORDS: usize = 4096;

/// Takes records of so many fields, in any order.
pub(super) struct Sorter<const N: usize> {
    buffer: Vec<[u64; N]>,
    buffer_max: usize,
    file: Option<Arc<File>>,
    runs: Vec<Range<u64>>,
}

impl<const N: usize> Sorter<N> {
    /// An empty one, which takes about so many bytes of memory.
    pub(super) fn new(memory: usize) -> Self {
        Sorter { buffer: Vec::new(), buffer_max: records_in::<N>(memory), file: None, runs: Vec::new() }
    }

    /// Adds a record. The directory is for the temporary file.
    pub(super) fn push(&mut self, record: [u64; N], scratch: &Path) -> io::Result<()> {
        if self.buffer.len() == self.buffer_max {
            self.end_run(scratch)?;
        }
        grow(&mut self.buffer, self.buffer_max);
        self.buffer.push(record);
        Ok(())
    }

    fn end_run(&mut self, scratch: &Path) -> io::Result<()> {
        if self.runs.len() == RUNS_MAX {
            self.make_one_run(scratch)?;
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(tempfile::tempfile_in(scratch)?)),
        };
        self.buffer.sort_unstable();
        let begin = self.runs.last().map_or(0, |run| run.end);
        write(file, &self.buffer, begin)?;
        self.runs.push(begin..begin + self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    fn make_one_run(&mut self, scratch: &Path) -> io::Result<()> {
        let Some(from) = self.file.take() else { return Ok(()) };
        let to = tempfile::tempfile_in(scratch)?;
        let (mut some, mut written) = (Vec::<[u64; N]>::with_capacity(WRITE_RECORDS), 0);
        for record in Sorted::new(Vec::new(), Some(from), std::mem::take(&mut self.runs)) {
            some.push(record?);
            if some.len() == WRITE_RECORDS {
                write(&to, &some, written)?;
                written += some.len() as u64;
                some.clear();
            }
        }
        write(&to, &some, written)?;
        self.runs.push(0..written + some.len() as u64);
        self.file = Some(Arc::new(to));
        Ok(())
    }

    /// The records, from the least to the greatest.
    pub(super) fn sorted(mut self) -> Sorted<N> {
        self.buffer.sort_unstable();
        Sorted::new(self.buffer, self.file, self.runs)
    }
}

/// What comes next of one run: the record, and the number of the run.
type Head<const N: usize> = Reverse<([u64; N], usize)>;

/// Gives records from the least to the greatest. An error ends it.
pub(super) struct Sorted<const N: usize> {
    buffer: std::vec::IntoIter<[u64; N]>,
    runs: Vec<Run<N>>,
    /// Of each run that has more, and of the buffer if there are runs.
    heads: Option<BinaryHeap<Head<N>>>,
}

impl<const N: usize> Sorted<N> {
    fn new(buffer: Vec<[u64; N]>, file: Option<Arc<File>>, runs: Vec<Range<u64>>) -> Self {
        let runs = file
            .into_iter()
            .flat_map(|f| runs.iter().map(move |run| Run::new(f.clone(), run.clone())).collect::<Vec<_>>());
        Sorted { buffer: buffer.into_iter(), runs: runs.collect(), heads: None }
    }

    /// The next one of a run; the buffer counts as the last run.
    fn next_of(&mut self, run: usize) -> Option<io::Result<[u64; N]>> {
        match self.runs.get_mut(run) {
            Some(run) => run.next(),
            None => self.buffer.next().map(Ok),
        }
    }

    fn next_merged(&mut self) -> io::Result<Option<[u64; N]>> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => {
                let mut heads = BinaryHeap::with_capacity(self.runs.len() + 1);
                for run in 0..=self.runs.len() {
                    if let Some(record) = self.next_of(run) {
                        heads.push(Reverse((record?, run)));
                    }
                }
                heads
            }
        };
        let least = heads.pop();
        if let Some(Reverse((_, run))) = &least {
            if let Some(record) = self.next_of(*run) {
                heads.push(Reverse((record?, *run)));
            }
        }
        self.heads = Some(heads);
        Ok(least.map(|Reverse((record, _))| record))
    }
}

impl<const N: usize> Iterator for Sorted<N> {
    type Item = io::Result<[u64; N]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.runs.is_empty() {
            return self.buffer.next().map(Ok);
        }
        let next = self.next_merged();
        if next.is_err() {
            self.runs.clear();
            self.buffer = Vec::new().into_iter();
        }
        next.transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_sorted(records in proptest::collection::vec([0u64..50, 0..u64::MAX], 0..3000), memory in 1usize..4000) {
            let mut sorter = Sorter::new(memory);
            for record in &records {
                sorter.push(*record, &std::env::temp_dir()).unwrap();
                prop_assert!(sorter.buffer.capacity() <= sorter.buffer_max && sorter.runs.len() <= RUNS_MAX);
            }
            let sorted: Vec<[u64; 2]> = sorter.sorted().map(Result::unwrap).collect();
            let mut expected = records;
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn errors_end_it() {
        let mut sorter = Sorter::<1>::new(8);
        sorter.push([2], Path::new("/none")).unwrap();
        assert!(sorter.push([1], Path::new("/none")).is_err());
        let mut sorter = Sorter::<1>::new(8);
        for n in 0..10 {
            sorter.push([n], &std::env::temp_dir()).unwrap();
        }
        sorter.file.as_ref().unwrap().set_len(8).unwrap();
        let mut sorted = sorter.sorted();
        assert!(sorted.next().unwrap().is_err());
        assert!(sorted.next().is_none());
    }
}
