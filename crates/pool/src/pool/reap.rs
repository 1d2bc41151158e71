//! Volumes and snapshots are deleted at once, and what they had is freed behind that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use format::pool::{CatalogEntry, CatalogIndex, CatalogState};
use parking_lot::Mutex;

use super::deleted::{Deleted, Next, Reaper};
use super::Pool;
use crate::catalog::Catalog;
use crate::engine::Urgency;
use crate::error::{PoolError, Result};
use crate::volume::{Volume, VolumeParts};

/// Steps of one volume before it is the turn of the next: small ones do not wait for large ones.
const STEPS_AT_ONCE: usize = 64;

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

    /// Frees what was deleted, in a thread.
    pub(super) fn reap(self: &Arc<Self>, deleted: Vec<Deleted>) {
        let mut reaper = self.reaper.lock();
        if reaper.needs_thread(deleted) {
            let (pool, is_closing) = (Arc::downgrade(self), Arc::clone(&self.is_closing));
            let queue = Arc::clone(&self.reaper);
            // Where there is no thread, the next deletion tries again.
            let is_there = self.spawn("pool-reaper", move || free_all(&pool, &is_closing, &queue));
            reaper.set_at_work(is_there);
        }
    }

    /// Whether blocks of what was deleted are to be freed.
    pub(crate) fn is_reaping(&self) -> bool {
        self.reaper.lock().has_work()
    }

    /// Starts the thread that frees them, if it could not be started before.
    pub(crate) fn go_on_reaping(self: &Arc<Self>) {
        self.reap(Vec::new());
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

    /// Frees some blocks of a deleted volume. Returns whether it is gone.
    fn free_some(&self, (index, entry): &Deleted, is_closing: &AtomicBool) -> Result<bool> {
        let (slot, page) = self.catalog.lock().slot(*index)?;
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
        for _ in 0..STEPS_AT_ONCE {
            if is_closing.load(Ordering::SeqCst) {
                break;
            }
            if !volume.reap_step()? {
                self.empty_slot(&mut self.catalog.lock(), *index)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Frees what waits, until nothing does or the pool ends: then the rest is freed when it is opened again.
fn free_all(pool: &Weak<Pool>, is_closing: &AtomicBool, queue: &Mutex<Reaper>) {
    loop {
        let Some(next) = queue.lock().next() else { return };
        let Some(pool) = pool.upgrade().filter(|_| !is_closing.load(Ordering::SeqCst)) else { break };
        let done = match &next {
            Next::Free(deleted) => pool.free_some(deleted, is_closing),
            Next::Flush => pool.engine.flush().map(|()| true),
        };
        match done {
            Ok(is_gone) => queue.lock().done(next, is_gone),
            // The pool failed, and its next call says so.
            Err(_) if pool.engine.check_alive().is_err() => break,
            // One whose map is damaged keeps what it has, until a repair.
            Err(_) if matches!(next, Next::Free(_)) => {}
            Err(_) => break,
        }
    }
    queue.lock().set_at_work(false);
}
