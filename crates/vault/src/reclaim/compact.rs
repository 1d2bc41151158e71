//! Compaction: rewrites containers that have many dead chunks, without these.
//!
//! Chunk numbers stay, so no recipe changes. Groups without a dead chunk are copied byte for byte; the live chunks of
//! the others are packed into new groups. The old data and table are released, not deleted at once: readers may be
//! using them.

use crate::base::error::{Named, Result, VaultError};
use crate::base::policy::{CodecChoice, BALANCED, POPULAR_GROUP_BYTES};
use crate::base::threads::{cores, Failure};
use crate::container::codec::Packer;
use crate::container::dead::read_dead;
use crate::container::group_reader::GroupReader;
use crate::container::tables::read_table;
use crate::container::writer::ContainerWriter;
use crate::manifest::container_table::{release_data, Containers, Edits};
use crate::manifest::folder::release;
use crate::manifest::session::Session;
use format::{names, Codec, ContainerEntry, ContainerId, DataName, Release, RunSet, Table, TableIndex};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{Reserve, StoreError};

/// Codec of groups that are packed anew: they stay for long. What was stored raw by choice stays raw.
const CODEC: CodecChoice = CodecChoice::Zstd(3);
/// Bytes of chunks in a group that is packed anew.
const GROUP_BYTES: usize = BALANCED.group_bytes as usize;

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

/// Compacts every container of the session's folder, or every one of `only`, whose share of dead chunks is `threshold`
/// or more.
pub(crate) fn compact_folder(
    session: &Session,
    threshold: f64,
    only: Option<&BTreeSet<ContainerId>>,
) -> Result<CompactReport> {
    let mut report = CompactReport::default();
    let m = session.folder.load_root()?;
    let containers = Containers::new(session.folder.clone(), &m);
    let is_due = |e: &ContainerEntry| {
        let share = f64::from(e.dead_chunks) / f64::from(e.chunks.max(1));
        e.id.is_own() && e.dead_chunks > 0 && share >= threshold
    };
    for batch in containers.select(only, is_due)?.chunks(CONTAINERS_PER_SWAP) {
        let done = compact_all(session, batch)?;
        let mut fresh = Vec::new();
        for (entry, outcome) in batch.iter().zip(done) {
            match outcome {
                Ok(new) => {
                    report.containers += 1;
                    report.before_bytes += entry.stored_bytes;
                    report.after_bytes += new.stored_bytes;
                    fresh.push((*entry, new));
                }
                // Damage is for `verify` to tell; the other containers are compacted all the same.
                Err(e) if e.is_damage() => report.damaged += 1,
                Err(VaultError::Store(StoreError::Full { .. })) => {
                    report.no_room += 1;
                    let data = DataName { container: entry.id, generation: session.writer };
                    session.folder.store.delete(&names::data(&session.folder.path, data))?;
                    // Punching needs none.
                    let punch = entry.dead.map(|dead| Release::Punch { container: entry.id, dead });
                    session.swap(|m| {
                        punch.iter().for_each(|punch| release(m, punch.clone()));
                        Ok(())
                    })?;
                }
                Err(e) => return Err(e),
            }
        }
        replace(session, &fresh)?;
    }
    Ok(report)
}

/// Writes containers again, on all cores. Returns their new entries.
fn compact_all(session: &Session, batch: &[ContainerEntry]) -> Result<Vec<Result<ContainerEntry>>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<ContainerEntry>>>> = Mutex::new(batch.iter().map(|_| None).collect());
    let failure = Failure::default();
    std::thread::scope(|scope| {
        for _ in 0..cores().min(batch.len()) {
            failure.spawn(scope, "compact", || {
                while let Some((n, entry)) = {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    batch.get(n).map(|e| (n, e))
                } {
                    let outcome = compact(session, entry);
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

/// Writes one container again. Returns its new entry, which nothing names yet.
fn compact(session: &Session, entry: &ContainerEntry) -> Result<ContainerEntry> {
    let folder = &session.folder;
    let table = read_table(folder, entry.id, entry.table)?;
    let dead = read_dead(folder, entry)?;
    let data = DataName { container: entry.id, generation: session.writer };
    // Where there is no room it is punched, which needs none: the reserve is for what cannot be done without.
    let mut writer = ContainerWriter::create_as(&folder.with_reserve(Reserve::None), session, data)?;
    copy_live(session, &table, &dead, &mut writer)?;
    Ok(writer.finish(session)?.0)
}

/// Puts new entries in the place of old ones, in one swap.
pub(crate) fn replace(session: &Session, fresh: &[(ContainerEntry, ContainerEntry)]) -> Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    let folder = &session.folder;
    let edits: Edits = fresh.iter().map(|(_, new)| (new.id, Some(*new))).collect();
    let mut released = Vec::new();
    for (old, _) in fresh {
        released.push(Release::Object(names::table(&folder.path, old.id, old.table)));
        let dead = old.dead.map(|generation| names::dead(&folder.path, old.id, generation));
        released.extend(dead.map(Release::Object));
    }
    exchange(session, &edits, released)
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

fn copy_live(session: &Session, table: &Table, dead: &RunSet, writer: &mut ContainerWriter) -> Result<()> {
    let folder = &session.folder;
    let object = names::data(&folder.path, table.data);
    let (mut groups, mut packer) = (GroupReader::new(), Packer::new());
    let mut pending = LiveGroup::default();
    let mut stored = Vec::new();
    let all_raw = table.groups.iter().all(|g| g.codec == Codec::Raw);
    let codec = if all_raw { CodecChoice::Raw } else { CODEC };
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
        if live.len() == indices.len() {
            pending.flush(codec, &mut packer, writer)?;
            groups.chunks(&object, table, group, indices)?;
            let numbers: Vec<(u32, u32)> =
                indices.into_iter().map(|n| Ok((number(n)?.0, 1))).collect::<Result<_>>()?;
            let (lengths, fingerprints) = (indices.of(&table.lengths), indices.of(&table.fingerprints));
            writer.append(&numbers, lengths, fingerprints, group.codec, &stored)?;
            continue;
        }
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
    pending.flush(codec, &mut packer, writer)
}
