//! Reads every group of containers in large sequential reads, and checks them on all cores.

use crate::base::error::{fault, Fault, Named, Result};
use crate::base::progress::Progress;
use crate::container::group_reader::{extent, GroupReader};
use crate::container::tables::Tables;
use crate::manifest::folder::Folder;
use crate::verify::findings::others::{lock, ThreadFindings};
use crossbeam_channel::{Receiver, Sender};
use format::{names, ChunkNo, Codec, GroupNo, RunSet, Table, TableIndex, TableRange, WriterNo};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use store::ObjectStore;

/// Bytes of stored groups in one read.
const READ_BYTES: u64 = 2 << 20;
/// Bytes that are rather read than skipped.
const GAP_BYTES: u64 = 64 << 10;

/// What is wrong, and with which chunks.
type Bad = (Fault, TableRange);

/// One read of the store.
pub(super) struct GroupRead {
    object: String,
    offset: u64,
    len: u64,
    table: Arc<Table>,
    /// Generation of the table, for the record.
    generation: WriterNo,
    groups: Vec<GroupNo>,
    /// Chunks that may be gone.
    dead: Arc<RunSet>,
}

/// The numbers of chunks at these indices of a table, as runs.
pub(super) fn chunks_of(table: &Table, indices: TableRange) -> impl Iterator<Item = (u32, u32)> + '_ {
    indices.into_iter().filter_map(|n| table.number_at(n)).map(|c| (c.0, 1))
}

/// Cuts the groups of a container into reads, announces and sends them. Groups without a live chunk are passed over.
pub(super) fn reads(
    folder: &Folder,
    table: &Arc<Table>,
    generation: WriterNo,
    groups: &[GroupNo],
    dead: &RunSet,
    progress: &Progress,
    out: &Sender<GroupRead>,
) -> Result<()> {
    let object = names::data(&folder.path, table.data);
    let kept = Arc::new(dead.clone());
    let mut live = groups.to_vec();
    if !dead.is_empty() {
        let numbers: Vec<u32> = table.numbers.runs().iter().flat_map(|r| r.0..r.0 + r.1).collect();
        live.retain(|n| {
            let g = table.group(*n);
            let live = g.indices().of(&numbers).iter().any(|c| !dead.contains(ChunkNo(*c)));
            progress.add(if live { 0 } else { u64::from(g.stored_len) });
            live
        });
    }
    live.sort_by_key(|n| table.group(*n).offset);
    let place = |n: GroupNo| {
        let g = table.group(n);
        g.offset..g.offset + u64::from(g.stored_len)
    };
    let mut from = 0;
    while from < live.len() {
        let Range { start, mut end } = place(live[from]);
        let mut to = from + 1;
        while let Some(next) = live.get(to).map(|n| place(*n)) {
            if next.start > end + GAP_BYTES || next.end.max(end) - start > READ_BYTES {
                break;
            }
            end = end.max(next.end);
            to += 1;
        }
        folder.store.will_read(&object, start, end - start);
        let (object, table, groups) = (object.clone(), table.clone(), live[from..to].to_vec());
        let (len, dead) = (end - start, kept.clone());
        let read = GroupRead { object, offset: start, len, table, generation, groups, dead };
        if out.send(read).is_err() {
            return Ok(());
        }
        from = to;
    }
    Ok(())
}

/// Carries reads out.
pub(super) fn work(
    tables: &Tables,
    reads: &Receiver<GroupRead>,
    found: &Mutex<ThreadFindings<'_>>,
    progress: &Progress,
) -> Result<()> {
    let mut groups = GroupReader::new();
    let mut stored = Vec::new();
    for read in reads {
        progress.check()?;
        let folder = tables.folder_of(read.table.container);
        let store = &folder.store;
        stored.resize(read.len as usize, 0);
        // Where all of it cannot be read, each group is tried alone.
        let whole = store.read_at(&read.object, read.offset, &mut stored).is_ok();
        let (mut data_bytes, mut bad) = (0, Vec::new());
        for &n in &read.groups {
            let g = *read.table.group(n);
            let at = (g.offset - read.offset) as usize;
            let bytes = &mut stored[at..at + g.stored_len as usize];
            if !whole && g.codec == Codec::Raw {
                data_bytes += check_chunks(&**store, &mut groups, &read, n, &mut bad)?;
                continue;
            }
            if !whole {
                if let Err(e) = store.read_at(&read.object, g.offset, bytes).named() {
                    bad.push((fault(e)?, g.indices()));
                    continue;
                }
            }
            data_bytes += check(&mut groups, &read, n, bytes, &mut bad)?;
        }
        progress.add(read.groups.iter().map(|n| u64::from(read.table.group(*n).stored_len)).sum());
        let mut found = lock(found);
        blame(&read, &mut found, &bad);
        found.counts.stored_bytes_read += read.len;
        found.counts.data_bytes += data_bytes;
    }
    Ok(())
}

/// Reads the chunks of a group stored raw one by one. Returns the bytes of those that are whole.
fn check_chunks(
    store: &dyn ObjectStore,
    groups: &mut GroupReader,
    read: &GroupRead,
    n: GroupNo,
    bad: &mut Vec<Bad>,
) -> Result<u64> {
    let (table, group) = (&read.table, read.table.group(n));
    let mut whole = 0;
    for n in group.indices() {
        if table.number_at(n).is_some_and(|c| read.dead.contains(c)) {
            continue;
        }
        let at = extent(table, group, n.range(1));
        let mut bytes = vec![0; (at.end - at.start) as usize];
        let read_back = store.read_at(&read.object, at.start, &mut bytes).named();
        match read_back.and_then(|()| groups.compare_raw(&read.object, table, group, n.range(1), &bytes)) {
            Ok(()) => whole += bytes.len() as u64,
            Err(e) => bad.push((fault(e)?, n.range(1))),
        }
    }
    Ok(whole)
}

/// Checks a group. Returns the bytes of its chunks that are whole.
fn check(
    groups: &mut GroupReader,
    read: &GroupRead,
    n: GroupNo,
    stored: &[u8],
    bad: &mut Vec<Bad>,
) -> Result<u64> {
    let (table, group) = (&read.table, read.table.group(n));
    let all = group.indices();
    if let Err(e) = groups.open(&read.object, table, group, stored) {
        bad.push((fault(e)?, all));
        return Ok(0);
    }
    if groups.chunks(&read.object, table, group, all).is_ok() {
        return Ok(u64::from(group.raw_len));
    }
    let mut whole = 0;
    // Dead chunks may have been punched.
    let is_dead = |n: TableIndex| table.number_at(n).is_some_and(|c| read.dead.contains(c));
    for n in all.into_iter().filter(|n| !is_dead(*n)) {
        match groups.chunks(&read.object, table, group, n.range(1)) {
            Ok(bytes) => whole += bytes.len() as u64,
            Err(e) => bad.push((fault(e)?, n.range(1))),
        }
    }
    Ok(whole)
}

/// Tells of the chunks of a read that are damaged, once for all of them: there may be many.
fn blame(read: &GroupRead, found: &mut ThreadFindings<'_>, bad: &[Bad]) {
    let id = read.table.container;
    let of = found.of(id);
    for of_object in bad.chunk_by(|a, b| a.0 .0 == b.0 .0) {
        let object = &of_object[0].0 .0;
        let whys = of_object.iter().map(|((_, why), _)| why.as_str());
        let chunks = of_object.iter().flat_map(|(_, range)| chunks_of(&read.table, *range));
        let chunks = RunSet::from_unsorted(chunks.collect());
        of.damage(id, (read.generation, read.table.data.generation), object, whys, Some(&chunks));
    }
}
