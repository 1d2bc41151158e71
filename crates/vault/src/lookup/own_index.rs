//! The index over the disk's own chunks: those that this backup wrote or adopted, and those that its parent references
//! anywhere.

use crate::base::error::{Result, VaultError};
use crate::container::tables::Tables;
use chunk::{Fingerprint, Location, PrefixIndex};
use format::{ChunkNo, ContainerEntry, ContainerId, DataName, Summary};
use std::collections::{HashMap, VecDeque};

/// Containers of this session whose fingerprints stay in memory: more than can be in flight unwritten.
const RECENT_CONTAINERS: usize = 24;
/// Chunks of the parent that are indexed at most (8 GiB of 4 KiB chunks).
const PARENT_CHUNKS_MAX: u64 = 2 << 20;

/// A prefix index over the disk's own chunks, within a memory budget.
pub(crate) struct OwnIndex {
    index: PrefixIndex,
    /// Containers, and whether they are this session's: written by it, or adopted.
    slots: Vec<(ContainerId, bool)>,
    slot_of: HashMap<ContainerId, u32>,
    recent: HashMap<ContainerId, Vec<(Fingerprint, u32)>>,
    order: VecDeque<ContainerId>,
    parent: ParentChunks,
}

/// Whether the chunks are in the index that the parent references.
enum ParentChunks {
    /// Not yet; which they are, where that has been read.
    Waiting(Option<Summary>),
    Added,
}

impl OwnIndex {
    /// An empty index of about `bytes` bytes. `parent` is what the parent references, where that has been read.
    pub fn new(bytes: usize, parent: Option<Summary>) -> Self {
        OwnIndex {
            index: PrefixIndex::with_capacity_bytes(bytes),
            slots: Vec::new(),
            slot_of: HashMap::new(),
            recent: HashMap::new(),
            order: VecDeque::new(),
            parent: ParentChunks::Waiting(parent),
        }
    }

    fn slot(&mut self, id: ContainerId, fresh: bool) -> u32 {
        let slots = &mut self.slots;
        *self.slot_of.entry(id).or_insert_with(|| {
            slots.push((id, fresh));
            slots.len() as u32 - 1
        })
    }

    /// Adds a chunk that this session has placed; chunk numbers of a container come in order from 0.
    pub fn add_new(&mut self, id: ContainerId, chunk: ChunkNo, f: &Fingerprint, bytes: u32) {
        let location = Location { container_slot: self.slot(id, true), chunk_no: chunk.0 };
        self.index.insert(f, location);
        if !self.recent.contains_key(&id) {
            self.order.push_back(id);
            if self.order.len() > RECENT_CONTAINERS {
                if let Some(old) = self.order.pop_front() {
                    self.recent.remove(&old);
                }
            }
        }
        self.recent.entry(id).or_default().push((*f, bytes));
    }

    /// Adds a chunk of a container that a killed backup has left.
    pub fn add_adopted(&mut self, id: ContainerId, chunk: ChunkNo, f: &Fingerprint) {
        let location = Location { container_slot: self.slot(id, true), chunk_no: chunk.0 };
        self.index.insert(f, location);
    }

    /// Adds what the parent references, once: newest containers first, as far as the budget goes.
    pub fn add_parent(
        &mut self,
        tables: &Tables,
        read_parent: impl FnOnce() -> Result<Summary>,
    ) -> Result<()> {
        let parent = match std::mem::replace(&mut self.parent, ParentChunks::Added) {
            ParentChunks::Added => return Ok(()),
            ParentChunks::Waiting(Some(parent)) => parent,
            ParentChunks::Waiting(None) => read_parent()?,
        };
        let mut added = 0u64;
        for (id, chunks) in parent.containers.iter().rev() {
            if added + chunks.len() > PARENT_CHUNKS_MAX {
                break;
            }
            let Some(table) = tables.own().folder().unless_damaged(tables.get(*id))? else { continue };
            let container_slot = self.slot(*id, false);
            for n in chunks.runs().iter().flat_map(|r| r.0..r.0 + r.1) {
                if let Some(at) = table.index_of(ChunkNo(n)) {
                    let f = Fingerprint(*table.fingerprint(at));
                    self.index.insert(&f, Location { container_slot, chunk_no: n });
                    added += 1;
                }
            }
        }
        Ok(())
    }

    /// Looks a chunk up, compared by its full fingerprint and length.
    pub fn find(
        &self,
        tables: &Tables,
        f: &Fingerprint,
        bytes: u32,
    ) -> Result<Option<(ContainerId, ChunkNo)>> {
        let Some(hint) = self.index.get(f) else { return Ok(None) };
        let (id, fresh) = self.slots[hint.container_slot as usize];
        let chunk = ChunkNo(hint.chunk_no);
        if let Some(list) = self.recent.get(&id) {
            let same = list.get(hint.chunk_no as usize) == Some(&(*f, bytes));
            return Ok(same.then_some((id, chunk)));
        }
        let table = if fresh { tables.load(&Self::session_entry(id)) } else { tables.get(id) };
        let table = match table {
            // Not written yet, or damaged: a miss costs space only.
            Err(VaultError::Missing { .. } | VaultError::Corrupt { .. }) => return Ok(None),
            other => other?,
        };
        let at = table.index_of(chunk);
        let same = at.is_some_and(|n| *table.fingerprint(n) == f.0 && table.length(n) == bytes);
        Ok(same.then_some((id, chunk)))
    }

    /// A container of this session, or one that it has adopted, has no entry in the manifest yet.
    fn session_entry(id: ContainerId) -> ContainerEntry {
        ContainerEntry {
            id,
            table: id.writer(),
            data: DataName { container: id, generation: id.writer() },
            dead: None,
            chunks: 0,
            dead_chunks: 0,
            stored_bytes: 0,
            level: 0,
        }
    }
}
