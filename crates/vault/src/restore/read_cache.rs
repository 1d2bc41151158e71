//! Memory that the open snapshots of a vault share: however many are open, together they take no more of it than a few.

use crate::base::error::{Result, VaultError};
use crate::base::memory::{give_back, Room, RoomTaken, KEPT_BYTES};
use crate::container::group_cache::GroupCache;
use crate::container::other_owners::LISTINGS_BYTES;
use crate::container::tables::{self, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::manifest::folder::MANIFEST_ROOM_BYTES;
use crate::recipe::cache::RecipeCache;
use crate::recipe::chain::RecipeReader;
use crate::restore::segment_map::SegmentMap;
use format::{DiskId, Manifest, PageRef, SegmentNo};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;
use quick_cache::Weighter;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Memory for segment maps in bytes.
const MAPS_BYTES: u64 = 16 << 20;
/// Segment maps that are expected at once.
const MAPS_USUAL: usize = 1024;
/// Memory for what open snapshots keep as long as they are open, in bytes: manifests and roots.
const OPEN_BYTES: usize = 32 << 20;
/// Memory of everything but groups, in bytes, with what is being decoded.
const BESIDE_BYTES: u64 = 168 << 20;
/// Of this, what is left for what is being decoded.
const DECODING_BYTES: u64 = 64 << 20;

/// Caches for any number of open snapshots of one vault: decompressed groups within a budget, chunk tables, recipes, and
/// segment maps.
pub struct ReadCache {
    pub(super) groups: GroupCache,
    pub(super) tables: tables::Cache,
    pub(super) recipes: RecipeCache,
    maps: Cache<(OpenNo, SegmentNo), Arc<SegmentMap>, ByMemory>,
    room: Room,
    opened: Mutex<Vec<Weak<OpenState>>>,
    /// What those take together that are open, in bytes.
    open_bytes: AtomicUsize,
    last: AtomicU64,
    resolving: Mutex<()>,
    emptied: AtomicU64,
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
    /// For its manifest.
    _room: RoomTaken,
    /// Held where there was little.
    _alone: Option<MutexGuard<'a, ()>>,
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
        Arc::new_cyclic(|cache: &Weak<ReadCache>| {
            let cache = cache.clone();
            let room = Room::made_by(move || {
                if let Some(cache) = cache.upgrade() {
                    cache.make_room();
                }
            });
            ReadCache::with_room(bytes, room)
        })
    }

    fn with_room(bytes: u64, room: Room) -> ReadCache {
        ReadCache {
            groups: GroupCache::new(bytes),
            tables: tables::Cache::beside(TABLE_CACHE_BYTES, LISTINGS_BYTES, room.clone()),
            recipes: RecipeCache::beside(room.clone()),
            room,
            maps: Cache::with_weighter(MAPS_USUAL, MAPS_BYTES, ByMemory),
            opened: Mutex::default(),
            open_bytes: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            resolving: Mutex::default(),
            emptied: AtomicU64::new(0),
        }
    }

    /// Begins to open a snapshot. One is opened at a time: until it is, nobody knows what it takes.
    pub(super) fn begin(&self) -> Opening<'_> {
        let mut opened = self.opened.lock();
        opened.retain(|o| o.strong_count() > 0);
        let alone = (!self.has_room(MANIFEST_ROOM_BYTES)).then(|| self.resolving.lock());
        let room = self.room.take(MANIFEST_ROOM_BYTES);
        Opening { cache: self, opened, _room: room, _alone: alone }
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
        self.maps.get_or_insert_with(&(of.no, no), || {
            let map = make().map(Arc::new);
            self.fit();
            map
        })
    }

    /// Forgets the maps of a snapshot, which is closed with the last that has its state.
    pub(super) fn close(&self, of: &OpenState) {
        self.maps.retain(|(no, _), _| *no != of.no);
        let mut opened = self.opened.lock();
        opened.retain(|o| o.upgrade().is_some_and(|o| o.no != of.no));
        self.set_open(&opened);
    }

    fn set_open(&self, opened: &[Weak<OpenState>]) {
        let opened: Vec<Arc<OpenState>> = opened.iter().filter_map(Weak::upgrade).collect();
        self.open_bytes.store(bytes_of(&opened), Ordering::Relaxed);
        self.fit();
    }

    /// What all takes but groups and what is being decoded, in bytes.
    fn others(&self) -> u64 {
        let opened = self.open_bytes.load(Ordering::Relaxed);
        (opened + self.tables.memory_bytes() + self.recipes.memory_bytes()) as u64 + self.maps.weight()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.others() + bytes <= BESIDE_BYTES
    }

    /// Makes room for what is going to be decoded. Where all takes what it usually does, there is room.
    fn make_room(&self) {
        if !self.has_room(self.room.taken()) {
            self.tables.clear();
            self.recipes.clear();
            self.maps.retain(|_, _| false);
            self.emptied.fetch_add(1, Ordering::Relaxed);
            self.fit();
            give_back();
        }
    }

    /// How often all but groups had to be forgotten. Where that happens all the time, nothing that is read ahead stays until
    /// it is needed.
    pub(super) fn times_emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Leaves to groups what the others have not taken.
    fn fit(&self) {
        let beyond = (self.others() + self.room.taken().max(DECODING_BYTES)).saturating_sub(BESIDE_BYTES);
        self.groups.set_room(self.groups.budget().saturating_sub(beyond));
    }
}

/// Memory of snapshots that are open. A manifest that several share counts once.
fn bytes_of(opened: &[Arc<OpenState>]) -> usize {
    let mut manifests: Vec<&Arc<Manifest>> = Vec::new();
    for o in opened {
        if !manifests.iter().any(|m| Arc::ptr_eq(m, &o.manifest)) {
            manifests.push(&o.manifest);
        }
    }
    let manifests = manifests.iter().map(|m| m.memory_bytes()).sum::<usize>();
    manifests + opened.iter().map(|o| o.bytes).sum::<usize>()
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
        let mut all: Vec<Arc<OpenState>> = self.opened.iter().filter_map(Weak::upgrade).collect();
        all.push(opened.clone());
        let (bytes, others) = (bytes_of(&all), all.len() - 1);
        if bytes > OPEN_BYTES && others > 0 {
            let why = format!(
                "{name}: with the {others} snapshots that are open here already, manifests and recipes would take {} MiB of \
                 memory, {} MiB are the most; close some, or restore it",
                bytes >> 20,
                OPEN_BYTES >> 20
            );
            return Err(VaultError::Refused(why));
        }
        self.opened.push(Arc::downgrade(&opened));
        self.cache.set_open(&self.opened);
        Ok(opened)
    }
}
