//! Fragmented chunks of the parent: a backup takes them from a better place, or writes them again.
//!
//! A restore fetches whole groups and seeks once for each container. With more versions, the newest one needs a smaller
//! part of each old group, and chunks from more small containers. The backup rewrites the chunks in containers and
//! groups with the highest read ratio (bytes fetched / bytes needed) together with the new ones, within a budget: the
//! newest snapshot then no longer reads the old copies, and the reverse pass frees them. This is history-aware rewriting
//! (Fu et al., USENIX ATC 2014, 4.2), which looks for containers with little needed data; here groups count as well, and
//! each place costs a seek.
//!
//! Chunks in containers of other owners are moved: where another disk has written them again, as the owner of a template
//! does when it is upgraded, that copy is referenced instead. Where there is none, those from the worst places are copied,
//! although that frees nothing: later clones follow.

mod fragmented;

use crate::base::error::Result;
use crate::base::policy::Policy;
use crate::container::tables::{ChunkPlace, Tables};
use crate::lookup::referrers::Referrers;
use format::{ContainerId, Reference, RunSet, Summary};
use fragmented::{choose, Choice};
use std::collections::BTreeMap;

/// Bytes that are written again at most for each one that was new in the parent.
const AGAIN_FOR_NEW: u64 = 2;
/// Bytes that may be written again although there were few new ones, where that is worth it: otherwise a disk that hardly
/// changes would, after many backups, have to be read from as many small containers.
const AGAIN_AT_LEAST: u64 = 3 << 20;
/// It is worth it where a restore is spared so many seeks, or as much reading: one backup joins some small containers, and those
/// after it write only what is new until there are as many again.
const WORTH_SEEKS: f64 = 4.0;
/// Bytes that are looked for elsewhere at most.
const MOVED_BYTES_MAX: u64 = 1 << 30;
/// Chunks of other owners are copied from places of which so many bytes are fetched for one that is wanted: nothing becomes
/// free by it.
const COPY_AT: f64 = 2.0;
/// The same of the disk's own chunks in containers that other disks reference: the old copies may stay for them.
const SHARED_AT: f64 = 4.0;

/// How many bytes are written at most although they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// Of the disk's own chunks.
    again: u64,
    /// Of those of other owners.
    copied: u64,
}

impl Budget {
    /// Where the parent had so many new bytes: over the backups of a disk, no more than three bytes are written again or
    /// copied for each new one, but for little.
    fn of(new_bytes: u64) -> Budget {
        let again = match new_bytes {
            0 => 0,
            new_bytes => new_bytes.saturating_mul(AGAIN_FOR_NEW).max(AGAIN_AT_LEAST),
        };
        Budget { again, copied: new_bytes }
    }
}

/// The chunks of the parent that are rewritten, moved or copied, and how much of that is done.
#[derive(Default)]
pub(crate) struct Rewriting {
    /// In the disk's own containers: written again.
    chosen: BTreeMap<ContainerId, RunSet>,
    /// In those of other owners: moved.
    moved: BTreeMap<ContainerId, RunSet>,
    /// Those of them that are copied where there is no better place.
    copied: BTreeMap<ContainerId, RunSet>,
    budget: Budget,
    /// Bytes that were written so far. A chunk that occurs often may be written more often than it was counted, where
    /// the index over the disk's own chunks has forgotten it.
    written: Budget,
}

/// What is written of a chunk that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The disk's own, written again.
    Again,
    /// Another owner's, copied.
    Copied,
}

impl Rewriting {
    /// Chooses chunks, those first that are most expensive to read; how many are written depends on how many `new_bytes`
    /// the parent had. Without `copies`, which others must find, none of other owners are.
    pub fn choose(
        parent: &Summary,
        tables: &Tables,
        policy: &Policy,
        read_ratio: f64,
        new_bytes: u64,
        copies: bool,
        referrers: &mut Referrers,
    ) -> Result<Rewriting> {
        let mut of = |own: bool, read_ratio: f64, budget| {
            let shared_ratio = if own { read_ratio.max(SHARED_AT) } else { read_ratio };
            // What was new pays for itself, and what is moved costs nothing.
            let pays = !own || new_bytes.saturating_mul(AGAIN_FOR_NEW) >= AGAIN_AT_LEAST;
            let worth_seeks = if pays { 0.0 } else { WORTH_SEEKS };
            let choice = Choice { own, read_ratio, shared_ratio, budget, worth_seeks };
            let mut is_shared = |id: ContainerId| Ok(own && referrers.has_any(id.writer())?);
            match budget {
                0 => Ok(BTreeMap::new()),
                _ => choose(parent, tables, policy, &choice, &mut is_shared),
            }
        };
        let budget = Budget::of(new_bytes);
        Ok(Rewriting {
            chosen: of(true, read_ratio, budget.again)?,
            moved: of(false, read_ratio, MOVED_BYTES_MAX)?,
            copied: of(false, read_ratio.max(COPY_AT), if copies { budget.copied } else { 0 })?,
            budget,
            written: Budget::default(),
        })
    }

    /// Takes the chunks that may be written out of what the parent references: they are not to be found there.
    pub fn take_out_of(&self, parent: &mut Summary) {
        for (id, again) in self.chosen.iter().chain(&self.copied) {
            if let Some(chunks) = parent.containers.get_mut(id) {
                *chunks = chunks.minus(again);
            }
        }
    }

    /// Whether a reference leads to chunks that are rewritten, moved or copied.
    pub fn concerns(&self, r: &Reference) -> bool {
        let Reference::Direct { container, first, count } = *r else { return false };
        let leads_to = |chunks: &BTreeMap<ContainerId, RunSet>| {
            chunks.get(&container).is_some_and(|chunks| chunks.count_within(first, count) > 0)
        };
        self.written.again < self.budget.again && leads_to(&self.chosen)
            || self.written.copied < self.budget.copied && leads_to(&self.copied)
            || leads_to(&self.moved)
    }

    /// Forgets where chunks that are rewritten or copied were found. Returns which.
    pub fn forget(&self, found: &mut [Option<ChunkPlace>]) -> Vec<Option<Known>> {
        let has = |chunks: &BTreeMap<ContainerId, RunSet>, (id, n): ChunkPlace| {
            chunks.get(&id).is_some_and(|chunks| chunks.contains(n))
        };
        let known = |at: ChunkPlace| {
            if self.written.again < self.budget.again && has(&self.chosen, at) {
                Some(Known::Again)
            } else if self.written.copied < self.budget.copied && has(&self.copied, at) {
                Some(Known::Copied)
            } else {
                None
            }
        };
        let forget = |slot: &mut Option<ChunkPlace>| {
            let known = slot.and_then(known);
            *slot = slot.filter(|_| known.is_none());
            known
        };
        found.iter_mut().map(forget).collect()
    }

    /// Counts a chunk of so many bytes that was written.
    pub fn count(&mut self, known: Known, bytes: u32) {
        match known {
            Known::Again => self.written.again += u64::from(bytes),
            Known::Copied => self.written.copied += u64::from(bytes),
        }
    }

    /// Bytes that were written although they were known.
    pub fn written_bytes(&self) -> u64 {
        self.written.again + self.written.copied
    }

    /// Whether a chunk is to be moved away from here.
    pub fn is_left(&self, at: ChunkPlace) -> bool {
        self.moved.get(&at.0).is_some_and(|chunks| chunks.contains(at.1))
    }
}
