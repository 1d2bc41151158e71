//! Compares the reference index of a disk with the disk's recipes.

use crate::base::error::{fault, Result};
use crate::base::progress::Progress;
use crate::container::view::View;
use crate::recipe::reference_index::{summary_of_recipe, Part};
use crate::recipe::stored::recipe_of;
use crate::verify::findings::Findings;
use chunk::Fingerprint;
use format::{ContainerId, RecipeName, RunSet, SnapshotEntry};
use std::collections::HashMap;

/// Looks at every part. What it says of recipes that are there no longer does not matter. Returns how many parts there are.
pub(super) fn check(view: &View, found: &mut Findings, progress: &Progress) -> Result<u64> {
    let m = view.whole()?;
    let snapshots: HashMap<RecipeName, &SnapshotEntry> =
        m.snapshots.iter().map(|s| (recipe_of(s), s)).collect();
    for at in &m.references {
        progress.check()?;
        let checked =
            Part::open(&view.folder, at).and_then(|part| wrong_recipe(view, &part, &snapshots, progress));
        let (object, why) = match checked {
            Ok(None) => continue,
            Ok(Some((object, id))) => (object, format!("says what the recipe of {id} does not say")),
            Err(e) => fault(e)?,
        };
        found.add(&object, &format!("{why}; restores do not need it, `sapwood reindex` makes it anew"));
    }
    Ok(m.references.len() as u64)
}

/// The part's name, and the snapshot of a recipe of which it says something else than the recipe.
fn wrong_recipe(
    view: &View,
    part: &Part,
    snapshots: &HashMap<RecipeName, &SnapshotEntry>,
    progress: &Progress,
) -> Result<Option<(String, format::SnapId)>> {
    let mut sums = vec![0u64; part.footer.recipes.len()];
    part.each(&mut |e| add(&mut sums[e.recipe as usize], e.container, &e.chunks))?;
    for (recipe, sum) in part.footer.recipes.iter().zip(sums) {
        progress.check()?;
        let Some(s) = snapshots.get(recipe) else { continue };
        // One that cannot be read is told of where the recipes are looked at.
        let Some(summary) = summary_of_recipe(&view.folder, s)? else { continue };
        let mut wanted = 0;
        summary.containers.iter().for_each(|(id, chunks)| add(&mut wanted, *id, chunks));
        if wanted != sum {
            return Ok(Some((part.name.clone(), s.id)));
        }
    }
    Ok(None)
}

/// Adds what is referenced of a container to a sum that does not depend on the order.
fn add(sum: &mut u64, container: ContainerId, chunks: &RunSet) {
    let mut bytes = container.raw().to_le_bytes().to_vec();
    for (first, count) in chunks.runs() {
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    let hash = Fingerprint::of(&bytes).0;
    *sum = sum.wrapping_add(hash[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)));
}
