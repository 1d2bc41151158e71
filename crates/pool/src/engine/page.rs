//! Pages in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use format::pool::{BatchNo, PoolBlock, BLOCK_BYTES};
use parking_lot::{RwLock, RwLockReadGuard};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

/// A page in memory. There is one copy of it: all threads see a change.
pub struct Page {
    /// Its block.
    pub block: PoolBlock,
    bytes: RwLock<Box<[u8; BLOCK_BYTES]>>,
    /// Counts its changes. Changed under the commit lock.
    version: AtomicU64,
    /// The first batch with a change that is not in its place on the device; 0: none. Changed under the commit lock.
    dirty_since: AtomicU64,
}

impl Page {
    /// A page with these bytes, as on the device.
    pub fn new(block: PoolBlock, bytes: Box<[u8; BLOCK_BYTES]>) -> Self {
        Page { block, bytes: RwLock::new(bytes), version: AtomicU64::new(0), dirty_since: AtomicU64::new(0) }
    }

    /// Its bytes now.
    pub fn bytes(&self) -> RwLockReadGuard<'_, Box<[u8; BLOCK_BYTES]>> {
        self.bytes.read()
    }

    /// So many bytes of it.
    pub fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes.read()[offset..offset + N]);
        array
    }

    /// The first batch with a change that is not on the device.
    pub(super) fn dirty_since(&self) -> Option<BatchNo> {
        Some(self.dirty_since.load(Ordering::Relaxed)).filter(|batch| *batch != 0).map(BatchNo)
    }

    /// How often it was changed.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Changes it, in a batch. The caller has the commit lock. Returns whether it was clean.
    pub(super) fn change(&self, offset: usize, bytes: &[u8], batch: BatchNo) -> bool {
        self.bytes.write()[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.version.fetch_add(1, Ordering::Relaxed);
        self.dirty_since.compare_exchange(0, batch.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// What it is from now on, after it was written: clean, or dirty since a batch. The caller has the commit lock.
    pub(super) fn set_dirty_since(&self, batch: Option<BatchNo>) {
        self.dirty_since.store(batch.map_or(0, |batch| batch.0), Ordering::Relaxed);
    }
}

/// Keeps pages that somebody has: the list of dirty pages is one of them.
#[derive(Clone)]
struct InUse;

impl Lifecycle<PoolBlock, Arc<Page>> for InUse {
    type RequestState = ();

    fn is_pinned(&self, _: &PoolBlock, page: &Arc<Page>) -> bool {
        Arc::strong_count(page) > 1
    }
}

/// The pages that are in memory.
pub(super) struct PageCache {
    cache: Cache<PoolBlock, Arc<Page>, UnitWeighter, DefaultHashBuilder, InUse>,
}

impl PageCache {
    /// A cache for so many pages; those in use may be more.
    pub fn new(pages: usize) -> Self {
        let cache = Cache::with(pages, pages as u64, UnitWeighter, DefaultHashBuilder::default(), InUse);
        PageCache { cache }
    }

    /// A page, if it is in memory.
    pub fn get(&self, block: PoolBlock) -> Option<Arc<Page>> {
        self.cache.get(&block)
    }

    /// A page, which `load` reads if it is not in memory. One reads while others wait for it.
    pub fn get_or_load<E>(
        &self,
        block: PoolBlock,
        load: impl FnOnce() -> Result<Box<[u8; BLOCK_BYTES]>, E>,
    ) -> Result<Arc<Page>, E> {
        self.cache.get_or_insert_with(&block, || Ok(Arc::new(Page::new(block, load()?))))
    }

    /// Puts a page that nobody can have read before in the place of what was there.
    pub fn put(&self, page: Arc<Page>) {
        self.cache.insert(page.block, page);
    }

    /// Drops what was a page.
    pub fn remove(&self, block: PoolBlock) {
        self.cache.remove(&block);
    }
}
