//! Sorts more records than fit into memory: sorted runs in a file without a name, which are merged. Records are sorted by
//! their bytes.

use super::spill::failed;
use crate::base::error::{Result, VaultError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of records that are sorted at once.
const RUN_BYTES: usize = 16 << 20;
/// What is read of a run at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Records of `N` bytes in any order.
pub(crate) struct Sorter<const N: usize> {
    scratch: PathBuf,
    run_records: usize,
    /// Records of no run yet.
    fresh: Vec<[u8; N]>,
    file: Option<File>,
    /// Where the sorted runs are in the file, in records.
    runs: Vec<Range<u64>>,
    count: u64,
}

impl<const N: usize> Sorter<N> {
    /// None yet. What does not fit into memory goes into the directory `scratch`.
    pub fn new(scratch: &Path) -> Self {
        Self::with_runs(scratch, RUN_BYTES / N)
    }

    fn with_runs(scratch: &Path, run_records: usize) -> Self {
        let scratch = scratch.to_owned();
        Sorter { scratch, run_records, fresh: Vec::new(), file: None, runs: Vec::new(), count: 0 }
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Adds a record.
    pub fn add(&mut self, record: [u8; N]) -> Result<()> {
        if self.fresh.len() == self.run_records {
            self.end_run()?;
        }
        self.count += 1;
        self.fresh.push(record);
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        let wrong = |e: std::io::Error| failed(&self.scratch, "write", &e);
        self.fresh.sort_unstable();
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.scratch).map_err(wrong)?,
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        file.write_all_at(self.fresh.as_flattened(), start * N as u64).map_err(wrong)?;
        self.runs.push(start..start + self.fresh.len() as u64);
        self.file = Some(file);
        self.fresh.clear();
        Ok(())
    }

    /// All records in order. May be called again.
    pub fn sorted(&mut self) -> Result<Sorted<'_, N>> {
        if !self.fresh.is_empty() {
            self.end_run()?;
        }
        let Some(file) = &self.file else { return Ok(Sorted { runs: Vec::new(), next: BinaryHeap::new() }) };
        let run = |left: &Range<u64>| Run {
            file,
            scratch: &self.scratch,
            left: left.clone(),
            piece: Vec::new(),
            at: 0,
        };
        let mut sorted = Sorted { runs: self.runs.iter().map(run).collect(), next: BinaryHeap::new() };
        for n in 0..sorted.runs.len() {
            sorted.take_from(n)?;
        }
        Ok(sorted)
    }
}

/// Records in order.
pub(crate) struct Sorted<'a, const N: usize> {
    runs: Vec<Run<'a, N>>,
    /// The first record of each run that has any left.
    next: BinaryHeap<Reverse<([u8; N], usize)>>,
}

impl<const N: usize> Sorted<'_, N> {
    /// The next record.
    pub fn next(&mut self) -> Result<Option<[u8; N]>> {
        let Some(Reverse((record, run))) = self.next.pop() else { return Ok(None) };
        self.take_from(run)?;
        Ok(Some(record))
    }

    fn take_from(&mut self, run: usize) -> Result<()> {
        self.next.extend(self.runs[run].next()?.map(|record| Reverse((record, run))));
        Ok(())
    }
}

/// What is left of a run.
struct Run<'a, const N: usize> {
    file: &'a File,
    scratch: &'a Path,
    left: Range<u64>,
    piece: Vec<[u8; N]>,
    at: usize,
}

impl<const N: usize> Run<'_, N> {
    fn next(&mut self) -> Result<Option<[u8; N]>> {
        if self.at == self.piece.len() {
            let count = (self.left.end - self.left.start).min((PIECE_BYTES / N) as u64);
            self.piece.resize(count as usize, [0; N]);
            let from = self.left.start * N as u64;
            let read = self.file.read_exact_at(self.piece.as_flattened_mut(), from);
            read.map_err(|e| -> VaultError { failed(self.scratch, "read", &e) })?;
            self.left.start += count;
            self.at = 0;
        }
        let next = self.piece.get(self.at).copied();
        self.at += 1;
        Ok(next)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_order_each_as_often_as_it_was_added() {
        let dir = tempfile::tempdir().unwrap();
        for (count, run_records) in [(0u64, 7), (1, 7), (7, 7), (8, 7), (20_000, 3000), (20_000, 1)] {
            let mut sorter = Sorter::<8>::with_runs(dir.path(), run_records);
            let number = |n: u64| (n * 7919 % 5003).to_be_bytes();
            (0..count).for_each(|n| sorter.add(number(n)).unwrap());
            assert_eq!(sorter.len(), count);
            let mut wanted: Vec<[u8; 8]> = (0..count).map(number).collect();
            wanted.sort_unstable();
            for _ in 0..2 {
                let mut sorted = sorter.sorted().unwrap();
                let all: Vec<[u8; 8]> = std::iter::from_fn(|| sorted.next().unwrap()).collect();
                assert!(all == wanted, "{count} in runs of {run_records}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
