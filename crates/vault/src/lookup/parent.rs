//! The parent of a backup: the snapshot that its segments are compared with.

use crate::base::error::Result;
use crate::container::tables::Tables;
use crate::recipe::chain::RecipeReader;
use chunk::Fingerprint;
use format::{ChunkNo, ContainerId, Reference, SegmentNo, SegmentRecipe, Summary};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Memory for what the parent references, in bytes.
const SUMMARY_BYTES: usize = 48 << 20;

/// A parent whose recipe can be read. Damage in it costs matches, never the backup.
pub(crate) struct Parent {
    recipe: RecipeReader,
    /// Containers of the disk itself that are known to be damaged.
    damaged: HashSet<ContainerId>,
    signatures: Option<Vec<(u64, SegmentNo)>>,
}

impl Parent {
    /// The parent that a recipe describes, but for what is in damaged containers, of which `damaged` are the disk's own.
    pub fn new(recipe: RecipeReader, damaged: HashSet<ContainerId>) -> Self {
        Parent { recipe, damaged, signatures: None }
    }

    /// The segment at the same place; `None` where it is null or cannot be read.
    pub fn segment(&mut self, no: SegmentNo) -> Result<Option<SegmentRecipe>> {
        let read = self.recipe.segment(no);
        Ok(self.recipe.folder().unless_damaged(read)?.flatten())
    }

    /// The same, of a page that must be readable: nothing of it is read from the disk.
    pub fn segment_to_take_over(&mut self, no: SegmentNo) -> Result<Option<SegmentRecipe>> {
        self.recipe.segment(no)
    }

    /// Whether all its containers are sound, and all its references direct.
    pub fn is_usable(&self, tables: &Tables, segment: &SegmentRecipe) -> Result<bool> {
        is_usable(tables, &self.damaged, segment)
    }

    /// Ranges of segments (numbers) that cannot be taken over unread: their page is damaged, or a container.
    pub fn unusable(&mut self, tables: &Tables) -> Result<Vec<Range<SegmentNo>>> {
        let mut found = Vec::new();
        for no in self.recipe.page_numbers() {
            let page = self.recipe.page(no);
            let Some(page) = self.recipe.folder().unless_damaged(page)? else {
                found.push(no.segments());
                continue;
            };
            for (n, segment) in &page.unwrap_or_default().segments {
                if !self.is_usable(tables, segment)? {
                    let n = no.segment(*n);
                    found.push(n..SegmentNo(n.0 + 1));
                }
            }
        }
        Ok(found)
    }

    /// Fills in where chunks are found in one of the parent's segments, in containers that `admits` lets pass. Returns
    /// how many are still not found.
    pub fn match_segment(
        &mut self,
        tables: &Tables,
        no: SegmentNo,
        fingerprints: &[Fingerprint],
        admits: &mut dyn FnMut(ContainerId) -> Result<bool>,
        found: &mut [Option<(ContainerId, ChunkNo)>],
    ) -> Result<usize> {
        let missing = |found: &[Option<_>]| found.iter().filter(|f| f.is_none()).count();
        let Some(segment) = self.segment(no)? else { return Ok(missing(found)) };
        let mut known: HashMap<[u8; 32], (ContainerId, ChunkNo)> = HashMap::new();
        for r in &segment.references {
            let Reference::Direct { container, first, count } = *r else { continue };
            if tables.is_damaged(container, &self.damaged)? || !admits(container)? {
                continue;
            }
            let table = tables.get(container);
            let Some(table) = self.recipe.folder().unless_damaged(table)? else { continue };
            for n in first.0..first.0 + count {
                // The table of a sound container has all of them.
                let Some(at) = table.index_of(ChunkNo(n)) else { break };
                known.entry(*table.fingerprint(at)).or_insert((container, ChunkNo(n)));
            }
        }
        for (f, slot) in fingerprints.iter().zip(found.iter_mut()) {
            if slot.is_none() {
                *slot = known.get(&f.0).copied();
            }
        }
        Ok(missing(found))
    }

    /// Calls `each` with every segment that is not null and can be read.
    pub fn each_segment(&mut self, each: &mut dyn FnMut(SegmentNo, &SegmentRecipe)) -> Result<()> {
        for no in self.recipe.page_numbers() {
            let page = self.recipe.page(no);
            let Some(page) = self.recipe.folder().unless_damaged(page)? else { continue };
            let page = page.unwrap_or_default();
            page.segments.iter().for_each(|(n, s)| each(no.segment(*n), s));
        }
        Ok(())
    }

    /// At most `limit` segments of equal signature, but the one at `except` (VM-centric 3.1).
    pub fn similar(&mut self, signature: u64, except: SegmentNo, limit: usize) -> Result<Vec<SegmentNo>> {
        let signatures = match self.signatures.take() {
            Some(s) => s,
            None => self.read_signatures()?,
        };
        let from = signatures.partition_point(|s| s.0 < signature);
        let equal = signatures[from..].iter().take_while(|s| s.0 == signature);
        let similar = equal.map(|s| s.1).filter(|n| *n != except).take(limit).collect();
        self.signatures = Some(signatures);
        Ok(similar)
    }

    fn read_signatures(&mut self) -> Result<Vec<(u64, SegmentNo)>> {
        let mut all = Vec::new();
        self.each_segment(&mut |no, s| all.push((s.signature, no)))?;
        all.sort_unstable();
        Ok(all)
    }

    /// What the parent references in sound containers.
    pub fn summary(&mut self, tables: &Tables) -> Result<Summary> {
        let (mut all, mut bytes, mut is_whole) = (Summary::default(), 0, true);
        for no in self.recipe.page_numbers() {
            let summary = self.recipe.summary(no);
            let Some(summary) = self.recipe.folder().unless_damaged(summary)? else {
                is_whole = false;
                continue;
            };
            bytes += summary.memory_bytes();
            // What is left out is not found where it has moved to.
            if bytes > SUMMARY_BYTES {
                is_whole = false;
                break;
            }
            all.merge(&summary);
        }
        // The new snapshot may take over any of it.
        if is_whole {
            tables.own().check_those_of(all.containers.keys())?;
        } else {
            tables.own().check()?;
        }
        let mut damaged = Vec::new();
        for id in all.containers.keys() {
            if tables.is_damaged(*id, &self.damaged)? {
                damaged.push(*id);
            }
        }
        damaged.iter().for_each(|id| drop(all.containers.remove(id)));
        Ok(all)
    }
}

/// Whether all containers of a segment are sound, and all its references direct. `damaged` are the disk's own.
pub(crate) fn is_usable(
    tables: &Tables,
    damaged: &HashSet<ContainerId>,
    segment: &SegmentRecipe,
) -> Result<bool> {
    for r in &segment.references {
        match r {
            Reference::Null { .. } => {}
            Reference::Direct { container, .. } => {
                if tables.is_damaged(*container, damaged)? {
                    return Ok(false);
                }
            }
            Reference::Indirect { .. } => return Ok(false),
        }
    }
    Ok(true)
}
