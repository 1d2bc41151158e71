//! Statistics: stored bytes by disk, and where the newest snapshots lie.

use crate::base::error::{damage_line, Result, UnlessDamaged, VaultError};
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::container_table::Containers;
use crate::manifest::disks::{self, DiskAt};
use crate::manifest::folder::Folder;
use crate::manifest::listing::for_each_object;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::report::layout::{walk, Fragmentation};
use format::{names, ContainerId, OwnerNo};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

    /// All of them.
    pub fn all(&self) -> u64 {
        self.data + self.metadata()
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
    /// Chunks in them that are not known to be dead.
    pub live_chunks: u64,
    /// Stored bytes of dead chunks, estimated from their number.
    pub dead_bytes: u64,
    /// Containers known to be damaged.
    pub damaged: u64,
    /// Containers of other owners that it references.
    pub foreign_containers: u64,
    /// The other owners.
    pub owners: u64,
    /// Objects that wait for readers to end.
    pub released: u64,
}

/// Where the newest snapshot of a disk lies.
#[derive(Clone, Debug, Default)]
pub struct NewestStats {
    /// How it is scattered.
    pub fragmentation: Fragmentation,
    /// Bytes of the disk in its own containers.
    pub own_bytes: u64,
    /// Bytes of the disk in containers of other owners, most first.
    pub taken: Vec<Taken>,
}

/// What a snapshot takes from another owner.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The owner's name; its folder, if that cannot be known.
    pub owner: String,
    /// Bytes of the disk.
    pub bytes: u64,
}

/// The vault, or one disk of it.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// By name.
    pub disks: Vec<DiskStats>,
    /// The popular set.
    pub popular: FolderBytes,
    /// Names, sessions, indexes, `vault.json`; folders of disks that cannot be read.
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

/// How often a disk is counted anew that is changed meanwhile.
const TRIES: usize = 10;

impl Vault {
    /// Statistics of one disk, or of the whole vault. No recipe and no chunk table is read.
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
        let mut sizes = self.sizes(if disk.is_some() { &disks[0].folder.path } else { "" })?;
        for at in &disks {
            stats.damaged.extend(at.name_fault.clone().map(damage_line));
            match disks::unless_gone(self, at, disk_stats(at)) {
                Err(e) if e.is_damage() => stats.damaged.push(e.to_string()),
                read => {
                    let Some(of_disk) = read? else { continue };
                    let bytes = sizes.remove(&at.folder.path).unwrap_or_default();
                    stats.disks.push(DiskStats { bytes, ..of_disk });
                }
            }
        }
        stats.popular = sizes.remove(&self.popular().path).unwrap_or_default();
        stats.other_bytes = sizes.values().map(FolderBytes::all).sum();
        Ok(stats)
    }

    /// Where the newest snapshot of a disk lies; `None` if there is none, or if it is damaged.
    pub fn newest_stats(&self, disk: &str) -> Result<Option<NewestStats>> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let Some(newest) = view.whole()?.newest() else { return Ok(None) };
        let mut by_owner: BTreeMap<OwnerNo, u64> = BTreeMap::new();
        let add = |_, bytes, id: ContainerId| *by_owner.entry(id.owner()).or_default() += bytes;
        let Some(fragmentation) = walk(&view, newest, add).unless_damaged()? else { return Ok(None) };
        let own_bytes = by_owner.remove(&OwnerNo::OWN).unwrap_or_default();
        let mut taken = Vec::new();
        for (no, bytes) in by_owner {
            taken.push(Taken { owner: name_of(&view.tables.other(no)?.folder), bytes });
        }
        taken.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.owner.cmp(&b.owner)));
        Ok(Some(NewestStats { fragmentation, own_bytes, taken }))
    }

    /// Bytes of the objects below `prefix`, by folder; those of no folder under the empty name.
    fn sizes(&self, prefix: &str) -> Result<HashMap<String, FolderBytes>> {
        let mut sizes: HashMap<String, FolderBytes> = HashMap::new();
        for_each_object(&*self.store, prefix, |e| {
            // Holes in data do not count.
            let bytes = if e.name.ends_with(".data") { e.allocated.min(e.len) } else { e.len };
            let folder = names::folder_of(&e.name).unwrap_or_default();
            match sizes.get_mut(folder) {
                Some(of_folder) => of_folder.add(&e.name, bytes),
                None => sizes.entry(folder.to_owned()).or_default().add(&e.name, bytes),
            }
        })?;
        Ok(sizes)
    }
}

/// What an owner is called.
fn name_of(folder: &Folder) -> String {
    if folder.is_popular() {
        return "the popular set".into();
    }
    match folder.load() {
        Ok(m) if m.live().next().is_some() => m.name.clone(),
        Ok(m) => format!("{}, whose snapshots are deleted", m.name),
        Err(_) => folder.path.trim_end_matches('/').into(),
    }
}

/// What the manifest and the container table of a disk say.
fn disk_stats(at: &DiskAt) -> Result<DiskStats> {
    let mut tries = 1;
    loop {
        let m = at.folder.load()?;
        match count(at, &m) {
            // Nothing holds what is read here: a change of the disk may have replaced a page of the table.
            Err(VaultError::Missing { .. }) if tries < TRIES && at.folder.load()?.sequence != m.sequence => {
                tries += 1;
            }
            counted => return counted,
        }
    }
}

fn count(at: &DiskAt, m: &Whole) -> Result<DiskStats> {
    let mut d = DiskStats {
        name: at.name.clone(),
        snapshots: m.live().count() as u64,
        logical_bytes: m.live().map(|s| s.size).sum(),
        nonzero_bytes: m.live().map(|s| s.data_bytes).sum(),
        damaged: m.damaged.len() as u64,
        released: m.released.len() as u64,
        ..DiskStats::default()
    };
    let mut owners = BTreeSet::new();
    Containers::new(at.folder.clone(), m).each(|e| {
        if e.id.is_own() {
            d.containers += 1;
            d.live_chunks += u64::from(e.chunks - e.dead_chunks.min(e.chunks));
            let dead = e.stored_bytes as f64 * f64::from(e.dead_chunks) / f64::from(e.chunks.max(1));
            d.dead_bytes += dead as u64;
        } else {
            d.foreign_containers += 1;
            owners.insert(e.id.owner());
        }
        Ok(())
    })?;
    d.owners = owners.len() as u64;
    Ok(d)
}
