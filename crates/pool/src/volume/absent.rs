//! Blocks of a volume that have not arrived.

use format::pool::{MapEntry, MapRoot, VolumeBlock};

use super::Volume;
use crate::error::{PoolError, Result};

impl Volume {
    /// Whether a block has not arrived. `root` was read before the entry.
    pub(super) fn is_absent(root: &MapRoot, block: VolumeBlock, entry: MapEntry) -> bool {
        entry == MapEntry::NONE && root.filled.is_some_and(|filled| block.offset() >= filled)
    }

    /// Puts what has not arrived into its places in `buf`. Returns false if all has arrived meanwhile: then the entries, which
    /// were read behind `root`, may be old.
    pub(super) fn read_absent(
        &self,
        root: &MapRoot,
        offset: u64,
        buf: &mut [u8],
        entries: &[MapEntry],
    ) -> Result<bool> {
        let first = VolumeBlock::at(offset);
        let absent = |n: usize| Self::is_absent(root, first + n as u64, entries[n]);
        let mut at = 0;
        while at < entries.len() {
            let count = (at..entries.len()).take_while(|n| absent(*n)).count();
            if count == 0 {
                at += 1;
                continue;
            }
            let start = (first + at as u64).offset().max(offset);
            let end = (first + (at + count) as u64).offset().min(offset + buf.len() as u64);
            // Who wrote or trimmed it has said so in the map, as long as the volume is being filled.
            if self.root().filled.is_none() {
                return Ok(false);
            }
            let part = &mut buf[(start - offset) as usize..(end - offset) as usize];
            if let Err(error) = self.read_origin(start, part) {
                if self.root().filled.is_none() {
                    return Ok(false);
                }
                return Err(error);
            }
            at += count;
        }
        Ok(true)
    }

    /// Reads what the volume is filled from.
    pub(super) fn read_origin(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let length = buf.len();
        self.origin.read(offset, buf).map_err(|source| PoolError::Absent {
            what: format!("{}: the content of {length} bytes at {offset}", self.name),
            source,
        })
    }
}
