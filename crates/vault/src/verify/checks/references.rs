//! Compares the reference index of a disk with the disk's recipes.

use crate::base::error::{fault, Result};
use crate::base::progress::Progress;
use crate::container::view::View;
use crate::recipe::reference_index::{summary_of_recipe, Part};
use crate::recipe::stored::recipe_of;
use crate::verify::findings::objects::Findings;
use chunk::Fingerprint;
use format::{ContainerId, Indexed, RecipeName, RunSet, SnapshotEntry};
use std::collections::{HashMap, HashSet};

/// Looks at every part, and for a part with each recipe that is marked as indexed. What is said of recipes that are there no
/// longer does not matter. Returns how many parts there are.
pub(crate) fn check(view: &View, found: &mut Findings, progress: &Progress) -> Result<u64> {
    let m = view.whole()?;
    let snapshots: HashMap<RecipeName, &SnapshotEntry> =
        m.snapshots.iter().map(|s| (recipe_of(s), s)).collect();
    let mut is_readable = true;
    let mut told: HashSet<RecipeName> = HashSet::new();
    for at in &m.references {
        progress.check()?;
        let part = Part::open(&view.folder, at);
        match &part {
            Ok(part) => told.extend(&part.footer.recipes),
            Err(_) => is_readable = false,
        }
        let checked = part.and_then(|part| wrong_recipe(view, &part, &snapshots, progress));
        let (object, why) = match checked {
            Ok(None) => continue,
            Ok(Some((object, id))) => (object, format!("says what the recipe of {id} does not say")),
            Err(e) => fault(e)?,
        };
        found.add(&object, &format!("{why}; restores do not need it, `sapwood reindex` makes it anew"));
    }
    let is_untold = |s: &&SnapshotEntry| s.indexed == Indexed::Yes && !told.contains(&recipe_of(s));
    if let Some(s) = m.snapshots.iter().find(is_untold).filter(|_| is_readable) {
        let why = format!(
            "says that the recipe of {} is in the reference index, which does not have it; `sapwood reindex` makes it anew",
            s.id
        );
        found.add(&view.folder.manifest_name(), &why);
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
