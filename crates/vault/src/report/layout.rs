//! The layout of a snapshot on the store: the groups and containers that a restore would read.

use crate::base::error::Result;
use crate::container::view::View;
use crate::recipe::chain::RecipeReader;
use crate::restore::plan::plan;
use format::{ContainerId, GroupNo, PageNo, Reference, SnapshotEntry, WriterNo, SEGMENTS_PER_PAGE};
use std::collections::{BTreeMap, HashSet};

/// How a snapshot is scattered over the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragmentation {
    /// Direct references: runs of chunks that lie together.
    pub runs: u64,
    /// Containers it needs.
    pub containers: u64,
    /// Groups it needs.
    pub groups: u64,
    /// Bytes of the disk that are not zero.
    pub wanted_bytes: u64,
    /// Bytes of those groups, decompressed.
    pub fetched_bytes: u64,
    /// Bytes of those groups as stored.
    pub stored_bytes: u64,
}

impl Fragmentation {
    /// Bytes decompressed for each byte wanted.
    pub fn amplification(&self) -> f64 {
        self.fetched_bytes as f64 / self.wanted_bytes.max(1) as f64
    }
}

/// Calls `each` with (offset on the disk, bytes, container) for everything of a snapshot that is not zero.
pub(crate) fn walk(
    view: &View,
    snapshot: &SnapshotEntry,
    mut each: impl FnMut(u64, u64, ContainerId),
) -> Result<Fragmentation> {
    let mut recipe = RecipeReader::open(&view.folder, view.with_newer(snapshot.id)?, snapshot)?;
    let mut out = Fragmentation { runs: count_runs(&mut recipe)?, ..Fragmentation::default() };
    let mut containers: HashSet<ContainerId> = HashSet::new();
    let mut groups: HashSet<(ContainerId, GroupNo)> = HashSet::new();
    let mut from = 0;
    while from < snapshot.size {
        let p = plan(&mut recipe, &view.tables, from, snapshot.size)?;
        for of_container in p.parts.chunk_by(|a, b| a.container == b.container) {
            let name = p.containers[of_container[0].container as usize];
            let (id, table) = (name.container, view.tables.named(name)?);
            containers.insert(id);
            for part in of_container {
                let bytes = table.bytes_of(part.indices);
                out.wanted_bytes += bytes;
                if groups.insert((id, part.group)) {
                    let g = table.group(part.group);
                    out.fetched_bytes += u64::from(g.raw_len);
                    out.stored_bytes += u64::from(g.stored_len);
                }
                each(part.target, bytes, id);
            }
        }
        from = p.end;
    }
    (out.containers, out.groups) = (containers.len() as u64, groups.len() as u64);
    Ok(out)
}

fn count_runs(recipe: &mut RecipeReader) -> Result<u64> {
    let mut runs = 0;
    let mut previous: Option<(ContainerId, u32)> = None;
    for no in 0..recipe.root.pages.len() as u64 {
        let Some(page) = recipe.page(PageNo(no))? else { continue };
        debug_assert!(page.segments.len() as u64 <= SEGMENTS_PER_PAGE);
        for r in page.segments.iter().flat_map(|(_, s)| &s.references) {
            if let Reference::Direct { container, first, count } = *r {
                runs += u64::from(previous != Some((container, first.0)));
                previous = Some((container, first.0 + count));
            }
        }
    }
    Ok(runs)
}

/// Which backup wrote what a snapshot is made of.
#[derive(Clone, Debug)]
pub struct Age {
    /// Backups of this disk between the one that wrote it and this snapshot's: 0, its own.
    pub age: usize,
    /// The snapshot of that backup, if it is still there.
    pub snapshot: Option<format::SnapId>,
    /// Bytes of the disk.
    pub bytes: u64,
}

/// Numbers the writers whose containers a snapshot uses: its own is 0, the one before it 1, and so on.
pub(crate) fn ages(
    writers: &BTreeMap<Option<WriterNo>, u64>,
    view: &View,
    own: WriterNo,
) -> Result<Vec<(Option<WriterNo>, Age)>> {
    let mut all: Vec<Option<WriterNo>> = writers.keys().copied().collect();
    let whole = view.whole()?;
    all.extend(whole.snapshots.iter().map(|s| s.made_by).filter(|w| *w <= own).map(Some));
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    let snapshot = |w: Option<WriterNo>| whole.live().find(|s| Some(s.made_by) == w).map(|s| s.id);
    let numbered = all.into_iter().enumerate();
    let ages = numbered.filter_map(|(age, w)| {
        writers.get(&w).map(|bytes| (w, Age { age, snapshot: snapshot(w), bytes: *bytes }))
    });
    Ok(ages.collect())
}
