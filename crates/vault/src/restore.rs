//! Restore: writes a snapshot to a target (`docs/flows/restore.md`).
//!
//! 1. A reader takes its lease, finds the snapshot, and plans its references ([`mod@plan`]).
//! 2. Neighbouring groups become large reads, announced ahead ([`reads`]).
//! 3. All cores read, check and decompress each group once, compare every chunk with its fingerprint, and write it to
//!    its place.

pub(crate) mod chunks;
pub(crate) mod open_snapshot;
pub(crate) mod plan;
pub(crate) mod read_ahead;
pub(crate) mod read_cache;
pub(crate) mod segment_map;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use crate::base::error::{Named, Result};
use crate::base::gate::Gate;
use crate::base::policy::GAP_BYTES;
use crate::base::progress::Progress;
use crate::base::threads::{cores, Failure};
use crate::container::group_reader::{extent, GroupReader};
use crate::container::tables::{TableName, Tables, TablesAhead, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use crate::restore::plan::{plan, Part, Plan};
use crate::restore::windows::{for_windows, KeptGroups, TableGroup};
use crossbeam_channel::{bounded, Receiver};
use format::{Codec, SnapshotEntry, Table};
use image::Target;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bytes of stored groups in one read.
const READ_BYTES: u64 = 2 << 20;

/// Groups that are larger, stored or decompressed, are those of no policy.
const LARGE_BYTES: u64 = 10 << 20;
/// Memory of reads with large groups at a time, in bytes, or one that takes more.
const LARGE_AT_ONCE_BYTES: u64 = 16 << 20;

/// Threads beside those that compute: as many wait for the store.
const WAITING: usize = 2;

impl Read {
    /// Memory that it takes with the largest of its groups, in bytes, if that is a large one.
    fn large_bytes(&self) -> Option<u64> {
        let groups = self.parts.chunk_by(|a, b| a.group == b.group).map(|of| self.table.group(of[0].group));
        let unpacked = groups.map(|g| if g.codec == Codec::Raw { 0 } else { g.raw_len }).max().unwrap_or(0);
        let unpacked = u64::from(unpacked);
        (self.len.max(unpacked) > LARGE_BYTES).then_some(self.len + unpacked)
    }
}

/// What a restore did.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// The snapshot.
    pub snapshot: SnapshotEntry,
    /// Bytes written to the target.
    pub written_bytes: u64,
    /// Bytes read from the store.
    pub read_bytes: u64,
}

/// One read of the store, and what becomes of it.
struct Read {
    object: String,
    offset: u64,
    len: u64,
    name: TableName,
    table: Arc<Table>,
    parts: Vec<Part>,
    /// A group that need not be read.
    kept: Option<TableGroup>,
}

/// Where restored bytes go.
trait Sink: Sync {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
}

impl Sink for &dyn Target {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(Target::write_at(*self, offset, data)?)
    }
}

/// A range of the disk in memory.
struct Window {
    start: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Sink for Window {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut bytes = self.bytes.lock();
        let at = (offset - self.start) as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

impl Vault {
    /// Restores a snapshot (`spec`: an id, a prefix of one, `latest`, `latest~N`, or a time).
    ///
    /// `target` is given the size of the disk and the ranges that are not zeros.
    pub fn restore(
        &self,
        disk: &str,
        spec: &str,
        target: impl FnOnce(u64, &[Range<u64>]) -> image::Result<Box<dyn Target>>,
        progress: &Progress,
    ) -> Result<RestoreReport> {
        self.restore_to(disk, spec, |snapshot, data| target(snapshot.size, data), progress)
    }

    /// The same for a target that depends on the snapshot.
    pub fn restore_to(
        &self,
        disk: &str,
        spec: &str,
        target: impl FnOnce(&SnapshotEntry, &[Range<u64>]) -> image::Result<Box<dyn Target>>,
        progress: &Progress,
    ) -> Result<RestoreReport> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let snapshot = view.find(disk, spec)?;
        restore(&view, snapshot, target, progress).map_err(|e| view.explain(e))
    }
}

/// Restores a snapshot of a view.
fn restore(
    view: &View,
    snapshot: &SnapshotEntry,
    target: impl FnOnce(&SnapshotEntry, &[Range<u64>]) -> image::Result<Box<dyn Target>>,
    progress: &Progress,
) -> Result<RestoreReport> {
    let mut recipe = RecipeReader::open(&view.folder, view.with_newer(snapshot.id)?, snapshot)?;
    let size = snapshot.size;

    let mut first = plan(&mut recipe, &view.tables, 0, size)?;
    let mut data = std::mem::take(&mut first.data);
    let mut planned = first.end;
    while planned < size {
        let next = plan(&mut recipe, &view.tables, planned, size)?;
        data.extend(next.data);
        planned = next.end;
    }
    recipe.forget_large();
    progress.set_total(data.iter().map(|r| r.end - r.start).sum());
    let target = target(snapshot, &data)?;
    drop(data);

    let counts = ReadCounts::default();
    let mut part = first;
    // One buffer for all windows: the system gives a new one page by page.
    let mut buffer = Vec::new();
    loop {
        if target.in_order() {
            for_windows(&mut recipe, &view.tables, &mut part, &mut |kept, of_window| {
                let mut bytes = std::mem::take(&mut buffer);
                bytes.clear();
                bytes.resize((of_window.end - of_window.from) as usize, 0);
                let window = Window { start: of_window.from, bytes: Mutex::new(bytes) };
                fetch(&view.tables, of_window, &window, Some(kept), &counts, progress)?;
                buffer = window.bytes.into_inner();
                Ok(target.write_at(of_window.from, &buffer)?)
            })?;
        } else {
            fetch(&view.tables, &part, &(&*target), None, &counts, progress)?;
        }
        view.check()?;
        if part.end >= size {
            break;
        }
        part = plan(&mut recipe, &view.tables, part.end, size)?;
        recipe.forget_large();
    }
    view.check()?;
    target.finish()?;
    let (written_bytes, read_bytes) =
        (counts.written.load(Ordering::Relaxed), counts.read.load(Ordering::Relaxed));
    Ok(RestoreReport { snapshot: snapshot.clone(), written_bytes, read_bytes })
}

/// One read of the store that a restore makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRead {
    /// The object.
    pub object: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

impl Vault {
    /// The reads that a restore makes, in their order: as planned over the whole disk, or, with `in_order`, those of a
    /// restore to a target that takes bytes in order only, such as a pipe. Nothing but metadata is read.
    pub fn reads(&self, disk: &str, spec: &str, in_order: bool) -> Result<Vec<StoreRead>> {
        let view = self.view_of(disk, TABLE_CACHE_BYTES)?;
        let snapshot = view.find(disk, spec)?.clone();
        let mut recipe = RecipeReader::open(&view.folder, view.with_newer(snapshot.id)?, &snapshot)?;
        let mut all = Vec::new();
        let mut add = |read: Read| {
            if read.kept.is_none() {
                all.push(StoreRead { object: read.object, offset: read.offset, len: read.len });
            }
            true
        };
        let mut at = 0;
        while at < snapshot.size {
            let mut part = plan(&mut recipe, &view.tables, at, snapshot.size)?;
            if in_order {
                for_windows(&mut recipe, &view.tables, &mut part, &mut |kept, of_window| {
                    reads(&view.tables, of_window, Some(kept), &mut add)
                })?
            } else {
                reads(&view.tables, &part, None, &mut add)?
            }
            at = part.end;
        }
        Ok(all)
    }
}

#[derive(Default)]
struct ReadCounts {
    written: AtomicU64,
    read: AtomicU64,
}

/// Fetches everything of a plan.
fn fetch(
    tables: &Tables,
    plan: &Plan,
    sink: &impl Sink,
    kept: Option<&KeptGroups>,
    counts: &ReadCounts,
    progress: &Progress,
) -> Result<()> {
    let failure = Failure::default();
    // No more than there are reads, at most.
    let threads = (cores() + WAITING).min(plan.parts.len());
    let (tx, rx) = bounded::<Read>(threads * 4);
    let gate = Gate::new(LARGE_AT_ONCE_BYTES);
    std::thread::scope(|scope| {
        let (failure, gate) = (&failure, &gate);
        for _ in 0..threads {
            let rx = rx.clone();
            failure.spawn(scope, "fetch", move || {
                failure.guard(|| work(tables, &rx, gate, sink, kept, counts, progress))
            });
        }
        drop(rx);
        failure.guard(|| {
            reads(tables, plan, kept, &mut |read| {
                if read.kept.is_none() {
                    let folder = tables.folder_of(read.table.container);
                    folder.store.will_read(&read.object, read.offset, read.len);
                }
                !failure.is_set() && tx.send(read).is_ok()
            })
        });
        drop(tx);
    });
    failure.into_result()
}

/// Cuts a plan into reads, in the order in which they are made, until `out` wants no more.
fn reads(
    tables: &Tables,
    plan: &Plan,
    kept: Option<&KeptGroups>,
    out: &mut dyn FnMut(Read) -> bool,
) -> Result<()> {
    let mut ahead = TablesAhead::new(tables, plan.containers.iter().copied());
    for of_container in plan.parts.chunk_by(|a, b| a.container == b.container) {
        let name = plan.containers[of_container[0].container as usize];
        let (_, table) = ahead.get(name)?;
        let folder = tables.folder_of(name.container);
        let object = format::names::data(&folder.path, table.data);
        let kept_group = |part: &Part| kept.filter(|k| k.has((name, part.group))).map(|_| (name, part.group));
        let mut from = 0;
        while from < of_container.len() {
            let Range { start: offset, mut end } = extent_of(&table, &of_container[from]);
            let is_kept = kept_group(&of_container[from]);
            let mut to = from + 1;
            while let Some(part) = of_container.get(to) {
                if kept_group(part) != is_kept {
                    break;
                }
                let next = extent_of(&table, part);
                // The parts of a group that is read whole stay together.
                let same = next.start == offset && next.end == end;
                let near = next.start >= offset && next.start <= end + GAP_BYTES;
                let fits = near && next.end.max(end) - offset <= READ_BYTES;
                if !(same || fits) {
                    break;
                }
                end = end.max(next.end);
                to += 1;
            }
            let len = end - offset;
            let parts = of_container[from..to].to_vec();
            let read = Read {
                object: object.clone(),
                offset,
                len,
                name,
                table: table.clone(),
                parts,
                kept: is_kept,
            };
            if !out(read) {
                return Ok(());
            }
            from = to;
        }
    }
    Ok(())
}

fn extent_of(table: &Table, part: &Part) -> Range<u64> {
    extent(table, table.group(part.group), part.indices)
}

/// Carries reads out.
fn work(
    tables: &Tables,
    reads: &Receiver<Read>,
    gate: &Gate,
    sink: &impl Sink,
    kept: Option<&KeptGroups>,
    counts: &ReadCounts,
    progress: &Progress,
) -> Result<()> {
    let mut groups = GroupReader::new();
    let mut buffer = Vec::new();
    for read in reads {
        progress.check()?;
        let passage = read.large_bytes().map(|bytes| gate.pass(bytes));
        let from_memory = read.kept.and_then(|key| kept?.get(key));
        if from_memory.is_none() {
            buffer.resize(read.len as usize, 0);
            let folder = tables.folder_of(read.table.container);
            folder.store.read_at(&read.object, read.offset, &mut buffer).named()?;
            counts.read.fetch_add(read.len, Ordering::Relaxed);
        }
        let stored: &[u8] = from_memory.as_ref().map_or(&buffer, |bytes| bytes);
        for of_group in read.parts.chunk_by(|a, b| a.group == b.group) {
            let group = read.table.group(of_group[0].group);
            let within = |r: Range<u64>| (r.start - read.offset) as usize..(r.end - read.offset) as usize;
            let is_raw = group.codec == Codec::Raw;
            if !is_raw {
                let at = within(group.offset..group.offset + u64::from(group.stored_len));
                groups.open(&read.object, &read.table, group, &stored[at.clone()])?;
                if let Some(kept) = kept.filter(|_| from_memory.is_none()) {
                    kept.put((read.name, of_group[0].group), &stored[at]);
                }
            }
            for part in of_group {
                let bytes = if is_raw {
                    let bytes = &stored[within(extent(&read.table, group, part.indices))];
                    groups.compare_raw(&read.object, &read.table, group, part.indices, bytes)?;
                    bytes
                } else {
                    groups.chunks(&read.object, &read.table, group, part.indices)?
                };
                sink.write_at(part.target, bytes)?;
                counts.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                progress.add(bytes.len() as u64);
            }
        }
        if passage.is_some() {
            // The buffers are not kept for the next one.
            (groups, buffer) = (GroupReader::new(), Vec::new());
        }
        drop(passage);
    }
    Ok(())
}
