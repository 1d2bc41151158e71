//! The volume that the database is kept in.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use format::pool::{NamesHeader, BLOCK_BYTES};
use redb::StorageBackend;

use crate::error::{PoolError, Result};
use crate::volume::Volume;

/// Where the database begins.
const START: u64 = BLOCK_BYTES as u64;

/// A volume as the database sees it. Its first block tells how long the database is.
pub(super) struct Storage {
    volume: Arc<Volume>,
    len: AtomicU64,
}

impl Storage {
    /// What the volume has.
    ///
    /// # Errors
    /// Damaged, if its first block was not written by this.
    pub fn open(volume: Arc<Volume>) -> Result<Self> {
        let mut header = [0; NamesHeader::BYTES];
        volume.read_at(0, &mut header)?;
        let header = NamesHeader::decode(&header)
            .map_err(|why| PoolError::damaged("the table of names of the file system", why))?;
        Ok(Storage { volume, len: AtomicU64::new(header.map_or(0, |header| header.len)) })
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("len", &self.len).finish_non_exhaustive()
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Ordering::SeqCst))
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len.load(Ordering::SeqCst)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; len];
        self.volume.read_at(START + offset, &mut bytes)?;
        Ok(bytes)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.len.load(Ordering::SeqCst);
        if len < before {
            self.volume.zero(START + len, before - len)?;
        }
        self.volume.write_at(0, &NamesHeader { len }.encode())?;
        self.len.store(len, Ordering::SeqCst);
        Ok(())
    }

    /// Nothing: the pool brings writes back in their order, which is more than is asked for here. [`super::FileSystem`]
    /// flushes the pool when others need not wait for that.
    fn sync_data(&self, _eventual: bool) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.volume.write_at(START + offset, data)?)
    }
}
