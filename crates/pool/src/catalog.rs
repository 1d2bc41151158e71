//! The volumes and snapshots of a pool.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use format::pool::{
    CatalogEntry, CatalogIndex, CatalogState, MapRoot, PageKind, PoolBlock, Slot, VolumeId,
    CATALOG_NAME_BYTES_MAX,
};

use crate::engine::{Engine, Page, Urgency};
use crate::error::{PoolError, Result};

/// What is in the slots of the catalog. Roots and levels change behind it: the pages tell those.
pub(crate) struct Catalog {
    engine: Arc<Engine>,
    /// Pages that have a slot in use: they stay in memory.
    pages: BTreeMap<PoolBlock, Arc<Page>>,
    entries: BTreeMap<CatalogIndex, CatalogEntry>,
    /// The slots by their ids.
    slots: HashMap<VolumeId, CatalogIndex>,
    /// Counts changes.
    generation: u64,
}

impl Catalog {
    /// Reads the catalog.
    pub fn read(engine: Arc<Engine>) -> Result<Self> {
        let mut catalog = Catalog {
            engine,
            pages: BTreeMap::new(),
            entries: BTreeMap::new(),
            slots: HashMap::new(),
            generation: 0,
        };
        for index in (0..catalog.engine.geometry.catalog_slots()).map(CatalogIndex) {
            let slot = catalog.engine.geometry.catalog_slot(index);
            let page = catalog.engine.page(slot.page, PageKind::Catalog)?;
            let entry = CatalogEntry::decode(&page.array(slot.offset)).map_err(|why| {
                let what = format!("slot {index} of the catalog of {}", catalog.engine.location());
                PoolError::damaged(what, why)
            })?;
            if let Some(entry) = entry {
                catalog.pages.insert(slot.page, page);
                catalog.slots.insert(entry.id, index);
                catalog.entries.insert(index, entry);
            }
        }
        Ok(catalog)
    }

    /// All slots in use, with roots and levels of when the pool was opened.
    pub fn entries(&self) -> impl Iterator<Item = (CatalogIndex, &CatalogEntry)> {
        self.entries.iter().map(|(index, entry)| (*index, entry))
    }

    /// The full name of an entry.
    pub fn full_name(&self, entry: &CatalogEntry) -> String {
        match (entry.state, entry.origin) {
            (CatalogState::Snapshot, Some(volume)) => {
                let volume = self.entries.values().find(|e| e.id == volume);
                format!("{}@{}", volume.map_or("?", |e| &e.name), entry.name)
            }
            _ => entry.name.clone(),
        }
    }

    /// Whether the file system made it: such volumes have no name that a command takes.
    pub fn is_of_files(&self, entry: &CatalogEntry) -> bool {
        entry.state == CatalogState::Volume && entry.name.starts_with(FILES_MARK)
    }

    /// The slot of a volume with an id.
    pub fn find_id(&self, id: VolumeId) -> Option<(CatalogIndex, &CatalogEntry)> {
        self.find_any(id).filter(|(_, entry)| entry.state == CatalogState::Volume)
    }

    /// The slot of a volume or a snapshot with an id.
    pub fn find_any(&self, id: VolumeId) -> Option<(CatalogIndex, &CatalogEntry)> {
        let index = *self.slots.get(&id)?;
        let entry = self.entries.get(&index)?;
        (entry.state != CatalogState::Deleted).then_some((index, entry))
    }

    /// The root that a slot has now; it is in memory.
    pub fn root(&self, index: CatalogIndex) -> Option<MapRoot> {
        let slot = self.engine.geometry.catalog_slot(index);
        let page = self.pages.get(&slot.page)?;
        Some(MapRoot::read(&page.array::<{ CatalogEntry::BYTES }>(slot.offset)))
    }

    /// How many slots are empty.
    pub fn vacancies(&self) -> u64 {
        u64::from(self.engine.geometry.catalog_slots()) - self.entries.len() as u64
    }

    /// The slot with a full name.
    pub fn find(&self, name: &str) -> Option<(CatalogIndex, &CatalogEntry)> {
        self.entries()
            .find(|(_, entry)| entry.state != CatalogState::Deleted && self.full_name(entry) == name)
    }

    /// The same, or an error that says so.
    pub fn get(&self, name: &str) -> Result<(CatalogIndex, &CatalogEntry)> {
        self.find(name).ok_or_else(|| {
            PoolError::NotFound(format!(
                "{}: there is no {name}; `volume list` tells what there is",
                self.engine.location()
            ))
        })
    }

    /// Fails where something has a name.
    pub fn check_free(&self, name: &str) -> Result<()> {
        match self.find(name) {
            Some(_) => Err(PoolError::Refused(format!("there is a volume {name} already"))),
            None => Ok(()),
        }
    }

    /// Whether a snapshot was made of a volume.
    pub fn snapshots_of(&self, volume: VolumeId) -> impl Iterator<Item = &CatalogEntry> {
        self.entries.values().filter(move |e| e.state == CatalogState::Snapshot && e.origin == Some(volume))
    }

    /// A slot, and its page.
    pub fn slot(&self, index: CatalogIndex) -> Result<(Slot, Arc<Page>)> {
        let slot = self.engine.geometry.catalog_slot(index);
        Ok((slot, self.engine.page(slot.page, PageKind::Catalog)?))
    }

    /// A slot that nothing is in, and an id that nothing has.
    pub fn vacant(&self) -> Result<(CatalogIndex, VolumeId)> {
        let index = (0..self.engine.geometry.catalog_slots())
            .map(CatalogIndex)
            .find(|index| !self.entries.contains_key(index))
            .ok_or(PoolError::CatalogFull)?;
        loop {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes)
                .map_err(|e| PoolError::Refused(format!("the system gives no random numbers: {e}")))?;
            let id = VolumeId(u32::from_le_bytes(bytes));
            if id.0 != 0 && !self.slots.contains_key(&id) {
                return Ok((index, id));
            }
        }
    }

    /// Notes what a slot holds from now on.
    pub fn put(&mut self, index: CatalogIndex, page: Arc<Page>, entry: CatalogEntry) {
        self.pages.insert(page.block, page);
        self.slots.insert(entry.id, index);
        self.entries.insert(index, entry);
        self.generation += 1;
    }

    /// Notes that a slot is empty.
    pub fn remove(&mut self, index: CatalogIndex) {
        if let Some(entry) = self.entries.remove(&index) {
            self.slots.remove(&entry.id);
        }
        self.generation += 1;
    }

    /// Another one whenever volumes, snapshots or their modes have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// What the names of the file system's volumes begin with; no other name may.
pub(crate) const FILES_MARK: char = '#';
/// The name of the volume with the file system's table of names.
pub(crate) const NAMES_VOLUME: &str = "#names";

/// The table of names may take the last blocks.
pub(crate) fn urgency_of(entry: &CatalogEntry) -> Urgency {
    if entry.name == NAMES_VOLUME {
        Urgency::Freeing
    } else {
        Urgency::Usual
    }
}

/// Refuses names that a command line or a URL would not carry.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_fine = |c: char| c.is_alphanumeric() || "._-/+:".contains(c);
    let wrong = if name.is_empty() || name.len() > CATALOG_NAME_BYTES_MAX {
        format!("a name has 1 to {CATALOG_NAME_BYTES_MAX} bytes")
    } else if name.starts_with(['-', '/']) || name.ends_with('/') {
        "a name begins with neither - nor /, and does not end with /".into()
    } else if let Some(c) = name.chars().find(|c| !is_fine(*c)) {
        format!("a name has letters, digits and . _ - / + : only, not {c:?}")
    } else {
        return Ok(());
    };
    Err(PoolError::Invalid(format!("{name:?}: {wrong}")))
}
