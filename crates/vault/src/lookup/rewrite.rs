//! Chooses fragmented chunks of the parent that a backup rewrites, within a budget.
//!
//! A restore fetches whole groups and seeks once for each container. With more versions, the newest one needs a smaller
//! part of each old group, and chunks from more small containers. The backup rewrites the chunks in containers and
//! groups with the highest read ratio (bytes fetched / bytes needed) together with the new ones: the newest snapshot
//! then no longer reads the old copies, and the reverse pass frees them. This is history-aware rewriting (Fu et al.,
//! USENIX ATC 2014, 4.2), which looks for containers with little needed data; here groups count as well, and each place
//! costs a seek.
//!
//! Costs are in stored (compressed) bytes.

use crate::base::error::{Result, UnlessDamaged};
use crate::base::policy::{Policy, GAP_BYTES};
use crate::container::tables::{ChunkPlace, Tables};
use format::{ChunkNo, Codec, ContainerEntry, ContainerId, Group, Reference, RunSet, Summary, Table};
use std::collections::BTreeMap;

/// Going to another place takes as long as reading so much (8.5 ms and half a rotation of 4.2, at 156 MB/s).
const SEEK_BYTES: f64 = (2 << 20) as f64;
/// Bytes that are written again at most for each one that was new in the parent.
const AGAIN_FOR_NEW: u64 = 2;
/// Bytes that may be written again although there were few new ones: less than a seek costs. Otherwise a disk that hardly
/// changes would, after many backups, have to be read from as many small containers.
const AGAIN_AT_LEAST: u64 = 1 << 20;
/// Chunks of containers whose tables are read at most, those first of which least is needed (75 MB of tables).
const CHUNKS_LOOKED_AT: u64 = 2 << 20;
/// Bytes worth rewriting that are found before the search ends, times the budget: the worst of them are rewritten. Entries
/// tell about how bad a container is, tables exactly; with more versions there are ever more tables.
const FOUND_FOR_BUDGET: u64 = 4;

/// The chunks that are wanted of one place.
struct Place {
    container: ContainerId,
    chunks: RunSet,
    /// Their bytes, decompressed.
    wanted_bytes: u64,
    /// Bytes fetched for one wanted.
    ratio: f64,
    /// The groups of a container.
    groups: Vec<Place>,
}

/// How many bytes may be written again where the parent had so many new ones: over the backups of a disk, no more than
/// three bytes are written for each new one, but for little.
pub(crate) fn budget(new_bytes: u64) -> u64 {
    match new_bytes {
        0 => 0,
        new_bytes => new_bytes.saturating_mul(AGAIN_FOR_NEW).max(AGAIN_AT_LEAST),
    }
}

/// The chunks of the parent that are rewritten, and how much of that is done.
#[derive(Default)]
pub(crate) struct Rewriting {
    chosen: BTreeMap<ContainerId, RunSet>,
    budget_bytes: u64,
    /// Bytes that were rewritten so far. A chunk that occurs often may be written more often than it was counted, where
    /// the index over the disk's own chunks has forgotten it.
    pub written_bytes: u64,
}

impl Rewriting {
    /// Chooses chunks of `budget_bytes` bytes together, those first that are most expensive to read.
    pub fn choose(
        parent: &Summary,
        tables: &Tables,
        policy: &Policy,
        read_ratio: f64,
        budget_bytes: u64,
    ) -> Result<Rewriting> {
        let chosen = choose(parent, tables, policy, read_ratio, budget_bytes)?;
        Ok(Rewriting { chosen, budget_bytes, written_bytes: 0 })
    }

    /// Takes the chosen chunks out of what the parent references: they are not to be found there.
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

    /// Whether a reference leads to chunks that are rewritten.
    pub fn concerns(&self, r: &Reference) -> bool {
        let Reference::Direct { container, first, count } = *r else { return false };
        self.has_budget()
            && self.chosen.get(&container).is_some_and(|chunks| chunks.count_within(first, count) > 0)
    }

    /// Forgets where chunks that are rewritten were found. Returns which.
    pub fn forget(&self, found: &mut [Option<ChunkPlace>]) -> Vec<bool> {
        let is_chosen = |(id, n): ChunkPlace| self.chosen.get(&id).is_some_and(|c| c.contains(n));
        let forget =
            |slot: &mut Option<ChunkPlace>| self.has_budget() && slot.take_if(|at| is_chosen(*at)).is_some();
        found.iter_mut().map(forget).collect()
    }
}

/// The chunks of the disk's own containers that are written again: those of the worst places first, `budget` bytes
/// together, as long as more than `read_ratio` bytes are fetched for one that is wanted.
fn choose(
    parent: &Summary,
    tables: &Tables,
    policy: &Policy,
    read_ratio: f64,
    budget: u64,
) -> Result<BTreeMap<ContainerId, RunSet>> {
    let mut places: Vec<Place> = Vec::new();
    let (mut chunks_looked_at, mut found_bytes) = (0, 0);
    for (entry, wanted) in most_fragmented(parent, tables, policy, read_ratio)? {
        chunks_looked_at += u64::from(entry.chunks);
        if chunks_looked_at > CHUNKS_LOOKED_AT || found_bytes >= budget.saturating_mul(FOUND_FOR_BUDGET) {
            break;
        }
        // Damage costs reads, nothing else.
        let Some(table) = tables.load(&entry).unless_damaged()? else { continue };
        let container = price(&table, wanted);
        let before = places.len();
        if container.ratio > read_ratio {
            places.push(container)
        } else {
            places.extend(container.groups.into_iter().filter(|g| g.ratio > read_ratio))
        }
        found_bytes += places[before..].iter().map(|p| p.wanted_bytes).sum::<u64>();
    }
    Ok(worst(places, read_ratio, budget))
}

/// Containers that may be fragmented, those first of which least is needed, as far as entries tell without tables.
fn most_fragmented<'a>(
    parent: &'a Summary,
    tables: &Tables,
    policy: &Policy,
    read_ratio: f64,
) -> Result<Vec<(ContainerEntry, &'a RunSet)>> {
    let chunk_bytes = f64::from(policy.chunking.average_bytes());
    // Where fewer bytes are not wanted, no group of full length has so few that are.
    let spare_bytes = (1.0 - 1.0 / read_ratio) * f64::from(policy.group_bytes);
    let mut found = Vec::new();
    for (id, wanted) in parent.containers.iter().filter(|c| c.0.is_own()) {
        let Some(entry) = tables.entry(*id).unless_damaged()? else { continue };
        let used = wanted.len() as f64 / f64::from(entry.chunks.max(1));
        let ratio = (SEEK_BYTES / entry.stored_bytes.max(1) as f64 + 1.0) / used;
        if ratio > read_ratio || (1.0 - used) * f64::from(entry.chunks) * chunk_bytes >= spare_bytes {
            found.push((ratio, entry, wanted));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(found.into_iter().map(|(_, entry, wanted)| (entry, wanted)).collect())
}

/// What it costs to fetch from a container, and from each of its groups.
fn price(table: &Table, wanted: &RunSet) -> Place {
    let numbers: Vec<u32> = table.numbers.runs().iter().flat_map(|r| r.0..r.0 + r.1).collect();
    let mut container = Place {
        container: table.container,
        chunks: wanted.clone(),
        wanted_bytes: 0,
        ratio: 0.0,
        groups: Vec::new(),
    };
    let (mut fetched, mut wanted_of_it) = (SEEK_BYTES, 0.0);
    for group in &table.groups {
        let Some((place, price)) = price_of_group(table, group, &numbers, wanted) else { continue };
        fetched += price;
        wanted_of_it += price / place.ratio;
        container.wanted_bytes += place.wanted_bytes;
        container.groups.push(place);
    }
    container.ratio = if wanted_of_it > 0.0 { fetched / wanted_of_it } else { 0.0 };
    container
}

/// A group, and the bytes to fetch for what is wanted of it; `None` where that is nothing. `numbers` are those of the
/// table's chunks.
fn price_of_group(table: &Table, group: &Group, numbers: &[u32], wanted: &RunSet) -> Option<(Place, f64)> {
    let (mut wanted_bytes, mut gap_bytes, mut gap) = (0, 0, 0);
    let mut chunks = Vec::new();
    let indices = group.indices();
    for (&no, &length) in indices.of(numbers).iter().zip(indices.of(&table.lengths)) {
        let bytes = u64::from(length);
        if wanted.contains(ChunkNo(no)) {
            gap_bytes += if chunks.is_empty() { 0 } else { gap.min(GAP_BYTES) };
            gap = 0;
            wanted_bytes += bytes;
            chunks.push((no, 1));
        } else {
            gap += bytes;
        }
    }
    if wanted_bytes == 0 {
        return None;
    }
    // Of a raw group only what is wanted is read, and small gaps.
    let fetched_bytes = match group.codec {
        Codec::Raw => wanted_bytes + gap_bytes,
        _ => u64::from(group.raw_len),
    };
    let place = Place {
        container: table.container,
        chunks: RunSet::from_unsorted(chunks),
        wanted_bytes,
        ratio: fetched_bytes as f64 / wanted_bytes as f64,
        groups: Vec::new(),
    };
    let stored_for_raw = f64::from(group.stored_len) / f64::from(group.raw_len.max(1));
    Some((place, fetched_bytes as f64 * stored_for_raw))
}

/// The worst places as far as the budget goes. Of a container that is too much for it, groups are taken.
fn worst(mut places: Vec<Place>, read_ratio: f64, budget: u64) -> BTreeMap<ContainerId, RunSet> {
    let mut chosen: BTreeMap<ContainerId, RunSet> = BTreeMap::new();
    let mut left = budget;
    places.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    for place in places {
        let parts = if place.wanted_bytes <= left {
            vec![place]
        } else {
            let mut groups = place.groups;
            groups.retain(|g| g.ratio > read_ratio);
            groups.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
            groups
        };
        for part in parts {
            if part.wanted_bytes <= left {
                left -= part.wanted_bytes;
                let of_container = chosen.entry(part.container).or_default();
                *of_container = of_container.union(&part.chunks);
            }
        }
    }
    chosen
}
