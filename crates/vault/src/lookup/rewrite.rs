//! Fragmented chunks of the parent: a backup takes them from a better place, or writes them again.
//!
//! A restore fetches whole groups and seeks once for each container. With more versions, the newest one needs a smaller
//! part of each old group, and chunks from more small containers. The backup rewrites the chunks in containers and
//! groups with the highest read ratio (bytes fetched / bytes needed) together with the new ones, within a budget: the
//! newest snapshot then no longer reads the old copies, and the reverse pass frees them. This is history-aware rewriting
//! (Fu et al., USENIX ATC 2014, 4.2), which looks for containers with little needed data; here groups count as well, and
//! each place costs a seek.
//!
//! Chunks in containers of other owners are not written again, since that would free nothing. They are moved: where
//! another disk has written them again, as the owner of a template does when it is upgraded, that copy is referenced
//! instead.

mod fragmented;

use crate::base::error::Result;
use crate::base::policy::Policy;
use crate::container::tables::{ChunkPlace, Tables};
use format::{ContainerId, Reference, RunSet, Summary};
use fragmented::{choose, Choice};
use std::collections::BTreeMap;

/// Bytes that are written again at most for each one that was new in the parent.
const AGAIN_FOR_NEW: u64 = 2;
/// Bytes that may be written again although there were few new ones: less than a seek costs. Otherwise a disk that hardly
/// changes would, after many backups, have to be read from as many small containers.
const AGAIN_AT_LEAST: u64 = 1 << 20;
/// Bytes that are looked for elsewhere at most.
const MOVED_BYTES_MAX: u64 = 1 << 30;

/// How many bytes may be written again where the parent had so many new ones: over the backups of a disk, no more than
/// three bytes are written for each new one, but for little.
pub(crate) fn budget(new_bytes: u64) -> u64 {
    match new_bytes {
        0 => 0,
        new_bytes => new_bytes.saturating_mul(AGAIN_FOR_NEW).max(AGAIN_AT_LEAST),
    }
}

/// The chunks of the parent that are rewritten or moved, and how much of that is done.
#[derive(Default)]
pub(crate) struct Rewriting {
    /// In the disk's own containers: written again.
    chosen: BTreeMap<ContainerId, RunSet>,
    /// In those of other owners: moved.
    moved: BTreeMap<ContainerId, RunSet>,
    budget_bytes: u64,
    /// Bytes that were rewritten so far. A chunk that occurs often may be written more often than it was counted, where
    /// the index over the disk's own chunks has forgotten it.
    pub written_bytes: u64,
}

impl Rewriting {
    /// Chooses chunks, those first that are most expensive to read; of those that are written again, `budget_bytes` bytes
    /// together.
    pub fn choose(
        parent: &Summary,
        tables: &Tables,
        policy: &Policy,
        read_ratio: f64,
        budget_bytes: u64,
    ) -> Result<Rewriting> {
        let of = |own, budget| choose(parent, tables, policy, &Choice { own, read_ratio, budget });
        let chosen = if budget_bytes > 0 { of(true, budget_bytes)? } else { BTreeMap::new() };
        Ok(Rewriting { chosen, moved: of(false, MOVED_BYTES_MAX)?, budget_bytes, written_bytes: 0 })
    }

    /// Takes the chunks that are written again out of what the parent references: they are not to be found there.
    pub fn take_out_of(&self, parent: &mut Summary) {
        for (id, again) in &self.chosen {
            if let Some(chunks) = parent.containers.get_mut(id) {
                *chunks = chunks.minus(again);
            }
        }
    }

    fn has_budget(&self) -> bool {
        self.written_bytes < self.budget_bytes
    }

    /// Whether a reference leads to chunks that are rewritten or moved.
    pub fn concerns(&self, r: &Reference) -> bool {
        let Reference::Direct { container, first, count } = *r else { return false };
        let leads_to = |chunks: &BTreeMap<ContainerId, RunSet>| {
            chunks.get(&container).is_some_and(|chunks| chunks.count_within(first, count) > 0)
        };
        self.has_budget() && leads_to(&self.chosen) || leads_to(&self.moved)
    }

    /// Forgets where chunks that are rewritten were found. Returns which.
    pub fn forget(&self, found: &mut [Option<ChunkPlace>]) -> Vec<bool> {
        let is_chosen = |(id, n): ChunkPlace| self.chosen.get(&id).is_some_and(|c| c.contains(n));
        let forget =
            |slot: &mut Option<ChunkPlace>| self.has_budget() && slot.take_if(|at| is_chosen(*at)).is_some();
        found.iter_mut().map(forget).collect()
    }

    /// Whether a chunk is to be moved away from here.
    pub fn is_left(&self, at: ChunkPlace) -> bool {
        self.moved.get(&at.0).is_some_and(|chunks| chunks.contains(at.1))
    }
}
