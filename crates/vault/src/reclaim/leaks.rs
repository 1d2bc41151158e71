//! Leaks: unreferenced chunks that a deletion by filters missed because of false positives. Estimates how many there
//! are, and repairs them by mark and sweep over one disk (VM-centric 3.2).

use crate::base::error::UnlessDamaged;
use crate::base::error::{Result, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::recipe::filters;
use crate::recipe::stored::{read_root, summary_of};
use crate::reclaim::apply::apply;
use crate::reclaim::change::Change;
use crate::reclaim::unreferenced::{Dead, LeakCount};
use format::{ContainerEntry, ContainerId, Manifest, RunSet};
use std::collections::{BTreeMap, HashSet};

/// Share of a disk's chunks that may leak before they are looked for: the paper's tau.
pub const LEAK_MAX: f64 = 0.05;

/// The share of chunks that a merged filter takes for referenced by mistake (formula 1): z bits, j hash functions, U
/// chunks in all of a disk's snapshots.
pub fn misjudged(bits: u64, hashes: u32, chunks: f64) -> f64 {
    let zero = (f64::from(hashes) * chunks * (-1.0 / bits as f64).ln_1p()).exp();
    (1.0 - zero).powi(hashes as i32)
}

/// The shape of the filter over so many chunks: its bits and its hash functions, the z and j of formula 1.
pub fn filter_shape(chunks: u64) -> (u64, u32) {
    let filter = filters::with_room(chunks);
    (filter.len_bits(), filter.hashes())
}

/// The share of a disk's chunks that has leaked after so many deletions (formula 2): `misjudged` of what each deletes, of
/// `snapshots` snapshots whose first has `first` chunks and whose others have `added` more each.
pub fn leak_ratio(deletions: u32, misjudged: f64, first: f64, added: f64, snapshots: usize) -> f64 {
    let all = first + snapshots.saturating_sub(1) as f64 * added;
    f64::from(deletions) * misjudged * added / all.max(1.0)
}

/// What formula 2 says of a disk as it is. Chunks that a backup adds are counted by their bytes.
pub(crate) fn estimated(folder: &Folder, m: &Manifest) -> Result<f64> {
    if m.by_filter == 0 {
        return Ok(0.0);
    }
    let mut newest = None;
    for s in m.live().rev() {
        newest = filters::read(folder, s).unless_damaged()?.flatten();
        if newest.is_some() {
            break;
        }
    }
    // Where there is no filter any more, nothing leaks any more: what has leaked so far goes.
    let Some(filter) = newest else { return Ok(f64::INFINITY) };
    let first = filter.items() as f64;
    let later = || m.live().filter(|s| s.parent.is_some() && s.data_bytes > 0);
    let shares: f64 = later().map(|s| s.new_bytes as f64 / s.data_bytes as f64).sum();
    let added = first * shares / later().count().max(1) as f64;
    let snapshots = m.live().count();
    let all = first + snapshots.saturating_sub(1) as f64 * added;
    let misjudged = misjudged(filter.len_bits(), filter.hashes(), all);
    Ok(leak_ratio(m.by_filter, misjudged, first, added, snapshots))
}

/// Finds what has leaked, if anything was deleted by filters, and logs it as dead. Reads this disk's metadata alone.
/// Returns how many chunks there were.
///
/// Under a writer's number of its own: the lists of dead chunks that the deletion before it wrote have its number in
/// their names, and count by now.
pub(crate) fn repair(session: &mut Session, punch_below: f64) -> Result<u64> {
    if session.folder.load()?.by_filter == 0 {
        return Ok(0);
    }
    session.renew()?;
    let folder = &session.folder;
    loop {
        let m = folder.load()?;
        let referenced = referenced(folder, &m)?;
        let mut entries: Vec<ContainerEntry> = Vec::new();
        Containers::new(folder.clone(), &m).each(|e| {
            entries.push(*e);
            Ok(())
        })?;
        let mut dead = Dead { counted: LeakCount::Repaired, ..Dead::default() };
        let mut leaked = 0;
        for e in entries {
            let live = referenced.get(&e.id);
            if !e.id.is_own() {
                if live.is_none() {
                    dead.shared.insert(e.id);
                    dead.foreign.insert(e.id);
                }
                continue;
            }
            if live.map_or(0, RunSet::len) + u64::from(e.dead_chunks) == u64::from(e.chunks) {
                continue;
            }
            let known = || Ok(read_table(folder, e.id, e.table)?.numbers.minus(&read_dead(folder, &e)?));
            let mut chunks = match known() {
                // Damage is for `verify` to tell; the other containers are repaired all the same, and this one later.
                Err(e) if VaultError::is_damage(&e) => {
                    dead.counted = LeakCount::Exactly;
                    continue;
                }
                other => other?,
            };
            if let Some(live) = live {
                chunks = chunks.minus(live);
            }
            leaked += chunks.len();
            if !chunks.is_empty() {
                dead.chunks.insert(e.id, chunks);
            }
        }
        if apply(&*session, &m, &Change::default(), &dead, punch_below)? {
            return Ok(leaked);
        }
        // A backup has committed meanwhile: what it references was not looked at.
    }
}

/// Everything that any snapshot of a disk references, deleted ones that must wait included.
fn referenced(folder: &Folder, m: &Manifest) -> Result<BTreeMap<ContainerId, RunSet>> {
    let mut all: BTreeMap<ContainerId, RunSet> = BTreeMap::new();
    let mut seen = HashSet::new();
    for s in &m.snapshots {
        for page in read_root(folder, s)?.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
            for (id, chunks) in summary_of(folder, &page)?.containers {
                let known = all.entry(id).or_default();
                *known = known.union(&chunks);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example: u of 10 million chunks, a fortieth of it new every day, ten snapshots.
    #[test]
    fn the_papers_example() {
        let (u, added): (f64, f64) = (10e6, 0.25e6);
        let all = u + 9.0 * added;
        assert!((all - 12.25e6).abs() < 1.0);
        let epsilon = misjudged(122_500_000, 7, all);
        assert!((0.005..=0.01).contains(&epsilon), "{epsilon}");
        assert!(leak_ratio(245, 0.01, u, added, 10) <= LEAK_MAX + 1e-9);
        assert!(leak_ratio(246, 0.01, u, added, 10) > LEAK_MAX);
        assert_eq!(leak_ratio(0, 0.01, u, added, 10), 0.0);
    }
}
