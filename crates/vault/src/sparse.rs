//! Decision 5 of the write path: what the parent is read back from at too high a price is written again.
//!
//! A restore fetches whole groups, and goes to another place for every container. The more versions there are, the less
//! the newest wants of an old group, and the more small containers it wants something of. What costs most for what it
//! gives is written again, together with what is new: the newest snapshot then no longer reads it there, and the
//! reverse pass frees it. Containers that are used sparsely are what rewriting by history looks for (Fu et al.,
//! USENIX ATC 2014, 4.2); here groups count as well, and a place costs what a seek does.

use crate::error::Result;
use crate::policy::{Policy, Rewrite};
use crate::tables::Tables;
use format::{ChunkNo, Codec, ContainerEntry, ContainerId, Owner, RunSet, Summary, Table};
use std::collections::BTreeMap;

/// Going to another place takes as long as reading so much (8 ms at 130 MB/s).
const SEEK_BYTES: u64 = 1 << 20;

/// Chunks of containers whose tables are read at most, the most sparsely used containers first (75 MB of tables).
const CHUNKS_LOOKED_AT: u64 = 2 << 20;

/// Chunks of one place that may be written again.
struct Candidate {
    container: ContainerId,
    chunks: RunSet,
    wanted_bytes: u64,
    /// Bytes fetched for one wanted.
    ratio: f64,
}

/// The chunks of the disk's own containers that are written again: the worst places first, `budget` bytes together.
pub(crate) fn choose(
    parent: &Summary,
    tables: &Tables,
    policy: &Policy,
    budget: u64,
) -> Result<BTreeMap<ContainerId, RunSet>> {
    let mut chosen: BTreeMap<ContainerId, RunSet> = BTreeMap::new();
    let Rewrite::Sparse { read_ratio } = policy.rewrite_at else { return Ok(chosen) };
    if budget == 0 {
        return Ok(chosen);
    }
    let chunk_bytes = u64::from(policy.chunking.average_bytes());
    let mut worth_a_look: Vec<(f64, ContainerEntry, &RunSet)> = Vec::new();
    for (id, wanted) in parent.containers.iter().filter(|c| c.0.owner() == Owner::Disk) {
        let entry = match tables.entry(*id) {
            Err(e) if e.is_damage() => continue,
            other => other?,
        };
        let (wanted_bytes, all_bytes) = (wanted.len() * chunk_bytes, u64::from(entry.chunks) * chunk_bytes);
        let ratio = (SEEK_BYTES + all_bytes.max(wanted_bytes)) as f64 / wanted_bytes as f64;
        // Fewer bytes than that, and no group has so few that are wanted.
        let spare_bytes = (1.0 - 1.0 / read_ratio) * f64::from(policy.group_bytes);
        if ratio > read_ratio || all_bytes.saturating_sub(wanted_bytes) as f64 >= spare_bytes {
            worth_a_look.push((ratio, entry, wanted));
        }
    }
    worth_a_look.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut candidates, mut looked_at) = (Vec::new(), 0);
    for (_, entry, wanted) in worth_a_look {
        looked_at += u64::from(entry.chunks);
        if looked_at > CHUNKS_LOOKED_AT {
            break;
        }
        match tables.load(&entry) {
            // It costs reads, nothing else.
            Err(e) if e.is_damage() => {}
            table => candidates.extend(look_at(&*table?, wanted, read_ratio)),
        }
    }
    candidates.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let mut left = budget;
    for c in candidates {
        if c.wanted_bytes <= left {
            left -= c.wanted_bytes;
            let of_container = chosen.entry(c.container).or_default();
            *of_container = of_container.union(&c.chunks);
        }
    }
    Ok(chosen)
}

/// A container as a whole, where it gives too little for what it costs, or those of its groups that do.
fn look_at(table: &Table, wanted: &RunSet, read_ratio: f64) -> Vec<Candidate> {
    let (mut fetched_bytes, mut wanted_bytes) = (SEEK_BYTES, 0);
    let mut groups = Vec::new();
    for g in &table.groups {
        let (mut bytes, mut chunks) = (0, Vec::new());
        for index in g.first as usize..(g.first + g.count) as usize {
            if let Some(ChunkNo(no)) = table.number_at(index).filter(|n| wanted.contains(n.0)) {
                bytes += u64::from(table.lengths[index]);
                chunks.push((no, 1));
            }
        }
        if bytes == 0 {
            continue;
        }
        // Of a raw group only what is wanted is read.
        let fetched = if g.codec == Codec::Raw { bytes } else { u64::from(g.raw_len) };
        fetched_bytes += fetched;
        wanted_bytes += bytes;
        groups.push(Candidate {
            container: table.container,
            chunks: RunSet::from_unsorted(chunks),
            wanted_bytes: bytes,
            ratio: fetched as f64 / bytes as f64,
        });
    }
    let ratio = fetched_bytes as f64 / wanted_bytes.max(1) as f64;
    if ratio > read_ratio {
        let chunks = wanted.clone();
        return vec![Candidate { container: table.container, chunks, wanted_bytes, ratio }];
    }
    groups.retain(|g| g.ratio > read_ratio);
    groups
}
