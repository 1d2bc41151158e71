//! Champions: the containers of other disks that a backup has found to share chunks with its segments. Their tables stay
//! in memory, so that locality finds what sampling skipped (sparse indexing, Lillibridge et al., FAST 2009, 3.2).

use crate::base::error::{Result, UnlessDamaged};
use crate::container::tables::{read_table, ChunkPlace, Tables};
use crate::lookup::claims::{Claim, Claimed, Claims};
use crate::manifest::folder::Folder;
use chunk::Fingerprint;
use format::{ChunkNo, ContainerId, DiskId, RunSet, Table, TableIndex};
use std::collections::{HashSet, VecDeque};

/// Tables that stay in memory: about 1 MiB each.
const KEPT: usize = 16;
/// Memory for them, where they are larger.
const KEPT_BYTES: usize = 64 << 20;

/// Slots that are looked at for a fingerprint. Half empty, even tables of a million chunks have it in fewer; a forged table
/// with one fingerprint many times would take quadratic time.
const PROBES: usize = 128;

/// A container whose chunks may be referenced.
pub(crate) struct Champion {
    pub owner: DiskId,
    /// As its owner names it.
    pub container: ContainerId,
    table: Table,
    dead: RunSet,
    places: Places,
}

/// Where the fingerprints of a table stand: a hash table of their indices, because fingerprints are hashes already.
struct Places {
    /// An index and 1, or 0. A power of two of them, at most half of them taken.
    slots: Vec<u32>,
}

impl Places {
    fn of(fingerprints: &[[u8; 32]]) -> Places {
        let mut slots = vec![0; (2 * fingerprints.len()).max(2).next_power_of_two()];
        for (n, f) in fingerprints.iter().enumerate() {
            let start = slot_of(f, slots.len());
            let mut probed = (start..start + PROBES).map(|at| at % slots.len());
            if let Some(at) = probed.find(|at| slots[*at] == 0) {
                slots[at] = n as u32 + 1;
            }
        }
        Places { slots }
    }

    /// The indices at which a fingerprint stands: all of them, unless there are very many.
    fn find<'a>(
        &'a self,
        fingerprints: &'a [[u8; 32]],
        f: &'a [u8; 32],
    ) -> impl Iterator<Item = TableIndex> + 'a {
        let start = slot_of(f, self.slots.len());
        let probed = PROBES.min(self.slots.len());
        let slots = (start..start + probed).map(|at| self.slots[at % self.slots.len()]);
        let indices = slots.take_while(|s| *s != 0).map(|s| TableIndex(s - 1));
        indices.filter(move |n| fingerprints[n.0 as usize] == *f)
    }
}

fn slot_of(f: &[u8; 32], slots: usize) -> usize {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&f[8..16]);
    u64::from_le_bytes(bytes) as usize & (slots - 1)
}

impl Champion {
    /// Reads the table of a container that was claimed; `None` where it cannot be read.
    fn load(folder: &Folder, owner: DiskId, claimed: Claimed) -> Result<Option<Champion>> {
        let Claimed { entry, dead } = claimed;
        let table = read_table(&folder.of(owner), entry.id, entry.table).unless_damaged()?;
        Ok(table.map(|table| {
            let places = Places::of(&table.fingerprints);
            Champion { owner, container: entry.id, table, dead, places }
        }))
    }

    /// Memory that it takes, in bytes.
    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + size_of_val(self.dead.runs()) + self.places.slots.len() * size_of::<u32>()
    }

    /// The chunk of a fingerprint and length.
    fn find(&self, f: &Fingerprint, bytes: u32) -> Option<ChunkNo> {
        let numbers =
            self.places.find(&self.table.fingerprints, &f.0).filter(|n| self.table.length(*n) == bytes);
        numbers.filter_map(|n| self.table.number_at(n)).find(|no| !self.dead.contains(*no))
    }

    /// The first of chunks that stand one behind the other.
    fn find_run(&self, chunks: &[Fingerprint], lengths: &[u32]) -> Option<ChunkNo> {
        let first = chunks.first()?;
        self.places.find(&self.table.fingerprints, &first.0).find_map(|at| {
            if chunks.len() > self.table.lengths.len() - at.0 as usize {
                return None;
            }
            let range = at.range(chunks.len() as u32);
            let same = range.of(&self.table.lengths) == lengths
                && range.of(&self.table.fingerprints).iter().zip(chunks).all(|(a, b)| *a == b.0);
            let (no, last) = (self.table.number_at(at)?, self.table.number_at(TableIndex(range.end.0 - 1))?);
            let follow = (last.0 - no.0) as usize == chunks.len() - 1;
            (same && follow && self.dead.count_within(no, chunks.len() as u32) == 0).then_some(no)
        })
    }
}

/// The champions used last.
pub(crate) struct Champions {
    folder: Folder,
    /// Most recently used first.
    kept: VecDeque<Champion>,
    /// Containers that turned out not to be usable.
    refused: HashSet<(DiskId, ContainerId)>,
    /// Containers that may be referenced by now.
    matched: HashSet<(DiskId, ContainerId)>,
}

impl Champions {
    /// None yet, for a backup of a disk.
    pub fn new(folder: &Folder) -> Champions {
        Champions {
            folder: folder.clone(),
            kept: VecDeque::new(),
            refused: HashSet::new(),
            matched: HashSet::new(),
        }
    }

    /// Containers that may be referenced by now, by their owners.
    pub fn matched(&self) -> impl Iterator<Item = (DiskId, ContainerId)> + '_ {
        self.matched.iter().copied()
    }

    /// Whether a container is among them.
    pub fn has(&self, owner: DiskId, id: ContainerId) -> bool {
        self.kept.iter().any(|c| c.owner == owner && c.container == id)
    }

    /// Takes a container in, as the first one. Returns whether it may be used.
    pub fn add(&mut self, claims: &mut Claims, owner: DiskId, id: ContainerId) -> Result<bool> {
        if let Some(at) = self.kept.iter().position(|c| c.owner == owner && c.container == id) {
            self.make_first(at);
            return Ok(true);
        }
        if self.refused.contains(&(owner, id)) {
            return Ok(false);
        }
        let champion = match claims.claim(owner, id)? {
            Claim::Later => return Ok(false),
            Claim::Gone => None,
            Claim::Held(claimed) => Champion::load(&self.folder, owner, claimed)?,
        };
        let Some(champion) = champion else {
            self.refused.insert((owner, id));
            return Ok(false);
        };
        self.kept.push_front(champion);
        let mut room = KEPT_BYTES;
        let fits = |c: &&Champion| {
            let left = room.checked_sub(c.memory_bytes());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let fit = self.kept.iter().take(KEPT).take_while(fits).count();
        self.kept.truncate(fit.max(1));
        Ok(true)
    }

    fn make_first(&mut self, at: usize) {
        if let Some(champion) = self.kept.remove(at) {
            self.kept.push_front(champion);
        }
    }

    /// Fills in what the first champions have of the chunks that have not been found: of all, or of `only` the first.
    /// Returns whether some are still missing.
    pub fn fill(
        &mut self,
        tables: &Tables,
        only: usize,
        fingerprints: &[Fingerprint],
        lengths: &[u32],
        found: &mut [Option<ChunkPlace>],
    ) -> bool {
        let mut missing: Vec<usize> = (0..found.len()).filter(|n| found[*n].is_none()).collect();
        for at in 0..self.kept.len().min(only) {
            if missing.is_empty() {
                break;
            }
            let before = missing.len();
            let champion = &self.kept[at];
            let mut id = None;
            missing.retain(|n| {
                let Some(chunk) = champion.find(&fingerprints[*n], lengths[*n]) else { return true };
                if id.is_none() {
                    id = tables.count_owner(champion.owner).map(|no| champion.container.of(no));
                }
                found[*n] = id.map(|id| (id, chunk));
                id.is_none()
            });
            if missing.len() < before {
                self.matched.insert((champion.owner, champion.container));
                self.make_first(at);
            }
        }
        !missing.is_empty()
    }

    /// Where chunks stand one behind the other in the first champion.
    pub fn find_run(
        &mut self,
        tables: &Tables,
        chunks: &[Fingerprint],
        lengths: &[u32],
    ) -> Option<ChunkPlace> {
        let champion = self.kept.front()?;
        let first = champion.find_run(chunks, lengths)?;
        let id = champion.container.of(tables.count_owner(champion.owner)?);
        self.matched.insert((champion.owner, champion.container));
        Some((id, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fingerprint_has_its_places() {
        for count in [0usize, 1, 2, 3, 100, 1000] {
            let fingerprint = |n: usize| Fingerprint::of(&n.to_le_bytes()).0;
            // Every third one stands twice.
            let mut all: Vec<[u8; 32]> = (0..count).map(fingerprint).collect();
            all.extend((0..count).step_by(3).map(fingerprint));
            let places = Places::of(&all);
            for n in 0..count {
                let f = fingerprint(n);
                let mut found: Vec<usize> = places.find(&all, &f).map(|n| n.0 as usize).collect();
                found.sort_unstable();
                let expected: Vec<usize> = (0..all.len()).filter(|at| all[*at] == f).collect();
                assert_eq!(found, expected);
            }
            assert_eq!(places.find(&all, &fingerprint(count + 1)).count(), 0);
        }
        let same = vec![[7; 32]; 1 << 20];
        assert_eq!(Places::of(&same).find(&same, &[7; 32]).count(), PROBES);
    }
}
