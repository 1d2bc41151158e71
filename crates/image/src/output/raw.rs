//! A raw disk in a file.

use super::options::{check_write, TargetOptions};
use super::partial::PartialFile;
use crate::disk::Target;
use crate::error::Result;

/// Writes a raw file, sparse where nothing is written.
pub(crate) struct RawTarget {
    file: PartialFile,
    size: u64,
}

impl RawTarget {
    /// Gives the file its size, and reserves room for `options.data`.
    ///
    /// # Errors
    /// `Full` where there is no room.
    pub fn create(file: PartialFile, options: &TargetOptions) -> Result<Self> {
        file.reserve(options.size, options.data)?;
        Ok(Self { file, size: options.size })
    }
}

impl Target for RawTarget {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self.file.name(), self.size, offset, data.len())?;
        self.file.write_at(offset, data)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.file.finish()
    }
}
