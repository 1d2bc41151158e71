//! The look at containers: those in the table of their owner, and those that its snapshots reference.

use super::checks::containers::ContainerCheck;
use super::findings::containers::ContainerFindings;
use super::owner::Owner;
use super::run::Verification;
use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::container::container_set::ContainerSet;
use crate::manifest::container_table::Containers;
use crate::reclaim::dead_list::{live_chunks_of_all, live_chunks_of_each};
use format::{names, ContainerEntry, ContainerId, Manifest, OwnerNo, RunSet};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Pages of a container table whose containers are looked at together.
const PAGES_AT_ONCE: usize = 32;
/// Chunks of containers whose entries a repair has made anew that are looked at together. What is known of them takes four bytes
/// each at worst, where every other one is referenced.
const REBUILT_CHUNKS_AT_ONCE: u64 = 8 << 20;
/// Containers referenced that are looked at together.
const CONTAINERS_AT_ONCE: usize = 8192;

impl Verification<'_> {
    /// Looks at the pages of a container table and at the containers of their owner, some pages at a time.
    pub(super) fn container_table(
        &mut self,
        of: Owner<'_>,
        m: &Manifest,
        own: &mut ContainerFindings,
    ) -> Result<()> {
        let (table, mut unreadable) = (Containers::new(of.folder.clone(), m), HashSet::new());
        for pages in m.pages.chunks(PAGES_AT_ONCE) {
            let mut ids = Vec::new();
            for at in pages {
                self.report.objects_checked += 1;
                let Some(page) = own.found.tell(of.folder.read_page(at), "")? else { continue };
                for e in page.entries.iter().filter(|e| e.id.is_own()) {
                    ids.push(e.id);
                    let other = e.data.container;
                    if other == e.id || unreadable.contains(&table.page_of(other)) {
                        continue;
                    }
                    match table.get(other).unless_damaged()? {
                        None => drop(unreadable.insert(table.page_of(other))),
                        Some(None) => {}
                        // Who removes that container takes the data away.
                        Some(Some(_)) => {
                            let page = names::page(&of.folder.path, at.writer, at.number);
                            let why = format!("container {} has the data of container {other}", e.id);
                            own.found.tell::<()>(Err(VaultError::corrupt(&page, why)), "")?;
                        }
                    }
                }
            }
            self.containers(of, &ids, own)?;
        }
        Ok(())
    }

    /// Looks at containers that snapshots reference. With `is_whole`, those in the owner's own table are looked at with that.
    pub(super) fn referenced(
        &mut self,
        of: Owner<'_>,
        ids: &ContainerSet,
        is_whole: bool,
        own: &mut ContainerFindings,
    ) -> Result<()> {
        let is_listed = |id: ContainerId| id.is_own() && matches!(of.tables.own().get(id), Ok(Some(_)));
        let mut ids = ids.iter().filter(|id| !(is_whole && is_listed(*id)));
        loop {
            let some: Vec<ContainerId> = ids.by_ref().take(CONTAINERS_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.containers(of, &some, own)?;
        }
    }

    /// Looks at those of the containers that have not been looked at yet.
    pub(super) fn containers(
        &mut self,
        of: Owner<'_>,
        ids: &[ContainerId],
        own: &mut ContainerFindings,
    ) -> Result<()> {
        let mut left = ids;
        while !left.is_empty() {
            let (some, live) = self.with_live_chunks(of, left, own)?;
            let live = |id: ContainerId| match live.get(&id) {
                Some(live) => Ok(live.clone()),
                None => live_chunks_of_all(&of.tables.folder_of(id), id.local()).unless_unreadable(),
            };
            let reads = |id| of.reads(self.reads, id);
            let check =
                ContainerCheck { tables: of.tables, reads: &reads, progress: self.progress, live: &live };
            let (counts, done) = check.run(&left[..some], own, &mut self.known.others)?;
            left = &left[done..];
            self.report.objects_checked += counts.objects;
            self.report.containers += counts.containers;
            self.report.data_bytes += counts.data_bytes;
            self.report.stored_bytes_read += counts.stored_bytes_read;
            if self.known.others.room.is_full() {
                self.known.settle(of, own)?;
            }
        }
        Ok(())
    }

    /// How many of the containers are looked at together, and what snapshots reference in those of them whose entries a repair
    /// has made anew: `None` where that cannot be told. It is found for all of them at once, because they may be many.
    fn with_live_chunks(
        &self,
        of: Owner<'_>,
        ids: &[ContainerId],
        own: &ContainerFindings,
    ) -> Result<(usize, HashMap<ContainerId, Option<RunSet>>)> {
        let (mut some, mut chunks) = (0, 0);
        let mut of_owners: BTreeMap<OwnerNo, BTreeSet<ContainerId>> = BTreeMap::new();
        for id in ids {
            if chunks >= REBUILT_CHUNKS_AT_ONCE {
                break;
            }
            some += 1;
            if !of.reads(self.reads, *id) {
                continue;
            }
            // Of one that cannot be found it is told when it is looked at.
            let Some(entry) = of.tables.entry(*id).ok().filter(ContainerEntry::is_rebuilt) else { continue };
            let disk = of.tables.folder_of(*id).disk;
            let found = if id.is_own() { Some(own) } else { self.known.others.owners.get(&disk) };
            if !found.is_some_and(|found| found.has_seen(&entry)) {
                chunks += u64::from(entry.chunks);
                of_owners.entry(id.owner()).or_default().insert(id.local());
            }
        }
        let mut all = HashMap::new();
        for (owner, ids) in of_owners {
            let Some(any) = ids.first() else { continue };
            let folder = of.tables.folder_of(any.of(owner));
            let mut live = live_chunks_of_each(&folder, &ids).unless_unreadable()?;
            all.extend(ids.into_iter().map(|id| {
                let of_one = live.as_mut().map(|live| live.remove(&id).unwrap_or_default());
                (id.of(owner), of_one)
            }));
        }
        Ok((some, all))
    }
}
