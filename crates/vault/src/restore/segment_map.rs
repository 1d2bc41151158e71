//! The map from addresses in a segment to the chunks that contain them.

use crate::base::error::Result;
use crate::container::group_cache::{indices_of, SLICE_CHUNKS};
use crate::container::tables::{TableName, Tables};
use crate::recipe::chain::RecipeReader;
use crate::restore::plan::plan;
use format::{Codec, GroupNo, TableIndex, TableRange};
use std::ops::Range;

/// The parts of a segment that are not zeros, by address.
#[derive(Default)]
pub(crate) struct SegmentMap {
    pub parts: Vec<MapPart>,
}

/// Bytes of one group, or of one slice of it, that belong together on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapPart {
    /// Offset on the disk.
    pub offset: u64,
    pub len: u32,
    /// Where they begin in the group, or in the slice.
    pub within: u32,
    pub table: TableName,
    pub group: GroupNo,
    pub slice: u32,
}

impl MapPart {
    /// The offset on the disk where it ends.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// What of a range of the disk is in this part.
    pub fn of(&self, range: &Range<u64>) -> Range<u64> {
        self.offset.max(range.start)..self.end().min(range.end)
    }

    /// Where a byte of the disk that is in this part stands in the group, or in the slice.
    pub fn at(&self, offset: u64) -> usize {
        (u64::from(self.within) + (offset - self.offset)) as usize
    }
}

impl SegmentMap {
    /// Resolves the references of a range of the disk: one segment.
    pub fn of(recipe: &mut RecipeReader, tables: &Tables, range: Range<u64>) -> Result<SegmentMap> {
        let plan = plan(recipe, tables, range.start, range.end)?;
        let mut parts: Vec<MapPart> = Vec::with_capacity(plan.parts.len());
        // Where the last part began. The next one of its group lies behind it: what is in front of that is not counted again.
        let mut last = TableIndex(0);
        for p in &plan.parts {
            let name = plan.containers[p.container as usize];
            let table = tables.named(name)?;
            let group = table.group(p.group);
            let mut offset = p.target;
            let (mut next, end) = (p.indices.start, p.indices.end);
            while next < end {
                let slice = match group.codec {
                    Codec::Raw => (next.0 - group.first.0) / SLICE_CHUNKS,
                    _ => 0,
                };
                let of_slice = indices_of(group, slice);
                let until = end.min(of_slice.end);
                let bytes = |start, end| table.bytes_of(TableRange { start, end }) as u32;
                let before = match parts.last() {
                    Some(l) if (l.table, l.group, l.slice) == (name, p.group, slice) => {
                        l.within + bytes(last, next)
                    }
                    _ => bytes(of_slice.start, next),
                };
                let len = bytes(next, until);
                parts.push(MapPart { offset, len, within: before, table: name, group: p.group, slice });
                offset += u64::from(len);
                (last, next) = (next, until);
            }
        }
        parts.sort_unstable_by_key(|p| p.offset);
        Ok(SegmentMap { parts })
    }

    /// The parts that reach into a range of the disk.
    pub fn within(&self, range: &Range<u64>) -> &[MapPart] {
        let from = self.parts.partition_point(|p| p.end() <= range.start);
        let to = self.parts.partition_point(|p| p.offset < range.end);
        &self.parts[from..to.max(from)]
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.parts.len() * size_of::<MapPart>()) as u64
    }
}
