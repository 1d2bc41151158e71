//! A disk in memory, for tests.

use crate::disk::Disk;
use crate::error::Result;

/// A disk of these bytes. Reading beyond them panics.
pub(crate) struct Memory(pub Vec<u8>);

impl Disk for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let at = offset as usize;
        buf.copy_from_slice(&self.0[at..at + buf.len()]);
        Ok(())
    }
}
