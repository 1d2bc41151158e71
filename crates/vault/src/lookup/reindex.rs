//! Rebuilds the indexes of prefixes and segments from tables and recipes. (`popular build` rebuilds the one of the
//! popular set.)

use crate::base::error::Result;
use crate::base::error::UnlessDamaged;
use crate::base::policy::Global;
use crate::container::tables::read_table;
use crate::lookup::segment_index::{in_one_place, replace_segments};
use crate::lookup::stale_indexes::{stale_prefixes, stale_segments};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::has_objects;
use crate::manifest::reader::Reader;
use crate::manifest::rollback::load_checked;
use crate::manifest::vault::Vault;
use crate::recipe::stored::{read_page, read_root};
use format::{names, Owner, Prefixes, SegmentPlace};
use std::collections::{BTreeSet, HashSet};
use store::StoreError;

/// What was rebuilt.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReindexReport {
    /// Containers whose prefixes were written.
    pub containers: u64,
    /// Segments that were indexed.
    pub segments: u64,
    /// Prefixes of containers that are no more.
    pub removed: u64,
    /// Containers whose table is damaged, or whose prefixes cannot be put into their place.
    pub damaged: u64,
}

impl Vault {
    /// Rebuilds the indexes of the shared set: segments, and prefixes of chunks where the vault's policy wants them or
    /// there are some.
    pub fn reindex(&self) -> Result<ReindexReport> {
        let mut report = ReindexReport::default();
        let (containers, _reader) = self.shared_containers(true)?;
        let Some(containers) = containers else { return Ok(report) };
        // What an older manifest does not know would look like left over.
        load_checked(containers.folder())?;
        let wants_chunks = self.policy().is_ok_and(|p| matches!(p.global, Global::Chunks { .. }));
        if wants_chunks || has_objects(&*self.store, &names::prefixes_of(Owner::Shared))? {
            self.rebuild(&containers, &mut report)?;
        }
        let wants_segments = self.policy().is_ok_and(|p| p.global == Global::Segments);
        if wants_segments || has_objects(&*self.store, &names::segments_of(Owner::Shared))? {
            report.segments = replace_segments(containers.folder(), self.find_segments(&containers)?)?;
        }
        let shared = self.shared();
        for object in stale_prefixes(&shared)?.into_iter().chain(stale_segments(&shared)?) {
            report.removed += u64::from(self.store.delete(&object)?);
        }
        Ok(report)
    }

    /// Every segment of any recipe whose chunks stand one behind the other in a shared container.
    fn find_segments(&self, containers: &Containers) -> Result<BTreeSet<SegmentPlace>> {
        let mut found = BTreeSet::new();
        for folder in self.all_folders()? {
            let Some(reader) = Reader::open(&folder).unless_damaged()? else { continue };
            let mut seen = HashSet::new();
            for s in &reader.manifest.snapshots {
                let Some(root) = read_root(&folder, s).unless_damaged()? else { continue };
                for at in root.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
                    let Some(page) = read_page(&folder, &at).unless_damaged()? else { continue };
                    for segment in page.segments.iter().filter_map(|(_, s)| in_one_place(s)) {
                        if containers.get(segment.container)?.is_some() {
                            found.insert(segment);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn rebuild(&self, containers: &Containers, report: &mut ReindexReport) -> Result<()> {
        let folder = containers.folder();
        containers.each(|e| {
            if e.id.owner() != Owner::Shared {
                return Ok(());
            }
            let name = names::prefixes(e.id);
            let table = match read_table(folder, e.id, e.table) {
                Err(e) if e.is_damage() => {
                    report.damaged += 1;
                    return Ok(());
                }
                other => other?,
            };
            let frame = Prefixes::of(&table).encode(folder.context(&name));
            folder.store.delete(&name)?;
            match folder.store.put(&name, &[&frame]) {
                Ok(()) => report.containers += 1,
                // Somebody else rebuilds it, too, or a directory stands in its place.
                Err(StoreError::AlreadyExists { .. }) => match folder.store.len(&name) {
                    Ok(_) => report.containers += 1,
                    Err(_) => report.damaged += 1,
                },
                Err(e) => return Err(e.into()),
            }
            Ok(())
        })
    }
}
