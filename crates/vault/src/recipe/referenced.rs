//! What the snapshots of a disk reference, read from their summaries: container by container in order, as many at once as
//! fit into memory.

use crate::base::error::{Result, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::{read_root, summary_of};
use format::{ContainerId, RunSet, Table};
use std::collections::{BTreeMap, HashSet};

/// Memory for runs of chunks in bytes, but for one page or one container with more.
pub(crate) const REFERENCED_BYTES: usize = 32 << 20;
/// About what an entry of a map takes beside its runs.
pub(crate) const ENTRY_BYTES: usize = 64;

/// What any snapshot of a disk references in some containers that follow one another.
pub(crate) struct Referenced {
    /// The first container that is wanted; `None`: the first one that there is.
    from: Option<ContainerId>,
    /// The first container that there was no memory for; `None`: nothing is left.
    end: Option<ContainerId>,
    chunks: BTreeMap<ContainerId, RunSet>,
    bytes: usize,
}

/// How summaries are read.
pub(crate) struct Reading<'a> {
    /// The containers that matter.
    pub wanted: &'a dyn Fn(ContainerId) -> bool,
    /// Gets what a recipe that cannot be read fails with. Unless it returns that, the recipe is left out.
    pub on_error: &'a mut dyn FnMut(VaultError) -> Result<()>,
    /// Memory for the runs.
    pub bytes_max: usize,
}

impl Referenced {
    /// Reads the summaries of all snapshots, deleted ones that must wait included.
    pub fn read(
        folder: &Folder,
        m: &Whole,
        from: Option<ContainerId>,
        reading: &mut Reading<'_>,
    ) -> Result<Self> {
        let mut all = Referenced { from, end: None, chunks: BTreeMap::new(), bytes: 0 };
        let mut seen = HashSet::new();
        for s in &m.snapshots {
            let pages = match read_root(folder, s) {
                Ok(root) => root.pages,
                Err(e) => {
                    (reading.on_error)(e)?;
                    continue;
                }
            };
            for page in pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
                match summary_of(folder, &page) {
                    Ok(summary) => all.add_all(summary.containers, reading),
                    Err(e) => (reading.on_error)(e)?,
                }
            }
        }
        Ok(all)
    }

    /// The first container of which nothing is here; `None`: there is none.
    pub fn end(&self) -> Option<ContainerId> {
        self.end
    }

    /// Whether what is referenced of a container is here.
    pub fn has(&self, id: ContainerId) -> bool {
        self.from.is_none_or(|from| id >= from) && self.end.is_none_or(|end| id < end)
    }

    /// The chunks of a container that are referenced; `None`: none is.
    pub fn chunks_of(&self, id: ContainerId) -> Option<&RunSet> {
        self.chunks.get(&id)
    }

    /// All containers, with their chunks that are referenced.
    pub fn chunks(&self) -> impl Iterator<Item = (ContainerId, &RunSet)> {
        self.chunks.iter().map(|(id, chunks)| (*id, chunks))
    }

    fn add_all(&mut self, containers: BTreeMap<ContainerId, RunSet>, reading: &Reading<'_>) {
        for (id, chunks) in containers {
            if self.has(id) && (reading.wanted)(id) {
                self.add(id, &chunks);
            }
        }
        // The last containers are left to a later part.
        while self.bytes > reading.bytes_max && self.chunks.len() > 1 {
            let Some((id, chunks)) = self.chunks.pop_last() else { return };
            self.bytes -= memory_of(&chunks);
            self.end = Some(id);
        }
    }

    fn add(&mut self, id: ContainerId, chunks: &RunSet) {
        let known = self.chunks.remove(&id);
        self.bytes -= known.as_ref().map_or(0, memory_of);
        let mut all = known.unwrap_or_default().union(chunks);
        if all.len() > Table::CHUNKS_MAX {
            // No table has so many: a summary is damaged. All of them then count as referenced.
            all = RunSet::from_unsorted(vec![(0, u32::MAX)]);
        }
        self.bytes += memory_of(&all);
        self.chunks.insert(id, all);
    }
}

/// About the memory that the chunks of one container take.
pub(crate) fn memory_of(chunks: &RunSet) -> usize {
    ENTRY_BYTES + size_of_val(chunks.runs())
}
