//! Volumes and snapshots are deleted at once, and what they had is freed behind that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use format::pool::{CatalogEntry, CatalogIndex, CatalogState};

use super::Pool;
use crate::catalog::Catalog;
use crate::engine::Urgency;
use crate::error::{PoolError, Result};
use crate::volume::{Volume, VolumeParts};

impl Pool {
    /// Deletes a volume or a snapshot. It is gone when this returns; its blocks are freed behind it.
    pub fn delete(self: &Arc<Self>, name: &str) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let (index, entry) = catalog.get(name)?;
        let snapshots: Vec<_> = catalog.snapshots_of(entry.id).map(|s| s.name.clone()).collect();
        if entry.state == CatalogState::Volume && !snapshots.is_empty() {
            return Err(PoolError::Refused(format!(
                "{name} has snapshots ({}): delete them first",
                snapshots.join(", ")
            )));
        }
        let entry = entry.clone();
        let entry = self.mark_deleted(&mut catalog, index, entry)?;
        drop(catalog);
        self.engine.flush()?;
        self.reap(vec![(index, entry)]);
        Ok(())
    }

    /// Marks a slot that nobody has open: its blocks are to be freed.
    pub(super) fn mark_deleted(
        &self,
        catalog: &mut Catalog,
        index: CatalogIndex,
        mut entry: CatalogEntry,
    ) -> Result<CatalogEntry> {
        entry.state = CatalogState::Deleted;
        entry.fill = None;
        let (slot, page) = catalog.slot(index)?;
        self.check_unused(index, &entry.name)?;
        self.engine.transact(|t| {
            t.set(&page, slot.offset, &entry.encode()[..1]);
            Ok(())
        })?;
        self.origins.lock().remove(&entry.id);
        catalog.put(index, page, entry.clone());
        Ok(entry)
    }

    /// Frees what was deleted, in a thread of its own. Each slot is freed by one thread.
    pub(super) fn reap(self: &Arc<Self>, deleted: Vec<(CatalogIndex, CatalogEntry)>) {
        if deleted.is_empty() {
            return;
        }
        let pool = Arc::downgrade(self);
        let is_closing = Arc::clone(&self.is_closing);
        let reapers = Arc::clone(&self.reapers);
        reapers.fetch_add(1, Ordering::SeqCst);
        self.spawn("pool-reaper", move || {
            reap_all(&pool, &is_closing, deleted);
            reapers.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Forgets what was deleted: a repair frees what nothing else names. So it needs no map that cannot be read.
    pub(crate) fn forget_deleted(&self) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let is_deleted = |entry: &CatalogEntry| entry.state == CatalogState::Deleted;
        let deleted: Vec<_> =
            catalog.entries().filter(|(_, e)| is_deleted(e)).map(|(index, _)| index).collect();
        for index in deleted {
            self.empty_slot(&mut catalog, index)?;
        }
        Ok(())
    }

    fn empty_slot(&self, catalog: &mut Catalog, index: CatalogIndex) -> Result<()> {
        let (slot, page) = catalog.slot(index)?;
        self.engine.transact(|t| {
            t.set(&page, slot.offset, &[0; CatalogEntry::BYTES]);
            Ok(())
        })?;
        catalog.remove(index);
        Ok(())
    }

    fn reap_slot(&self, index: CatalogIndex, entry: &CatalogEntry, is_closing: &AtomicBool) -> Result<()> {
        let (slot, page) = self.catalog.lock().slot(index)?;
        let volume = Volume::new(VolumeParts {
            engine: Arc::clone(&self.engine),
            id: entry.id,
            name: entry.name.clone(),
            catalog: Arc::clone(&page),
            slot,
            sharing: entry.sharing,
            is_snapshot: false,
            urgency: Urgency::Freeing,
            in_flight: Arc::clone(&self.in_flight),
            origin: Arc::default(),
        });
        while volume.reap_step()? {
            if is_closing.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
        self.empty_slot(&mut self.catalog.lock(), index)?;
        self.engine.flush()
    }
}

fn reap_all(pool: &Weak<Pool>, is_closing: &AtomicBool, deleted: Vec<(CatalogIndex, CatalogEntry)>) {
    for (index, entry) in deleted {
        let Some(pool) = pool.upgrade() else { return };
        // The pool failed, and its next call says so; what is left is freed when it is opened again.
        if pool.reap_slot(index, &entry, is_closing).is_err() {
            return;
        }
    }
}
