//! FAT12, FAT16 and FAT32 with long names. Documented in Microsoft's "FAT32 File System Specification" (2000); that
//! FAT32 may have few clusters, and how short names keep their case, in Linux and Windows NT.
//!
//! Short names are taken for code page 437, which gives each byte a character of its own. Times have no zone and are
//! taken for UTC. Modes are `0o755` for directories, else `0o644`, or `0o444` for what is read-only; owner and group
//! are 0. A node is known by the place of its (short) entry on the volume.
//!
//! Only the first of the tables is read, and neither `FSInfo` nor the marks of bad clusters outside of files.

mod boot;
mod directory;
mod error;
mod names;
mod table;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::{FsError, Result};
use crate::tree::extents::{self, Extent, Place};
use crate::tree::listing::Listings;
use crate::tree::{Attributes, Entry, FileSystem, Node, NodeId, NodeKind, Time};
use boot::{Geometry, RootPlace, Width, BOOT_BYTES};
use directory::{Contents, Item, ENTRY_BYTES};
use error::damaged;
use std::sync::Arc;
use table::{Count, Run, Table};

/// The entry of the root, which has none: where the boot sector is.
const ROOT: NodeId = NodeId(0);

/// The specification allows 2 MiB; Linux and mtools go beyond.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;

/// Maps of files that were read last.
const MAPS_KEPT_BYTES: usize = 16 << 20;

const NO_LABEL: &[u8] = b"NO NAME";

/// A volume of FAT.
pub struct Fat {
    disk: Arc<dyn Disk>,
    geometry: Geometry,
    table: Table,
    label: Vec<u8>,
    maps: Cache<NodeId, Arc<Map>>,
    listings: Listings,
}

/// Where a file's data is.
struct Map {
    size: u64,
    extents: Vec<Extent>,
}

impl Fat {
    /// Opens a volume; `None` if it is no FAT.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Option<Fat>> {
        let mut boot = [0; BOOT_BYTES];
        if disk.size() < BOOT_BYTES as u64 {
            return Ok(None);
        }
        disk.read_at(0, &mut boot)?;
        let Some(geometry) = Geometry::parse(&boot)? else { return Ok(None) };
        if geometry.data > disk.size() {
            let why = format!("its data begins at {:#x} of {:#x} bytes", geometry.data, disk.size());
            return Err(damaged("the volume", why));
        }
        let (maps, listings) = (Cache::new(MAPS_KEPT_BYTES), Listings::new());
        let mut fat = Fat { disk, geometry, table: Table::new(), label: Vec::new(), maps, listings };
        let in_root = fat.contents(ROOT).ok().and_then(|(found, _)| found.label);
        let in_boot = || names::text(&fat.geometry.label, false).into_bytes();
        fat.label =
            Some(in_root.unwrap_or_else(in_boot)).filter(|label| label != NO_LABEL).unwrap_or_default();
        Ok(Some(fat))
    }

    /// The entry of a node.
    fn item(&self, id: NodeId) -> Result<Item> {
        if id == ROOT {
            let modified = Time::default();
            return Ok(Item { is_directory: true, is_read_only: false, first: 0, size: 0, modified });
        }
        let mut entry = [0; ENTRY_BYTES];
        self.read(id, id.0, &mut entry)?;
        let item = Item::parse(&entry, self.geometry.width == Width::Fat32);
        item.ok_or_else(|| damaged(subject(id), "it is not an entry of a directory"))
    }

    fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.disk.size();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > size) {
            let why = format!("{:#x} bytes at {offset:#x} of a volume of {size:#x}", buf.len());
            return Err(damaged(subject(id), why));
        }
        self.disk.read_at(offset, buf)
    }

    /// The extents of clusters, up to a size.
    fn extents_of(&self, id: NodeId, runs: &[Run], size: u64) -> Result<Vec<Extent>> {
        let mut found = Vec::with_capacity(runs.len());
        let mut offset = 0;
        for run in runs {
            let len = (run.clusters * self.geometry.cluster_bytes).min(size - offset);
            let place =
                self.geometry.place(run.first).filter(|at| at.saturating_add(len) <= self.disk.size());
            let Some(at) = place else {
                let why =
                    format!("{len:#x} bytes at cluster {:#x} lie beyond {:#x}", run.first, self.disk.size());
                return Err(damaged(subject(id), why));
            };
            found.push(Extent { offset, len, place: Place::Volume(at) });
            offset += len;
        }
        Ok(found)
    }

    /// Where a file is.
    fn map(&self, id: NodeId) -> Result<Arc<Map>> {
        if let Some(held) = self.maps.get(id) {
            return Ok(held);
        }
        let item = self.item(id)?;
        if item.is_directory {
            return Err(wrong(id, "it is not a file"));
        }
        let size = u64::from(item.size);
        let clusters = size.div_ceil(self.geometry.cluster_bytes);
        let runs = self.table.chain(&*self.disk, &self.geometry, item.first, Count::Exactly(clusters))?;
        let map = Arc::new(Map { size, extents: self.extents_of(id, &runs, size)? });
        self.maps.put(id, map.clone(), (map.extents.len() + 2) * size_of::<Extent>());
        Ok(map)
    }

    /// Where a directory is.
    fn directory(&self, id: NodeId) -> Result<Map> {
        let item = self.item(id)?;
        if !item.is_directory {
            return Err(wrong(id, "it is not a directory"));
        }
        let first = match self.geometry.root {
            RootPlace::Fixed { at, len } if id == ROOT => {
                let extents = vec![Extent { offset: 0, len, place: Place::Volume(at) }];
                return Ok(Map { size: len, extents });
            }
            RootPlace::Chain(first) if id == ROOT => first,
            _ => item.first,
        };
        let count = Count::UpTo(DIRECTORY_BYTES_MAX / self.geometry.cluster_bytes);
        let runs = self.table.chain(&*self.disk, &self.geometry, first, count)?;
        let size = runs.iter().map(|r| r.clusters * self.geometry.cluster_bytes).sum();
        Ok(Map { size, extents: self.extents_of(id, &runs, size)? })
    }

    fn contents(&self, id: NodeId) -> Result<(Contents, Map)> {
        let map = self.directory(id)?;
        let mut bytes = vec![0; map.size as usize];
        extents::read(&*self.disk, &map.extents, map.size, 0, &mut bytes)?;
        Ok((directory::contents(&bytes), map))
    }
}

impl FileSystem for Fat {
    fn kind(&self) -> &'static str {
        match self.geometry.width {
            Width::Fat12 => "fat12",
            Width::Fat16 => "fat16",
            Width::Fat32 => "fat32",
        }
    }

    fn label(&self) -> Vec<u8> {
        self.label.clone()
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.geometry.size > self.disk.size() {
            let size = self.disk.size();
            warnings.push(format!("it should have {} bytes, and {size} are there", self.geometry.size));
        }
        if self.geometry.is_dirty {
            warnings.push("it was in use: what was not yet written is missing".into());
        }
        warnings
    }

    fn root(&self) -> NodeId {
        ROOT
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let item = self.item(id)?;
        let (kind, mode, size) = match (item.is_directory, item.is_read_only) {
            (true, _) => (NodeKind::Directory, 0o755, 0),
            (false, false) => (NodeKind::File, 0o644, u64::from(item.size)),
            (false, true) => (NodeKind::File, 0o444, u64::from(item.size)),
        };
        let time = item.modified;
        Ok(Node { kind, mode, uid: 0, gid: 0, size, links: 1, modified: time, changed: time })
    }

    fn entries(&self, id: NodeId) -> Result<Vec<Entry>> {
        let (found, map) = self.contents(id)?;
        let place = |at: usize| {
            let at = at as u64;
            let e = &map.extents[map.extents.partition_point(|e| e.offset + e.len <= at)];
            let Place::Volume(begin) = e.place else { return ROOT };
            NodeId(begin + at - e.offset)
        };
        Ok(found.names.into_iter().map(|n| Entry { name: n.name, id: place(n.at) }).collect())
    }

    fn lookup(&self, id: NodeId, name: &[u8]) -> Result<Option<Entry>> {
        self.listings.lookup(id, name, || self.entries(id))
    }

    fn link(&self, id: NodeId) -> Result<Vec<u8>> {
        Err(wrong(id, "it is not a link"))
    }

    fn extents(&self, id: NodeId) -> Result<Vec<Extent>> {
        Ok(self.map(id)?.extents.clone())
    }

    fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let map = self.map(id)?;
        extents::read(&*self.disk, &map.extents, map.size, offset, buf)
    }

    fn attributes(&self, _id: NodeId) -> Result<Attributes> {
        Ok(Attributes::default())
    }
}

fn subject(id: NodeId) -> String {
    format!("the node whose entry is at {:#x}", id.0)
}

fn wrong(id: NodeId, why: &str) -> FsError {
    FsError::Wrong { what: format!("fat: {}", subject(id)), why: why.into() }
}
