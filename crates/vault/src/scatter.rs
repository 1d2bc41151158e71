//! Decision 5 of the write path: which segments of the parent lie so scattered that they are written whole again.
//!
//! The parent's recipe alone tells it, before anything is read: how many runs a segment has, and how many groups must
//! be fetched for it. The worst ones are taken first, as far as the budget goes.

use crate::error::Result;
use crate::parent::Parent;
use crate::policy::{Policy, Rewrite};
use format::{ContainerId, Reference, SegmentRecipe};
use std::collections::HashSet;

/// The parent's segments to write whole; together they have at most `budget` bytes.
pub(crate) fn worst(parent: &mut Parent, policy: &Policy, budget: u64) -> Result<HashSet<u64>> {
    let Rewrite::Scattered { fetch_ratio, extents } = policy.rewrite_at else { return Ok(HashSet::new()) };
    let mut bad: Vec<(f64, u64, u64)> = Vec::new();
    parent.each_segment(&mut |no, s| {
        let scatter = Scatter::of(s, policy);
        let badness =
            (scatter.fetch_ratio() / fetch_ratio).max(f64::from(scatter.extents) / f64::from(extents));
        if badness > 1.0 {
            bad.push((badness, no, scatter.wanted_bytes));
        }
    })?;
    bad.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = budget;
    let mut chosen = HashSet::new();
    for (_, no, bytes) in bad {
        if bytes <= left {
            left -= bytes;
            chosen.insert(no);
        }
    }
    Ok(chosen)
}

/// How scattered one segment is.
struct Scatter {
    /// Runs that do not go on where the one before ended.
    extents: u32,
    /// Bytes of its chunks that are not null, and of the groups that hold them. As estimated from chunk numbers:
    /// reading all tables of a disk would cost more than it tells.
    wanted_bytes: u64,
    fetched_bytes: u64,
}

impl Scatter {
    fn of(s: &SegmentRecipe, policy: &Policy) -> Self {
        let chunk_bytes = policy.chunking.average_bytes();
        let per_group = (policy.group_bytes / chunk_bytes).max(1);
        let mut groups: Vec<(ContainerId, u32)> = Vec::new();
        let (mut extents, mut chunks) = (0, 0u64);
        let mut expected = None;
        for r in &s.references {
            let Reference::Direct { container, first, count } = *r else { continue };
            extents += u32::from(expected != Some((container, first.0)));
            expected = Some((container, first.0.saturating_add(count)));
            chunks += u64::from(count);
            let last = first.0.saturating_add(count - 1);
            groups.extend((first.0 / per_group..=last / per_group).map(|g| (container, g)));
        }
        groups.sort_unstable();
        groups.dedup();
        let wanted_bytes = chunks * u64::from(chunk_bytes);
        Scatter { extents, wanted_bytes, fetched_bytes: groups.len() as u64 * u64::from(policy.group_bytes) }
    }

    fn fetch_ratio(&self) -> f64 {
        self.fetched_bytes as f64 / self.wanted_bytes.max(1) as f64
    }
}
