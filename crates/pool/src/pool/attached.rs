//! Volumes in use: served as devices, and opened as files of the mount.
//!
//! Of the two ways to write a volume only one is in use at a time. Reading is always allowed: nobody keeps content in memory
//! for it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use export::{BlockDevice, Extent};
use format::pool::{CatalogEntry, CatalogIndex, CatalogState, VolumeId, BLOCK_BYTES};

use super::users::{leave, InUse, Users, CLOSE_PAUSE, CLOSE_TIME};
use super::Pool;
use crate::error::{PoolError, Result};
use crate::volume::Volume;

/// A volume that is served as a device. Dropped, it is so no more.
pub struct Attached {
    volume: Arc<Volume>,
    in_use: InUse,
}

impl Drop for Attached {
    fn drop(&mut self) {
        leave(&self.in_use, self.volume.id(), Users::detach);
    }
}

impl BlockDevice for Attached {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        BlockDevice::read_at(&self.volume, offset, buf)
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.volume.read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.volume.extents(range, each)
    }

    fn is_writable(&self) -> bool {
        self.volume.is_writable()
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        BlockDevice::write_at(&self.volume, offset, data)
    }

    fn zero(&self, range: Range<u64>, release: bool) -> io::Result<()> {
        BlockDevice::zero(&self.volume, range, release)
    }

    fn flush(&self) -> io::Result<()> {
        BlockDevice::flush(&self.volume)
    }
}

/// A volume or a snapshot as a file.
pub(crate) struct VolumeFile {
    pub id: VolumeId,
    pub name: String,
    pub size: u64,
    pub stored: u64,
    pub is_snapshot: bool,
    pub created: SystemTime,
}

impl Pool {
    /// Opens a volume or a snapshot for a client of a server.
    ///
    /// # Errors
    /// Refused while it is open for writing as a file.
    pub fn attach(&self, name: &str) -> Result<Attached> {
        let volume = self.volume(name)?;
        let since = Instant::now();
        loop {
            {
                let mut all = self.in_use.lock();
                let (users, _) =
                    all.entry(volume.id()).or_insert_with(|| (Users::default(), Arc::clone(&volume)));
                if users.attach() {
                    return Ok(Attached { volume, in_use: Arc::clone(&self.in_use) });
                }
            }
            if since.elapsed() > CLOSE_TIME {
                return Err(PoolError::Refused(format!(
                    "{name} is open for writing as a file: one way of writing at a time; close it first"
                )));
            }
            std::thread::sleep(CLOSE_PAUSE);
        }
    }

    /// Opens a volume as a file. `None` for one that is a device of somebody and may not be written besides.
    pub(crate) fn open_as_file(&self, id: VolumeId, write: bool) -> Result<Option<Arc<Volume>>> {
        let volume = self.any_volume(id)?;
        let mut all = self.in_use.lock();
        let (users, _) = all.entry(id).or_insert_with(|| (Users::default(), Arc::clone(&volume)));
        Ok(users.open(write).then_some(volume))
    }

    /// Closes it.
    pub(crate) fn close_as_file(&self, id: VolumeId, write: bool) {
        leave(&self.in_use, id, |users| users.close(write));
    }

    /// A volume or a snapshot by its id.
    pub(crate) fn any_volume(&self, id: VolumeId) -> Result<Arc<Volume>> {
        if let Some((_, volume)) = self.in_use.lock().get(&id) {
            return Ok(Arc::clone(volume));
        }
        let catalog = self.catalog.lock();
        let (index, entry) = catalog
            .find_any(id)
            .ok_or_else(|| PoolError::Refused("the volume is not there any more".into()))?;
        self.open_slot(&catalog, index, entry)
    }

    /// The volumes and snapshots that users have made.
    pub(crate) fn volume_files(&self) -> Vec<VolumeFile> {
        let catalog = self.catalog.lock();
        let shown = catalog
            .entries()
            .filter(|(_, entry)| entry.state != CatalogState::Deleted && !catalog.is_of_files(entry));
        shown.map(|(index, entry)| self.volume_file_of(&catalog, index, entry)).collect()
    }

    /// The same, one of them by its id.
    pub(crate) fn volume_file(&self, id: VolumeId) -> Option<VolumeFile> {
        let catalog = self.catalog.lock();
        let (index, entry) = catalog.find_any(id).filter(|(_, entry)| !catalog.is_of_files(entry))?;
        Some(self.volume_file_of(&catalog, index, entry))
    }

    /// The same, one of them by its name.
    pub(crate) fn volume_file_named(&self, name: &str) -> Option<VolumeFile> {
        let catalog = self.catalog.lock();
        let (index, entry) = catalog.find(name).filter(|(_, entry)| !catalog.is_of_files(entry))?;
        Some(self.volume_file_of(&catalog, index, entry))
    }

    fn volume_file_of(
        &self,
        catalog: &crate::catalog::Catalog,
        index: CatalogIndex,
        entry: &CatalogEntry,
    ) -> VolumeFile {
        let root = catalog.root(index);
        // Where blocks are not counted, a file of full length is shown: nobody should wait for a list.
        let mapped = root.and_then(|root| root.mapped).map(|blocks| blocks * BLOCK_BYTES as u64);
        let size = root.map_or(entry.size, |root| root.size);
        VolumeFile {
            id: entry.id,
            name: catalog.full_name(entry),
            size,
            stored: mapped.unwrap_or(size),
            is_snapshot: entry.state == CatalogState::Snapshot,
            created: UNIX_EPOCH + Duration::from_secs(entry.created.max(0) as u64),
        }
    }
}
