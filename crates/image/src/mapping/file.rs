//! A file of an image, with what errors call it.

use super::run::DataMemo;
use crate::error::{Blame, Result};
use crate::file::bytes::{read_full, ReadAt};
use std::ops::Range;

/// A file that holds clusters and mapping tables.
pub(crate) struct MappedFile {
    /// Its bytes.
    pub file: Box<dyn ReadAt>,
    /// What errors call it.
    pub blame: Blame,
    /// Where the file has holes: clusters that were allocated ahead and never written.
    holes: DataMemo,
}

impl MappedFile {
    /// A file that was not read yet.
    pub fn new(file: Box<dyn ReadAt>, blame: Blame) -> Self {
        Self { file, blame, holes: DataMemo::default() }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Fills `buf` from `offset`. Where the file ends before, `cut_off` says what is wrong, given where it ends.
    pub fn read(&self, offset: u64, buf: &mut [u8], cut_off: impl FnOnce(u64) -> String) -> Result<()> {
        let n = read_full(&*self.file, offset, buf).map_err(|e| self.blame.read(e))?;
        if n < buf.len() {
            return Err(self.blame.corrupt(cut_off(offset + n as u64)));
        }
        Ok(())
    }

    /// Fills `buf` with data that the mapping says is at `offset`.
    pub fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf, |end| format!("the file ends at {end:#x}"))
    }

    /// The first part of `range` that is no hole.
    pub fn first_data(&mut self, range: Range<u64>) -> Result<Option<Range<u64>>> {
        let (file, blame) = (&self.file, &self.blame);
        self.holes.first_in(range, |from| file.next_data(from).map_err(|e| blame.read(e)))
    }
}
