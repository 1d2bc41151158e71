//! A pool: made, opened, asked for volumes, closed.

mod attached;
mod changed;
mod deleted;
mod file_volumes;
mod fill;
mod reap;
mod scan;
mod users;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use format::pool::{
    CatalogEntry, CatalogIndex, CatalogState, Geometry, MapEntry, MapRoot, PoolId, Sharing, VolumeId,
    BLOCK_BYTES,
};
use parking_lot::Mutex;

use crate::catalog::{check_name, urgency_of, Catalog};
use crate::clocks::Stages;
use crate::device::Device;
use crate::engine::{format_device, Engine, Settings, Urgency};
use crate::error::{PoolError, Result};
use crate::share::{ScanCounters, ScanStats, Scanner, Scanning};
use crate::volume::{InFlight, Origin, Volume, VolumeParts};

pub use attached::Attached;
pub(crate) use attached::VolumeFile;
pub use changed::SnapshotFacts;
use deleted::Reaper;
pub(crate) use file_volumes::FILE_SIZE_MAX;
pub use fill::{FillInfo, FillStep, Filling};
use users::InUse;
pub(crate) use users::{Users, CLOSE_PAUSE, CLOSE_TIME};

/// Threads that go on as long as the pool is open.
const MAINTENANCE: &str = "pool-maintenance";
const SCANNER: &str = "pool-scanner";

/// What one can choose when a pool is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of pages that are kept in memory, beside the filter.
    pub cache_bytes: usize,
    /// Fingerprint stores are read whole (LiveDFS, 2.3).
    pub prefetch: bool,
    /// Changes go through the journal. Without it, which is for experiments, a pool that was not closed may be wrong, and
    /// nothing notices it.
    pub journal: bool,
    /// Blocks are shared in the background, if there are volumes that want it.
    pub scanning: Option<Scanning>,
    /// It is opened for [`Pool::repair`]: pages of the summary that cannot be read are made anew, and what was deleted is not
    /// freed yet.
    pub for_repair: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { cache_bytes: 64 << 20, prefetch: true, journal: true, scanning: None, for_repair: false }
    }
}

/// What is known of a volume or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its full name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
    /// When its blocks are shared.
    pub sharing: Sharing,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

/// What a pool has and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of data blocks.
    pub data_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Fingerprints in the filter.
    pub filter_entries: u64,
    /// Bytes of memory that the filter takes.
    pub filter_bytes: u64,
    /// What background sharing did since the pool was opened.
    pub scans: ScanStats,
    /// How fast it may be, if it goes on.
    pub scanning: Option<Scanning>,
}

/// What volumes and snapshots hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that volumes and snapshots have written, each counted for itself.
    pub mapped_bytes: u64,
    /// Bytes that are stored for them.
    pub stored_bytes: u64,
    /// Of those, bytes that nobody has looked for equal blocks for: they were written while sharing was not inline.
    pub unshared_bytes: u64,
}

/// A pool in use.
pub struct Pool {
    engine: Arc<Engine>,
    catalog: Mutex<Catalog>,
    open: Mutex<HashMap<CatalogIndex, Weak<Volume>>>,
    in_use: InUse,
    in_flight: Arc<InFlight>,
    /// Of volumes that are being filled: where what has not arrived is read.
    origins: Mutex<HashMap<VolumeId, Arc<Origin>>>,
    scanning: Option<Scanning>,
    scanner: Mutex<Scanner>,
    scan_counters: ScanCounters,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_closing: Arc<AtomicBool>,
    reaper: Arc<Mutex<Reaper>>,
}

impl Pool {
    /// Makes an empty pool on a device. What was on it is lost.
    pub fn create(device: &dyn Device) -> Result<()> {
        let geometry = Geometry::plan(device.size() / BLOCK_BYTES as u64);
        Self::create_with(device, geometry.map_err(|e| PoolError::Refused(e.to_string()))?)
    }

    /// Makes an empty pool with sizes of one's own.
    pub fn create_with(device: &dyn Device, geometry: Geometry) -> Result<()> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|e| PoolError::Refused(format!("the system gives no random numbers: {e}")))?;
        format_device(device, PoolId(id), geometry)
    }

    /// Opens a pool. After a crash it takes as long as reading the journal; one that was closed opens at once.
    pub fn open(device: Box<dyn Device>, options: Options) -> Result<Arc<Self>> {
        let settings = Settings {
            cache_pages: (options.cache_bytes / BLOCK_BYTES).max(1024),
            prefetch: options.prefetch,
            journal: options.journal,
            for_repair: options.for_repair,
        };
        let engine = Arc::new(Engine::open(device, settings)?);
        let catalog = Catalog::read(Arc::clone(&engine))?;
        engine.renew_from_twins()?;
        let pool = Arc::new(Pool {
            engine,
            catalog: Mutex::new(catalog),
            open: Mutex::default(),
            in_use: InUse::default(),
            in_flight: Arc::default(),
            origins: Mutex::default(),
            scanning: options.scanning,
            scanner: Mutex::default(),
            scan_counters: ScanCounters::default(),
            threads: Mutex::default(),
            is_closing: Arc::default(),
            reaper: Arc::default(),
        });
        let engine = Arc::clone(&pool.engine);
        pool.spawn(MAINTENANCE, move || engine.maintain());
        let engine = Arc::clone(&pool.engine);
        // Until it is filled, writes share less, and what they do not find is left to background sharing.
        pool.spawn("pool-filter", move || engine.complete_filter());
        if options.for_repair {
            return Ok(pool);
        }
        let deleted: Vec<_> = {
            let catalog = pool.catalog.lock();
            let slots = catalog.entries().filter(|(_, entry)| entry.state == CatalogState::Deleted);
            slots.map(|(index, entry)| (index, entry.clone())).collect()
        };
        pool.reap(deleted);
        pool.start_scanning();
        Ok(pool)
    }

    /// Another text whenever something that was written and not flushed may have been lost: with each opening of the pool
    /// that was not closed before.
    pub fn lineage(&self) -> String {
        format!("{} {}", self.engine.id, self.engine.cuts())
    }

    /// Starts a thread that [`Self::close`] waits for. Returns whether there is one: without, writers write pages back
    /// themselves.
    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> bool {
        let Ok(thread) = std::thread::Builder::new().name(name.into()).spawn(body) else { return false };
        let mut threads = self.threads.lock();
        // One that has ended keeps its stack until it is forgotten.
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        true
    }

    /// Writes everything to its place. Volumes of the pool fail from then on.
    pub fn close(&self) -> Result<()> {
        self.is_closing.store(true, Ordering::SeqCst);
        self.engine.end_maintenance();
        for thread in self.threads.lock().drain(..) {
            // The scanner may be resting.
            thread.thread().unpark();
            // A panic in a thread was printed.
            let _ = thread.join();
        }
        self.engine.close()
    }

    /// Waits until the filter was read and what was deleted is freed: for tests and measurements.
    pub fn settle(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let goes_on = |t: &JoinHandle<()>| matches!(t.thread().name(), Some(MAINTENANCE | SCANNER));
        let (going_on, others): (Vec<_>, Vec<_>) = threads.into_iter().partition(goes_on);
        for thread in others {
            let _ = thread.join();
        }
        self.threads.lock().extend(going_on);
    }

    /// Makes durable what was written before.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// What there is, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let catalog = self.catalog.lock();
        let mut volumes: Vec<_> = catalog
            .entries()
            .filter(|(_, entry)| entry.state != CatalogState::Deleted && !catalog.is_of_files(entry))
            .map(|(_, entry)| VolumeInfo {
                name: catalog.full_name(entry),
                size: entry.size,
                is_snapshot: entry.state == CatalogState::Snapshot,
                sharing: entry.sharing,
                created: entry.created,
            })
            .collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes
    }

    /// What the pool has and takes.
    pub fn stats(&self) -> PoolStats {
        let (filter_entries, filter_bytes) = self.engine.filter.size();
        PoolStats {
            data_bytes: self.engine.data_blocks() * BLOCK_BYTES as u64,
            free_bytes: self.engine.free_blocks() * BLOCK_BYTES as u64,
            filter_entries,
            filter_bytes,
            scans: self.scan_counters.stats(),
            scanning: self.scanning,
        }
    }

    /// Where the time of writes went since the pool was opened.
    pub fn stages(&self) -> Stages {
        self.engine.clocks.stages()
    }

    /// What volumes and snapshots hold. Reads all maps and counts; somebody may write meanwhile.
    pub fn usage(&self) -> Result<Usage> {
        let report = self.count_blocks()?;
        let bytes = |blocks| blocks * BLOCK_BYTES as u64;
        Ok(Usage {
            mapped_bytes: bytes(report.mapped_blocks),
            stored_bytes: bytes(report.stored_blocks),
            unshared_bytes: bytes(report.unshared_blocks),
        })
    }

    /// Opens a volume, or a snapshot for reading.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>> {
        let catalog = self.catalog.lock();
        let (index, entry) = catalog.get(name)?;
        self.open_slot(&catalog, index, entry)
    }

    fn open_slot(&self, catalog: &Catalog, index: CatalogIndex, entry: &CatalogEntry) -> Result<Arc<Volume>> {
        let mut open = self.open.lock();
        if let Some(volume) = open.get(&index).and_then(Weak::upgrade) {
            return Ok(volume);
        }
        let (slot, page) = catalog.slot(index)?;
        let volume = Arc::new(Volume::new(VolumeParts {
            engine: Arc::clone(&self.engine),
            id: entry.id,
            name: catalog.full_name(entry),
            catalog: page,
            slot,
            sharing: entry.sharing,
            is_snapshot: entry.state == CatalogState::Snapshot,
            urgency: urgency_of(entry),
            in_flight: Arc::clone(&self.in_flight),
            origin: if entry.fill.is_some() { self.origin_of(entry.id) } else { Arc::default() },
        }));
        open.insert(index, Arc::downgrade(&volume));
        Ok(volume)
    }

    /// Makes an empty volume. It is durable when this returns.
    pub fn create_volume(&self, name: &str, size: u64, sharing: Sharing) -> Result<()> {
        check_name(name)?;
        check_size(size)?;
        let mut catalog = self.catalog.lock();
        catalog.check_free(name)?;
        let (index, id) = catalog.vacant()?;
        let entry = CatalogEntry::empty_volume(id, name.into(), size, sharing, now());
        self.put_entry(&mut catalog, index, entry, None)?;
        self.engine.flush()
    }

    /// Makes a snapshot `volume@name` of a volume as it is now, in constant time. It is durable when this returns.
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<()> {
        check_name(name)?;
        let mut catalog = self.catalog.lock();
        if catalog.find(&format!("{volume}@{name}")).is_some() {
            return Err(PoolError::Refused(format!("there is a snapshot {volume}@{name} already")));
        }
        let (source, of) = catalog.get(volume)?;
        if of.state == CatalogState::Snapshot {
            return Err(PoolError::Refused(format!("{volume} is a snapshot already")));
        }
        self.check_filled(of)?;
        let of = of.clone();
        self.derive(&mut catalog, (source, of), CatalogState::Snapshot, name)
    }

    /// Makes a volume that is equal to a snapshot, in constant time. It is durable when this returns.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<()> {
        check_name(name)?;
        let mut catalog = self.catalog.lock();
        catalog.check_free(name)?;
        let (source, of) = catalog.get(snapshot)?;
        if of.state != CatalogState::Snapshot {
            return Err(PoolError::Refused(format!("{snapshot} is not a snapshot: make one of it first")));
        }
        let of = of.clone();
        self.derive(&mut catalog, (source, of), CatalogState::Volume, name)
    }

    /// Puts an entry that begins with the content of another.
    fn derive(
        &self,
        catalog: &mut Catalog,
        (source, of): (CatalogIndex, CatalogEntry),
        state: CatalogState,
        name: &str,
    ) -> Result<()> {
        let (index, id) = catalog.vacant()?;
        let (origin, name) = (Some(of.id), name.into());
        let entry = CatalogEntry { state, id, origin, created: now(), name, ..of };
        self.put_entry(catalog, index, entry, Some(source))?;
        self.engine.flush()
    }

    /// Puts an entry into a slot; it gets the root that another slot has, whose map must reach the entry's size.
    fn put_entry(
        &self,
        catalog: &mut Catalog,
        index: CatalogIndex,
        mut entry: CatalogEntry,
        source: Option<CatalogIndex>,
    ) -> Result<()> {
        let (slot, page) = catalog.slot(index)?;
        let source = source.map(|source| catalog.slot(source)).transpose()?;
        entry = self.engine.transact(|t| {
            let mut entry = entry.clone();
            if let Some((slot, page)) = &source {
                let root = MapRoot::read(&page.array::<{ CatalogEntry::BYTES }>(slot.offset));
                entry.level = root.level;
                entry.root = root.root;
                entry.mapped = root.mapped;
                root.root.into_iter().for_each(|root| t.refer(root, 1));
            }
            t.set(&page, slot.offset, &entry.encode());
            Ok(entry)
        })?;
        catalog.put(index, page, entry);
        Ok(())
    }

    /// Fails for a volume that somebody has open. The caller has the catalog, so that nobody opens it meanwhile.
    fn check_unused(&self, index: CatalogIndex, name: &str) -> Result<()> {
        if self.open.lock().get(&index).is_some_and(|v| v.strong_count() > 0) {
            return Err(PoolError::Refused(format!("{name} is in use: disconnect its clients first")));
        }
        Ok(())
    }

    /// Chooses when blocks of a volume and of its snapshots are shared, also while it is used. It is durable when this returns.
    pub fn share(&self, name: &str, sharing: Sharing) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let (index, entry) = catalog.get(name)?;
        if entry.state == CatalogState::Snapshot {
            return Err(PoolError::Refused(format!(
                "{name} is a snapshot, whose blocks are shared when those of its volume are: name the volume"
            )));
        }
        let id = entry.id;
        let is_snapshot = |e: &CatalogEntry| e.state == CatalogState::Snapshot && e.origin == Some(id);
        let changed: Vec<_> = catalog
            .entries()
            .filter(|(n, entry)| *n == index || is_snapshot(entry))
            .map(|(n, entry)| Ok((n, CatalogEntry { sharing, ..entry.clone() }, catalog.slot(n)?)))
            .collect::<Result<_>>()?;
        self.engine.transact(|t| {
            for (_, _, (slot, page)) in &changed {
                t.set(page, slot.offset + CatalogEntry::SHARING_AT, &[sharing.code()]);
            }
            Ok(())
        })?;
        for (n, entry, (_, page)) in changed {
            catalog.put(n, page, entry);
        }
        if let Some(volume) = self.open.lock().get(&index).and_then(Weak::upgrade) {
            volume.set_sharing(sharing);
        }
        drop(catalog);
        self.engine.flush()
    }

    /// Changes the size of a volume. It can grow while it is served as a device: clients see that when they connect again. It
    /// becomes shorter only where nobody has it open, and what it loses is gone.
    pub fn resize(&self, name: &str, size: u64) -> Result<()> {
        check_size(size)?;
        let mut catalog = self.catalog.lock();
        let (index, entry) = catalog.get(name)?;
        if entry.state != CatalogState::Volume {
            return Err(PoolError::Refused(format!("{name} is a snapshot: its size does not change")));
        }
        self.check_filled(entry)?;
        let entry = entry.clone();
        if size >= entry.size {
            if self.in_use.lock().get(&entry.id).is_some_and(|(users, _)| users.is_file()) {
                return Err(PoolError::Refused(format!("{name} is open as a file: close it first")));
            }
            if entry.size % BLOCK_BYTES as u64 != 0 {
                // Who makes zeros of its last block now takes all of it out, also what lies behind the end.
                self.check_unused(index, name)?;
            }
        } else {
            self.check_unused(index, name)?;
            let volume = self.open_slot(&catalog, index, &entry)?;
            volume.zero(size, entry.size - size)?;
        }
        self.set_size(&mut catalog, index, entry, size)?;
        self.engine.flush()
    }

    /// Changes a size. Nothing is beyond the new one, and readers may go on: what is above the old root is new.
    fn set_size(
        &self,
        catalog: &mut Catalog,
        index: CatalogIndex,
        entry: CatalogEntry,
        size: u64,
    ) -> Result<()> {
        let (slot, page) = catalog.slot(index)?;
        let level = MapRoot::level_for(size);
        let mut nodes = Vec::new();
        let stream = crate::engine::Stream::default();
        let before = MapRoot::read(&page.array::<{ CatalogEntry::BYTES }>(slot.offset));
        for _ in before.level..level {
            nodes.push(self.engine.with_room(|| self.engine.allocate(&stream, 1, Urgency::Usual))?);
        }
        let (used, now) = self.engine.transact(|t| {
            let now = MapRoot::read(&page.array::<{ CatalogEntry::BYTES }>(slot.offset));
            let (mut root, mut used) = (now.root, 0);
            for (level, node) in (now.level + 1..=level).zip(&nodes) {
                if let Some(below) = root {
                    t.new_node(node.first, level, vec![(0, MapEntry::child(below))]);
                    root = Some(node.first);
                    used += 1;
                }
            }
            let (level, mapped) = (now.level.max(level), now.mapped);
            let changed = CatalogEntry { level, root, size, mapped, ..entry.clone() };
            t.set(&page, slot.offset, &changed.encode());
            Ok((used, changed))
        })?;
        nodes.drain(..used);
        nodes.into_iter().for_each(|node| self.engine.give_back(node));
        catalog.put(index, page, now);
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn roots(&self) -> Result<Vec<(CatalogIndex, String, MapRoot)>> {
        let catalog = self.catalog.lock();
        catalog
            .entries()
            .map(|(index, entry)| {
                let mut root = self.root_at(&catalog, index)?;
                if entry.state == CatalogState::Deleted {
                    // What is being freed is not counted any more.
                    root.mapped = None;
                }
                Ok((index, catalog.full_name(entry), root))
            })
            .collect()
    }

    /// The root in a slot, as it is now.
    fn root_at(&self, catalog: &Catalog, index: CatalogIndex) -> Result<MapRoot> {
        let (slot, page) = catalog.slot(index)?;
        Ok(MapRoot::read(&page.array::<{ CatalogEntry::BYTES }>(slot.offset)))
    }
}

/// Refuses a size that no volume can have.
fn check_size(size: u64) -> Result<()> {
    let largest = 1u64 << 50;
    if size == 0 || size % 512 != 0 || size > largest {
        return Err(PoolError::Invalid(format!("{size} bytes: a size is a multiple of 512 up to 1 PiB")));
    }
    Ok(())
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}
