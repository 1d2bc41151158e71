//! Writes containers again, with their live chunks only.

use crate::base::error::{Named, Result, VaultError};
use crate::base::policy::{CodecChoice, BALANCED, POPULAR_GROUP_BYTES};
use crate::base::threads::{cores, Failure};
use crate::container::codec::Packer;
use crate::container::dead::read_dead;
use crate::container::group_reader::GroupReader;
use crate::container::tables::read_table;
use crate::container::writer::ContainerWriter;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use format::{names, Codec, ContainerEntry, ContainerId, DataName, Release, RunSet, Table, TableIndex};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::Reserve;

/// Codec of groups that are packed anew: they stay for long. What was stored raw by choice stays raw.
const CODEC: CodecChoice = CodecChoice::Zstd(3);
/// Bytes of chunks in a group that is packed anew.
const GROUP_BYTES: usize = BALANCED.group_bytes as usize;

/// A container to be written again.
pub(crate) struct Due {
    pub entry: ContainerEntry,
    /// What of it is dead; `None`: what its list says.
    pub dead: Option<RunSet>,
    /// The level of zstd at which all of its groups are packed again; `None`: only those that have dead chunks are, quickly.
    pub level: Option<u8>,
}

/// The table and the list of dead chunks that nothing names once a container was written again.
pub(crate) fn replaced(folder: &Folder, old: &ContainerEntry) -> impl Iterator<Item = Release> {
    let list = old.dead.map(|generation| names::dead(&folder.path, old.id, generation));
    std::iter::once(names::table(&folder.path, old.id, old.table)).chain(list).map(Release::Object)
}

/// Writes containers again, on all cores. Returns their new entries, which nothing names yet. One that packing again does not
/// make smaller keeps its objects: only the level in its entry is another. [`discard`] takes away what is left of one that
/// fails.
pub(crate) fn write_all(session: &Session, batch: &[Due]) -> Result<Vec<Result<ContainerEntry>>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<ContainerEntry>>>> = Mutex::new(batch.iter().map(|_| None).collect());
    let failure = Failure::default();
    std::thread::scope(|scope| {
        for _ in 0..cores().min(batch.len()) {
            failure.spawn(scope, "compact", || {
                while let Some((n, due)) = {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    batch.get(n).map(|due| (n, due))
                } {
                    let outcome = write_again(session, due);
                    done.lock()[n] = Some(outcome);
                }
            });
        }
    });
    failure.into_result()?;
    let done = done.into_inner();
    let ended = || VaultError::Refused("a thread of the compaction ended unexpectedly".into());
    Ok(done.into_iter().map(|d| d.unwrap_or_else(|| Err(ended()))).collect())
}

fn write_again(session: &Session, due: &Due) -> Result<ContainerEntry> {
    let (folder, entry) = (&session.folder, &due.entry);
    let table = read_table(folder, entry.id, entry.table)?;
    // What is stored raw by choice, or does not shrink, is not packed.
    if let Some(level) = due.level.filter(|_| table.groups.iter().all(|g| g.codec == Codec::Raw)) {
        return Ok(ContainerEntry { level, ..*entry });
    }
    let read;
    let dead = match &due.dead {
        Some(dead) => dead,
        None => {
            read = read_dead(folder, entry)?;
            &read
        }
    };
    // Where there is no room it is punched, which needs none: the reserve is for what cannot be done without.
    let folder = folder.with_reserve(Reserve::None);
    let mut writer = ContainerWriter::create_as(&folder, session, new_data(session, entry.id))?;
    let copy = Copy { table: &table, dead, level: due.level };
    let all_as_before = copy.live_chunks(session, &mut writer)?;
    let keeps_level = all_as_before || entry.is_rebuilt();
    let level = due.level.unwrap_or(if keeps_level { entry.level } else { 0 });
    let new = ContainerEntry { level, ..writer.finish(session)?.0 };
    if due.level.is_some() && new.stored_bytes >= entry.stored_bytes {
        discard(session, entry.id)?;
        return Ok(ContainerEntry { level, ..*entry });
    }
    Ok(new)
}

/// The data object that a session writes of a container that is there.
fn new_data(session: &Session, id: ContainerId) -> DataName {
    DataName { container: id, generation: session.writer }
}

/// Takes away what a session has written of a container, and which nothing names.
pub(crate) fn discard(session: &Session, id: ContainerId) -> Result<()> {
    let folder = &session.folder;
    folder.store.delete(&names::data(&folder.path, new_data(session, id)))?;
    folder.store.delete(&names::table(&folder.path, id, session.writer))?;
    Ok(())
}

/// Live chunks that wait to be packed.
#[derive(Default)]
struct LiveGroup {
    numbers: Vec<(u32, u32)>,
    lengths: Vec<u32>,
    fingerprints: Vec<[u8; 32]>,
    raw: Vec<u8>,
}

impl LiveGroup {
    fn flush(&mut self, codec: CodecChoice, packer: &mut Packer, writer: &mut ContainerWriter) -> Result<()> {
        if self.lengths.is_empty() {
            return Ok(());
        }
        let p = std::mem::take(self);
        let mut stored = Vec::new();
        let codec = packer.pack(codec, false, &p.raw, &mut stored);
        writer.append(&p.numbers, &p.lengths, &p.fingerprints, codec, &stored)
    }
}

/// What is copied of a container.
struct Copy<'a> {
    table: &'a Table,
    dead: &'a RunSet,
    /// See [`Due::level`].
    level: Option<u8>,
}

impl Copy<'_> {
    /// Copies the live chunks. Returns whether all groups are as they were.
    fn live_chunks(&self, session: &Session, writer: &mut ContainerWriter) -> Result<bool> {
        let Copy { table, dead, level } = *self;
        let folder = &session.folder;
        let object = names::data(&folder.path, table.data);
        let (mut groups, mut packer) = (GroupReader::new(), Packer::new());
        let mut pending = LiveGroup::default();
        let mut stored = Vec::new();
        let all_raw = table.groups.iter().all(|g| g.codec == Codec::Raw);
        let codec = match level {
            _ if all_raw => CodecChoice::Raw,
            Some(level) => CodecChoice::Zstd(level.into()),
            None => CODEC,
        };
        let mut all_as_before = true;
        let group_bytes = if folder.is_popular() { POPULAR_GROUP_BYTES } else { GROUP_BYTES };
        for group in &table.groups {
            let indices = group.indices();
            let number = |n: TableIndex| {
                table
                    .number_at(n)
                    .ok_or_else(|| VaultError::corrupt(&object, "its table has no number for a chunk"))
            };
            let mut live = Vec::new();
            for n in indices {
                if !dead.contains(number(n)?) {
                    live.push(n);
                }
            }
            if live.is_empty() {
                continue;
            }
            stored.resize(group.stored_len as usize, 0);
            folder.store.read_at(&object, group.offset, &mut stored).named()?;
            groups.open(&object, table, group, &stored)?;
            if live.len() == indices.len() && level.is_none() {
                pending.flush(codec, &mut packer, writer)?;
                groups.chunks(&object, table, group, indices)?;
                let numbers: Vec<(u32, u32)> =
                    indices.into_iter().map(|n| Ok((number(n)?.0, 1))).collect::<Result<_>>()?;
                let (lengths, fingerprints) = (indices.of(&table.lengths), indices.of(&table.fingerprints));
                writer.append(&numbers, lengths, fingerprints, group.codec, &stored)?;
                continue;
            }
            all_as_before = false;
            for n in live {
                if pending.raw.len() + table.length(n) as usize > group_bytes {
                    pending.flush(codec, &mut packer, writer)?;
                }
                let bytes = groups.chunks(&object, table, group, n.range(1))?;
                pending.raw.extend_from_slice(bytes);
                pending.numbers.push((number(n)?.0, 1));
                pending.lengths.push(table.length(n));
                pending.fingerprints.push(*table.fingerprint(n));
            }
        }
        pending.flush(codec, &mut packer, writer)?;
        Ok(all_as_before)
    }
}
