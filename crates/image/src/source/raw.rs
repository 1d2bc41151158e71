//! A disk whose bytes stand in a file or on a block device as they are.

use std::ops::Range;

use crate::disk::Source;
use crate::error::{ImageError, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::file::read_ahead::ReadAhead;

/// Reads a raw disk.
pub(crate) struct RawReader<R> {
    name: String,
    format: &'static str,
    file: R,
    ahead: ReadAhead,
}

impl<R: ReadAt> RawReader<R> {
    /// A disk of the bytes of `file`; `format` is what [`Source::format`] answers.
    pub fn new(file: R, name: String, format: &'static str) -> Self {
        Self { name, format, file, ahead: ReadAhead::default() }
    }
}

impl<R: ReadAt> Source for RawReader<R> {
    fn format(&self) -> &'static str {
        self.format
    }

    fn size(&self) -> Option<u64> {
        Some(self.file.len())
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let data =
            self.file.next_data(from).map_err(|e| ImageError::read(&self.name, "find the data of", e))?;
        if let Some(data) = &data {
            self.ahead.told(data);
        }
        Ok(data)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = read_full(&self.file, offset, buf).map_err(|e| ImageError::read(&self.name, "read", e))?;
        if let Some(range) = self.ahead.next(offset.saturating_add(n as u64)) {
            self.file.will_need(range);
        }
        Ok(n)
    }
}
