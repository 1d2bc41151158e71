//! Volumes: disks that virtual machines read and write.

mod absent;
mod arrive;
mod block_device;
mod differences;
mod in_flight;
mod known;
mod map;
mod origin;
mod read;
mod unmap;
mod write;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use format::pool::{CatalogEntry, MapRoot, Sharing, Slot, VolumeId};

use crate::engine::{Engine, Page, Stream, Urgency};
use crate::error::{PoolError, Result};

pub(crate) use arrive::STEP_BLOCKS;
pub(crate) use in_flight::InFlight;
pub use known::{FingerprintDevice, Known};
pub(crate) use map::{entry_of, node_entries, slot_blocks};
pub(crate) use origin::Origin;

/// A disk in a pool, or a snapshot of one. Several threads may use it at once.
pub struct Volume {
    engine: Arc<Engine>,
    id: VolumeId,
    name: String,
    /// The page of the catalog with the volume's slot: it tells the root of the map.
    catalog: Arc<Page>,
    slot: Slot,
    /// The byte of [`Sharing`]: it may change while others write.
    sharing: AtomicU8,
    is_snapshot: bool,
    /// Whether its writes may take the last blocks.
    urgency: Urgency,
    data: Stream,
    nodes: Stream,
    in_flight: Arc<InFlight>,
    /// What has the blocks that have not arrived.
    origin: Arc<Origin>,
}

/// What a volume is made of when it is opened.
pub(crate) struct VolumeParts {
    pub engine: Arc<Engine>,
    pub id: VolumeId,
    pub name: String,
    pub catalog: Arc<Page>,
    pub slot: Slot,
    pub sharing: Sharing,
    pub is_snapshot: bool,
    pub urgency: Urgency,
    pub in_flight: Arc<InFlight>,
    pub origin: Arc<Origin>,
}

impl Volume {
    pub(crate) fn new(parts: VolumeParts) -> Self {
        let VolumeParts { engine, id, name, catalog, slot, sharing, is_snapshot, urgency, in_flight, origin } =
            parts;
        Volume {
            engine,
            id,
            name,
            catalog,
            slot,
            sharing: AtomicU8::new(sharing.code()),
            is_snapshot,
            urgency,
            data: Stream::default(),
            nodes: Stream::default(),
            in_flight,
            origin,
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> VolumeId {
        self.id
    }

    /// Whether both lead to the same blocks everywhere.
    pub(crate) fn has_same_map(&self, other: &Volume) -> bool {
        let (ours, theirs) = (self.root(), other.root());
        ours.root == theirs.root && (ours.root.is_none() || ours.level == theirs.level)
    }

    /// Its name; that of a snapshot is `volume@snapshot`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When its blocks are shared.
    pub fn sharing(&self) -> Sharing {
        Sharing::from_code(self.sharing.load(Ordering::Relaxed)).unwrap_or(Sharing::Off)
    }

    /// Writes that begin from now on share their blocks like this.
    pub(crate) fn set_sharing(&self, sharing: Sharing) {
        self.sharing.store(sharing.code(), Ordering::Relaxed);
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.root().size
    }

    /// Runs an operation that allocates; see [`Engine::with_room`].
    pub(crate) fn with_room<T>(&self, body: impl FnMut() -> Result<T>) -> Result<T> {
        self.engine.with_room(body)
    }

    /// Makes durable what was written before.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Whether it can only be read.
    pub fn is_read_only(&self) -> bool {
        self.is_snapshot
    }

    pub(crate) fn root(&self) -> MapRoot {
        MapRoot::read(&self.catalog.array::<{ CatalogEntry::BYTES }>(self.slot.offset))
    }

    /// Fails for a range that is not in the volume.
    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(PoolError::Refused(format!(
                "{}: {length} bytes at {offset} are beyond its {} bytes",
                self.name,
                self.size()
            )));
        }
        Ok(())
    }

    fn check_writable(&self, offset: u64, length: u64) -> Result<()> {
        if self.is_snapshot {
            return Err(PoolError::Refused(format!(
                "{} is a snapshot: make a clone of it to write",
                self.name
            )));
        }
        self.check(offset, length)
    }
}
