//! Compaction: rewrites containers that have many dead chunks, without these.
//!
//! Chunk numbers stay, so no recipe changes. Groups without a dead chunk are copied byte for byte; the live chunks of
//! the others are packed into new groups. The old data and table are released, not deleted at once: readers may be
//! using them.

pub(crate) mod recompress;
pub(crate) mod write_again;

use crate::base::error::Result;
use crate::manifest::container_table::{release_data, Containers, Edits};
use crate::manifest::folder::release;
use crate::manifest::session::Session;
use crate::reclaim::released::delete_released;
use format::{ContainerEntry, ContainerId, Release};
use std::collections::BTreeSet;
use write_again::{discard, replaced, write_all, Due};

/// Containers whose new entries take effect together.
const CONTAINERS_PER_SWAP: usize = 32;

/// What compaction did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactReport {
    /// Containers written again.
    pub containers: u64,
    /// Containers left as they are because they are damaged.
    pub damaged: u64,
    /// Containers left as they are because there is no room to write them again.
    pub no_room: u64,
    /// Bytes of groups before and after.
    pub before_bytes: u64,
    /// See `before_bytes`.
    pub after_bytes: u64,
}

impl CompactReport {
    pub(crate) fn add(&mut self, other: CompactReport) {
        self.containers += other.containers;
        self.damaged += other.damaged;
        self.no_room += other.no_room;
        self.before_bytes += other.before_bytes;
        self.after_bytes += other.after_bytes;
    }

    pub(super) fn count(&mut self, old: &ContainerEntry, new: &ContainerEntry) {
        self.containers += 1;
        self.before_bytes += old.stored_bytes;
        self.after_bytes += new.stored_bytes;
    }
}

/// Whether so many dead chunks of a container are enough to write it again.
pub(super) fn is_due(entry: &ContainerEntry, dead_chunks: u64, threshold: f64) -> bool {
    let share = dead_chunks as f64 / f64::from(entry.chunks.max(1));
    entry.id.is_own() && dead_chunks > 0 && share >= threshold
}

/// Compacts every container of the session's folder, or every one of `only`, whose share of dead chunks is `threshold`
/// or more. What was released before gives room for it: also returns the bytes that this has freed.
pub(crate) fn compact_folder(
    session: &Session,
    threshold: f64,
    only: Option<&BTreeSet<ContainerId>>,
) -> Result<(CompactReport, u64)> {
    let (mut report, mut freed_bytes) = (CompactReport::default(), 0);
    if only.is_some_and(BTreeSet::is_empty) {
        return Ok((report, 0));
    }
    let m = session.folder.load_root()?;
    let containers = Containers::new(session.folder.clone(), &m);
    let due = containers.select(only, |e| is_due(e, u64::from(e.dead_chunks), threshold))?;
    if !due.is_empty() {
        freed_bytes = delete_released(&session.folder, Some(session))?;
    }
    for batch in due.chunks(CONTAINERS_PER_SWAP) {
        let batch: Vec<Due> =
            batch.iter().map(|entry| Due { entry: *entry, dead: None, level: None }).collect();
        report.add(compact_batch(session, &batch)?);
    }
    Ok((report, freed_bytes))
}

/// Writes containers again, and puts them in the place of the old ones in one swap.
fn compact_batch(session: &Session, batch: &[Due]) -> Result<CompactReport> {
    let mut report = CompactReport::default();
    let done = write_all(session, batch)?;
    let (mut edits, mut released) = (Edits::new(), Vec::new());
    for (due, outcome) in batch.iter().zip(done) {
        let entry = &due.entry;
        match outcome {
            Ok(new) if new.data == entry.data => drop(edits.insert(new.id, Some(new))),
            Ok(new) => {
                report.count(entry, &new);
                edits.insert(new.id, Some(new));
                released.extend(replaced(&session.folder, entry));
            }
            // The other containers are compacted all the same.
            Err(e) if e.is_damage() => {
                session.folder.damage_met.note(session.folder.disk, &e);
                report.damaged += 1;
                discard(session, entry.id)?;
            }
            Err(e) if e.is_full() && due.level.is_none() => {
                report.no_room += 1;
                discard(session, entry.id)?;
                // Punching needs none.
                let punch = entry.dead.map(|dead| Release::Punch { container: entry.id, dead });
                session.swap(|m| {
                    punch.iter().for_each(|punch| release(m, punch.clone()));
                    Ok(())
                })?;
            }
            Err(e) => {
                // Where there is no room the session may go on: nothing of the batch is left.
                if e.is_full() {
                    batch.iter().try_for_each(|due| discard(session, due.entry.id))?;
                }
                return Err(e);
            }
        }
    }
    if !edits.is_empty() {
        exchange(session, &edits, released)?;
    }
    Ok(report)
}

/// Puts new entries in the place of old ones, in one swap.
pub(crate) fn replace(session: &Session, fresh: &[(ContainerEntry, ContainerEntry)]) -> Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    let edits: Edits = fresh.iter().map(|(_, new)| (new.id, Some(*new))).collect();
    exchange(session, &edits, fresh.iter().flat_map(|(old, _)| replaced(&session.folder, old)).collect())
}

/// Changes entries of the container table in one swap, and releases what was said and data objects that no entry names
/// afterwards.
pub(super) fn exchange(session: &Session, edits: &Edits, mut released: Vec<Release>) -> Result<()> {
    let folder = &session.folder;
    release_data(&Containers::new(folder.clone(), &folder.load_root()?), edits, &mut released)?;
    session.swap(|m| {
        m.edit_containers(edits)?;
        released.iter().for_each(|what| release(m, what.clone()));
        Ok(())
    })?;
    Ok(())
}
