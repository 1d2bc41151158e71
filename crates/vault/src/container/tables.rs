//! Chunk tables of containers, and a cache of those read last.

use crate::base::error::{Named, Result, VaultError};
use crate::base::lru::Lru;
use crate::base::threads::ahead;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::reader::{Reader, ReaderLease};
use format::{names, ChunkNo, ContainerEntry, ContainerId, DiskId, Kind, Manifest, OwnerNo, Table, WriterNo};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Tables that are read ahead of their use: a third of the usual cache, in containers of full size.
const AHEAD: usize = 16;
/// Bytes of a table that is read ahead, at most. That of a container of full size takes a third of it.
const AHEAD_BYTES: u64 = 2 << 20;

/// Finds the containers that a disk references, its own and those of other owners, and their tables.
///
/// Another owner's manifest is read when the first of its containers is looked up.
pub(crate) struct Tables {
    own: Containers,
    /// Whether readers are held on other owners, so that nothing of theirs goes as long as this lives.
    hold: bool,
    owners: Mutex<Owners>,
    cache: Cache,
}

/// The other owners, as the disk counts them.
struct Owners {
    disks: Vec<DiskId>,
    /// Each is opened by the first who asks for it; others need not wait for that.
    opened: HashMap<OwnerNo, Opened>,
    /// Those without a manifest: there may be hundreds of thousands.
    missing: HashSet<OwnerNo>,
}

type Opened = Arc<Mutex<Option<std::result::Result<Arc<OtherOwner>, Fault>>>>;

/// Another owner, as its manifest was when the first of its containers was looked up.
pub(crate) struct OtherOwner {
    pub folder: Folder,
    pub containers: Containers,
    /// Its containers that were found damaged.
    pub damaged: HashSet<ContainerId>,
    /// None where nothing is held.
    reader: Option<ReaderLease>,
    /// Which manifest was read.
    sequence: u64,
}

/// Why another owner's containers cannot be found.
#[derive(Clone)]
enum Fault {
    Missing(String),
    Corrupt { object: String, why: String },
    Newer { object: String, why: String },
}

impl Fault {
    fn of(e: VaultError) -> Result<Fault> {
        match e {
            VaultError::Missing { object } => Ok(Fault::Missing(object)),
            VaultError::Corrupt { object, why } => Ok(Fault::Corrupt { object, why }),
            VaultError::Newer { object, why } => Ok(Fault::Newer { object, why }),
            e => Err(e),
        }
    }

    fn into_error(self) -> VaultError {
        match self {
            Fault::Missing(object) => VaultError::Missing { object },
            Fault::Corrupt { object, why } => VaultError::Corrupt { object, why },
            Fault::Newer { object, why } => VaultError::Newer { object, why },
        }
    }
}

/// Tables that were read last, of any number of disks.
#[derive(Clone)]
pub(crate) struct Cache(Arc<Mutex<Lru<Key, Arc<Table>>>>);

/// The disk that names the container, the container, and its table's generation.
type Key = (DiskId, ContainerId, WriterNo);

impl Tables {
    /// Tables of the containers that a manifest of this folder lists, of which about `budget` bytes stay in memory.
    ///
    /// With `hold`, other owners are kept from removing what is read.
    pub fn new(folder: &Folder, m: &Manifest, hold: bool, budget: usize) -> Self {
        Tables::with_cache(folder, m, hold, Cache::new(budget))
    }

    /// The same, of which some may have been read before. The disk never calls another container by the same id.
    pub fn with_cache(folder: &Folder, m: &Manifest, hold: bool, cache: Cache) -> Self {
        Tables {
            own: Containers::new(folder.clone(), m),
            hold,
            owners: Mutex::new(Owners {
                disks: m.owners.clone(),
                opened: HashMap::new(),
                missing: HashSet::new(),
            }),
            cache,
        }
    }

    /// Those that were read last.
    pub fn into_cache(self) -> Cache {
        self.cache
    }

    /// The disk's own containers.
    pub fn own(&self) -> &Containers {
        &self.own
    }

    /// The number by which the disk counts an owner: a new one, if it does not count it yet. `None` if it counts too many.
    pub fn count_owner(&self, disk: DiskId) -> Option<OwnerNo> {
        if disk == self.own.folder().disk {
            return Some(OwnerNo::OWN);
        }
        let disks = &mut self.owners.lock().disks;
        let at = disks.iter().position(|d| *d == disk).unwrap_or(disks.len());
        let no = Some(OwnerNo(at as u32 + 1)).filter(|no| *no < OwnerNo::MAX)?;
        if at == disks.len() {
            disks.push(disk);
        }
        Some(no)
    }

    /// The other owners that the disk counts.
    pub fn owners(&self) -> Vec<DiskId> {
        self.owners.lock().disks.clone()
    }

    /// The other owners whose containers have been looked up.
    pub fn opened(&self) -> Vec<Arc<OtherOwner>> {
        let opened: Vec<Opened> = self.owners.lock().opened.values().cloned().collect();
        opened.iter().filter_map(|o| o.lock().as_ref()?.as_ref().ok().cloned()).collect()
    }

    /// Another owner of containers that the disk references.
    pub fn other(&self, no: OwnerNo) -> Result<Arc<OtherOwner>> {
        let mut owners = self.owners.lock();
        let Some(disk) = no.0.checked_sub(1).and_then(|n| owners.disks.get(n as usize).copied()) else {
            let why = format!("has no owner of number {}", no.0);
            return Err(VaultError::corrupt(&self.own.folder().manifest_name(), why));
        };
        let folder = self.own.folder().of(disk);
        let manifest = folder.manifest_name();
        if owners.missing.contains(&no) {
            return Err(VaultError::Missing { object: manifest });
        }
        let opened = owners.opened.entry(no).or_default().clone();
        // Nobody waits for an owner with the lock of all of them.
        drop(owners);
        let mut opened = opened.lock();
        let known = match &mut *opened {
            Some(known) => known,
            none => none.insert(match OtherOwner::open(folder, self.hold) {
                Ok(other) => Ok(Arc::new(other)),
                Err(VaultError::Missing { object }) if object == manifest => {
                    let mut owners = self.owners.lock();
                    owners.opened.remove(&no);
                    owners.missing.insert(no);
                    return Err(VaultError::Missing { object });
                }
                Err(e) => Err(Fault::of(e)?),
            }),
        };
        known.clone().map_err(Fault::into_error)
    }

    /// Whether another owner was looked up and could not be read.
    pub fn is_unreadable(&self, no: OwnerNo) -> bool {
        let owners = self.owners.lock();
        if owners.missing.contains(&no) {
            return true;
        }
        let opened = owners.opened.get(&no).cloned();
        drop(owners);
        opened.is_some_and(|opened| opened.lock().as_ref().is_some_and(std::result::Result::is_err))
    }

    /// What the table of another owner says of a container. Where nobody holds that table, a change of the owner may have
    /// replaced a page of it since its manifest was read: then it is read anew.
    fn entry_of_other(&self, id: ContainerId) -> Result<(Arc<OtherOwner>, Option<ContainerEntry>)> {
        let other = self.other(id.owner())?;
        match other.containers.get(id.local()) {
            Err(VaultError::Missing { .. }) if other.may_have_lost() => {
                self.owners.lock().opened.remove(&id.owner());
                let other = self.other(id.owner())?;
                let entry = other.containers.get(id.local())?;
                Ok((other, entry))
            }
            entry => Ok((other, entry?)),
        }
    }

    /// Whether a container is known to be damaged, or what its owner's manifest says of it is. `own_damaged` are those of
    /// the disk itself.
    pub fn is_damaged(&self, id: ContainerId, own_damaged: &HashSet<ContainerId>) -> Result<bool> {
        if id.is_own() {
            return Ok(own_damaged.contains(&id));
        }
        match self.entry_of_other(id) {
            Err(e) if e.is_damage() => Ok(true),
            found => {
                let (other, entry) = found?;
                Ok(entry.is_none() || other.damaged.contains(&id.local()))
            }
        }
    }

    /// The folder of a container's owner; that of the disk, where it counts no such owner.
    pub fn folder_of(&self, id: ContainerId) -> Folder {
        let own = self.own.folder();
        match id.owner().0.checked_sub(1) {
            None => own.clone(),
            Some(n) => self.owners.lock().disks.get(n as usize).map_or_else(|| own.clone(), |d| own.of(*d)),
        }
    }

    /// The entry of a container that a recipe names.
    pub fn entry(&self, id: ContainerId) -> Result<ContainerEntry> {
        let unknown = |folder: &Folder| {
            VaultError::corrupt(&folder.manifest_name(), format!("knows no container {id}"))
        };
        if id.is_own() {
            return self.own.get(id)?.ok_or_else(|| unknown(self.own.folder()));
        }
        let (other, entry) = self.entry_of_other(id)?;
        Ok(ContainerEntry { id, ..entry.ok_or_else(|| unknown(&other.folder))? })
    }

    /// The table of a container that a recipe names.
    pub fn get(&self, id: ContainerId) -> Result<Arc<Table>> {
        self.load(&self.entry(id)?)
    }

    /// The table that an entry names.
    pub fn load(&self, entry: &ContainerEntry) -> Result<Arc<Table>> {
        let key = (self.own.folder().disk, entry.id, entry.table);
        // Not locked while the table is read.
        let known = self.cache.0.lock().get(&key);
        if let Some(table) = known {
            return Ok(table);
        }
        let table = Arc::new(read_table(&self.folder_of(entry.id), entry.id, entry.table)?);
        self.cache.0.lock().insert(key, table.clone(), table.memory_bytes());
        Ok(table)
    }

    /// Reads the tables of the first of these containers, several at a time, unless they are in memory. Returns how many
    /// containers these were. What is wrong with one is told to who asks for it.
    pub fn load_ahead(&self, ids: &[ContainerId]) -> usize {
        let ids = &ids[..ids.len().min(AHEAD)];
        ahead(ids, |id| drop(self.read_ahead(*id)));
        ids.len()
    }

    /// Reads a table, unless it is longer than most. One is decoded at a time: it may take any memory that a table may.
    fn read_ahead(&self, id: ContainerId) -> Result<()> {
        let entry = self.entry(id)?;
        let key = (self.own.folder().disk, id, entry.table);
        if self.cache.0.lock().get(&key).is_none() {
            let folder = self.folder_of(id);
            let bytes = table_bytes(&folder, id, entry.table, AHEAD_BYTES)?;
            let mut cached = self.cache.0.lock();
            let table = decode_table(&folder, id, entry.table, &bytes)?;
            let memory = table.memory_bytes();
            cached.insert(key, Arc::new(table), memory);
        }
        Ok(())
    }
}

impl OtherOwner {
    fn open(folder: Folder, hold: bool) -> Result<OtherOwner> {
        let (reader, manifest) =
            if hold { Reader::open(&folder)?.into_parts() } else { (None, Arc::new(folder.load()?)) };
        let containers = Containers::new(folder.clone(), &manifest);
        let damaged = manifest.damaged.iter().copied().collect();
        Ok(OtherOwner { folder, containers, damaged, reader, sequence: manifest.sequence })
    }

    /// Whether what is missing may have been removed while it was read.
    pub fn may_have_lost(&self) -> bool {
        self.reader.is_none() && self.folder.load().map_or(true, |m| m.sequence != self.sequence)
    }

    /// Stops where its reader's lease has lapsed.
    pub fn check(&self) -> Result<()> {
        self.reader.as_ref().map_or(Ok(()), ReaderLease::check)
    }
}

/// Tables in the order in which they are asked for first, read some at a time ahead of that.
pub(crate) struct TablesAhead<'a> {
    pub tables: &'a Tables,
    ids: Vec<ContainerId>,
    next: usize,
}

impl<'a> TablesAhead<'a> {
    /// Those of these containers. One may be named several times.
    pub fn new(tables: &'a Tables, ids: impl Iterator<Item = ContainerId>) -> Self {
        let mut seen = HashSet::new();
        TablesAhead { tables, ids: ids.filter(|id| seen.insert(*id)).collect(), next: 0 }
    }

    /// The table of a container that a recipe names.
    pub fn get(&mut self, id: ContainerId) -> Result<Arc<Table>> {
        if self.ids.get(self.next) == Some(&id) {
            self.next += self.tables.load_ahead(&self.ids[self.next..]);
        }
        self.tables.get(id)
    }
}

impl Cache {
    /// One that keeps about so many bytes.
    pub fn new(budget: usize) -> Cache {
        Cache(Arc::new(Mutex::new(Lru::new(budget))))
    }
}

/// Reads and checks a table. It says whose the container is as `id` does.
pub(crate) fn read_table(folder: &Folder, id: ContainerId, generation: WriterNo) -> Result<Table> {
    let bytes = table_bytes(folder, id, generation, Kind::Table.frame_max())?;
    decode_table(folder, id, generation, &bytes)
}

fn table_bytes(folder: &Folder, id: ContainerId, generation: WriterNo, max: u64) -> Result<Vec<u8>> {
    folder.store.read(&names::table(&folder.path, id, generation), max).named()
}

fn decode_table(folder: &Folder, id: ContainerId, generation: WriterNo, bytes: &[u8]) -> Result<Table> {
    let name = names::table(&folder.path, id, generation);
    let table = Table::decode(folder.context(&name), bytes).map_err(VaultError::malformed(&name))?;
    if table.container != id.local() {
        return Err(VaultError::corrupt(&name, format!("is of container {}", table.container)));
    }
    Ok(Table { container: id, ..table })
}

/// Memory for chunk tables in bytes.
pub(crate) const TABLE_CACHE_BYTES: usize = 32 << 20;

/// Where a chunk is.
pub(crate) type ChunkPlace = (ContainerId, ChunkNo);
