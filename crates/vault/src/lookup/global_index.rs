//! The global chunk index of the `conventional` policy: prefixes in memory, full fingerprints in the tables.

use crate::base::error::Result;
use crate::base::error::UnlessDamaged;
use crate::container::tables::{ChunkPlace, Tables};
use crate::lookup::claims::Claims;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use chunk::{Fingerprint, Location, PrefixIndex};
use format::{names, ChunkNo, ContainerId, Kind, Prefixes};
use std::collections::BTreeSet;

/// Chunks of the shared set that any disk may match.
pub(crate) struct GlobalIndex {
    index: PrefixIndex,
    slots: Vec<ContainerId>,
    claims: Claims,
    matched: BTreeSet<ContainerId>,
}

impl GlobalIndex {
    /// Reads the prefixes of every shared container. One without them costs space only.
    pub fn load(shared: &Folder, containers: &Containers, session: &Session, bytes: usize) -> Result<Self> {
        let mut index = PrefixIndex::with_capacity_bytes(bytes);
        let mut slots = Vec::new();
        containers.each(|e| {
            let name = names::prefixes(e.id);
            let Ok(frame) = shared.store.read(&name, Kind::Prefixes.frame_max()) else { return Ok(()) };
            let Ok(prefixes) = Prefixes::decode(shared.context(&name), &frame) else { return Ok(()) };
            let container_slot = slots.len() as u32;
            slots.push(e.id);
            for (chunk, prefix) in prefixes.0 {
                let mut fingerprint = Fingerprint([0; 32]);
                fingerprint.0[..8].copy_from_slice(&prefix);
                index.insert(&fingerprint, Location { container_slot, chunk_no: chunk.0 });
            }
            Ok(())
        })?;
        Ok(GlobalIndex {
            index,
            slots,
            claims: Claims::new(shared.clone(), session.token),
            matched: BTreeSet::new(),
        })
    }

    /// Looks a chunk up: claimed, and compared by its full fingerprint and length.
    pub fn find(&mut self, tables: &Tables, f: &Fingerprint, bytes: u32) -> Result<Option<ChunkPlace>> {
        let Some(hint) = self.index.get(f) else { return Ok(None) };
        let id = self.slots[hint.container_slot as usize];
        let Some(claimed) = self.claims.claim(id)? else { return Ok(None) };
        let chunk = ChunkNo(hint.chunk_no);
        if claimed.dead.contains(chunk.0) {
            return Ok(None);
        }
        let Some(table) = tables.load(&claimed.entry).unless_damaged()? else { return Ok(None) };
        let at = table.index_of(chunk);
        let same = at.is_some_and(|n| table.fingerprints[n] == f.0 && table.lengths[n] == bytes);
        if same {
            self.matched.insert(id);
        }
        Ok(same.then_some((id, chunk)))
    }

    /// The shared containers that may be referenced by now.
    pub fn matched(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.matched.iter().copied()
    }
}
