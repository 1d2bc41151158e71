//! The plan of a restore: which part of which group goes where on the disk, sorted by place on the store.

use crate::base::error::{Result, VaultError};
use crate::container::tables::{TableName, Tables, TablesAhead};
use crate::recipe::chain::RecipeReader;
use crate::recipe::indirect::chunks_max;
use format::{
    ChunkNo, Codec, ContainerId, GroupNo, OwnerNo, Reference, SegmentNo, Table, TableRange, WriterNo,
};
use std::collections::HashMap;
use std::ops::Range;

/// Parts of groups in memory at once (24 bytes each).
pub(crate) const PARTS_MAX: usize = 1 << 20;

/// Bytes of a part of a group that is stored raw: it is read without the rest of the group.
const RAW_PART_BYTES: u64 = 1 << 20;

/// Chunks of one group that belong together at one place of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Index in [`Plan::containers`].
    pub container: u32,
    pub group: GroupNo,
    pub indices: TableRange,
    /// Offset on the disk.
    pub target: u64,
}

/// What a range of the disk is made of.
#[derive(Default)]
pub(crate) struct Plan {
    /// Their tables, in the order in which their data was written, which is about that of the places a file system gave it.
    pub containers: Vec<TableName>,
    slots: HashMap<TableName, u32>,
    /// When the data of each container was written.
    written: Vec<(OwnerNo, WriterNo, TableName)>,
    /// Sorted by container and group.
    pub parts: Vec<Part>,
    /// Ranges that are not zeros, sorted and merged.
    pub data: Vec<Range<u64>>,
    /// Where the plan begins.
    pub from: u64,
    /// Where the plan ends: all before is planned.
    pub end: u64,
}

/// Plans the disk from `from` on, up to `to` or as far as [`PARTS_MAX`] goes (whole segments).
pub(crate) fn plan(recipe: &mut RecipeReader, tables: &Tables, from: u64, to: u64) -> Result<Plan> {
    let segment_bytes = u64::from(recipe.root.segment_bytes);
    let size = recipe.root.size;
    let mut plan = Plan { from, end: to.min(size), ..Plan::default() };
    let first = SegmentNo(from / segment_bytes);
    let mut no = first.page();
    while no.segment(0).max(first).0 * segment_bytes < plan.end {
        let Some(page) = recipe.page(no)? else {
            no = no.next();
            continue;
        };
        let object = recipe.pages_object(no);
        let at = page.segments.partition_point(|s| no.segment(s.0) < first);
        let end = plan.end;
        let of_plan = page.segments[at..].iter().take_while(|s| no.segment(s.0).0 * segment_bytes < end);
        let containers = of_plan.flat_map(|(_, s)| &s.references).filter_map(|r| match r {
            Reference::Direct { container, .. } => Some(*container),
            _ => None,
        });
        let mut tables = TablesAhead::new(tables, containers);
        for (index, segment) in &page.segments[at..] {
            let start = no.segment(*index).0 * segment_bytes;
            if start >= plan.end {
                break;
            }
            if plan.parts.len() >= PARTS_MAX {
                plan.end = start;
                break;
            }
            let wanted = segment_bytes.min(size - start);
            plan.add_segment(&mut tables, &object, start, wanted, &segment.references)?;
        }
        no = no.next();
    }
    plan.parts.shrink_to_fit();
    plan.sort();
    Ok(plan)
}

impl Plan {
    fn slot(&mut self, name: TableName, table: &Table) -> u32 {
        let written = &mut self.written;
        *self.slots.entry(name).or_insert_with(|| {
            written.push((name.container.owner(), table.data.generation, name));
            written.len() as u32 - 1
        })
    }

    /// Puts containers into their order, and parts into that of their containers.
    fn sort(&mut self) {
        let mut slots: Vec<u32> = (0..self.written.len() as u32).collect();
        slots.sort_unstable_by_key(|slot| self.written[*slot as usize]);
        self.containers = slots.iter().map(|slot| self.written[*slot as usize].2).collect();
        let mut ranks = vec![0; slots.len()];
        slots.iter().zip(0..).for_each(|(slot, rank)| ranks[*slot as usize] = rank);
        self.parts.iter_mut().for_each(|p| p.container = ranks[p.container as usize]);
        self.parts.sort_unstable_by_key(|p| (p.container, p.group, p.indices.start, p.target));
    }

    fn add_segment(
        &mut self,
        tables: &mut TablesAhead<'_, ContainerId>,
        object: &str,
        start: u64,
        wanted: u64,
        references: &[Reference],
    ) -> Result<()> {
        let mut at = start;
        let chunks = references.iter().map(Reference::chunks).sum::<u64>();
        if chunks > chunks_max(wanted as u32) {
            let why = format!("the segment at offset {start} has {chunks} chunks");
            return Err(VaultError::corrupt(object, why));
        }
        for r in references {
            match *r {
                Reference::Null { bytes } => at += u64::from(bytes),
                Reference::Direct { container, first, count } => {
                    at = self.add_run(tables, at, container, first, count)?;
                }
                // Traced by the recipe's reader.
                Reference::Indirect { .. } => {
                    let why = format!("the segment at offset {start} refers to a newer snapshot");
                    return Err(VaultError::corrupt(object, why));
                }
            }
            if at > start + wanted {
                break;
            }
        }
        if at != start + wanted {
            let why = format!("the segment at offset {start} has {} bytes, {wanted} expected", at - start);
            return Err(VaultError::corrupt(object, why));
        }
        Ok(())
    }

    /// Adds a direct reference. Returns the offset behind it.
    fn add_run(
        &mut self,
        tables: &mut TablesAhead<'_, ContainerId>,
        mut at: u64,
        id: ContainerId,
        first: ChunkNo,
        count: u32,
    ) -> Result<u64> {
        let (name, table) = tables.get(id)?;
        let absent = || {
            let object = format::names::table(&tables.tables.folder_of(id).path, id, name.generation);
            VaultError::corrupt(&object, format!("has no chunks {} to {}", first.0, first.0 + count - 1))
        };
        let start = table.index_of(first).ok_or_else(absent)?;
        let last =
            first.0.checked_add(count - 1).and_then(|n| table.index_of(ChunkNo(n))).ok_or_else(absent)?;
        if last.0 - start.0 != count - 1 {
            return Err(absent());
        }
        let container = self.slot(name, &table);
        let mut next = start;
        while next <= last {
            let group = table.group_of(next).ok_or_else(absent)?;
            let g = table.group(group);
            let mut indices = TableRange { start: next, end: g.indices().end.min(last.next()) };
            let mut bytes = table.bytes_of(indices);
            if g.codec == Codec::Raw && bytes > RAW_PART_BYTES {
                let of_run = indices.of(&table.lengths);
                let mut taken = 0;
                bytes = 0;
                while taken < of_run.len()
                    && (taken == 0 || bytes + u64::from(of_run[taken]) <= RAW_PART_BYTES)
                {
                    bytes += u64::from(of_run[taken]);
                    taken += 1;
                }
                indices = next.range(taken as u32);
            }
            self.parts.push(Part { container, group, indices, target: at });
            match self.data.last_mut() {
                Some(r) if r.end == at => r.end = at + bytes,
                _ => self.data.push(at..at + bytes),
            }
            at += bytes;
            next = indices.end;
        }
        Ok(at)
    }
}
