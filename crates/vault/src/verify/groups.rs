//! Reads every group of containers in large sequential reads, and checks them on all cores.

use crate::base::error::{fault, Fault, Named, Result};
use crate::base::progress::Progress;
use crate::container::group_reader::{extent, GroupReader};
use crate::container::tables::Tables;
use crate::manifest::folder::Folder;
use crate::verify::found::{lock, ThreadFindings};
use crossbeam_channel::{Receiver, Sender};
use format::{names, Codec, RunSet, Table, WriterNo};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use store::ObjectStore;

/// Bytes of stored groups in one read.
const READ_BYTES: u64 = 2 << 20;
/// Bytes that are rather read than skipped.
const GAP_BYTES: u64 = 64 << 10;

/// What is wrong, and with which chunks (indices in the table).
type Bad = (Fault, Range<usize>);

/// One read of the store.
pub(super) struct GroupRead {
    object: String,
    offset: u64,
    len: u64,
    table: Arc<Table>,
    /// Generation of the table, for the record.
    generation: WriterNo,
    groups: Vec<usize>,
    /// Chunks that may be gone.
    dead: Arc<RunSet>,
}

/// The numbers of chunks at these indices of a table, as runs.
pub(super) fn chunks_of(table: &Table, indices: Range<usize>) -> impl Iterator<Item = (u32, u32)> + '_ {
    indices.filter_map(|n| table.number_at(n)).map(|c| (c.0, 1))
}

/// Cuts the groups of a container into reads, announces and sends them. Groups without a live chunk are passed over.
pub(super) fn reads(
    folder: &Folder,
    table: &Arc<Table>,
    generation: WriterNo,
    groups: &[usize],
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
            let g = &table.groups[*n];
            let live =
                numbers[g.first as usize..(g.first + g.count) as usize].iter().any(|c| !dead.contains(*c));
            progress.add(if live { 0 } else { u64::from(g.stored_len) });
            live
        });
    }
    live.sort_by_key(|n| table.groups[*n].offset);
    let place = |n: usize| {
        let g = &table.groups[n];
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
            let g = read.table.groups[n];
            let at = (g.offset - read.offset) as usize;
            let bytes = &mut stored[at..at + g.stored_len as usize];
            if !whole && g.codec == Codec::Raw {
                data_bytes += check_chunks(&**store, &mut groups, &read, n, &mut bad)?;
                continue;
            }
            if !whole {
                if let Err(e) = store.read_at(&read.object, g.offset, bytes).named() {
                    bad.push((fault(e)?, g.first as usize..(g.first + g.count) as usize));
                    continue;
                }
            }
            data_bytes += check(&mut groups, &read, n, bytes, &mut bad)?;
        }
        progress.add(read.groups.iter().map(|n| u64::from(read.table.groups[*n].stored_len)).sum());
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
    n: usize,
    bad: &mut Vec<Bad>,
) -> Result<u64> {
    let (table, group) = (&read.table, &read.table.groups[n]);
    let mut whole = 0;
    for n in group.first as usize..(group.first + group.count) as usize {
        if table.number_at(n).is_some_and(|c| read.dead.contains(c.0)) {
            continue;
        }
        let at = extent(table, group, n..n + 1);
        let mut bytes = vec![0; (at.end - at.start) as usize];
        let read_back = store.read_at(&read.object, at.start, &mut bytes).named();
        match read_back.and_then(|()| groups.compare_raw(&read.object, table, group, n..n + 1, &bytes)) {
            Ok(()) => whole += bytes.len() as u64,
            Err(e) => bad.push((fault(e)?, n..n + 1)),
        }
    }
    Ok(whole)
}

/// Checks a group. Returns the bytes of its chunks that are whole.
fn check(
    groups: &mut GroupReader,
    read: &GroupRead,
    n: usize,
    stored: &[u8],
    bad: &mut Vec<Bad>,
) -> Result<u64> {
    let (table, group) = (&read.table, &read.table.groups[n]);
    let all = group.first as usize..(group.first + group.count) as usize;
    if let Err(e) = groups.open(&read.object, table, group, stored) {
        bad.push((fault(e)?, all));
        return Ok(0);
    }
    if groups.chunks(&read.object, table, group, all.clone()).is_ok() {
        return Ok(u64::from(group.raw_len));
    }
    let mut whole = 0;
    // Dead chunks may have been punched.
    let is_dead = |n: usize| table.number_at(n).is_some_and(|c| read.dead.contains(c.0));
    for n in all.filter(|n| !is_dead(*n)) {
        match groups.chunks(&read.object, table, group, n..n + 1) {
            Ok(bytes) => whole += bytes.len() as u64,
            Err(e) => bad.push((fault(e)?, n..n + 1)),
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
        let chunks = of_object.iter().flat_map(|(_, range)| chunks_of(&read.table, range.clone()));
        let chunks = RunSet::from_unsorted(chunks.collect());
        of.damage(id, (read.generation, read.table.data.generation), object, whys, Some(&chunks));
    }
}
