//! Ranges of a disk, in the addresses of a volume on it.

use filesystem::{Disk as _, FileSystem, NodeId, Part, Place};
use std::ops::Range;

/// Ranges of a disk, and a volume on it.
pub struct RangesOnVolume<'a> {
    /// `None` if the place of the volume is not known: then every file may be in the ranges.
    pub part: Option<Part>,
    /// In order, not overlapping.
    pub ranges: &'a [Range<u64>],
}

impl RangesOnVolume<'_> {
    /// Whether no range is in the volume.
    pub fn are_elsewhere(&self) -> bool {
        let Some(part) = &self.part else { return false };
        !part.locate(0, part.size()).iter().any(|p| self.has(p.offset..p.offset + p.len))
    }

    /// Whether a range overlaps a file's data.
    pub fn touch(&self, fs: &dyn FileSystem, id: NodeId) -> filesystem::Result<bool> {
        let Some(part) = &self.part else { return Ok(true) };
        Ok(fs.extents(id)?.iter().any(|extent| match extent.place {
            Place::Zeros => false,
            Place::Encoded => true,
            Place::Volume(at) => {
                let pieces = part.locate(at, extent.len.min(part.size()));
                pieces.iter().any(|p| self.has(p.offset..p.offset + p.len))
            }
        }))
    }

    fn has(&self, range: Range<u64>) -> bool {
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(first).is_some_and(|r| r.start < range.end)
    }
}
