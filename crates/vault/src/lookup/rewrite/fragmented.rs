//! Finds fragmented chunks: those in places, containers or groups, of which little is wanted.
//!
//! Costs are in stored (compressed) bytes.

use crate::base::error::{Result, UnlessDamaged};
use crate::base::policy::{Policy, GAP_BYTES};
use crate::container::tables::Tables;
use format::{ChunkNo, Codec, ContainerEntry, ContainerId, Group, RunSet, Summary, Table};
use std::collections::BTreeMap;

/// Going to another place takes as long as reading so much (8.5 ms and half a rotation of 4.2, at 156 MB/s).
const SEEK_BYTES: f64 = (2 << 20) as f64;
/// Chunks of containers whose tables are read at most, those first of which least is needed (75 MB of tables).
const CHUNKS_LOOKED_AT: u64 = 2 << 20;
/// Bytes worth choosing that are found before the search ends, times the budget: the worst of them are chosen. Entries
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
    /// Bytes that are fetched, a seek among them, and not wanted.
    spared_bytes: f64,
    /// The groups of a container, those that may be chosen by themselves.
    groups: Vec<Place>,
}

/// Which chunks that the parent wants are chosen.
pub(super) struct Choice {
    /// Those of the disk's own containers, or those of other owners.
    pub own: bool,
    /// Those of places of which more bytes are fetched for one that is wanted.
    pub read_ratio: f64,
    /// The same where others need the place as well.
    pub shared_ratio: f64,
    /// So many bytes together.
    pub budget: u64,
    /// None, unless all together spare a restore so many seeks, or as much reading.
    pub worth_seeks: f64,
}

impl Choice {
    fn is_worth(&self, spared_bytes: f64) -> bool {
        spared_bytes >= self.worth_seeks * SEEK_BYTES
    }
}

/// The chunks of the worst places first. `is_shared` tells whether others may need what is in a container.
pub(super) fn choose(
    parent: &Summary,
    tables: &Tables,
    policy: &Policy,
    choice: &Choice,
    is_shared: &mut dyn FnMut(ContainerId) -> Result<bool>,
) -> Result<BTreeMap<ContainerId, RunSet>> {
    let budget = choice.budget;
    let mut places: Vec<Place> = Vec::new();
    let (mut chunks_looked_at, mut found_bytes) = (0, 0);
    for Candidate { entry, wanted, ratio, .. } in most_fragmented(parent, tables, policy, choice, is_shared)?
    {
        chunks_looked_at += u64::from(entry.chunks);
        if chunks_looked_at > CHUNKS_LOOKED_AT || found_bytes >= budget.saturating_mul(FOUND_FOR_BUDGET) {
            break;
        }
        // Damage costs reads, nothing else.
        let Some(table) = tables.load(&entry).unless_damaged()? else { continue };
        let mut container = price(&table, wanted);
        container.groups.retain(|g| g.ratio > ratio);
        let before = places.len();
        if container.ratio > ratio {
            places.push(container)
        } else {
            places.extend(container.groups)
        }
        found_bytes += places[before..].iter().map(|p| p.wanted_bytes).sum::<u64>();
    }
    let (chosen, spared_bytes) = worst(places, budget);
    Ok(if choice.is_worth(spared_bytes) { chosen } else { BTreeMap::new() })
}

/// A container that may be fragmented.
struct Candidate<'a> {
    entry: ContainerEntry,
    /// The chunks that the parent needs of it.
    wanted: &'a RunSet,
    /// Bytes that are fetched for one that is wanted, a seek among them.
    of_container: f64,
    /// Its places count from so many on.
    ratio: f64,
}

impl Candidate<'_> {
    /// Whether the container, or a group in it, may be as bad as its ratio says.
    fn may_be(&self, policy: &Policy) -> bool {
        let chunks = f64::from(self.entry.chunks.max(1));
        let unwanted_bytes = (chunks - self.wanted.len() as f64) * f64::from(policy.chunking.average_bytes());
        // Where fewer bytes are not wanted, no group of full length has so few that are.
        let spare_bytes = (1.0 - 1.0 / self.ratio) * f64::from(policy.group_bytes);
        self.of_container > self.ratio || unwanted_bytes >= spare_bytes
    }
}

/// Containers that may be fragmented, those first of which least is needed, as far as entries tell without tables; none where they
/// are not worth it.
fn most_fragmented<'a>(
    parent: &'a Summary,
    tables: &Tables,
    policy: &Policy,
    choice: &Choice,
    is_shared: &mut dyn FnMut(ContainerId) -> Result<bool>,
) -> Result<Vec<Candidate<'a>>> {
    let chunk_bytes = f64::from(policy.chunking.average_bytes());
    let mut found = Vec::new();
    for (id, wanted) in parent.containers.iter().filter(|c| c.0.is_own() == choice.own) {
        let Some(entry) = tables.entry(*id).unless_damaged()? else { continue };
        let used = wanted.len() as f64 / f64::from(entry.chunks.max(1));
        let of_container = (SEEK_BYTES / entry.stored_bytes.max(1) as f64 + 1.0) / used;
        let candidate = Candidate { entry, wanted, of_container, ratio: choice.read_ratio };
        if candidate.may_be(policy) {
            found.push(candidate);
        }
    }
    found.sort_by(|a, b| b.of_container.total_cmp(&a.of_container));
    let is_worth =
        |all: &[Candidate<'_>]| choice.is_worth(spared_bytes(all.iter(), chunk_bytes, choice.budget));
    if !is_worth(&found) {
        return Ok(Vec::new());
    }
    // Whether others need them as well is asked of those only that are worth it.
    let mut left = Vec::new();
    for candidate in found {
        let ratio = if is_shared(candidate.entry.id)? { choice.shared_ratio } else { choice.read_ratio };
        let candidate = Candidate { ratio, ..candidate };
        if candidate.may_be(policy) {
            left.push(candidate);
        }
    }
    Ok(if is_worth(&left) { left } else { Vec::new() })
}

/// What a restore would be spared by the worst of these, about: as far as entries tell, and if what is wanted is spread evenly.
fn spared_bytes<'a>(
    worst_first: impl Iterator<Item = &'a Candidate<'a>>,
    chunk_bytes: f64,
    budget: u64,
) -> f64 {
    let (mut left, mut spared) = (budget as f64, 0.0);
    for Candidate { entry, wanted, of_container, ratio } in worst_first {
        let wanted_bytes = wanted.len() as f64 * chunk_bytes;
        let used = wanted.len() as f64 / f64::from(entry.chunks.max(1));
        let unwanted_bytes = (1.0 - used) * entry.stored_bytes as f64;
        if wanted_bytes <= left {
            let seek = if of_container > ratio { SEEK_BYTES } else { 0.0 };
            spared += seek + unwanted_bytes;
            left -= wanted_bytes;
        } else if 1.0 / used > *ratio {
            spared += unwanted_bytes * left / wanted_bytes;
            break;
        }
    }
    spared
}

/// What it costs to fetch from a container, and from each of its groups.
fn price(table: &Table, wanted: &RunSet) -> Place {
    let numbers: Vec<u32> = table.numbers.runs().iter().flat_map(|r| r.0..r.0 + r.1).collect();
    let mut container = Place {
        container: table.container,
        chunks: wanted.clone(),
        wanted_bytes: 0,
        ratio: 0.0,
        spared_bytes: 0.0,
        groups: Vec::new(),
    };
    let (mut fetched, mut wanted_of_it) = (SEEK_BYTES, 0.0);
    for group in &table.groups {
        let Some((place, price)) = price_of_group(table, group, &numbers, wanted) else { continue };
        fetched += price;
        wanted_of_it += price - place.spared_bytes;
        container.wanted_bytes += place.wanted_bytes;
        container.groups.push(place);
    }
    container.ratio = if wanted_of_it > 0.0 { fetched / wanted_of_it } else { 0.0 };
    container.spared_bytes = fetched - wanted_of_it;
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
    let stored_for_raw = f64::from(group.stored_len) / f64::from(group.raw_len.max(1));
    let place = Place {
        container: table.container,
        chunks: RunSet::from_unsorted(chunks),
        wanted_bytes,
        ratio: fetched_bytes as f64 / wanted_bytes as f64,
        spared_bytes: fetched_bytes.saturating_sub(wanted_bytes) as f64 * stored_for_raw,
        groups: Vec::new(),
    };
    Some((place, fetched_bytes as f64 * stored_for_raw))
}

/// The worst places as far as the budget goes, and the bytes that a restore is spared by them. Of a container that is too much
/// for the budget, groups are taken.
fn worst(mut places: Vec<Place>, budget: u64) -> (BTreeMap<ContainerId, RunSet>, f64) {
    let mut chosen: BTreeMap<ContainerId, RunSet> = BTreeMap::new();
    let (mut left, mut spared_bytes) = (budget, 0.0);
    places.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    for place in places {
        let parts = if place.wanted_bytes <= left {
            vec![place]
        } else {
            let mut groups = place.groups;
            groups.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
            groups
        };
        for part in parts {
            if part.wanted_bytes <= left {
                left -= part.wanted_bytes;
                spared_bytes += part.spared_bytes;
                let of_container = chosen.entry(part.container).or_default();
                *of_container = of_container.union(&part.chunks);
            }
        }
    }
    (chosen, spared_bytes)
}
