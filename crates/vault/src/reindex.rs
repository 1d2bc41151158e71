//! Rebuilding the indexes: all of them can be made anew from tables.

use crate::container_writer::encode_prefixes;
use crate::error::Result;
use crate::folder::Containers;
use crate::tables::read_table;
use crate::vault::Vault;
use format::names;
use std::collections::HashSet;

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
        let mut known = HashSet::new();
        let (containers, _reader) = self.shared_containers(true)?;
        if let Some(containers) = containers {
            self.rebuild(&containers, &mut known, &mut report)?;
        }
        let mut stale = Vec::new();
        self.store.list(names::PREFIXES, &mut |e| {
            if !known.contains(&e.name) {
                stale.push(e.name);
            }
            Ok(())
        })?;
        for object in stale {
            report.removed += u64::from(self.store.delete(&object)?);
        }
        Ok(report)
    }

    fn rebuild(&self, containers: &Containers, known: &mut HashSet<String>, report: &mut ReindexReport) -> Result<()> {
        let folder = containers.folder();
        containers.each(|e| {
            let name = names::prefixes(e.id);
            known.insert(name.clone());
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
