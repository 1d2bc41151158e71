//! Proves which chunks of a container are whole whose table is lost, by the recipes: the fingerprint of a segment is over
//! the fingerprints of all its chunks. If it comes out right with what the chunks' bytes give, they are whole.

use crate::base::error::{Result, UnlessDamaged};
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::lookup::referrers;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::recipe::chain::RecipeReader;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, ContainerId, Reference, RunSet, SegmentRecipe, Table};

/// The chunks among `doubtful` that some segment of the owner's or of a referrer's snapshots proves to be whole. The table
/// has the fingerprints of the chunks as they are.
pub(super) fn whole_chunks(
    owner: &Folder,
    id: ContainerId,
    table: &Table,
    doubtful: &RunSet,
) -> Result<RunSet> {
    let mut proof = Proof { table, left: doubtful.clone() };
    let own = (!owner.is_popular()).then_some(owner.disk);
    for disk in own.into_iter().chain(referrers::of_writer(owner, id.writer())?) {
        let folder = owner.of(disk);
        let Some(reader) = Reader::open(&folder).unless_unreadable()? else { continue };
        let Some(no) = reader.manifest.owner_no(owner.disk) else { continue };
        let id = id.of(no);
        let tables = Tables::new(&folder, &reader.manifest, true, TABLE_CACHE_BYTES);
        // What only the newest has in one piece comes first.
        let Some(m) = folder.whole(reader.manifest.clone()).unless_unreadable()? else { continue };
        for entry in m.snapshots.iter().rev() {
            if proof.left.is_empty() {
                break;
            }
            let recipe = RecipeReader::open(&folder, &m.snapshots, entry).unless_unreadable()?;
            if let Some(mut recipe) = recipe {
                proof.by_recipe(&mut recipe, &tables, id)?;
            }
        }
    }
    Ok(doubtful.minus(&proof.left))
}

struct Proof<'a> {
    table: &'a Table,
    /// What is not proven yet.
    left: RunSet,
}

impl Proof<'_> {
    fn by_recipe(&mut self, recipe: &mut RecipeReader, tables: &Tables, id: ContainerId) -> Result<()> {
        for no in recipe.page_numbers() {
            let Some(page) = recipe.page(no).unless_unreadable()?.flatten() else { continue };
            for (_, segment) in &page.segments {
                self.by_segment(segment, tables, id)?;
            }
        }
        Ok(())
    }

    fn by_segment(&mut self, segment: &SegmentRecipe, tables: &Tables, id: ContainerId) -> Result<()> {
        let is_asked = |r: &Reference| match r {
            Reference::Direct { container, first, count } => {
                *container == id && self.left.count_within(*first, *count) > 0
            }
            _ => false,
        };
        if !segment.references.iter().any(is_asked) {
            return Ok(());
        }
        let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
        for r in &segment.references {
            match *r {
                Reference::Null { bytes } => pieces.push(Piece::Null { bytes }),
                Reference::Direct { container, first, count } => {
                    let other;
                    let table = if container == id {
                        self.table
                    } else {
                        let Some(read) = tables.get(container).unless_unreadable()? else { return Ok(()) };
                        other = read;
                        &*other
                    };
                    for n in 0..count {
                        let at = first.0.checked_add(n).and_then(|no| table.index_of(ChunkNo(no)));
                        let Some(at) = at else { return Ok(()) };
                        pieces.push(Piece::Data { bytes: table.length(at) });
                        fingerprints.push(Fingerprint(*table.fingerprint(at)));
                    }
                }
                Reference::Indirect { .. } => return Ok(()),
            }
        }
        if chunk::segment_fingerprint(&pieces, &fingerprints).0 != segment.fingerprint {
            return Ok(());
        }
        for r in &segment.references {
            if let Reference::Direct { container, first, count } = *r {
                if container == id {
                    self.left = self.left.minus(&RunSet::from_unsorted(vec![(first.0, count)]));
                }
            }
        }
        Ok(())
    }
}
