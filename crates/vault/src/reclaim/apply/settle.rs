//! What becomes of containers that have lost chunks: they are written again, or lists of their dead chunks are put.

use crate::base::error::{Result, UnlessDamaged};
use crate::container::dead::read_dead;
use crate::manifest::container_table::{Containers, Edits};
use crate::manifest::session::Session;
use crate::reclaim::compact::write_again::{discard, replaced, write_all, Due};
use crate::reclaim::compact::{is_due, CompactReport};
use crate::reclaim::dead_list::{dead_with, put_list};
use format::{names, ContainerEntry, ContainerId, Release, RunSet};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of containers that a change writes again at once, at most: other disks' backups reference none of them meanwhile.
const AT_ONCE_BYTES: u64 = 64 << 20;

/// Chunks of containers that only the disk itself references.
pub(super) type DeadChunks<'a> = BTreeMap<ContainerId, &'a RunSet>;

/// New entries of containers that have lost chunks, which nothing names yet.
#[derive(Default)]
pub(super) struct Settled {
    pub edits: Edits,
    /// Objects that nothing names once the entries count.
    pub released: Vec<Release>,
    /// Containers that were written again.
    pub rewritten: BTreeSet<ContainerId>,
    pub compacted: CompactReport,
    /// Whether there was no room for some lists: what they would have named leaks until it is repaired.
    pub leaks: bool,
}

/// Writes containers again that have at least the share `rebuild_at` of dead chunks, as many as [`AT_ONCE_BYTES`] allow,
/// and puts lists of dead chunks beside the others.
///
/// Where there is no room for all of the lists, nothing is left of either, but containers without a live chunk go.
pub(super) fn settle(
    session: &Session,
    containers: &Containers,
    dead: &DeadChunks<'_>,
    rebuild_at: f64,
) -> Result<Settled> {
    let mut settled = Settled::default();
    match settled.add_all(session, containers, dead, rebuild_at) {
        Err(e) if e.is_full() => {
            settled.take_back(session)?;
            unlisted(session, containers, dead)
        }
        done => done.map(|()| settled),
    }
}

impl Settled {
    fn add_all(
        &mut self,
        session: &Session,
        containers: &Containers,
        dead: &DeadChunks<'_>,
        rebuild_at: f64,
    ) -> Result<()> {
        let (mut due, mut bytes) = (Vec::new(), 0);
        for (id, chunks) in dead {
            let Some(entry) = containers.get(*id)? else { continue };
            let all = dead_with(session, &entry, chunks, false)?;
            let has_live = all.len() < u64::from(entry.chunks);
            let fits = entry.stored_bytes <= AT_ONCE_BYTES - bytes;
            if has_live && fits && is_due(&entry, all.len(), rebuild_at) {
                bytes += entry.stored_bytes;
                due.push(Due { entry, dead: Some(all), level: None });
            } else {
                self.list(session, &entry, all, rebuild_at)?;
            }
        }
        let mut failed = Vec::new();
        for (due, outcome) in due.iter().zip(write_all(session, &due)?) {
            match outcome {
                Ok(new) => {
                    self.compacted.count(&due.entry, &new);
                    self.rewritten.insert(new.id);
                    self.edits.insert(new.id, Some(new));
                    self.released.extend(replaced(&session.folder, &due.entry));
                }
                // They get lists, and compaction tells why it cannot be done.
                Err(e) if e.is_damage_or_full() => failed.push(due),
                Err(e) => return Err(e),
            }
        }
        failed.iter().try_for_each(|due| discard(session, due.entry.id))?;
        for Due { entry, dead, .. } in failed {
            self.list(session, entry, dead.clone().unwrap_or_default(), rebuild_at)?;
        }
        Ok(())
    }

    /// Puts a list of dead chunks.
    fn list(
        &mut self,
        session: &Session,
        entry: &ContainerEntry,
        dead: RunSet,
        punch_below: f64,
    ) -> Result<()> {
        self.edits.insert(entry.id, put_list(session, entry, dead, punch_below, &mut self.released)?);
        Ok(())
    }

    /// Takes away what was written, and which nothing names: the session may write the same names again.
    pub fn take_back(&self, session: &Session) -> Result<()> {
        let (path, store) = (&session.folder.path, &session.folder.store);
        self.rewritten.iter().try_for_each(|id| discard(session, *id))?;
        for id in self.edits.iter().filter_map(|(id, fresh)| fresh.map(|_| *id)) {
            store.delete(&names::dead(path, id, session.writer))?;
        }
        Ok(())
    }
}

/// What can be done without lists of dead chunks: containers without a live chunk go.
fn unlisted(session: &Session, containers: &Containers, dead: &DeadChunks<'_>) -> Result<Settled> {
    let mut settled = Settled { leaks: true, ..Settled::default() };
    for (id, chunks) in dead {
        let Some(entry) = containers.get(*id)? else { continue };
        let Some(old) = read_dead(&session.folder, &entry).unless_damaged()? else { continue };
        let all = old.union(chunks);
        if all.len() >= u64::from(entry.chunks) {
            settled.list(session, &entry, all, 0.0)?;
        }
    }
    Ok(settled)
}
