//! Records that are written one after the other and read in this order: in memory, or, beyond a limit, in a temporary file.

use super::run::{records_in, write, Run};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A list of records of so many fields.
pub(super) struct Tape<const N: usize> {
    file: Option<Arc<File>>,
    /// Records in the file; those of `buffer` follow.
    written: u64,
    buffer: Vec<[u64; N]>,
    buffer_max: usize,
}

impl<const N: usize> Tape<N> {
    /// An empty one, which takes about so many bytes of memory.
    pub(super) fn new(memory: usize) -> Self {
        Tape { file: None, written: 0, buffer: Vec::new(), buffer_max: records_in::<N>(memory) }
    }

    /// Records.
    pub(super) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds a record. The directory is for the temporary file.
    pub(super) fn push(&mut self, record: [u64; N], scratch: &Path) -> io::Result<()> {
        if self.buffer.len() == self.buffer_max {
            let file = match &self.file {
                Some(file) => file,
                None => self.file.insert(Arc::new(tempfile::tempfile_in(scratch)?)),
            };
            write(file, &self.buffer, self.written)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        grow(&mut self.buffer, self.buffer_max);
        self.buffer.push(record);
        Ok(())
    }

    /// The records, in order.
    pub(super) fn records(&self) -> impl Iterator<Item = io::Result<[u64; N]>> + '_ {
        let in_file = self.file.iter().flat_map(|file| Run::new(file.clone(), 0..self.written));
        in_file.chain(self.buffer.iter().map(|record| Ok(*record)))
    }
}

/// Makes room for one more, but not beyond a limit.
pub(super) fn grow<T>(buffer: &mut Vec<T>, max: usize) {
    if buffer.len() == buffer.capacity() {
        buffer.reserve_exact(buffer.len().max(512).min(max - buffer.len()));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_order() {
        for memory in [1, 100, 4 << 20] {
            let mut tape = Tape::<3>::new(memory);
            for n in 0..50_000u64 {
                tape.push([n, n << 40, !n], &std::env::temp_dir()).unwrap();
                assert!(tape.buffer.capacity() <= tape.buffer_max);
            }
            assert_eq!((tape.len(), tape.file.is_some()), (50_000, memory < 4 << 20));
            for _ in 0..2 {
                let back: Vec<[u64; 3]> = tape.records().map(Result::unwrap).collect();
                assert_eq!(back, (0..50_000u64).map(|n| [n, n << 40, !n]).collect::<Vec<_>>());
            }
        }
        let mut tape = Tape::<1>::new(8);
        tape.push([1], Path::new("/none")).unwrap();
        assert!(tape.push([2], Path::new("/none")).is_err());
    }
}
