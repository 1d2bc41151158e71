//! Chunks that stay lost, and the ranges of disks that they hit.

use crate::base::error::{fault, Result};
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use crate::verify::findings::bad_chunks::BadChunks;
use format::{ChunkNo, ContainerId, DiskId, PageNo, Reference, SegmentRecipe, SEGMENTS_PER_PAGE};
use std::collections::BTreeMap;
use std::ops::Range;

/// Chunks that cannot be read, by the owner of their containers.
#[derive(Clone, Debug, Default)]
pub struct LostChunks {
    pub(super) bad: BTreeMap<DiskId, BadChunks>,
    /// Whether there are owners of which nothing can be read.
    pub(super) lacks_owners: bool,
    /// Whether there are more than there was room for.
    pub(super) is_cut: bool,
}

impl LostChunks {
    /// Whether none is lost.
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty() && !self.lacks_owners && !self.is_cut
    }

    /// Whether these are not all: so much is damaged that there was no room for more.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl Vault {
    /// The ranges of a snapshot's disk that cannot be read, in order: `(disk, spec)` as for [`Vault::restore`].
    ///
    /// # Errors
    /// What keeps it from looking; `Corrupt` or `Missing` where the recipe's root cannot be read: then nothing can.
    pub fn lost_ranges(&self, disk: &str, spec: &str, lost: &LostChunks) -> Result<Vec<Range<u64>>> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let entry = view.find(disk, spec)?.clone();
        let mut recipe = RecipeReader::open(&view.folder, view.with_newer(entry.id)?, &entry)?;
        let segment_bytes = u64::from(recipe.root.segment_bytes);
        let mut ranges = Ranges { all: Vec::new(), size: entry.size };
        for no in 0..recipe.root.pages.len() as u64 {
            let of_page = no * SEGMENTS_PER_PAGE * segment_bytes;
            let page = match recipe.page(PageNo(no)) {
                Ok(None) => continue,
                Ok(Some(page)) => page,
                Err(e) => {
                    fault(e)?;
                    ranges.add(of_page..of_page + SEGMENTS_PER_PAGE * segment_bytes);
                    continue;
                }
            };
            for (index, segment) in &page.segments {
                let at = of_page + u64::from(*index) * segment_bytes;
                add_segment(&view, lost, segment, at..at + segment_bytes, &mut ranges)?;
            }
        }
        Ok(ranges.all)
    }
}

/// Ranges in order, joined.
struct Ranges {
    all: Vec<Range<u64>>,
    size: u64,
}

impl Ranges {
    fn add(&mut self, range: Range<u64>) {
        let range = range.start.min(self.size)..range.end.min(self.size);
        match self.all.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => self.all.push(range),
        }
    }
}

/// Adds what is lost of one segment.
fn add_segment(
    view: &View,
    lost: &LostChunks,
    segment: &SegmentRecipe,
    place: Range<u64>,
    ranges: &mut Ranges,
) -> Result<()> {
    let mut at = place.start;
    for reference in &segment.references {
        match *reference {
            Reference::Null { bytes } => at += u64::from(bytes),
            Reference::Direct { container, first, count } => {
                let Some(lengths) = lengths(&view.tables, container, first, count)? else {
                    // What follows in the segment cannot be placed either.
                    ranges.add(at..place.end);
                    return Ok(());
                };
                let owner = view.manifest.owner(container.owner()).and_then(|owner| lost.bad.get(&owner));
                let bad = owner.map(|bad| bad.among(container, first, count)).unwrap_or_default();
                for (no, length) in (first.0..).zip(lengths) {
                    if bad.contains(ChunkNo(no)) {
                        ranges.add(at..at + u64::from(length));
                    }
                    at += u64::from(length);
                }
            }
            Reference::Indirect { .. } => {
                ranges.add(at..place.end);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The lengths of a run of chunks; `None` where its table cannot be read.
fn lengths(tables: &Tables, container: ContainerId, first: ChunkNo, count: u32) -> Result<Option<Vec<u32>>> {
    let table = match tables.get(container) {
        Ok(table) => table,
        Err(e) => return fault(e).map(|_| None),
    };
    let end = table.index_of(ChunkNo(first.0.saturating_add(count.saturating_sub(1))));
    Ok(match (table.index_of(first), end) {
        (Some(from), Some(to)) if to.0 - from.0 + 1 == count => {
            Some(from.range(count).of(&table.lengths).to_vec())
        }
        _ => None,
    })
}
