//! Consecutive chunks of a chunk table.

use crate::ids::TableIndex;
use std::iter::Map;
use std::ops::Range;

/// Chunks that stand one behind the other in a chunk table. Their numbers may have holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRange {
    /// The first of them.
    pub start: TableIndex,
    /// The one behind the last of them.
    pub end: TableIndex,
}

impl TableIndex {
    /// `count` chunks from this one on.
    pub fn range(self, count: u32) -> TableRange {
        TableRange { start: self, end: TableIndex(self.0 + count) }
    }

    /// The one behind it.
    pub fn next(self) -> TableIndex {
        TableIndex(self.0 + 1)
    }
}

impl TableRange {
    /// How many chunks.
    pub fn len(self) -> usize {
        (self.end.0 - self.start.0) as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// These chunks' part of a list that has an element for each chunk of the table.
    pub fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.start.0 as usize..self.end.0 as usize]
    }
}

impl IntoIterator for TableRange {
    type Item = TableIndex;
    type IntoIter = Map<Range<u32>, fn(u32) -> TableIndex>;

    fn into_iter(self) -> Self::IntoIter {
        (self.start.0..self.end.0).map(TableIndex)
    }
}
