//! Rebuilds pages of the container table from the containers' tables, and, for containers of other owners, from the
//! recipes.
//!
//! Lists of dead chunks are not taken over: one that a killed session has left would declare chunks dead that are
//! needed. The containers are put on the list `unswept` instead, and the sweep finds out what is dead. Until then their entries
//! say that they were rebuilt, and no backup takes chunks of them that its parent does not reference.

use super::damaged_container::directory;
use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::container::tables::read_table;
use crate::manifest::folder::{list_unswept, Folder};
use crate::manifest::listing::list_names;
use crate::manifest::session::Session;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::{read_root, summary_of};
use crate::reclaim::dead_list::live_chunks_of_each;
use format::{names, ContainerEntry, ContainerId, DataName, Manifest, Release, RunSet, WriterNo};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The containers that a page covers.
#[derive(Clone, Copy)]
struct Span {
    first: ContainerId,
    /// The first one of the next page.
    next: Option<ContainerId>,
}

impl Span {
    fn contains(self, id: ContainerId) -> bool {
        self.first <= id && self.next.is_none_or(|next| id < next)
    }
}

/// What a folder has of containers.
struct Objects {
    /// Generations of tables, by container.
    tables: BTreeMap<ContainerId, BTreeSet<WriterNo>>,
    data: BTreeSet<DataName>,
}

/// Rebuilds the pages that are damaged. Returns how many. With `sweeps_all` the next sweep looks at all containers.
pub(super) fn rebuild(session: &Session, sweeps_all: bool) -> Result<u64> {
    let folder = &session.folder;
    let m = folder.load()?;
    let objects = Objects::list(folder, &m)?;
    let (mut rebuilt, mut unswept) = (Vec::new(), Vec::new());
    for (at, page) in m.pages.iter().enumerate() {
        let span = Span { first: page.first, next: m.pages.get(at + 1).map(|next| next.first) };
        let old = match folder.read_page(page) {
            // It may be all right for that program.
            Err(VaultError::Newer { .. }) => continue,
            old => old.unless_damaged()?.map(|p| p.entries),
        };
        let is_damaged = old.is_none();
        let entries = old.map_or_else(|| objects.entries(folder, &m, span), Ok)?;
        if is_damaged || sweeps_all {
            unswept.extend(entries.iter().map(|e| e.id).filter(|id| id.is_own()));
        }
        if is_damaged {
            rebuilt.push((*page, entries));
        }
    }
    if unswept.is_empty() && rebuilt.is_empty() {
        return Ok(0);
    }
    session.swap(|m| {
        rebuilt.iter().try_for_each(|(page, entries)| m.replace_page(page, entries))?;
        list_unswept(m, &unswept);
        Ok(())
    })?;
    Ok(rebuilt.len() as u64)
}

impl Objects {
    /// Lists them, without what is to be deleted, and what writers have put that have not committed.
    fn list(folder: &Folder, m: &Manifest) -> Result<Objects> {
        let released: HashSet<&String> = m
            .released
            .iter()
            .filter_map(|r| if let Release::Object(name) = &r.what { Some(name) } else { None })
            .collect();
        let writes = |no: WriterNo| m.writers.iter().any(|w| w.no == no);
        let mut found = Objects { tables: BTreeMap::new(), data: BTreeSet::new() };
        for name in list_names(&*folder.store, &names::containers_of(&folder.path))? {
            let Some((id, generation)) = names::container_of(&name) else { continue };
            if released.contains(&name) || writes(id.writer()) || writes(generation) {
                continue;
            }
            if name.ends_with(".table") {
                found.tables.entry(id).or_default().insert(generation);
            } else if name.ends_with(".data") {
                found.data.insert(DataName { container: id, generation });
            }
        }
        Ok(found)
    }

    /// All entries of a page that cannot be read.
    fn entries(&self, folder: &Folder, m: &Whole, span: Span) -> Result<Vec<ContainerEntry>> {
        let ids = self.tables.keys().copied().chain(self.data.iter().map(|d| d.container));
        let ids: BTreeSet<ContainerId> = ids.filter(|id| span.contains(*id)).collect();
        let (mut entries, mut several) = (Vec::new(), BTreeMap::new());
        for id in ids {
            let mut candidates = self.candidates(folder, id)?;
            if candidates.len() > 1 {
                several.insert(id, candidates);
            } else {
                entries.extend(candidates.pop().map(Candidate::rebuilt));
            }
        }
        let live = live_chunks_of_each(folder, &several.keys().copied().collect()).unless_unreadable()?;
        for (id, candidates) in several {
            // Where not all snapshots can be read, any chunk may be needed.
            let needed = match &live {
                Some(live) => live.get(&id).cloned().unwrap_or_default(),
                None => candidates.iter().fold(RunSet::default(), |all, c| all.union(&c.chunks)),
            };
            // Of those that lack least, the newest.
            entries.extend(
                candidates.into_iter().min_by_key(|c| needed.minus(&c.chunks).len()).map(Candidate::rebuilt),
            );
        }
        entries.sort_by_key(|e| e.id);
        entries.extend(foreign(folder, m, span)?.into_iter().map(ContainerEntry::foreign));
        Ok(entries)
    }

    /// What a container may be, the newest first: the tables that have their data, and the directories of data without a table.
    ///
    /// There is more than one if a session was killed before what it had written took effect: that may be newer or older than
    /// what counts, and may lack chunks that the session took for dead.
    fn candidates(&self, folder: &Folder, id: ContainerId) -> Result<Vec<Candidate>> {
        let (mut found, mut with_table) = (Vec::new(), BTreeSet::new());
        for generation in self.tables.get(&id).into_iter().flatten().rev() {
            let table = read_table(folder, id, *generation).unless_unreadable()?;
            if let Some(table) = table.filter(|t| t.data.container == id && self.data.contains(&t.data)) {
                with_table.insert(table.data);
                found.push(Candidate { entry: table.entry(*generation), chunks: table.numbers.clone() });
            }
        }
        let first = DataName { container: id, generation: WriterNo(0) };
        let data = self.data.range(first..).take_while(|d| d.container == id);
        for data in data.filter(|d| !with_table.contains(d)) {
            if let Some(table) = directory(folder, *data).unless_unreadable()? {
                found.push(Candidate { entry: table.entry(data.generation), chunks: table.numbers });
            }
        }
        found.sort_by_key(|c| std::cmp::Reverse(c.entry.data.generation));
        Ok(found)
    }
}

/// One of the things that a container may be.
struct Candidate {
    entry: ContainerEntry,
    chunks: RunSet,
}

impl Candidate {
    /// Its entry in a page that is made again.
    fn rebuilt(self) -> ContainerEntry {
        ContainerEntry { level: ContainerEntry::REBUILT, ..self.entry }
    }
}

/// The containers of other owners that the snapshots reference. What cannot be read names none.
fn foreign(folder: &Folder, m: &Whole, span: Span) -> Result<BTreeSet<ContainerId>> {
    let (mut found, mut seen) = (BTreeSet::new(), HashSet::new());
    for s in &m.snapshots {
        let Some(root) = read_root(folder, s).unless_unreadable()? else { continue };
        for page in root.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
            let Some(summary) = summary_of(folder, &page).unless_unreadable()? else { continue };
            found.extend(summary.containers.keys().copied().filter(|id| !id.is_own() && span.contains(*id)));
        }
    }
    Ok(found)
}
