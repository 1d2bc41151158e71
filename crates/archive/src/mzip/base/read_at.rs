//! Reads and writes at places.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Something that can be read at any place, from several threads.
pub trait ReadAt: Sync {
    /// Its length in bytes.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads exactly so many bytes.
    ///
    /// # Errors
    /// If that fails, or if there are fewer.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..)?.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_at(bytes, offset)
    }
}

/// A file, and the length that it had.
impl ReadAt for (&File, u64) {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }
}

/// Something that can be written at any place.
pub trait WriteAt {
    /// Writes all of the bytes.
    ///
    /// # Errors
    /// If that fails.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl WriteAt for &File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}
