//! Deletes and punches the objects that a manifest has released, as soon as no older reader or writer can need them.
//!
//! Nothing is deleted that the newest commit record names: `repair` puts a lost manifest back from it
//! ([`crate::manifest::rollback`]). So a session that ends deletes what it has released when its commit is on record; one that
//! needs room before puts a record first.

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::{list_unswept, Folder};
use crate::manifest::listing::list_names;
use crate::manifest::rollback::record_now;
use crate::manifest::session::{is_alive, Session};
use format::{
    names, ChunkNo, Codec, ContainerId, DiskId, Manifest, ReaderRecord, Release, RunSet, Sequence, Table,
    WriterNo,
};
use std::collections::HashSet;
use std::ops::Range;
use store::StoreError;

/// Only whole blocks of a file can be given back.
const BLOCK_BYTES: u64 = 4096;

/// The oldest sequence that a living reader or writer (but for `own`) may still read.
fn oldest_in_use(folder: &Folder, m: &Manifest, own: Option<WriterNo>) -> Result<Sequence> {
    let mut oldest = Sequence::MAX;
    for name in list_names(&*folder.store, &format!("{}{}/", names::READERS, folder.disk))? {
        match folder.store.is_leased(&name) {
            Ok(true) | Err(StoreError::Unreadable { .. }) => {}
            Ok(false) => {
                folder.store.delete(&name)?;
                continue;
            }
            Err(e) => return Err(e.into()),
        }
        let bytes = match folder.store.read(&name, 4096) {
            Err(StoreError::NotFound { .. }) => continue,
            Err(StoreError::Unreadable { .. }) => Vec::new(),
            other => other?,
        };
        let record = ReaderRecord::decode(folder.context(&name), &bytes);
        // One that cannot be read or understood may read anything.
        let since = record.map_or(Sequence::FIRST, |record| record.since);
        oldest = oldest.min(since);
    }
    for w in m.writers.iter().filter(|w| Some(w.no) != own) {
        if is_alive(&*folder.store, w.token)? {
            oldest = oldest.min(w.since);
        }
    }
    Ok(oldest)
}

/// Deletes and punches what the manifest has released and nobody can still be reading. Returns the bytes freed.
///
/// # Errors
/// Nothing is deleted where the manifest cannot be put on record.
pub(crate) fn delete_released(folder: &Folder, own: Option<&Session>) -> Result<u64> {
    delete(folder, own, None)
}

/// The same after a session has ended whose commit is on record with this sequence.
pub(crate) fn delete_released_since(folder: &Folder, recorded: Option<Sequence>) -> Result<u64> {
    delete(folder, None, recorded)
}

/// Ends maintenance, then deletes and punches what was released. Returns the manifest as the session left it, and the bytes
/// freed: none where there is no room for a record.
pub(crate) fn end_and_delete_released(session: Session) -> Result<(Manifest, u64)> {
    let folder = session.folder.clone();
    let (m, (), is_recorded) = session.commit_on_record(|_| Ok(()))?;
    match delete(&folder, None, is_recorded.then_some(m.sequence)) {
        Err(e) if e.is_full() => Ok((m, 0)),
        freed => freed.map(|bytes| (m, bytes)),
    }
}

/// `recorded`: the sequence of a commit record that this process has put.
fn delete(folder: &Folder, own: Option<&Session>, recorded: Option<Sequence>) -> Result<u64> {
    let m = folder.load_root()?;
    if m.released.is_empty() {
        return Ok(0);
    }
    // What is released from now on may be needed by readers that come from now on.
    let oldest = oldest_in_use(folder, &m, own.map(|session| session.writer))?.min(m.sequence);
    let due = || m.released.iter().filter(|r| r.sequence <= oldest);
    let Some(latest) = due().map(|r| r.sequence).max() else { return Ok(0) };
    if recorded.is_none_or(|recorded| recorded < latest) {
        match own {
            Some(session) => session.record_now(&m)?,
            None => drop(record_now(folder, &m)?),
        }
    }
    let mut freed = 0;
    let mut done = HashSet::new();
    let mut failed = None;
    for r in due() {
        let outcome = match &r.what {
            Release::Object(name) => folder.store.delete_measured(name).map_err(VaultError::from),
            // It is listed below.
            Release::Foreign(_) => Ok(0),
            Release::Punch { container, dead } => {
                // `verify` reports what is damaged; its space comes back with the container.
                punch(folder, &m, *container, *dead).unless_damaged().map(Option::unwrap_or_default)
            }
        };
        match outcome {
            Ok(bytes) => {
                freed += bytes;
                done.insert(r.what.clone());
            }
            // The others go all the same.
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    if !done.is_empty() {
        folder.update(|m| {
            // A container of another owner may have been released again since.
            m.released.retain(|r| r.sequence > oldest || !done.contains(&r.what));
            // Popular containers are swept by `gc` only: what one disk no longer needs, others have.
            let swept: Vec<ContainerId> = done.iter().filter_map(|what| foreign(m, what)).collect();
            list_unswept(m, &swept);
            Ok(())
        })?;
    }
    failed.map_or(Ok(freed), Err)
}

/// The container of another disk that a release is of.
fn foreign(m: &Manifest, what: &Release) -> Option<ContainerId> {
    match what {
        Release::Foreign(id) => Some(*id).filter(|id| m.owner(id.owner()) != Some(DiskId::POPULAR)),
        _ => None,
    }
}

/// Punches what a list of dead chunks says, if the container still has that list: a later one has its own record.
fn punch(folder: &Folder, m: &Manifest, id: ContainerId, dead: WriterNo) -> Result<u64> {
    let Some(entry) = Containers::new(folder.clone(), m).get(id)? else { return Ok(0) };
    if entry.dead != Some(dead) {
        return Ok(0);
    }
    let table = read_table(folder, id, entry.table)?;
    let holes = holes(&table, &read_dead(folder, &entry)?);
    let object = names::data(&folder.path, entry.data);
    match folder.store.punch_measured(&object, &holes) {
        // A store without holes: compaction gives the space back.
        Err(StoreError::Unsuitable { .. }) => Ok(0),
        other => other.named(),
    }
}

/// What of a data object serves dead chunks only: groups without a live chunk, and dead chunks of groups stored raw.
/// Whole blocks as (offset, length), sorted.
pub(crate) fn holes(table: &Table, dead: &RunSet) -> Vec<(u64, u64)> {
    let mut holes: Vec<Range<u64>> = Vec::new();
    let mut add = |from: u64, to: u64| match holes.last_mut() {
        Some(last) if last.end == from => last.end = to,
        _ => holes.push(from..to),
    };
    let numbers: Vec<u32> = table.numbers.runs().iter().flat_map(|r| r.0..r.0 + r.1).collect();
    for g in &table.groups {
        let indices = g.indices();
        if indices.of(&numbers).iter().all(|n| dead.contains(ChunkNo(*n))) {
            add(g.offset, g.offset + u64::from(g.stored_len));
        } else if g.codec == Codec::Raw && g.cipher == 0 {
            let mut at = g.offset;
            for (no, length) in indices.of(&numbers).iter().zip(indices.of(&table.lengths)) {
                let end = at + u64::from(*length);
                if dead.contains(ChunkNo(*no)) {
                    add(at, end);
                }
                at = end;
            }
        }
    }
    let whole = |r: Range<u64>| (r.start.next_multiple_of(BLOCK_BYTES), r.end / BLOCK_BYTES * BLOCK_BYTES);
    holes.into_iter().map(whole).filter(|(from, to)| from < to).map(|(from, to)| (from, to - from)).collect()
}
