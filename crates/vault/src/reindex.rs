//! Rebuilding the indexes: all of them can be made anew from tables.

use crate::container_writer::encode_prefixes;
use crate::error::Result;
use crate::folder::Containers;
use crate::sweep::stale_prefixes;
use crate::tables::read_table;
use crate::vault::Vault;
use format::names;

/// What was rebuilt.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReindexReport {
    /// Containers whose prefixes were written.
    pub containers: u64,
    /// Prefixes of containers that are no more.
    pub removed: u64,
    /// Containers whose table is damaged.
    pub damaged: u64,
}

impl Vault {
    /// Rebuilds the prefix index of the shared set.
    pub fn reindex(&self) -> Result<ReindexReport> {
        let mut report = ReindexReport::default();
        let (containers, _reader) = self.shared_containers(true)?;
        if let Some(containers) = containers {
            self.rebuild(&containers, &mut report)?;
        }
        let shared = self.shared();
        if shared.load_tagged()?.is_some() {
            for object in stale_prefixes(&shared)? {
                report.removed += u64::from(self.store.delete(&object)?);
            }
        }
        Ok(report)
    }

    fn rebuild(&self, containers: &Containers, report: &mut ReindexReport) -> Result<()> {
        let folder = containers.folder();
        containers.each(|e| {
            let name = names::prefixes(e.id);
            let table = match read_table(folder, e.id, e.table) {
                Err(e) if e.is_damage() => {
                    report.damaged += 1;
                    return Ok(());
                }
                other => other?,
            };
            let frame = encode_prefixes(folder, &name, &table);
            folder.store.delete(&name)?;
            match folder.store.put(&name, &[&frame]) {
                Ok(()) | Err(store::StoreError::AlreadyExists { .. }) => report.containers += 1,
                Err(e) => return Err(e.into()),
            }
            Ok(())
        })
    }
}
