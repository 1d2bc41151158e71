//! Memory that the open snapshots of a vault share: however many are open, together they take no more of it than a few.

use crate::base::error::{Result, VaultError};
use crate::base::memory::{give_back, KEPT_BYTES};
use crate::container::group_cache::GroupCache;
use crate::container::tables::{self, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::recipe::cache::RecipeCache;
use crate::recipe::chain::RecipeReader;
use crate::restore::segment_map::SegmentMap;
use format::{DiskId, Manifest, PageRef, SegmentNo};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;
use quick_cache::Weighter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Memory for segment maps in bytes.
const MAPS_BYTES: u64 = 16 << 20;
/// Segment maps that are expected at once.
const MAPS_USUAL: usize = 1024;
/// Memory for what open snapshots keep as long as they are open, in bytes: manifests and roots.
const OPEN_BYTES: usize = 64 << 20;

/// Caches for any number of open snapshots of one vault: decompressed groups within a budget, chunk tables, recipes, and
/// segment maps.
pub struct ReadCache {
    pub(super) groups: GroupCache,
    pub(super) tables: tables::Cache,
    pub(super) recipes: RecipeCache,
    maps: Cache<(OpenNo, SegmentNo), Arc<SegmentMap>, ByMemory>,
    opened: Mutex<Vec<Weak<OpenState>>>,
    last: AtomicU64,
    resolving: Mutex<()>,
}

/// An open snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct OpenNo(u64);

/// What an open snapshot keeps in memory.
pub(super) struct OpenState {
    no: OpenNo,
    manifest: Arc<Manifest>,
    /// Beside the manifest, which others may share.
    bytes: usize,
}

/// Snapshots that are open, while another one is being opened.
pub(super) struct Opening<'a> {
    cache: &'a ReadCache,
    opened: MutexGuard<'a, Vec<Weak<OpenState>>>,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<(OpenNo, SegmentNo), Arc<SegmentMap>> for ByMemory {
    fn weight(&self, _: &(OpenNo, SegmentNo), map: &Arc<SegmentMap>) -> u64 {
        map.memory_bytes()
    }
}

impl ReadCache {
    /// One that holds up to `bytes` of decompressed groups.
    pub fn new(bytes: u64) -> Arc<ReadCache> {
        Arc::new(ReadCache {
            groups: GroupCache::new(bytes),
            tables: tables::Cache::new(TABLE_CACHE_BYTES),
            recipes: RecipeCache::default(),
            maps: Cache::with_weighter(MAPS_USUAL, MAPS_BYTES, ByMemory),
            opened: Mutex::default(),
            last: AtomicU64::new(0),
            resolving: Mutex::default(),
        })
    }

    /// Begins to open a snapshot. One is opened at a time: until it is, nobody knows what it takes.
    pub(super) fn begin(&self) -> Opening<'_> {
        let mut opened = self.opened.lock();
        opened.retain(|o| o.strong_count() > 0);
        Opening { cache: self, opened }
    }

    /// Reads manifests while no snapshot is being opened: one may take 32 MiB, and a copy as much.
    pub fn read_alone<T>(&self, read: impl FnOnce() -> T) -> T {
        let _opened = self.opened.lock();
        read()
    }

    /// Held while references are resolved. A page may take 50 MiB, and so may each page that it leads to.
    pub(super) fn resolving(&self) -> MutexGuard<'_, ()> {
        self.resolving.lock()
    }

    /// The map of a segment that is there.
    pub(super) fn map_ready(&self, of: &OpenState, no: SegmentNo) -> Option<Arc<SegmentMap>> {
        self.maps.get(&(of.no, no))
    }

    /// The map of a segment. The first thread that needs it makes it; others wait.
    pub(super) fn map(
        &self,
        of: &OpenState,
        no: SegmentNo,
        make: impl FnOnce() -> Result<SegmentMap>,
    ) -> Result<Arc<SegmentMap>> {
        self.maps.get_or_insert_with(&(of.no, no), || make().map(Arc::new))
    }

    /// Forgets the maps of a snapshot.
    pub(super) fn close(&self, of: &OpenState) {
        self.maps.retain(|(no, _), _| *no != of.no);
    }
}

impl Opening<'_> {
    /// Has a view share the manifest with another open snapshot, if that has the same.
    pub fn share_manifest(&self, view: &mut View) {
        let mut all = self.opened.iter().filter_map(Weak::upgrade);
        if let Some(same) = all.find(|o| *o.manifest == *view.manifest) {
            view.share_manifest(&same.manifest);
            if same.manifest.memory_bytes() > KEPT_BYTES {
                give_back();
            }
        }
    }

    /// Counts a snapshot in.
    ///
    /// # Errors
    /// `Refused` where all that are open would take too much memory.
    pub fn end(mut self, name: &str, view: &View, recipe: &RecipeReader) -> Result<Arc<OpenState>> {
        let no = OpenNo(self.cache.last.fetch_add(1, Ordering::Relaxed));
        let m = &view.manifest;
        let pages = m.pages.len() * size_of::<PageRef>() + m.owners.len() * size_of::<DiskId>();
        let bytes = recipe.memory_bytes() + pages;
        let opened = Arc::new(OpenState { no, manifest: m.clone(), bytes });
        let others: Vec<Arc<OpenState>> = self.opened.iter().filter_map(Weak::upgrade).collect();
        let mut manifests: Vec<&Arc<Manifest>> = Vec::new();
        for o in others.iter().chain([&opened]) {
            if !manifests.iter().any(|m| Arc::ptr_eq(m, &o.manifest)) {
                manifests.push(&o.manifest);
            }
        }
        let all = manifests.iter().map(|m| m.memory_bytes()).sum::<usize>()
            + others.iter().map(|o| o.bytes).sum::<usize>()
            + bytes;
        if all > OPEN_BYTES && !others.is_empty() {
            let why = format!(
                "{name}: with the {} snapshots that are open here already, manifests and recipes would take {} MiB of \
                 memory, {} MiB are the most; close some, or restore it",
                others.len(),
                all >> 20,
                OPEN_BYTES >> 20
            );
            return Err(VaultError::Refused(why));
        }
        self.opened.push(Arc::downgrade(&opened));
        Ok(opened)
    }
}
