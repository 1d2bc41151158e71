//! A cache of chunk tables, within a memory budget.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use format::{names, ChunkNo, ContainerEntry, ContainerId, Kind, Owner, Table, WriterNo};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Finds containers of a disk and of the shared set, and their tables.
pub(crate) struct Tables {
    own: Containers,
    shared: Option<Containers>,
    /// Why the shared set cannot be read, where that is so; for `true`, a newer program wrote it.
    shared_fault: Option<(String, bool)>,
    cache: Mutex<Cache>,
}

struct Cache {
    budget: usize,
    used: usize,
    clock: u64,
    /// By container and generation, with when each was used last.
    tables: HashMap<Key, (u64, Arc<Table>)>,
    /// The same by time.
    used_at: BTreeMap<u64, Key>,
}

type Key = (ContainerId, WriterNo);

impl Tables {
    /// Tables of a disk's own containers and of shared ones, of which about `budget` bytes stay in memory.
    pub fn new(own: Containers, shared: Option<Containers>, budget: usize) -> Self {
        let cache = Cache { budget, used: 0, clock: 0, tables: HashMap::new(), used_at: BTreeMap::new() };
        Tables { own, shared, shared_fault: None, cache: Mutex::new(cache) }
    }

    /// The same, with shared containers whose manifest is damaged: who needs one is told so.
    pub fn with_shared_fault(mut self, why: String, newer: bool) -> Self {
        self.shared_fault = Some((why, newer));
        self
    }

    /// Whether what disks share can be read.
    pub fn has_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The folder of a container's owner.
    pub fn folder_of(&self, id: ContainerId) -> &Folder {
        self.containers_of(id).folder()
    }

    fn containers_of(&self, id: ContainerId) -> &Containers {
        match (&self.shared, id.owner()) {
            (Some(s), Owner::Shared | Owner::Popular) => s,
            _ => &self.own,
        }
    }

    /// The entry of a container that a recipe names.
    pub fn entry(&self, id: ContainerId) -> Result<ContainerEntry> {
        if id.owner() != Owner::Disk && self.shared.is_none() {
            let object = names::manifest(&names::folder(Owner::Shared, self.own.folder().disk));
            return Err(match self.shared_fault.clone() {
                Some((why, true)) => VaultError::Newer { object, why },
                Some((why, false)) => VaultError::Corrupt { object, why },
                None => VaultError::Missing { object },
            });
        }
        let containers = self.containers_of(id);
        containers.get(id)?.ok_or_else(|| {
            VaultError::corrupt(&containers.folder().manifest_name(), format!("knows no container {id}"))
        })
    }

    /// The table of a container that a recipe names.
    pub fn get(&self, id: ContainerId) -> Result<Arc<Table>> {
        self.load(&self.entry(id)?)
    }

    /// The table that an entry names.
    pub fn load(&self, entry: &ContainerEntry) -> Result<Arc<Table>> {
        let key = (entry.id, entry.table);
        if let Some(t) = self.cached(key) {
            return Ok(t);
        }
        let table = Arc::new(read_table(self.folder_of(entry.id), entry.id, entry.table)?);
        self.cache.lock().insert(key, &table);
        Ok(table)
    }

    fn cached(&self, key: Key) -> Option<Arc<Table>> {
        self.cache.lock().get(key)
    }
}

impl Cache {
    fn get(&mut self, key: Key) -> Option<Arc<Table>> {
        let (used, table) = self.tables.get_mut(&key)?;
        self.clock += 1;
        self.used_at.remove(used);
        self.used_at.insert(self.clock, key);
        *used = self.clock;
        Some(table.clone())
    }

    /// Adds a table, and takes out those that were not used for longest where there are too many.
    fn insert(&mut self, key: Key, table: &Arc<Table>) {
        if self.get(key).is_some() {
            return;
        }
        self.clock += 1;
        self.used += table.memory_bytes();
        self.tables.insert(key, (self.clock, table.clone()));
        self.used_at.insert(self.clock, key);
        while self.used > self.budget && self.tables.len() > 1 {
            let Some((_, oldest)) = self.used_at.pop_first() else { break };
            if let Some((_, t)) = self.tables.remove(&oldest) {
                self.used -= t.memory_bytes();
            }
        }
    }
}

/// Reads and checks a table.
pub(crate) fn read_table(folder: &Folder, id: ContainerId, generation: WriterNo) -> Result<Table> {
    let name = names::table(&folder.path, id, generation);
    let bytes = folder.store.read(&name, Kind::Table.frame_max()).named()?;
    let table = Table::decode(folder.context(&name), &bytes).map_err(VaultError::malformed(&name))?;
    if table.container != id {
        return Err(VaultError::corrupt(&name, format!("is of container {}", table.container)));
    }
    Ok(table)
}

/// Memory for chunk tables in bytes.
pub(crate) const TABLE_CACHE_BYTES: usize = 32 << 20;

/// Where a chunk is.
pub(crate) type ChunkPlace = (ContainerId, ChunkNo);
