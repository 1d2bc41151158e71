//! Lists the chunks that the snapshots of a disk reference, and the containers, for studies of a vault. Reads metadata
//! only, and changes nothing.

use crate::base::error::Result;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::container::view::View;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use format::{ChunkNo, ContainerEntry, ContainerId, DiskId, Manifest, Reference, SnapshotEntry};
use std::ops::Range;

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its id, unique among the containers of its owner.
    pub id: ContainerId,
    /// Chunks in it.
    pub chunks: u32,
    /// Of them, chunks that no snapshot references any more.
    pub dead_chunks: u32,
    /// Bytes of its data as it was stored.
    pub stored_bytes: u64,
}

/// The chunks of one disk, as they were at one instant: nothing of them is removed before this is dropped.
pub struct DiskChunks(View);

impl Vault {
    /// Looks at a disk.
    ///
    /// # Errors
    /// `NotFound` where there is no such disk.
    pub fn disk_chunks(&self, disk: &str) -> Result<DiskChunks> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        view.whole()?;
        Ok(DiskChunks(view))
    }

    /// The containers of the popular set, in the order of their ids.
    pub fn popular_containers(&self) -> Result<Vec<ContainerInfo>> {
        let popular = self.popular();
        match popular.load_tagged()? {
            Some((m, _)) => list(&popular, &m),
            None => Ok(Vec::new()),
        }
    }
}

impl DiskChunks {
    /// The disk.
    pub fn disk(&self) -> DiskId {
        self.0.folder.disk
    }

    /// Whose a container is that the disk references, and the container as its owner names it. `None` where the disk
    /// counts no such owner.
    pub fn owner_of(&self, container: ContainerId) -> Option<(DiskId, ContainerId)> {
        Some((self.0.manifest.owner(container.owner())?, container.local()))
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> impl Iterator<Item = &SnapshotEntry> {
        // They have been read when this was made.
        self.0.whole().into_iter().flat_map(Whole::live)
    }

    /// Calls `each` with the container and the numbers of every run of chunks that a snapshot references, in the order of
    /// the disk. A chunk that the disk has twice comes twice.
    pub fn each_run(
        &self,
        snapshot: &SnapshotEntry,
        each: &mut dyn FnMut(ContainerId, Range<u32>),
    ) -> Result<()> {
        let mut recipe = RecipeReader::open(&self.0.folder, self.0.with_newer(snapshot.id)?, snapshot)?;
        for no in recipe.page_numbers() {
            let Some(page) = recipe.page(no)? else { continue };
            for r in page.segments.iter().flat_map(|(_, s)| &s.references) {
                if let Reference::Direct { container, first, count } = *r {
                    each(container, first.0..first.0 + count);
                }
            }
        }
        self.0.check()
    }

    /// The disk's own containers, in the order of their ids.
    pub fn containers(&self) -> Result<Vec<ContainerInfo>> {
        list(&self.0.folder, &self.0.manifest)
    }

    /// Bytes of chunks of a container, before compression.
    pub fn bytes(&self, container: ContainerId, chunks: Range<u32>) -> Result<u64> {
        let table = self.0.tables.get(container)?;
        let there = chunks.filter_map(|no| table.index_of(ChunkNo(no)));
        Ok(there.map(|n| u64::from(table.length(n))).sum())
    }
}

fn list(folder: &Folder, m: &Manifest) -> Result<Vec<ContainerInfo>> {
    let mut all = Vec::new();
    Containers::new(folder.clone(), m).each(|e| {
        let ContainerEntry { id, chunks, dead_chunks, stored_bytes, .. } = *e;
        if id.is_own() {
            all.push(ContainerInfo { id, chunks, dead_chunks, stored_bytes });
        }
        Ok(())
    })?;
    Ok(all)
}
