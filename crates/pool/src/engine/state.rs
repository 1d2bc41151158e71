//! The engine's state, and how a failure ends it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use format::pool::{
    CatalogIndex, Geometry, PageHeader, PageKind, PoolBlock, PoolId, Superblock, BLOCK_BYTES,
};
use parking_lot::{Condvar, Mutex};

use super::commit::Commit;
use super::epochs::{EpochGuard, Epochs};
use super::groups::BlockGroups;
use super::journal::ring::Ring;
use super::journal::unsynced::Unsynced;
use super::page::{Page, PageCache};
use crate::clocks::Clocks;
use crate::device::Device;
use crate::error::{PoolError, Result};
use crate::filter::Filter;

/// What one can choose when a pool is opened.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Pages in memory.
    pub cache_pages: usize,
    /// A fingerprint store is read whole when one of its pages is needed (LiveDFS, 2.3).
    pub prefetch: bool,
    /// Changes go through the journal; otherwise pages are written to their places at once.
    pub journal: bool,
    /// Pages of the summary that cannot be read are made anew.
    pub for_repair: bool,
}

/// Freed blocks that wait for the batch that freed them, and for readers.
pub(super) struct Waiting {
    /// The epoch after which they may be used.
    pub epoch: u64,
    pub blocks: Vec<PoolBlock>,
}

/// A pool's blocks.
pub struct Engine {
    pub(super) device: Box<dyn Device>,
    /// The pool.
    pub id: PoolId,
    /// Where everything lies.
    pub geometry: Geometry,
    /// The index in memory.
    pub filter: Filter,
    /// Where the time of writes goes.
    pub clocks: Clocks,
    pub(super) settings: Settings,
    pub(super) pages: PageCache,
    pub(super) commit: Mutex<Commit>,
    /// The journal lock: its holder writes the open batch for all that wait.
    pub(super) ring: Mutex<Ring>,
    /// The last batch that is durable.
    pub(super) durable: AtomicU64,
    /// Pages of the catalog whose first copy could not be read.
    pub(super) from_twins: Mutex<HashSet<PoolBlock>>,
    /// Data that was written since the last flush.
    pub(super) unsynced: Mutex<Unsynced>,
    /// Freed blocks that must not be used yet, and in which order they may be.
    pub(super) freed: Mutex<HashSet<PoolBlock>>,
    pub(super) waiting: Mutex<Vec<Waiting>>,
    /// Held while the fingerprint store of a group is initialised.
    pub(super) initialising: Mutex<()>,
    /// How often pages of a group's fingerprint store were written back: what was read before may be old.
    pub(super) fingerprint_writes: Box<[AtomicU32]>,
    /// Blocks of the journal between its tail and its head.
    pub(super) journal_used: AtomicU32,
    pub(super) groups: BlockGroups,
    pub(super) epochs: Epochs,
    pub(super) superblock: Mutex<Superblock>,
    pub(super) checkpointing: Mutex<()>,
    /// The current epoch of the filter.
    pub(super) filter_epoch: AtomicU32,
    /// Blocks that only writes which free others may take.
    pub(super) reserve: AtomicI64,
    pub(super) failure: OnceLock<String>,
    pub(super) wanted: (Mutex<Wanted>, Condvar),
}

/// What the thread that writes pages back is told. A later one includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    Nothing,
    Flush,
    Checkpoint,
    End,
}

impl Engine {
    /// Fails where the pool failed before.
    pub fn check_alive(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |why| Err(PoolError::Failed(why.clone())))
    }

    /// Notes a failed write or sync: what is on the device is uncertain from now on.
    pub(super) fn fail(&self, error: PoolError) -> PoolError {
        let _ = self.failure.set(error.to_string());
        error
    }

    /// Begins to read: blocks that are looked up from now on stay as they are until the guard goes.
    pub fn read_guard(&self) -> EpochGuard<'_> {
        self.epochs.enter()
    }

    /// Reads blocks.
    pub fn read_blocks(&self, first: PoolBlock, buf: &mut [u8]) -> Result<()> {
        let what = || format!("{}: reading block {first}", self.device.location());
        self.device.read_at(buf, first.offset()).map_err(|e| PoolError::io(what())(e))
    }

    /// The same, past the system's page cache where that is possible.
    pub fn read_blocks_past_cache(&self, first: PoolBlock, buf: &mut [u8]) -> Result<()> {
        let what = || format!("{}: reading block {first}", self.device.location());
        self.device.read_past_cache(buf, first.offset()).map_err(|e| PoolError::io(what())(e))
    }

    /// Writes data blocks. They are durable after the next flush. A failure is one of this write: nothing names the blocks.
    pub fn write_data(&self, first: PoolBlock, data: &[u8]) -> Result<()> {
        self.check_alive()?;
        self.write_blocks(first, data)?;
        Unsynced::add(&self.unsynced, self.id, first, data);
        Ok(())
    }

    /// Writes pages, batches or a superblock. A failure is the end of the pool.
    pub(super) fn write_at(&self, first: PoolBlock, data: &[u8]) -> Result<()> {
        self.check_alive()?;
        self.write_blocks(first, data).map_err(|error| self.fail(error))
    }

    fn write_blocks(&self, first: PoolBlock, data: &[u8]) -> Result<()> {
        let what = || format!("{}: writing block {first}", self.device.location());
        self.device.write_at(data, first.offset()).map_err(|e| PoolError::io(what())(e))
    }

    /// Makes durable what was written. A failure is the end of the pool.
    pub(super) fn sync(&self) -> Result<()> {
        self.check_alive()?;
        let what = || format!("{}: syncing", self.device.location());
        self.device.sync().map_err(|e| self.fail(PoolError::io(what())(e)))
    }

    /// A page, from memory or from the device.
    pub fn page(&self, block: PoolBlock, kind: PageKind) -> Result<Arc<Page>> {
        self.pages.get_or_load(block, || self.read_page(block, kind))
    }

    /// A page, if it is in memory.
    pub fn page_in_memory(&self, block: PoolBlock) -> Option<Arc<Page>> {
        self.pages.get(block)
    }

    fn read_page(&self, block: PoolBlock, kind: PageKind) -> Result<Box<[u8; BLOCK_BYTES]>> {
        let first = self.read_copy(block, kind);
        let (Err(_), Some(twin)) = (&first, self.geometry.catalog_twin(block)) else { return first };
        let Ok(bytes) = self.read_copy(twin, kind) else { return first };
        self.from_twins.lock().insert(block);
        Ok(bytes)
    }

    /// What stands on the device, of a page or of its second copy.
    pub fn read_copy(&self, block: PoolBlock, kind: PageKind) -> Result<Box<[u8; BLOCK_BYTES]>> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.read_blocks(block, &mut bytes[..])?;
        self.check_page(block, kind, &bytes)?;
        Ok(bytes)
    }

    /// Has both copies of pages of the catalog written again whose first one could not be read. They are when pages are
    /// written back.
    pub fn renew_from_twins(&self) -> Result<()> {
        let pages = std::mem::take(&mut *self.from_twins.lock());
        pages.into_iter().try_for_each(|page| self.renew_copies(page))
    }

    /// Has both copies of a page of the catalog written when pages are written back.
    pub fn renew_copies(&self, page: PoolBlock) -> Result<()> {
        self.transact(|t| {
            let page = t.page(page, PageKind::Catalog)?;
            let at = self.geometry.catalog_slot(CatalogIndex(0)).offset;
            // It changes nothing, but the page counts as changed.
            t.set(&page, at, &page.array::<8>(at));
            Ok(())
        })
    }

    /// Fails for a page that is damaged, or of another kind.
    pub(super) fn check_page(
        &self,
        block: PoolBlock,
        kind: PageKind,
        bytes: &[u8; BLOCK_BYTES],
    ) -> Result<()> {
        let what = || format!("block {block} ({kind:?} page) of {}", self.device.location());
        let header =
            PageHeader::open(self.id, block, bytes).map_err(|why| PoolError::damaged(what(), why))?;
        if header.kind == kind {
            Ok(())
        } else {
            Err(PoolError::Damaged { what: what(), why: format!("it is a {:?} page", header.kind) })
        }
    }

    /// How often the pool was opened without having been closed.
    pub fn cuts(&self) -> u64 {
        self.superblock.lock().cuts
    }

    /// Where it is, for messages.
    pub fn location(&self) -> String {
        self.device.location()
    }
}
