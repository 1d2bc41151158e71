//! A tape whose neighbours are joined.

use super::tape::Tape;
use std::io;
use std::path::Path;

/// Makes one record of two that follow each other, if they are to be one.
type Join<const N: usize> = fn(&[u64; N], &[u64; N]) -> Option<[u64; N]>;

/// Takes records, and joins each with the one before if it can.
pub(super) struct Joining<const N: usize> {
    tape: Tape<N>,
    last: Option<[u64; N]>,
    join: Join<N>,
}

impl<const N: usize> Joining<N> {
    /// An empty one, which takes about so many bytes of memory.
    pub(super) fn new(memory: usize, join: Join<N>) -> Self {
        Joining { tape: Tape::new(memory), last: None, join }
    }

    /// Adds a record. The directory is for the temporary file.
    pub(super) fn push(&mut self, record: [u64; N], scratch: &Path) -> io::Result<()> {
        let joined = self.last.and_then(|last| (self.join)(&last, &record));
        if let (None, Some(last)) = (joined, self.last) {
            self.tape.push(last, scratch)?;
        }
        self.last = Some(joined.unwrap_or(record));
        Ok(())
    }

    /// There are no more records.
    pub(super) fn end(mut self, scratch: &Path) -> io::Result<Tape<N>> {
        self.last.map_or(Ok(()), |last| self.tape.push(last, scratch))?;
        Ok(self.tape)
    }
}
