//! Rebuilds the hooks from tables and recipes, and the reference indexes from recipes. (`popular build` rebuilds the index of the popular set.)

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::policy::{Global, Policy, BALANCED};
use crate::container::tables::read_table;
use crate::lookup::hooks;
use crate::lookup::other_disks::is_sampled;
use crate::lookup::whole_segments::in_one_place;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::listing::list_names;
use crate::manifest::reader::Reader;
use crate::manifest::session::Session;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::recipe::reference_index::{extend, forget_all};
use crate::recipe::stored::{read_page, read_root};
use format::{names, ContainerId, DiskId, Hook, Manifest, SnapshotEntry, WriterKind, WriterNo};
use std::collections::HashSet;

/// Hooks that are put at once.
const HOOKS_AT_ONCE: usize = 1 << 20;

/// What was rebuilt.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReindexReport {
    /// Containers whose chunks were looked at.
    pub containers: u64,
    /// Hooks that were put.
    pub hooks: u64,
    /// Objects that they replace.
    pub removed: u64,
    /// Disks whose reference index was rebuilt.
    pub reference_indexes: u64,
    /// Containers whose table is damaged, and disks with a damaged page of the container table.
    pub damaged: u64,
}

/// Hooks that wait to be put.
struct Found<'a> {
    folder: &'a Folder,
    hooks: Vec<(u64, ContainerId)>,
    count: u64,
}

impl Found<'_> {
    fn add(&mut self, prefix: u64, container: ContainerId) -> Result<()> {
        self.hooks.push((prefix, container));
        if self.hooks.len() >= HOOKS_AT_ONCE {
            self.put()?;
        }
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        if !self.hooks.is_empty() {
            self.count += self.hooks.len() as u64;
            hooks::put(self.folder, std::mem::take(&mut self.hooks))?;
        }
        Ok(())
    }
}

impl Vault {
    /// Rebuilds the hooks of all disks. Those of a disk are what the policy of its newest snapshot takes for hooks.
    pub fn reindex(&self) -> Result<ReindexReport> {
        let mut report = ReindexReport::default();
        // Those that were there go in the end. Backups that begin meanwhile put theirs.
        let old = list_names(&*self.store, names::HOOKS)?;
        // Backups that may have put theirs before, and whose containers are not listed yet.
        let mut under_way: HashSet<(DiskId, WriterNo)> = HashSet::new();
        for folder in self.all_folders()? {
            let Some(reader) = Reader::open(&folder).unless_damaged()? else { continue };
            let backups = reader.manifest.writers.iter().filter(|w| w.kind == WriterKind::Backup);
            under_way.extend(backups.map(|w| (folder.disk, w.no)));
            let mut found = Found { folder: &folder, hooks: Vec::new(), count: 0 };
            let Some(newest) = folder.newest(&reader.manifest).unless_damaged()? else {
                report.damaged += 1;
                continue;
            };
            let newest = newest.as_ref();
            let policy = newest.and_then(|s| Policy::by_name(&s.policy).ok()).unwrap_or(BALANCED);
            let isolated = newest.map_or(self.is_isolated(), |s| s.isolated);
            let done = match if isolated { policy.isolated().global } else { policy.global } {
                Global::Chunks { sampled, .. } => {
                    find_chunks(&folder, &reader.manifest, sampled, &mut found, &mut report)
                }
                Global::Segments => {
                    let all = folder.whole(reader.manifest.clone());
                    all.and_then(|all| find_segments(&folder, &all, &mut found))
                }
                Global::Off | Global::Popular { .. } => Ok(()),
            };
            // What a damaged page names has no hooks: that costs space only.
            report.damaged += u64::from(done.unless_damaged()?.is_none());
            found.put()?;
            report.hooks += found.count;
        }
        let folder = self.popular();
        report.removed = hooks::delete_but(&folder, &old, &under_way)?;
        hooks::join(&folder, u64::MAX, true)?;
        for folder in self.all_folders()? {
            report.reference_indexes += u64::from(rebuild_references(&folder)?);
        }
        Ok(report)
    }
}

/// Rebuilds the reference index of a disk, if it has one that can be rebuilt now.
pub(crate) fn rebuild_references(folder: &Folder) -> Result<bool> {
    let loaded = folder.load_tagged().unless_damaged()?.flatten();
    if loaded.is_none_or(|(m, _)| m.references.is_empty()) {
        return Ok(false);
    }
    let session = match Session::begin_if_free(folder) {
        Err(e) if e.is_damage() || matches!(e, VaultError::Busy { .. }) => return Ok(false),
        session => session?,
    };
    forget_all(&session)?;
    extend(&session, 1, None)?;
    session.end()?;
    Ok(true)
}

/// The hooks of all chunks of a disk's own containers.
fn find_chunks(
    folder: &Folder,
    m: &Manifest,
    sampled: u32,
    found: &mut Found<'_>,
    report: &mut ReindexReport,
) -> Result<()> {
    Containers::new(folder.clone(), m).each(|e| {
        if e.is_foreign() {
            return Ok(());
        }
        let Some(table) = read_table(folder, e.id, e.table).unless_damaged()? else {
            report.damaged += 1;
            return Ok(());
        };
        report.containers += 1;
        let hooks = table.fingerprints.iter().filter(|f| is_sampled(f, sampled));
        hooks.into_iter().try_for_each(|f| found.add(Hook::prefix(f), e.id))
    })
}

/// The hooks of the segments of a disk whose chunks stand one behind the other in one of its containers.
fn find_segments(folder: &Folder, m: &Whole, found: &mut Found<'_>) -> Result<()> {
    let mut seen = HashSet::new();
    for s in &m.snapshots {
        let Some(root) = read_root(folder, s as &SnapshotEntry).unless_damaged()? else { continue };
        for at in root.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
            let Some(page) = read_page(folder, &at).unless_damaged()? else { continue };
            for (_, segment) in &page.segments {
                if let Some((id, _)) = in_one_place(segment).filter(|(id, _)| id.is_own()) {
                    found.add(Hook::prefix(&segment.fingerprint), id)?;
                }
            }
        }
    }
    Ok(())
}
