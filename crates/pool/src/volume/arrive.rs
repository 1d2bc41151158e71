//! Blocks arrive in a volume that is being filled.
//!
//! A slot of the map that has nothing is one that has not arrived; how far the volume is filled in its order stands in the
//! catalog. What guests write or trim stands in the map from then on, and what arrives gives way to it. All of it is in
//! transactions, so a fill that was interrupted goes on where it was.

use format::pool::{CatalogEntry, MapRoot, Sharing, VolumeBlock, BLOCK_BYTES};

use super::write::Expected;
use super::Volume;
use crate::error::{PoolError, Result};

/// Blocks that arrive at once.
pub(crate) const STEP_BLOCKS: u64 = 256;

impl Volume {
    /// How far it is filled; `None` for one that is not being filled, or was deleted.
    pub(crate) fn filled(&self) -> Option<u64> {
        let root = self.root();
        root.filled.filter(|_| root.owner == Some(self.id))
    }

    /// Shares as the catalog says now: only opened volumes are told.
    pub(crate) fn follow_sharing(&self) {
        let [code] = self.catalog.array(self.slot.offset + CatalogEntry::SHARING_AT);
        Sharing::from_code(code).into_iter().for_each(|sharing| self.set_sharing(sharing));
    }

    /// Lets blocks arrive that have not, all of one leaf and at most [`STEP_BLOCKS`]. Nobody has a read guard here: what a
    /// volume is filled from may be slow.
    pub(crate) fn bring(&self, first: VolumeBlock, end: VolumeBlock) -> Result<()> {
        debug_assert!(first.count_to(end) <= STEP_BLOCKS && end <= first.leaf_end());
        let root = self.root();
        if root.filled.is_none() {
            return Ok(());
        }
        let absent: Vec<bool> = {
            let _guard = self.engine.read_guard();
            let entries = self.entries(first, end)?;
            first.until(end).zip(entries).map(|(block, entry)| Self::is_absent(&root, block, entry)).collect()
        };
        let mut at = first;
        for run in absent.chunk_by(|a, b| a == b) {
            if run[0] {
                let mut data = vec![0; run.len() * BLOCK_BYTES];
                match self.read_origin(at.offset(), &mut data) {
                    // All has arrived meanwhile, and the origin is closed.
                    Err(PoolError::Absent { .. }) if self.root().filled.is_none() => return Ok(()),
                    read => read?,
                }
                self.write_blocks(at, &data, Expected::Absent)?;
            }
            at = at + run.len() as u64;
        }
        Ok(())
    }

    /// Notes that all in front of a byte has arrived.
    pub(crate) fn set_filled(&self, filled: u64) -> Result<()> {
        self.engine.transact(|t| {
            if self.filled().is_some_and(|before| before < filled) {
                t.set(&self.catalog, self.slot.offset + MapRoot::FILLED_AT, &filled.to_le_bytes());
            }
            Ok(())
        })
    }
}
