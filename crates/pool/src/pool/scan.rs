//! The thread that shares blocks in the background, and its steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use format::pool::{CatalogState, VolumeId};

use super::{Pool, SCANNER};
use crate::engine::Urgency;
use crate::error::Result;
use crate::share::{Holder, Scan, ScanStep, Scanning};
use crate::volume::{Volume, VolumeParts};

impl Pool {
    /// Goes on with sharing blocks in the background, until about `budget` blocks were read or a scan has ended. The pool's
    /// own thread calls this; it may be called as well where there is none.
    pub fn scan_step(&self, budget: u64) -> Result<ScanStep> {
        let mut scanner = self.scanner.lock();
        let (holders, generation) = self.holders()?;
        let scan = Scan::new(&self.engine, &self.in_flight, &holders, generation, &self.scan_counters);
        scanner.step(&scan, budget)
    }

    /// All that may name blocks, with the generation of the catalog.
    pub(crate) fn holders(&self) -> Result<(Vec<Holder>, u64)> {
        let catalog = self.catalog.lock();
        let holders = catalog
            .entries()
            .map(|(index, entry)| {
                let (slot, page) = catalog.slot(index)?;
                // Not an opened volume: that could not be deleted meanwhile.
                let volume = Volume::new(VolumeParts {
                    engine: Arc::clone(&self.engine),
                    id: entry.id,
                    name: entry.name.clone(),
                    catalog: page,
                    slot,
                    sharing: entry.sharing,
                    is_snapshot: entry.state == CatalogState::Snapshot,
                    urgency: Urgency::Usual,
                    in_flight: Arc::clone(&self.in_flight),
                    origin: Arc::default(),
                });
                let is_deleted = entry.state == CatalogState::Deleted;
                let (id, origin, sharing) = (entry.id, entry.origin, entry.sharing);
                Ok(Holder { volume, id, origin, sharing, is_deleted })
            })
            .collect::<Result<_>>()?;
        Ok((holders, catalog.generation()))
    }

    /// Whether a volume or a snapshot is there, and not being deleted.
    pub(crate) fn has_volume(&self, id: VolumeId) -> bool {
        let catalog = self.catalog.lock();
        let mut entries = catalog.entries();
        entries.any(|(_, entry)| entry.id == id && entry.state != CatalogState::Deleted)
    }

    /// Starts the thread, if it is wanted.
    pub(super) fn start_scanning(self: &Arc<Self>) {
        let Some(scanning) = self.scanning else { return };
        let (pool, is_closing) = (Arc::downgrade(self), Arc::clone(&self.is_closing));
        self.spawn(SCANNER, move || run(&pool, &is_closing, scanning));
    }
}

fn run(pool: &Weak<Pool>, is_closing: &AtomicBool, scanning: Scanning) {
    while !is_closing.load(Ordering::SeqCst) {
        let Some(pool) = pool.upgrade() else { return };
        // The pool failed, and its next call says so.
        let Ok(step) = pool.scan_step(scanning.budget()) else { return };
        drop(pool);
        thread::park_timeout(scanning.rest(step));
    }
}
