//! Volumes that the file system keeps its files and its names in. Commands on volumes do not see them.

use std::sync::Arc;

use format::pool::{CatalogEntry, CatalogState, Sharing, VolumeId, BLOCK_BYTES, MAP_SLOTS};

use super::{now, Pool};
use crate::catalog::{check_name, FILES_MARK, NAMES_VOLUME};
use crate::error::{PoolError, Result};
use crate::volume::Volume;

/// The most bytes of a file: what a map of four levels reaches.
pub(crate) const FILE_SIZE_MAX: u64 = reach(3);
/// Bytes that it may take; what was not written takes no space.
const NAMES_SIZE: u64 = reach(2);

/// Blocks that are kept for the table of names at most: what changes between two syncs must find room.
const KEPT_BLOCKS_MAX: u64 = 4096;

/// Bytes that a map with a root of a level reaches.
const fn reach(level: u32) -> u64 {
    BLOCK_BYTES as u64 * (MAP_SLOTS as u64).pow(level + 1)
}

impl Pool {
    /// The volume of the file system's names; it is made if there is none.
    pub(crate) fn names_volume(&self) -> Result<Arc<Volume>> {
        let mut catalog = self.catalog.lock();
        if catalog.find(NAMES_VOLUME).is_none() {
            let (index, id) = catalog.vacant()?;
            let entry = CatalogEntry::empty_volume(id, NAMES_VOLUME.into(), NAMES_SIZE, Sharing::Off, now());
            self.put_entry(&mut catalog, index, entry, None)?;
        }
        let (index, entry) = catalog.get(NAMES_VOLUME)?;
        self.open_slot(&catalog, index, entry)
    }

    /// Keeps room for the table of names, so that names can be removed in a full pool.
    pub(crate) fn keep_room_for_names(&self) {
        self.engine.keep(self.kept_for_names() / BLOCK_BYTES as u64);
    }

    /// Bytes that are kept for the table of names.
    pub(crate) fn kept_for_names(&self) -> u64 {
        (self.engine.data_blocks() / 32).min(KEPT_BLOCKS_MAX) * BLOCK_BYTES as u64
    }

    /// Whether names can be added, of which the table has `bytes` not yet written: half of what is kept is for removals.
    pub(crate) fn has_room_for_names(&self, bytes: u64) -> bool {
        self.engine.unused_blocks() * BLOCK_BYTES as u64 >= self.kept_for_names() / 2 + bytes
    }

    /// Makes the volume of a file that is going to have at least `size` bytes. It is durable after the next flush.
    pub(crate) fn create_file_volume(&self, node: u64, size: u64) -> Result<(VolumeId, Arc<Volume>)> {
        let mut catalog = self.catalog.lock();
        let (index, id) = catalog.vacant()?;
        let entry =
            CatalogEntry::empty_volume(id, name_of(node, id), reach_for(size), Sharing::Inline, now());
        self.put_entry(&mut catalog, index, entry.clone(), None)?;
        Ok((id, self.open_slot(&catalog, index, &entry)?))
    }

    /// Makes the volume of a file that begins with the content of another file's, of a volume or of a snapshot, in constant
    /// time.
    pub(crate) fn clone_file_volume(&self, node: u64, of: VolumeId) -> Result<(VolumeId, Arc<Volume>)> {
        let mut catalog = self.catalog.lock();
        let (source, of) = catalog.find_any(of).ok_or_else(|| missing(of))?;
        let of = of.clone();
        let (index, id) = catalog.vacant()?;
        let entry = CatalogEntry {
            state: CatalogState::Volume,
            sharing: Sharing::Inline,
            id,
            created: now(),
            name: name_of(node, id),
            origin: None,
            size: reach_for(of.size),
            ..of
        };
        self.put_entry(&mut catalog, index, entry.clone(), Some(source))?;
        Ok((id, self.open_slot(&catalog, index, &entry)?))
    }

    /// Makes a volume of so many bytes that begins with the content of a file's, in constant time. It is durable when this
    /// returns.
    pub(crate) fn clone_file_to_volume(&self, of: VolumeId, name: &str, size: u64) -> Result<()> {
        check_name(name)?;
        let mut catalog = self.catalog.lock();
        if catalog.find(name).is_some() {
            return Err(PoolError::Refused(format!("there is a volume {name} already")));
        }
        let (source, of) = catalog.find_id(of).ok_or_else(|| missing(of))?;
        let of = of.clone();
        let (index, id) = catalog.vacant()?;
        let entry = CatalogEntry { id, created: now(), name: name.into(), origin: None, size, ..of };
        self.put_entry(&mut catalog, index, entry, Some(source))?;
        self.engine.flush()
    }

    /// The volume of a file.
    pub(crate) fn file_volume(&self, id: VolumeId) -> Result<Arc<Volume>> {
        let catalog = self.catalog.lock();
        let (index, entry) = catalog.find_id(id).ok_or_else(|| missing(id))?;
        self.open_slot(&catalog, index, entry)
    }

    /// Lets the volume of a file have at least `size` bytes. Durable after the next flush.
    pub(crate) fn grow_file_volume(&self, id: VolumeId, size: u64) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let (index, entry) = catalog.find_id(id).ok_or_else(|| missing(id))?;
        let entry = entry.clone();
        self.set_size(&mut catalog, index, entry, reach_for(size))
    }

    /// Deletes the volume of a file, if it is there; its blocks are freed behind it. Returns whether it is gone: not while
    /// somebody has it open.
    pub(crate) fn delete_file_volume(self: &Arc<Self>, id: VolumeId) -> Result<bool> {
        let mut catalog = self.catalog.lock();
        let Some((index, entry)) = catalog.find_id(id) else { return Ok(true) };
        let entry = entry.clone();
        if self.check_unused(index, &entry.name).is_err() {
            return Ok(false);
        }
        let entry = self.mark_deleted(&mut catalog, index, entry)?;
        drop(catalog);
        self.reap(vec![(index, entry)]);
        Ok(true)
    }

    /// Bytes of the blocks that a file has, whether others have them as well or not.
    pub(crate) fn file_bytes(&self, id: VolumeId) -> Result<u64> {
        let mapped = {
            let catalog = self.catalog.lock();
            catalog.find_any(id).and_then(|(index, _)| catalog.root(index)).and_then(|root| root.mapped)
        };
        match mapped {
            Some(blocks) => Ok(blocks * BLOCK_BYTES as u64),
            // Written by a program that did not count.
            None => Ok(self.file_volume(id)?.count_mapped()? * BLOCK_BYTES as u64),
        }
    }

    /// The volumes of all files.
    pub(crate) fn file_volumes(&self) -> Vec<VolumeId> {
        let catalog = self.catalog.lock();
        let files =
            catalog.entries().filter(|(_, entry)| catalog.is_of_files(entry) && entry.name != NAMES_VOLUME);
        files.map(|(_, entry)| entry.id).collect()
    }

    /// How many files and volumes can still be made.
    pub(crate) fn vacancies(&self) -> u64 {
        self.catalog.lock().vacancies()
    }
}

/// A name that no other volume has: a file's volume may be replaced while the old one is being deleted.
fn name_of(node: u64, id: VolumeId) -> String {
    format!("{FILES_MARK}{node:x}.{:08x}", id.0)
}

/// The size of a volume that holds so many bytes. Few sizes, so that files rarely outgrow one.
fn reach_for(size: u64) -> u64 {
    (0..3).map(reach).find(|bytes| size <= *bytes).unwrap_or(FILE_SIZE_MAX)
}

fn missing(id: VolumeId) -> PoolError {
    PoolError::Damaged {
        what: format!("the file with volume {:08x}", id.0),
        why: "there is no such volume in the catalog".into(),
    }
}
