//! Volumes: disks that virtual machines read and write.

mod block_device;
mod differences;
mod in_flight;
mod map;
mod read;
mod unmap;
mod write;

use std::sync::Arc;

use format::pool::{CatalogEntry, MapRoot, Sharing, Slot};

use crate::engine::{Engine, Page, Stream, Urgency};
use crate::error::{PoolError, Result};

pub(crate) use in_flight::InFlight;
pub(crate) use map::node_entries;

/// A disk in a pool, or a snapshot of one. Several threads may use it at once.
pub struct Volume {
    engine: Arc<Engine>,
    name: String,
    /// The page of the catalog with the volume's slot: it tells the root of the map.
    catalog: Arc<Page>,
    slot: Slot,
    sharing: Sharing,
    is_snapshot: bool,
    /// Whether its writes may take the last blocks.
    urgency: Urgency,
    data: Stream,
    nodes: Stream,
    in_flight: Arc<InFlight>,
}

/// What a volume is made of when it is opened.
pub(crate) struct Opened {
    pub engine: Arc<Engine>,
    pub name: String,
    pub catalog: Arc<Page>,
    pub slot: Slot,
    pub sharing: Sharing,
    pub is_snapshot: bool,
    pub urgency: Urgency,
    pub in_flight: Arc<InFlight>,
}

impl Volume {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { engine, name, catalog, slot, sharing, is_snapshot, urgency, in_flight } = opened;
        Volume {
            engine,
            name,
            catalog,
            slot,
            sharing,
            is_snapshot,
            urgency,
            data: Stream::default(),
            nodes: Stream::default(),
            in_flight,
        }
    }

    /// Its name; that of a snapshot is `volume@snapshot`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.root().size
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
