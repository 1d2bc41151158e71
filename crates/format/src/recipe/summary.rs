//! Summaries: the sorted set of chunks that a recipe page references directly. Deletion reads these instead of the
//! pages.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::ContainerId;
use crate::recipe::{RecipePage, Reference};
use crate::runs::RunSet;
use std::collections::BTreeMap;

/// Memory that a container takes beside its runs: its place in the map, and what the allocator adds.
const CONTAINER_BYTES: usize = 64;

/// Chunks by container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Containers in order, with what is referenced in each.
    pub containers: BTreeMap<ContainerId, RunSet>,
}

impl Summary {
    /// What a page references directly.
    pub fn of(page: &RecipePage) -> Self {
        let mut runs: BTreeMap<ContainerId, Vec<(u32, u32)>> = BTreeMap::new();
        for r in page.segments.iter().flat_map(|(_, s)| &s.references) {
            if let Reference::Direct { container, first, count } = *r {
                let list = runs.entry(container).or_default();
                match list.last_mut() {
                    Some(l) if l.0 + l.1 == first.0 => l.1 += count,
                    _ => list.push((first.0, count)),
                }
            }
        }
        let containers = runs.into_iter().map(|(c, r)| (c, RunSet::from_unsorted(r))).collect();
        Summary { containers }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let of = |runs: &RunSet| CONTAINER_BYTES + size_of_val(runs.runs());
        self.containers.values().map(of).sum()
    }

    /// Adds what another one references.
    pub fn merge(&mut self, other: &Summary) {
        for (c, r) in &other.containers {
            let mine = self.containers.entry(*c).or_default();
            *mine = mine.union(r);
        }
    }

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.varint(self.containers.len() as u64);
        for (c, r) in &self.containers {
            o.u64(c.raw());
            r.encode(&mut o);
        }
        encode_frame(Kind::Summary, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Summary, context, bytes)?;
        let mut i = In::within(&body, Kind::Summary.memory_max());
        let mut containers = BTreeMap::new();
        let n = i.count(9)?;
        i.charge(n, CONTAINER_BYTES)?;
        for _ in 0..n {
            let c = ContainerId::from_raw(i.u64()?)?;
            if containers.insert(c, RunSet::decode(&mut i)?).is_some() {
                return Err(Malformed::new("a container twice"));
            }
        }
        i.end()?;
        Ok(Summary { containers })
    }
}
