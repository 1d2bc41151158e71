//! Leaks: unreferenced chunks that a deletion by filters missed because of false positives. Estimates how many there
//! are, and repairs them by mark and sweep over one disk (VM-centric 3.2).

use crate::base::error::UnlessDamaged;
use crate::base::error::{Result, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::manifest::snapshots::known::Known;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::filters;
use crate::recipe::referenced::{memory_of, Reading, Referenced, ENTRY_BYTES, REFERENCED_BYTES};
use crate::reclaim::apply::{apply, Applied};
use crate::reclaim::change::Change;
use crate::reclaim::unreferenced::{Dead, LeakCount};
use format::{ContainerId, Manifest, RunSet};

/// Memory for what has leaked, in bytes, but for one container with more.
const DEAD_BYTES: usize = 16 << 20;

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
pub(crate) fn estimated(folder: &Folder, m: &Whole) -> Result<f64> {
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
/// Under writer numbers of its own: the lists of dead chunks that the deletion before it wrote have its number in their
/// names, and count by now. Containers are repaired in order, as many at once as fit into memory.
pub(crate) fn repair(session: &mut Session, rebuild_at: f64, applied: &mut Applied) -> Result<u64> {
    repair_within(session, rebuild_at, REFERENCED_BYTES, applied)
}

fn repair_within(
    session: &mut Session,
    rebuild_at: f64,
    bytes_max: usize,
    applied: &mut Applied,
) -> Result<u64> {
    let before = session.folder.load()?.by_filter;
    if before == 0 {
        return Ok(0);
    }
    session.renew()?;
    let mut all_counted = LeakCount::Repaired;
    let (mut from, mut leaked) = (None, 0);
    loop {
        let m = session.folder.load()?;
        if m.by_filter != before {
            // There was no space for the lists of an earlier part.
            all_counted = LeakCount::Exactly;
        }
        let mut reading = Reading { wanted: &|_| true, on_error: &mut Err, bytes_max };
        let referenced = Referenced::read(&session.folder, &m, from, &mut reading)?;
        let mut part = LeakedPart::find(&session.folder, &m, &referenced)?;
        if part.is_damaged {
            all_counted = LeakCount::Exactly;
        }
        if part.end.is_none() {
            part.dead.counted = all_counted;
        }
        if apply(&*session, Known::all(&m), &Change::default(), &part.dead, rebuild_at, applied)?.is_none() {
            // A backup has committed meanwhile: what it references was not looked at.
            continue;
        }
        leaked += part.leaked;
        if part.end.is_none() {
            return Ok(leaked);
        }
        from = part.end;
        session.renew()?;
    }
}

/// What has leaked in some containers that follow one another.
struct LeakedPart {
    dead: Dead,
    leaked: u64,
    /// Some of them could not be read.
    is_damaged: bool,
    /// The first container that was not looked at; `None`: there is none.
    end: Option<ContainerId>,
}

impl LeakedPart {
    fn find(folder: &Folder, m: &Manifest, referenced: &Referenced) -> Result<LeakedPart> {
        let mut part =
            LeakedPart { dead: Dead::default(), leaked: 0, is_damaged: false, end: referenced.end() };
        let mut bytes = 0;
        Containers::new(folder.clone(), m).each(|e| {
            if !referenced.has(e.id) || part.end.is_some_and(|end| e.id >= end) {
                return Ok(());
            }
            if bytes > DEAD_BYTES {
                part.end = Some(e.id);
                return Ok(());
            }
            let live = referenced.chunks_of(e.id);
            if !e.id.is_own() {
                if live.is_none() {
                    part.dead.shared.insert(e.id, 0);
                    part.dead.foreign.insert(e.id);
                    bytes += 2 * ENTRY_BYTES;
                }
                return Ok(());
            }
            if live.map_or(0, RunSet::len) + u64::from(e.dead_chunks) == u64::from(e.chunks) {
                return Ok(());
            }
            let known = || Ok(read_table(folder, e.id, e.table)?.numbers.minus(&read_dead(folder, e)?));
            let mut chunks = match known() {
                // Damage is for `verify` to tell; the other containers are repaired all the same, and this one later.
                Err(e) if VaultError::is_damage(&e) => {
                    part.is_damaged = true;
                    return Ok(());
                }
                other => other?,
            };
            if let Some(live) = live {
                chunks = chunks.minus(live);
            }
            if !chunks.is_empty() {
                part.leaked += chunks.len();
                bytes += memory_of(&chunks);
                part.dead.chunks.insert(e.id, chunks);
            }
            Ok(())
        })?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests;
