//! Chunk tables of containers, and a cache of those read last.

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::base::lru::{Lru, SharedLru};
use crate::base::memory::{give_back, Room, KEPT_BYTES};
use crate::base::threads::ahead;
use crate::container::other_owners::{OtherOwner, OtherOwners, OwnerCache, OwnersEntry, LISTINGS_BYTES};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use format::{names, ChunkNo, ContainerEntry, ContainerId, DiskId, Kind, Manifest, OwnerNo, Table, WriterNo};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
use store::StoreError;

/// Tables that are read ahead of their use: a third of the usual cache, in containers of full size.
const AHEAD: usize = 16;
/// Bytes of a table that is read ahead, at most. That of a container of full size takes a third of it.
const AHEAD_BYTES: u64 = 2 << 20;

/// Bytes of tables that stay in memory while a longer one is read.
const BESIDE_LONG_BYTES: usize = 8 << 20;

/// Finds the containers that a disk references, its own and those of other owners, and their tables.
///
/// Another owner's manifest is read when the first of its containers is looked up.
pub(crate) struct Tables {
    own: Containers,
    others: OtherOwners,
    cache: Cache,
}

/// What was read last, of any number of disks: tables, and what other owners list.
#[derive(Clone)]
pub(crate) struct Cache {
    tables: SharedLru<(DiskId, TableName), Arc<Table>>,
    /// Held while a table is read that is longer than most.
    reading: Arc<Mutex<()>>,
    owners: OwnerCache,
    room: Room,
}

/// A table of a container. Compaction writes another one, with groups cut anew: places in one say nothing of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableName {
    pub container: ContainerId,
    pub generation: WriterNo,
}

impl TableName {
    /// The one that an entry names.
    pub fn of(entry: &ContainerEntry) -> TableName {
        TableName { container: entry.id, generation: entry.table }
    }
}

impl Tables {
    /// Tables of the containers that a manifest of this folder lists, of which about `budget` bytes stay in memory.
    ///
    /// With `lease`, other owners are kept from removing what is read.
    pub fn new(folder: &Folder, m: &Manifest, lease: bool, budget: usize) -> Self {
        Tables::with_cache(folder, m, lease, Cache::new(budget))
    }

    /// The same, of which some may have been read before. The disk never calls another container by the same id.
    pub fn with_cache(folder: &Folder, m: &Manifest, lease: bool, cache: Cache) -> Self {
        Tables {
            own: Containers::new(folder.clone(), m),
            others: OtherOwners::new(folder, m, lease, cache.owners.clone()),
            cache,
        }
    }

    /// What was read last.
    pub fn into_cache(self) -> Cache {
        self.cache
    }

    /// Keeps a table of the disk's own that was just written.
    pub fn keep(&self, generation: WriterNo, table: Table) {
        self.cache.keep(self.own.folder().disk, generation, table);
    }

    /// The disk's own containers.
    pub fn own(&self) -> &Containers {
        &self.own
    }

    /// The number by which the disk counts an owner: a new one, if it does not count it yet. `None` if it counts too many.
    pub fn count_owner(&self, disk: DiskId) -> Option<OwnerNo> {
        self.others.count(disk)
    }

    /// The other owners that the disk counts.
    pub fn owners(&self) -> Vec<DiskId> {
        self.others.disks()
    }

    /// Another owner of containers that the disk references.
    pub fn other(&self, no: OwnerNo) -> Result<Arc<OtherOwner>> {
        self.others.get(no)
    }

    /// Stops where the lease of a reader of another owner has lapsed.
    pub fn check(&self) -> Result<()> {
        self.others.check()
    }

    /// Whether what is missing or wrong of other owners may have been deleted while it was read.
    pub fn may_have_lost(&self) -> bool {
        self.others.may_have_lost()
    }

    /// Whether another owner was looked up and could not be read.
    pub fn is_unreadable(&self, no: OwnerNo) -> bool {
        self.others.is_unreadable(no)
    }

    /// Whether a container is known to be damaged, or what its owner's manifest says of it is. `own_damaged` are those of
    /// the disk itself.
    pub fn is_damaged(&self, id: ContainerId, own_damaged: &HashSet<ContainerId>) -> Result<bool> {
        if id.is_own() {
            return Ok(own_damaged.contains(&id));
        }
        let found = self.others.entry(id).unless_damaged()?;
        Ok(found.is_none_or(|found| found.is_damaged || found.entry.is_none()))
    }

    /// Whether another owner lists a container as damaged.
    pub fn others_list(&self, id: ContainerId) -> bool {
        self.others.list(id)
    }

    /// The folder of a container's owner; that of the disk, where it counts no such owner.
    pub fn folder_of(&self, id: ContainerId) -> Folder {
        let own = self.own.folder();
        self.others.disk(id.owner()).map_or_else(|| own.clone(), |disk| own.of(disk))
    }

    /// The entry of a container that a recipe names.
    pub fn entry(&self, id: ContainerId) -> Result<ContainerEntry> {
        let unknown = |folder: &Folder| {
            VaultError::corrupt(&folder.manifest_name(), format!("knows no container {id}"))
        };
        if id.is_own() {
            return self.own.get(id)?.ok_or_else(|| unknown(self.own.folder()));
        }
        let OwnersEntry { owner, entry, .. } = self.others.entry(id)?;
        Ok(ContainerEntry { id, ..entry.ok_or_else(|| unknown(&owner.folder))? })
    }

    /// The table of a container that a recipe names, as its owner has it now.
    pub fn get(&self, id: ContainerId) -> Result<Arc<Table>> {
        match self.load(&self.entry(id)?) {
            // Its owner has written the container again since its manifest was read, and nobody holds the old one here.
            Err(VaultError::Missing { .. }) if !id.is_own() && self.others.ask_again(id)? => {
                self.load(&self.entry(id)?)
            }
            table => table,
        }
    }

    /// The table that an entry names.
    pub fn load(&self, entry: &ContainerEntry) -> Result<Arc<Table>> {
        self.named(TableName::of(entry))
    }

    /// The table of a name. A reader keeps it, whatever its container's owner does.
    pub fn named(&self, name: TableName) -> Result<Arc<Table>> {
        let key = (self.own.folder().disk, name);
        // Not locked while the table is read.
        let known = self.cache.tables.lock().get(&key);
        if let Some(table) = known {
            return Ok(table);
        }
        let TableName { container, generation } = name;
        let folder = self.folder_of(container);
        let bytes = match folder.store.read(&names::table(&folder.path, container, generation), AHEAD_BYTES) {
            Err(StoreError::TooLong { .. }) => return self.read_long(&folder, name),
            bytes => bytes.named()?,
        };
        let table = Arc::new(decode_table(&folder, container, generation, &bytes)?);
        self.cache.tables.lock().insert(key, table.clone(), table.memory_bytes());
        Ok(table)
    }

    /// Reads a table that is longer than most: one at a time, or each thread that needs another one would take 48 MiB.
    fn read_long(&self, folder: &Folder, name: TableName) -> Result<Arc<Table>> {
        let _alone = self.cache.reading.lock();
        let key = (self.own.folder().disk, name);
        // Another thread may have read it meanwhile.
        let known = self.cache.tables.lock().get(&key);
        if let Some(table) = known {
            return Ok(table);
        }
        self.cache.tables.lock().shrink_to(BESIDE_LONG_BYTES);
        // Its bytes, and what they are decoded to.
        let _room = self.cache.room.take(2 * Kind::Table.frame_max());
        let table = Arc::new(read_table(folder, name.container, name.generation)?);
        let memory = table.memory_bytes();
        let removed = self.cache.tables.lock().insert(key, table.clone(), memory);
        if memory + removed > KEPT_BYTES {
            give_back();
        }
        Ok(table)
    }

    /// Reads the tables of the first of these containers, several at a time, unless they are in memory. Returns how many
    /// containers these were. What is wrong with one is told to who asks for it.
    fn load_ahead<K: TableKey>(&self, keys: &[K]) -> usize {
        let keys = &keys[..keys.len().min(AHEAD)];
        ahead(keys, |key| drop(self.read_ahead(*key)));
        keys.len()
    }

    /// Reads a table, unless it is longer than most. One is decoded at a time: it may take any memory that a table may.
    fn read_ahead(&self, wanted: impl TableKey) -> Result<()> {
        let name = wanted.name(self)?;
        let key = (self.own.folder().disk, name);
        if self.cache.tables.lock().get(&key).is_none() {
            let TableName { container, generation } = name;
            let folder = self.folder_of(container);
            let bytes = table_bytes(&folder, container, generation, AHEAD_BYTES)?;
            let mut cached = self.cache.tables.lock();
            let table = decode_table(&folder, container, generation, &bytes)?;
            let memory = table.memory_bytes();
            cached.insert(key, Arc::new(table), memory);
        }
        Ok(())
    }
}

/// What a table is asked for by: its container, or its name.
pub(crate) trait TableKey: Copy + Eq + Hash + Sync {
    /// The table that is meant.
    fn name(self, tables: &Tables) -> Result<TableName>;
}

impl TableKey for ContainerId {
    fn name(self, tables: &Tables) -> Result<TableName> {
        Ok(TableName::of(&tables.entry(self)?))
    }
}

impl TableKey for TableName {
    fn name(self, _: &Tables) -> Result<TableName> {
        Ok(self)
    }
}

/// Tables in the order in which they are asked for first, read some at a time ahead of that.
pub(crate) struct TablesAhead<'a, K> {
    pub tables: &'a Tables,
    keys: Vec<K>,
    next: usize,
    /// The one that was asked for last: runs of one container follow each other.
    last: Option<(K, TableName, Arc<Table>)>,
}

impl<'a, K: TableKey> TablesAhead<'a, K> {
    /// Those of these containers. One may be named several times.
    pub fn new(tables: &'a Tables, keys: impl Iterator<Item = K>) -> Self {
        let mut seen = HashSet::new();
        TablesAhead { tables, keys: keys.filter(|key| seen.insert(*key)).collect(), next: 0, last: None }
    }

    /// The table that is meant, and its name.
    pub fn get(&mut self, key: K) -> Result<(TableName, Arc<Table>)> {
        if let Some((_, name, table)) = self.last.as_ref().filter(|last| last.0 == key) {
            return Ok((*name, table.clone()));
        }
        if self.keys.get(self.next) == Some(&key) {
            self.last = None;
            self.next += self.tables.load_ahead(&self.keys[self.next..]);
        }
        let name = key.name(self.tables)?;
        let table = self.tables.named(name)?;
        self.last = Some((key, name, table.clone()));
        Ok((name, table))
    }
}

impl Cache {
    /// One that keeps about so many bytes of tables.
    pub fn new(budget: usize) -> Cache {
        Cache::with_budgets(budget, LISTINGS_BYTES)
    }

    /// The same, and about so many bytes of what other owners list.
    pub fn with_budgets(tables: usize, listings: usize) -> Cache {
        Cache::beside(tables, listings, Room::default())
    }

    /// The same beside other caches.
    pub fn beside(tables: usize, listings: usize, room: Room) -> Cache {
        let tables = Arc::new(Mutex::new(Lru::new(tables)));
        let owners = OwnerCache::new(listings, room.clone());
        Cache { tables, reading: Arc::default(), owners, room }
    }

    /// Keeps a table that was just written, unless it is longer than most.
    pub fn keep(&self, disk: DiskId, generation: WriterNo, table: Table) {
        let memory = table.memory_bytes();
        if memory as u64 <= AHEAD_BYTES {
            let name = TableName { container: table.container, generation };
            self.tables.lock().insert((disk, name), Arc::new(table), memory);
        }
    }

    /// Memory that tables take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tables.lock().used()
    }

    /// Forgets all tables.
    pub fn clear(&self) {
        self.tables.lock().shrink_to(0);
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
