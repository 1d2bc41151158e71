//! Repair: heals damaged objects from what is left of them, from other objects, other vaults and disks
//! (`docs/flows/repair.md`).

mod damaged_container;
mod group_salvage;
mod lost;
mod manifests;
mod pages;
mod proof;
mod recipes;
mod rewrite;
mod search;
mod snapshot_pages;
mod wanted;
mod zstd_salvage;

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::lookup::reindex::rebuild_references;
use crate::manifest::container_table::Containers;
use crate::manifest::disks::{self, put_name_back};
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use crate::reclaim::compact::replace;
use crate::reclaim::gc::COMPACT_AT_COLLECTION;
use crate::reclaim::released::{delete_released, end_and_delete_released};
use crate::reclaim::sweep::{sweep_unswept, SweepLimits};
use crate::verify::findings::damage::Damage;
use crate::verify::owner::Reads;
use crate::verify::report::VerifyReport;
use crate::verify::run::Purpose;
use crate::verify::Scope;
use damaged_container::DamagedContainer;
use format::{names, ContainerEntry, ContainerId, DiskId, WriterKind};
use image::{ImageError, Source};
pub use lost::LostChunks;
use recipes::Recipes;
pub use rewrite::ChunkCounts;
use rewrite::Remains;
use std::collections::{BTreeSet, HashSet};
use store::StoreError;
use wanted::ChunkSearch;

/// A disk that may have lost chunks; opened once for each search.
pub type OpenDisk<'a> = Box<dyn Fn() -> std::result::Result<Box<dyn Source>, ImageError> + 'a>;

/// What is repaired, and what from.
#[derive(Default)]
pub struct RepairOptions<'a> {
    /// Only this disk; else everything.
    pub disk: Option<String>,
    /// Whether all chunks are read first; else those that a verification has found damaged.
    pub data: bool,
    /// Other vaults, which are asked for lost chunks.
    pub vaults: Vec<Vault>,
    /// Disks, which are asked next.
    pub disks: Vec<OpenDisk<'a>>,
}

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What was damaged before.
    pub before: Vec<Damage>,
    /// What is damaged still: these objects, or those that were written in their place.
    pub after: Vec<Damage>,
    /// Manifests that were put again from their commit records.
    pub manifests: u64,
    /// Pages of container tables that were made again.
    pub pages: u64,
    /// Recipes that were made again.
    pub recipes: u64,
    /// Containers that were written again.
    pub containers: u64,
    /// What became of the chunks in damaged groups.
    pub chunks: ChunkCounts,
    /// Objects that could not be repaired because other maintenance of their disk was running.
    pub put_off: Vec<String>,
    /// Objects that could not be repaired for want of room in the store.
    pub no_room: Vec<String>,
    /// The chunks that cannot be read.
    pub lost: LostChunks,
}

impl Vault {
    /// Heals what can be healed.
    ///
    /// # Errors
    /// What keeps it from looking, or from writing. What stays damaged is in the report.
    pub fn repair(&self, options: &RepairOptions<'_>, progress: &Progress) -> Result<RepairReport> {
        let reads = if options.data { Reads::All } else { Reads::Recorded };
        let one = options.disk.as_deref().map(|disk| [disk]);
        let scope = one.as_ref().map_or(Scope::Everything, |one| Scope::Disks(one));
        let before = self.verify_reading(scope, &reads, Purpose::Repair, progress)?;
        let mut report = RepairReport::default();
        if before.damaged.is_empty() {
            return Ok(report);
        }
        match self.repair_file() {
            // A directory that has something in it: what is damaged afterwards is told.
            Err(VaultError::Store(StoreError::AlreadyExists { .. })) => {}
            done => done?,
        }
        let mut repair = Repair { vault: self, options, cuts: None, progress, report: &mut report };
        repair.roots(&before)?;
        self.repair_names()?;
        // What was behind lost manifests and pages can be seen now.
        let is_more_seen = repair.report.manifests + repair.report.pages > 0;
        repair.report.before = before.damaged.clone();
        let found = if is_more_seen {
            drop(before);
            self.verify_reading(scope, &reads, Purpose::Repair, progress)?
        } else {
            before
        };
        repair.recipes(&found)?;
        for (owner, containers) in &found.containers_damaged {
            repair.containers_of(*owner, containers)?;
        }
        self.repair_indexes(&found)?;
        self.repair_commit_records(&found)?;
        let VerifyReport { damaged, containers_damaged, bad, is_cut, .. } = found;
        // The next verification takes as much memory.
        drop(bad);
        if is_more_seen {
            let known: HashSet<String> = report.before.iter().map(|b| b.object.clone()).collect();
            report.before.extend(damaged.into_iter().filter(|d| !known.contains(&d.object)));
        }
        let reads = match reads {
            // What was left for the next run is still damaged.
            reads if is_cut => reads,
            _ => Reads::Only(containers_damaged),
        };
        let after = self.verify_reading(scope, &reads, Purpose::Repair, progress)?;
        report.after = after.damaged;
        report.lost = LostChunks { bad: after.bad, lacks_owners: after.lacks_owners, is_cut: after.is_cut };
        Ok(report)
    }

    fn repair_names(&self) -> Result<()> {
        for at in disks::all(self)?.0.iter().filter(|at| at.name_fault.is_some()) {
            put_name_back(self, at)?;
        }
        Ok(())
    }

    /// Rebuilds the indexes that are damaged.
    fn repair_indexes(&self, found: &VerifyReport) -> Result<()> {
        let is_hooks = |d: &Damage| d.object.starts_with(names::HOOKS);
        if found.damaged.iter().any(is_hooks) {
            self.reindex()?;
            return Ok(());
        }
        for folder in self.folders_of(found, |below| below.starts_with("references/"))? {
            rebuild_references(&folder)?;
        }
        Ok(())
    }
}

impl Vault {
    /// Puts the newest commit record again where it is damaged: each session does when it ends.
    fn repair_commit_records(&self, found: &VerifyReport) -> Result<()> {
        for folder in self.folders_of(found, |below| below.starts_with("commits/"))? {
            match Session::begin(&folder, WriterKind::Maintenance) {
                Err(e) if e.is_damage() || matches!(e, VaultError::Busy { .. }) => {}
                session => session?.end()?,
            }
        }
        Ok(())
    }

    /// The owners' folders that have damaged objects of a kind: what stands behind the folder in their names is `like`.
    fn folders_of(&self, found: &VerifyReport, like: impl Fn(&str) -> bool) -> Result<Vec<Folder>> {
        let is_like = |object: &str| {
            let folder = names::folder_of(object)?;
            like(&object[folder.len()..]).then(|| folder.to_owned())
        };
        let paths: BTreeSet<String> = found.damaged.iter().filter_map(|d| is_like(&d.object)).collect();
        let ids = disks::folder_ids(self)?.into_iter().map(|id| self.folder(id));
        Ok(ids.chain([self.popular()]).filter(|f| paths.contains(&f.path)).collect())
    }
}

struct Repair<'a> {
    vault: &'a Vault,
    options: &'a RepairOptions<'a>,
    /// How the disks of the vault are cut, once that is asked for.
    cuts: Option<Vec<search::Cut>>,
    progress: &'a Progress,
    report: &'a mut RepairReport,
}

impl Repair<'_> {
    /// Repairs manifests and pages of container tables: what leads to everything else.
    fn roots(&mut self, found: &VerifyReport) -> Result<()> {
        let mut put_back = BTreeSet::new();
        for folder in self.vault.folders_of(found, |below| below == "manifest")? {
            if manifests::put_back(&folder)? {
                self.report.manifests += 1;
                put_back.insert(folder.path);
            }
        }
        let is_page = |below: &str| below.starts_with("pages/") || below.starts_with("snapshots/");
        let with_pages = self.vault.folders_of(found, is_page)?;
        let mut rebuilt = Vec::new();
        let ids = disks::folder_ids(self.vault)?.into_iter().map(|id| self.vault.folder(id));
        for folder in ids.chain([self.vault.popular()]) {
            let is_put_back = put_back.contains(&folder.path);
            if !is_put_back && !with_pages.iter().any(|f| f.path == folder.path) {
                continue;
            }
            let Some(session) = self.begin(&folder)? else { continue };
            self.report.pages += snapshot_pages::put_again(&session)?;
            // Where not all snapshots are known, it is not known what they need.
            let pages = pages::rebuild(&session, is_put_back).unless_unreadable()?.unwrap_or(0);
            self.report.pages += pages;
            end_and_delete_released(session)?;
            rebuilt.extend((pages > 0 || is_put_back).then_some(folder));
        }
        // Lists of dead chunks were not taken over. What others reference is known when the pages of all are there.
        for folder in rebuilt {
            let limits =
                SweepLimits { threshold: COMPACT_AT_COLLECTION, referrers: usize::MAX, hands_over: false };
            sweep_unswept(self.vault, &folder, limits).unless_unreadable()?;
        }
        Ok(())
    }

    /// Makes damaged recipes again.
    fn recipes(&mut self, found: &VerifyReport) -> Result<()> {
        for folder in self.vault.folders_of(found, |below| below.starts_with("recipes/"))? {
            let no_backup = match Session::begin_repair(&folder) {
                Err(e) if e.is_damage() => continue,
                Err(VaultError::Busy { .. }) => {
                    self.report.put_off.push(format!("{}recipes", folder.path));
                    continue;
                }
                session => session?,
            };
            let Some(mut session) = self.begin(&folder)? else { continue };
            let recipes =
                Recipes { vault: self.vault, others: &self.options.vaults, progress: self.progress };
            self.report.recipes += recipes.make_again(&mut session)?;
            // It keeps what was released.
            no_backup.end()?;
            end_and_delete_released(session)?;
        }
        Ok(())
    }

    /// Begins maintenance of a folder; `None` where that cannot be: the reason has been told, or is reported.
    fn begin(&mut self, folder: &Folder) -> Result<Option<Session>> {
        match Session::begin(folder, WriterKind::Maintenance) {
            // What is wrong with its manifest has been told.
            Err(e) if e.is_damage() => Ok(None),
            Err(VaultError::Busy { .. }) => {
                self.report.put_off.push(folder.path.clone());
                Ok(None)
            }
            session => Ok(Some(session?)),
        }
    }

    /// Repairs containers of one owner.
    fn containers_of(&mut self, owner: DiskId, containers: &ContainerSet) -> Result<()> {
        let folder = self.vault.folder(owner);
        let Some(mut session) = self.begin(&folder)? else { return Ok(()) };
        let mut left: Vec<ContainerId> = containers.iter().collect();
        let mut wanted = ChunkSearch::default();
        while !left.is_empty() {
            left = self.round(&session, left, &mut wanted)?;
            if !left.is_empty() {
                delete_released(&folder, Some(&session))?;
                // A container may be written again more than once.
                session.renew()?;
                wanted.next_round();
            }
        }
        end_and_delete_released(session).map(drop)
    }

    /// Heals as many containers as have about [`wanted::WANTED_BYTES`] of lost chunks. Returns those that are left.
    fn round(
        &mut self,
        session: &Session,
        mut left: Vec<ContainerId>,
        wanted: &mut ChunkSearch,
    ) -> Result<Vec<ContainerId>> {
        let folder = &session.folder;
        let table = Containers::new(folder.clone(), &folder.load_root()?);
        let mut batch: Vec<(DamagedContainer, Remains)> = Vec::new();
        let mut again = Vec::new();
        while let Some(id) = left.pop() {
            self.progress.check()?;
            let Some(Some(entry)) = table.get(id).unless_unreadable()? else { continue };
            let Some(container) = DamagedContainer::read(folder, &entry).unless_unreadable()? else {
                continue;
            };
            let remains = rewrite::look(session, &container, wanted)?;
            batch.push((container, remains));
            if wanted.is_full() {
                // It may have more than are looked for at once.
                again.push(id);
                break;
            }
        }
        self.search(wanted)?;
        let (mut fresh, mut found) = (Vec::new(), 0);
        for (container, remains) in &batch {
            let Some((old, new, n)) = self.write(session, container, *remains, wanted)? else { continue };
            found += n;
            fresh.push((old, new));
        }
        replace(session, &fresh)?;
        self.report.containers += fresh.len() as u64;
        // Without anything found, another look would find as little.
        if found > 0 {
            left.extend(again);
        }
        Ok(left)
    }

    /// Looks for lost chunks wherever the user lets it.
    fn search(&mut self, wanted: &mut ChunkSearch) -> Result<()> {
        let (options, progress) = (self.options, self.progress);
        for vault in std::iter::once(self.vault).chain(&options.vaults) {
            if wanted.is_missing_any() {
                search::find_in_vault(vault, wanted, progress)?;
            }
        }
        for open in &options.disks {
            if !wanted.is_missing_any() {
                return Ok(());
            }
            let cuts = match &mut self.cuts {
                Some(cuts) => cuts,
                none => none.insert(search::cuts(self.vault)?),
            };
            search::find_in_disk(&mut *open()?, cuts, wanted, progress)?;
        }
        Ok(())
    }

    /// Writes a container again, if something of it can be healed. Returns its old and its new entry, and how many of its
    /// chunks were found elsewhere.
    fn write(
        &mut self,
        session: &Session,
        container: &DamagedContainer,
        remains: Remains,
        wanted: &ChunkSearch,
    ) -> Result<Option<(ContainerEntry, ContainerEntry, u64)>> {
        let is_found = container.table.fingerprints.iter().any(|f| wanted.get(f).is_some());
        // Of one that is lost altogether the names stay: its objects may be put back by hand.
        let is_better = remains.salvaged > 0 || (container.is_broken && remains.whole > 0);
        if !is_found && !is_better {
            return Ok(None);
        }
        match rewrite::rewrite(session, container, wanted) {
            Ok(None) => Ok(None),
            Ok(Some((new, counts))) => {
                self.report.chunks.add(counts);
                Ok(Some((container.entry, new, counts.found)))
            }
            Err(e) if e.is_full() => {
                let data = format::DataName { container: container.entry.id, generation: session.writer };
                let object = names::data(&session.folder.path, data);
                session.folder.store.delete(&object)?;
                self.report.no_room.push(names::data(&session.folder.path, container.entry.data));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}
