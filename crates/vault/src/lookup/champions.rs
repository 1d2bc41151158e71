//! Champions: the containers of other disks that a backup has found to share chunks with its segments. Their tables stay
//! in memory, so that locality finds what sampling skipped (sparse indexing, Lillibridge et al., FAST 2009, 3.2).

pub(crate) mod adopted;
mod places;

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::container::tables::{read_table, ChunkPlace, Tables};
use crate::lookup::claims::{Claim, Claimed, Claims};
use crate::manifest::folder::Folder;
use chunk::Fingerprint;
use format::{ChunkNo, ContainerId, DiskId, RunSet, Table, TableIndex};
use places::Places;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// Tables that stay in memory: about 1 MiB each.
const KEPT: usize = 16;
/// Memory for them, where they are larger.
const KEPT_BYTES: usize = 64 << 20;

/// A container whose chunks may be referenced.
pub(crate) struct Champion {
    pub owner: DiskId,
    /// As its owner names it.
    pub container: ContainerId,
    table: Table,
    dead: RunSet,
    places: Places,
}

impl Champion {
    /// Reads the table of a container that was claimed.
    fn load(folder: &Folder, owner: DiskId, claimed: Claimed) -> Result<Champion> {
        let Claimed { entry, dead } = claimed;
        let table = read_table(&folder.of(owner), entry.id, entry.table)?;
        let places = Places::of(&table.fingerprints);
        Ok(Champion { owner, container: entry.id, table, dead, places })
    }

    /// Memory that it takes, in bytes.
    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + size_of_val(self.dead.runs()) + self.places.memory_bytes()
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

/// A search for the chunks of a segment, some of which may have been found already.
pub(crate) struct ChunkSearch<'a> {
    pub tables: &'a Tables,
    pub fingerprints: &'a [Fingerprint],
    pub lengths: &'a [u32],
    /// Places in champions that do not count.
    pub leave: &'a dyn Fn(ChunkPlace) -> bool,
    /// Where each chunk is, `None` where it has not been found.
    pub found: &'a mut [Option<ChunkPlace>],
}

impl ChunkSearch<'_> {
    /// Fingerprints of the chunks that have not been found.
    pub fn missing(&self) -> impl Iterator<Item = &Fingerprint> + '_ {
        self.fingerprints.iter().zip(&*self.found).filter(|(_, at)| at.is_none()).map(|(f, _)| f)
    }

    /// The search for some of its chunks.
    pub fn part(&mut self, chunks: Range<usize>) -> ChunkSearch<'_> {
        ChunkSearch {
            tables: self.tables,
            fingerprints: &self.fingerprints[chunks.clone()],
            lengths: &self.lengths[chunks.clone()],
            leave: self.leave,
            found: &mut self.found[chunks],
        }
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
        let mut champion = None;
        // Its owner may have written it again since it was asked: then it is asked once more.
        for is_last in [false, true] {
            let loaded = match claims.claim(owner, id)? {
                Claim::Later => return Ok(false),
                Claim::Gone => break,
                Claim::Held(claimed) => Champion::load(&self.folder, owner, claimed),
            };
            match loaded {
                Err(VaultError::Missing { .. }) if !is_last => claims.ask_again(owner, id)?,
                loaded => {
                    champion = loaded.unless_damaged()?;
                    break;
                }
            }
        }
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
    pub fn fill(&mut self, only: usize, search: &mut ChunkSearch<'_>) -> bool {
        let ChunkSearch { tables, fingerprints, lengths, leave, found } = search;
        let mut missing: Vec<usize> = (0..found.len()).filter(|n| found[*n].is_none()).collect();
        for at in 0..self.kept.len().min(only) {
            if missing.is_empty() {
                break;
            }
            let before = missing.len();
            let champion = &self.kept[at];
            let mut id = None;
            missing.retain(|n| {
                let Some(chunk) = champion.find(&fingerprints[*n], lengths[*n]) else {
                    return true;
                };
                if id.is_none() {
                    id = tables.count_owner(champion.owner).map(|no| champion.container.of(no));
                }
                found[*n] = id.map(|id| (id, chunk)).filter(|at| !leave(*at));
                found[*n].is_none()
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
