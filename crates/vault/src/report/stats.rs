//! Statistics: stored bytes by disk, and fragmentation of the newest snapshots.

use crate::base::error::UnlessDamaged;
use crate::base::error::{damage_line, Result};
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::container_table::Containers;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use crate::report::layout::{walk, Fragmentation};
use std::collections::BTreeSet;

/// Bytes of a folder's objects by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct FolderBytes {
    /// Containers' data.
    pub data: u64,
    /// Chunk tables.
    pub tables: u64,
    /// Recipes.
    pub recipes: u64,
    /// Manifest, pages of the container table, lists of dead chunks.
    pub other: u64,
}

impl FolderBytes {
    /// All but the data.
    pub fn metadata(&self) -> u64 {
        self.tables + self.recipes + self.other
    }

    fn add(&mut self, name: &str, len: u64) {
        let kind = match name.rsplit('.').next() {
            Some("data") => &mut self.data,
            Some("table") => &mut self.tables,
            Some("root" | "pages") => &mut self.recipes,
            _ => &mut self.other,
        };
        *kind += len;
    }
}

/// One disk.
#[derive(Clone, Debug, Default)]
pub struct DiskStats {
    /// `vm/disk`.
    pub name: String,
    /// Snapshots that users see.
    pub snapshots: u64,
    /// Sizes of the disk over all of them.
    pub logical_bytes: u64,
    /// What of that is not zero.
    pub nonzero_bytes: u64,
    /// Its objects.
    pub bytes: FolderBytes,
    /// Its own containers.
    pub containers: u64,
    /// Containers of other owners that it references.
    pub foreign_containers: u64,
    /// The other owners.
    pub owners: u64,
    /// Chunks in them that are not known to be dead.
    pub live_chunks: u64,
    /// Stored bytes of dead chunks, estimated from their number.
    pub dead_bytes: u64,
    /// Containers known to be damaged.
    pub damaged: u64,
    /// Objects that wait for readers to end.
    pub released: u64,
    /// The newest snapshot's, unless it is damaged.
    pub newest: Option<Fragmentation>,
}

/// The vault.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// By name.
    pub disks: Vec<DiskStats>,
    /// The popular set.
    pub popular: FolderBytes,
    /// Names, sessions, indexes, `vault.json`.
    pub other_bytes: u64,
    /// Damage that kept disks from being counted.
    pub damaged: Vec<String>,
}

impl Stats {
    /// Bytes of containers' data.
    pub fn data_bytes(&self) -> u64 {
        self.popular.data + self.disks.iter().map(|d| d.bytes.data).sum::<u64>()
    }

    /// Bytes of everything else.
    pub fn metadata_bytes(&self) -> u64 {
        self.other_bytes
            + self.popular.metadata()
            + self.disks.iter().map(|d| d.bytes.metadata()).sum::<u64>()
    }
}

impl Vault {
    /// Statistics of one disk, or of the whole vault.
    pub fn stats(&self, disk: Option<&str>) -> Result<Stats> {
        let mut stats = Stats::default();
        let disks = match disk {
            Some(name) => vec![disks::one(self, name)?],
            None => {
                let (disks, nowhere) = disks::all(self)?;
                stats.damaged.extend(nowhere.into_iter().map(damage_line));
                disks
            }
        };
        for at in &disks {
            stats.damaged.extend(at.name_fault.clone().map(damage_line));
            match self.disk_stats(at.name.clone(), &at.folder) {
                Err(e) if e.is_damage() && disks::is_gone(self, at)? => {}
                Err(e) if e.is_damage() => stats.damaged.push(e.to_string()),
                other => stats.disks.push(other?),
            }
        }
        if disk.is_none() {
            let popular = self.popular().path;
            let folders: Vec<&String> = disks.iter().map(|d| &d.folder.path).collect();
            let mut other_bytes = 0;
            self.add_sizes("", &mut |name, bytes| {
                if name.starts_with(&popular) {
                    stats.popular.add(name, bytes);
                } else if !folders.iter().any(|f| name.starts_with(*f)) {
                    other_bytes += bytes;
                }
            })?;
            stats.other_bytes = other_bytes;
        }
        Ok(stats)
    }

    /// Calls `add` with every object and its bytes; holes do not count.
    fn add_sizes(&self, prefix: &str, add: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.store.list(prefix, &mut |e| {
            let bytes = if e.name.ends_with(".data") {
                self.store.allocated(&e.name).unwrap_or(e.len).min(e.len)
            } else {
                e.len
            };
            add(&e.name, bytes);
            Ok(())
        })?;
        Ok(())
    }

    fn disk_stats(&self, name: String, folder: &Folder) -> Result<DiskStats> {
        let view = self.view(folder, TABLE_CACHE_BYTES)?;
        let m = &view.manifest;
        let mut d = DiskStats {
            name,
            snapshots: m.live().count() as u64,
            logical_bytes: m.live().map(|s| s.size).sum(),
            nonzero_bytes: m.live().map(|s| s.data_bytes).sum(),
            damaged: m.damaged.len() as u64,
            released: m.released.len() as u64,
            ..DiskStats::default()
        };
        self.add_sizes(&folder.path, &mut |name, bytes| d.bytes.add(name, bytes))?;
        let mut owners = BTreeSet::new();
        Containers::new(folder.clone(), m).each(|e| {
            if !e.id.is_own() {
                d.foreign_containers += 1;
                owners.insert(e.id.owner());
            }
            if e.id.is_own() {
                d.containers += 1;
                d.live_chunks += u64::from(e.chunks - e.dead_chunks.min(e.chunks));
                let dead = e.stored_bytes as f64 * f64::from(e.dead_chunks) / f64::from(e.chunks.max(1));
                d.dead_bytes += dead as u64;
            }
            Ok(())
        })?;
        d.owners = owners.len() as u64;
        if let Some(newest) = m.newest() {
            // `verify` reports damage; the other numbers are right all the same.
            d.newest = walk(&view, newest, |_, _, _| {}).unless_damaged()?;
        }
        Ok(d)
    }
}
