//! A map of a snapshot: for each cell of the disk, which backup wrote most of it.

use crate::base::error::Result;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::vault::Vault;
use crate::report::layout::{ages, walk, Age, Fragmentation};
use format::{SnapshotEntry, WriterNo};
use std::collections::BTreeMap;

/// A cell of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Zeros only.
    Null,
    /// Written by one backup.
    One {
        /// See [`Age::age`].
        age: usize,
    },
    /// Written by several; the one that wrote most of it.
    Mixed {
        /// See [`Age::age`].
        age: usize,
    },
}

/// The map of a snapshot.
#[derive(Clone, Debug)]
pub struct Map {
    /// The snapshot.
    pub snapshot: SnapshotEntry,
    /// In address order; each stands for `cell_bytes`.
    pub cells: Vec<Cell>,
    /// Bytes of the disk in a cell.
    pub cell_bytes: u64,
    /// Bytes by the backup that wrote them, newest first.
    pub ages: Vec<Age>,
    /// How scattered it is.
    pub fragmentation: Fragmentation,
}

impl Vault {
    /// The map of a snapshot in at most `cells` cells.
    pub fn map(&self, disk: &str, spec: &str, cells: usize) -> Result<Map> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let snapshot = view.find(disk, spec)?.clone();
        let cell_bytes = snapshot.size.div_ceil(cells.max(1) as u64).next_multiple_of(4096).max(4096);
        let count = snapshot.size.div_ceil(cell_bytes) as usize;
        let mut by_cell: Vec<BTreeMap<Option<WriterNo>, u64>> = vec![BTreeMap::new(); count];
        let mut by_writer: BTreeMap<Option<WriterNo>, u64> = BTreeMap::new();
        let fragmentation = walk(&view, &snapshot, |offset, bytes, container| {
            // Other owners count their writers by themselves: what is theirs is older than all of the disk's.
            let writer = Some(container.writer()).filter(|_| container.is_own());
            *by_writer.entry(writer).or_default() += bytes;
            let (mut at, end) = (offset, offset + bytes);
            while at < end {
                let cell = at / cell_bytes;
                let next = ((cell + 1) * cell_bytes).min(end);
                *by_cell[cell as usize].entry(writer).or_default() += next - at;
                at = next;
            }
        })?;
        let numbered = ages(&by_writer, &view, snapshot.made_by)?;
        let age_of: BTreeMap<Option<WriterNo>, usize> = numbered.iter().map(|(w, a)| (*w, a.age)).collect();
        let cell = |writers: BTreeMap<Option<WriterNo>, u64>| {
            let most = writers.iter().max_by_key(|(_, bytes)| **bytes).and_then(|(w, _)| age_of.get(w));
            match (most, writers.len()) {
                (None, _) => Cell::Null,
                (Some(&age), 1) => Cell::One { age },
                (Some(&age), _) => Cell::Mixed { age },
            }
        };
        let cells = by_cell.into_iter().map(cell).collect();
        let ages = numbered.into_iter().map(|(_, a)| a).collect();
        Ok(Map { snapshot, cells, cell_bytes, ages, fragmentation })
    }
}
