//! Differences between two snapshots, from their recipes: no data is read.

use crate::base::error::{Result, VaultError};
use crate::base::snapshot_spec::find_snapshot;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use format::{ChunkNo, Reference, SegmentNo, SegmentRecipe, SnapshotEntry};
use std::ops::Range;

/// Bytes of a disk from `start` on: a chunk with its fingerprint, or zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    fingerprint: Option<[u8; 32]>,
}

struct Side {
    view: View,
    entry: SnapshotEntry,
    recipe: RecipeReader,
}

impl Vault {
    /// Calls `each` for the ranges in which two snapshots differ, in order, joined, in whole chunks; `(disk, spec)` as for
    /// [`Vault::restore`]. Where one disk is longer, the rest of it differs. Returns both snapshots.
    pub fn diff(
        &self,
        old: (&str, &str),
        new: (&str, &str),
        each: &mut dyn FnMut(Range<u64>),
    ) -> Result<(SnapshotEntry, SnapshotEntry)> {
        let specs = self.find_both(old, new)?;
        let (mut old, mut new) = (self.side((old.0, &specs[0]))?, self.side((new.0, &specs[1]))?);
        if new.view.manifest == old.view.manifest {
            // A manifest may be long: one is enough.
            new.view.share_manifest(&old.view.manifest);
        }
        let (a, b) = (old.segment_bytes(), new.segment_bytes());
        let window = a.max(b);
        if window % a.min(b) != 0 {
            let why =
                format!("segments of {a} and {b} bytes cannot be compared; restore both and compare these");
            return Err(VaultError::Usage(why));
        }
        compare(&mut old, &mut new, window, each).map_err(|e| new.view.explain(old.view.explain(e)))?;
        Ok((old.entry, new.entry))
    }

    /// What both sides name. For one disk by one manifest: a backup that commits between two readings would make the
    /// `latest` of the first the `latest~1` of the second, and compare a snapshot with itself.
    fn find_both(&self, old: (&str, &str), new: (&str, &str)) -> Result<[String; 2]> {
        if old.0 != new.0 {
            return Ok([old.1.into(), new.1.into()]);
        }
        let m = self.disk(old.0)?.load()?;
        let find = |spec| Ok::<_, VaultError>(find_snapshot(&m.snapshots, old.0, spec)?.id.to_string());
        Ok([find(old.1)?, find(new.1)?])
    }

    fn side(&self, (disk, spec): (&str, &str)) -> Result<Side> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let entry = view.find(disk, spec)?.clone();
        let recipe = RecipeReader::open(&view.folder, view.with_newer(entry.id)?, &entry)
            .map_err(|e| view.explain(e))?;
        Ok(Side { view, entry, recipe })
    }
}

/// Compares two snapshots in windows of whole segments of both.
fn compare(old: &mut Side, new: &mut Side, window: u64, each: &mut dyn FnMut(Range<u64>)) -> Result<()> {
    let mut joined = Joined { last: None, each };
    let common = old.entry.size.min(new.entry.size);
    let mut at = 0;
    while at < common {
        // Pages that neither has are passed over.
        at = old.next_data(at)?.min(new.next_data(at)?) / window * window;
        if at >= common {
            break;
        }
        let end = (at + window).min(common);
        if !same_segment(old, new, at)? {
            differing(&old.pieces(at..end)?, &new.pieces(at..end)?, &mut |r| joined.add(r));
        }
        old.view.check()?;
        new.view.check()?;
        at = end;
    }
    let longer = old.entry.size.max(new.entry.size);
    if common < longer {
        joined.add(common..longer);
    }
    joined.finish();
    Ok(())
}

impl Side {
    fn segment_bytes(&self) -> u64 {
        u64::from(self.recipe.root.segment_bytes)
    }

    /// Where the first segment from `at` on begins that is not null; beyond the end if there is none.
    fn next_data(&mut self, at: u64) -> Result<u64> {
        let bytes = self.segment_bytes();
        Ok(self.recipe.next_segment(SegmentNo(at / bytes))?.map_or(u64::MAX, |no| no.0 * bytes))
    }

    /// What a range of whole segments is made of.
    fn pieces(&mut self, range: Range<u64>) -> Result<Vec<Piece>> {
        let bytes = self.segment_bytes();
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at + bytes).min(self.entry.size);
            match self.recipe.segment(SegmentNo(at / bytes))? {
                None => pieces.push(Piece { start: at, end, fingerprint: None }),
                Some(s) => {
                    let object = self.recipe.pages_object(SegmentNo(at / bytes).page());
                    if add_pieces(&self.view.tables, &object, at, &s, &mut pieces)? != end {
                        let why = format!("the segment at offset {at} is not as long as it should be");
                        return Err(VaultError::corrupt(&object, why));
                    }
                }
            }
            at = end;
        }
        // The other disk may end within the last segment.
        pieces.retain(|p| p.start < range.end);
        Ok(pieces)
    }
}

/// Whether a segment is the same in both by its fingerprint.
fn same_segment(old: &mut Side, new: &mut Side, at: u64) -> Result<bool> {
    let bytes = old.segment_bytes();
    if bytes != new.segment_bytes() {
        return Ok(false);
    }
    let no = SegmentNo(at / bytes);
    let (a, b) = (old.recipe.segment(no)?, new.recipe.segment(no)?);
    let whole = at + bytes <= old.entry.size.min(new.entry.size) || old.entry.size == new.entry.size;
    Ok(whole && a.map(|s| s.fingerprint) == b.map(|s| s.fingerprint))
}

/// Adds what a segment at `at` is made of. Returns where it ends.
fn add_pieces(
    tables: &Tables,
    object: &str,
    mut at: u64,
    segment: &SegmentRecipe,
    pieces: &mut Vec<Piece>,
) -> Result<u64> {
    for reference in &segment.references {
        match *reference {
            Reference::Null { bytes } => {
                let end = at + u64::from(bytes);
                pieces.push(Piece { start: at, end, fingerprint: None });
                at = end;
            }
            Reference::Direct { container, first, count } => {
                let table = tables.get(container)?;
                for n in 0..count {
                    let no = first.0.checked_add(n).map(ChunkNo);
                    let index = no.and_then(|no| table.index_of(no)).ok_or_else(|| {
                        VaultError::corrupt(
                            object,
                            format!("container {container} has no chunk {}", first.0 + n),
                        )
                    })?;
                    let end = at + u64::from(table.length(index));
                    pieces.push(Piece { start: at, end, fingerprint: Some(*table.fingerprint(index)) });
                    at = end;
                }
            }
            Reference::Indirect { .. } => {
                return Err(VaultError::corrupt(object, "refers to a newer snapshot"));
            }
        }
    }
    Ok(at)
}

/// Tells the ranges in which two rows of pieces differ, both from the same offset on.
fn differing(old: &[Piece], new: &[Piece], out: &mut dyn FnMut(Range<u64>)) {
    let (mut old, mut new) = (old.iter().copied(), new.iter().copied());
    let (mut a, mut b) = (old.next(), new.next());
    let mut at = a.map_or(0, |p| p.start);
    while let (Some(x), Some(y)) = (a, b) {
        let end = x.end.min(y.end);
        let zeros = x.fingerprint.is_none() && y.fingerprint.is_none();
        if !zeros && x != y {
            out(at..end);
        }
        at = end;
        if x.end == end {
            a = old.next();
        }
        if y.end == end {
            b = new.next();
        }
    }
}

/// Joins ranges that follow each other.
struct Joined<'a> {
    last: Option<Range<u64>>,
    each: &'a mut dyn FnMut(Range<u64>),
}

impl Joined<'_> {
    fn add(&mut self, range: Range<u64>) {
        match &mut self.last {
            Some(last) if last.end == range.start => last.end = range.end,
            last => {
                if let Some(done) = last.replace(range) {
                    (self.each)(done);
                }
            }
        }
    }

    fn finish(&mut self) {
        if let Some(done) = self.last.take() {
            (self.each)(done);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is what differs")]
mod tests {
    use super::*;

    fn pieces(of: &[(u64, u8)]) -> Vec<Piece> {
        let mut start = 0;
        let piece = |&(len, n): &(u64, u8)| {
            let fingerprint = (n > 0).then_some([n; 32]);
            let piece = Piece { start, end: start + len, fingerprint };
            start += len;
            piece
        };
        of.iter().map(piece).collect()
    }

    fn differ(old: &[(u64, u8)], new: &[(u64, u8)]) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let mut joined = Joined { last: None, each: &mut |r| found.push(r) };
        differing(&pieces(old), &pieces(new), &mut |r| joined.add(r));
        joined.finish();
        found
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn pieces_differ_where_they_are_not_the_same_chunks() {
        assert_eq!(differ(&[(4, 1), (4, 2)], &[(4, 1), (4, 2)]), []);
        assert_eq!(differ(&[(4, 1), (4, 2)], &[(4, 1), (4, 3)]), [4..8]);
        assert_eq!(differ(&[(4, 1), (4, 2), (4, 3)], &[(4, 5), (4, 6), (4, 3)]), [0..8]);
        // Zeros are the same however they are cut.
        assert_eq!(differ(&[(3, 0), (5, 0)], &[(8, 0)]), []);
        assert_eq!(differ(&[(8, 0)], &[(2, 0), (2, 7), (4, 0)]), [2..4]);
        // A chunk that begins elsewhere is another one, and what follows in step again is the same.
        assert_eq!(differ(&[(4, 1), (4, 2), (4, 3)], &[(3, 1), (5, 2), (4, 3)]), [0..8]);
    }
}
