//! An open snapshot: several threads can read it at any offset, without a restore.
//!
//! 1. [`Streams`] detects sequential reads and fetches groups ahead of them.
//! 2. The references of a segment are converted to a [`SegmentMap`] once.
//! 3. Groups are read and decompressed once ([`ReadCache`]), and each chunk is compared with its fingerprint before
//!    its first byte is returned.

use crate::base::error::{Result, VaultError};
use crate::base::threads::cores;
use crate::container::group_cache::{GroupKey, OpenGroup};
use crate::container::tables::{TableName, Tables};
use crate::container::view::View;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use crate::restore::read_ahead::Streams;
use crate::restore::read_cache::{OpenState, ReadCache};
use crate::restore::segment_map::{MapPart, SegmentMap};
use crossbeam_channel::{bounded, Sender};
use format::{SegmentNo, SegmentRecipe, SnapshotEntry};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What is read ahead at most, and the part of the cache that this may be.
const AHEAD_BYTES_MAX: u64 = 16 << 20;
const AHEAD_PART: u64 = 4;
/// What one thread fetches at a time.
const STEP_BYTES: u64 = 1 << 20;

/// A snapshot, readable like a disk. Nothing that it needs is taken away while it is open.
pub struct OpenSnapshot {
    shared: Arc<Shared>,
    /// What is to be fetched ahead; closed when this is dropped.
    ahead: Option<Sender<Ahead>>,
    streams: Streams,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    view: View,
    disk: String,
    /// Index of the snapshot in the manifest.
    entry: SnapshotEntry,
    size: u64,
    segment_bytes: u64,
    recipe: Mutex<RecipeReader>,
    opened: Arc<OpenState>,
    cache: Arc<ReadCache>,
}

/// A range to be fetched ahead, and how often the cache had been emptied then.
struct Ahead {
    range: Range<u64>,
    times_emptied: u64,
}

/// The recipe, of which one thread resolves a part, and no other that shares the cache any part of another recipe.
struct Resolving<'a> {
    recipe: MutexGuard<'a, RecipeReader>,
    _alone: MutexGuard<'a, ()>,
}

impl Deref for Resolving<'_> {
    type Target = RecipeReader;

    fn deref(&self) -> &RecipeReader {
        &self.recipe
    }
}

impl DerefMut for Resolving<'_> {
    fn deref_mut(&mut self) -> &mut RecipeReader {
        &mut self.recipe
    }
}

impl Vault {
    /// Opens a snapshot (`spec` as for [`Vault::restore`]) for reading through `cache`.
    ///
    /// # Errors
    /// `Refused` where those that are open would take too much memory together.
    pub fn open_snapshot(&self, disk: &str, spec: &str, cache: &Arc<ReadCache>) -> Result<OpenSnapshot> {
        let opening = cache.begin();
        let mut view = self.view_of_with(disk, &cache.tables)?;
        opening.share_manifest(&mut view);
        let entry = view.find(disk, spec)?.without_depends();
        let (id, size) = (entry.id, entry.size);
        let recipe = RecipeReader::open_with(&cache.recipes, &view.folder, view.with_newer(id)?, &entry);
        let recipe = recipe.map_err(|e| view.explain(e))?;
        view.forget_whole();
        let opened = opening.end(&format!("{disk}@{id}"), &view, &recipe)?;
        let shared = Arc::new(Shared {
            entry,
            size,
            segment_bytes: u64::from(recipe.root.segment_bytes),
            recipe: Mutex::new(recipe),
            opened,
            cache: cache.clone(),
            disk: disk.to_owned(),
            view,
        });
        let window = (cache.groups.budget() / AHEAD_PART).min(AHEAD_BYTES_MAX);
        let (ahead, ranges) = bounded::<Ahead>((AHEAD_BYTES_MAX / STEP_BYTES) as usize);
        let read_ahead = |_| {
            let (shared, ranges) = (shared.clone(), ranges.clone());
            std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
                for Ahead { range, times_emptied } in ranges {
                    if shared.cache.times_emptied() == times_emptied {
                        // Who reads it meets the error again, and is told.
                        drop(shared.fetch(&range));
                    }
                }
            })
        };
        let threads = (0..cores()).map(read_ahead).collect::<std::io::Result<_>>();
        let threads = threads.map_err(VaultError::Thread)?;
        Ok(OpenSnapshot { shared, ahead: Some(ahead), streams: Streams::new(window), threads })
    }
}

impl OpenSnapshot {
    /// Size of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.shared.size
    }

    /// The disk, as `vm/disk`.
    pub fn disk(&self) -> &str {
        &self.shared.disk
    }

    /// The snapshot, without the recipes that it depends on.
    pub fn entry(&self) -> &SnapshotEntry {
        &self.shared.entry
    }

    /// Fills `buf` from `offset` on. Beyond the end of the disk is an error.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size());
        let Some(end) = end else {
            let (disk, size, len) = (&self.shared.disk, self.size(), buf.len());
            let why = format!("{disk}: {len} bytes at offset {offset} are beyond its end at {size}");
            return Err(VaultError::Usage(why));
        };
        if let Some(range) = self.streams.note(&(offset..end)) {
            self.fetch_ahead(range);
        }
        self.shared.read_at(offset..end, buf).map_err(|e| self.shared.view.explain(e))
    }

    /// Fills `buf` from `offset` on if all that it takes is in memory, and returns whether it did.
    pub fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size());
        end.is_some_and(|end| self.shared.read_ready(&(offset..end), buf))
    }

    /// The next range at or after `from` that may hold anything but zeros; `None`: zeros up to the end.
    ///
    /// No data is read for it. A range may end before the data does; the next call goes on from there.
    pub fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        self.shared.next_data(from).map_err(|e| self.shared.view.explain(e))
    }

    /// Size of its segments in bytes, and how they were cut into chunks.
    pub(crate) fn cut(&self) -> (u32, String) {
        let recipe = self.shared.recipe();
        (recipe.root.segment_bytes, recipe.root.chunking.clone())
    }

    /// The first segment from `no` on that is not null, with direct references, and the object that says so.
    pub(crate) fn next_segment(&self, no: SegmentNo) -> Result<Option<(SegmentNo, SegmentRecipe, String)>> {
        self.shared.view.check()?;
        let mut recipe = self.shared.recipe();
        let mut next = || {
            let Some(no) = recipe.next_segment(no)? else { return Ok(None) };
            let object = recipe.pages_object(no.page());
            Ok(recipe.segment(no)?.map(|segment| (no, segment, object)))
        };
        next().map_err(|e| self.shared.view.explain(e))
    }

    /// Reads its recipe to the end.
    pub(crate) fn check_recipe(&self) -> Result<()> {
        let mut recipe = self.shared.recipe();
        let pages = recipe.page_numbers();
        pages.into_iter().try_for_each(|no| recipe.page(no).map(drop))
    }

    /// The chunk tables of what it references.
    pub(crate) fn tables(&self) -> &Tables {
        &self.shared.view.tables
    }

    fn fetch_ahead(&self, range: Range<u64>) {
        let Some(ahead) = &self.ahead else { return };
        let times_emptied = self.shared.cache.times_emptied();
        let mut at = range.start;
        while at < range.end.min(self.size()) {
            let end = (at / STEP_BYTES * STEP_BYTES + STEP_BYTES).min(range.end).min(self.size());
            // Where the threads do not keep up there is nothing to be won by more work.
            if ahead.try_send(Ahead { range: at..end, times_emptied }).is_err() {
                return;
            }
            at = end;
        }
    }
}

impl Drop for OpenSnapshot {
    fn drop(&mut self) {
        self.ahead = None;
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        self.shared.cache.close(&self.shared.opened);
    }
}

impl Shared {
    fn recipe(&self) -> Resolving<'_> {
        let recipe = self.recipe.lock();
        Resolving { recipe, _alone: self.cache.resolving() }
    }

    fn map(&self, no: SegmentNo) -> Result<Arc<SegmentMap>> {
        self.cache.map(&self.opened, no, || {
            let start = no.0 * self.segment_bytes;
            let range = start..(start + self.segment_bytes).min(self.size);
            SegmentMap::of(&mut self.recipe(), &self.view.tables, range)
        })
    }

    fn read_at(&self, range: Range<u64>, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let mut last = None;
        self.for_parts(&range, &mut |part, wanted| {
            let into = (wanted.start - range.start) as usize..(wanted.end - range.start) as usize;
            self.group(part, &mut last)?.copy(part.at(wanted.start), &mut buf[into]).or_else(|wrong| {
                let table = self.view.tables.named(part.table)?;
                Err(wrong.into_error(&self.view.tables.folder_of(part.table.container), &table))
            })
        })
    }

    fn read_ready(&self, range: &Range<u64>, buf: &mut [u8]) -> bool {
        buf.fill(0);
        let mut at = range.start;
        while at < range.end {
            let no = SegmentNo(at / self.segment_bytes);
            let of_segment = at..range.end.min((no.0 + 1) * self.segment_bytes);
            let Some(map) = self.cache.map_ready(&self.opened, no) else { return false };
            for part in map.within(&of_segment) {
                let wanted = part.of(&of_segment);
                let into = (wanted.start - range.start) as usize..(wanted.end - range.start) as usize;
                let group = self.cache.groups.get_ready(&self.key(part));
                if group.is_none_or(|g| g.copy(part.at(wanted.start), &mut buf[into]).is_err()) {
                    return false;
                }
            }
            at = of_segment.end;
        }
        true
    }

    /// Brings the groups of a range into memory, and compares what is of the range.
    fn fetch(&self, range: &Range<u64>) -> Result<()> {
        let mut last = None;
        self.for_parts(range, &mut |part, wanted| {
            if !self.cache.groups.has(&self.key(part)) {
                let at = part.at(wanted.start);
                // A chunk that does not match is reported to its reader.
                drop(self.group(part, &mut last)?.compare(at..at + (wanted.end - wanted.start) as usize));
            }
            Ok(())
        })
    }

    /// Calls `each` for every part of a range, in order, with what of the range it holds.
    fn for_parts(
        &self,
        range: &Range<u64>,
        each: &mut dyn FnMut(&MapPart, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let no = SegmentNo(at / self.segment_bytes);
            let of_segment = at..range.end.min((no.0 + 1) * self.segment_bytes);
            for part in self.map(no)?.within(&of_segment) {
                each(part, part.of(&of_segment))?;
            }
            at = of_segment.end;
        }
        Ok(())
    }

    fn key(&self, part: &MapPart) -> GroupKey {
        let MapPart { table: TableName { container, generation }, group, slice, .. } = *part;
        let disk = self.view.tables.folder_of(container).disk;
        GroupKey { disk, container: container.local(), table: generation, group, slice }
    }

    /// The group of a part. `last` is the one of the part before: often the same, and the cache may not keep it.
    fn group(&self, part: &MapPart, last: &mut Option<(GroupKey, Arc<OpenGroup>)>) -> Result<Arc<OpenGroup>> {
        let key = self.key(part);
        if let Some((_, group)) = last.as_ref().filter(|(known, _)| *known == key) {
            return Ok(group.clone());
        }
        // Before another one is loaded, which may have to wait for it.
        *last = None;
        let group = self.cache.groups.get(&key, || {
            self.view.check()?;
            let table = self.view.tables.named(part.table)?;
            self.cache.groups.load(&self.view.tables.folder_of(part.table.container), &table, &key)
        })?;
        *last = Some((key, group.clone()));
        Ok(group)
    }

    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let mut no = SegmentNo(from / self.segment_bytes);
        while no.0 * self.segment_bytes < self.size {
            let Some(found) = self.recipe().next_segment(no)? else { return Ok(None) };
            let wanted = from..self.size;
            let map = self.map(found)?;
            let mut parts = map.within(&wanted).iter();
            if let Some(first) = parts.next() {
                let end = parts
                    .try_fold(first.end(), |end, p| if p.offset == end { Ok(p.end()) } else { Err(end) });
                let (Ok(end) | Err(end)) = end;
                return Ok(Some(first.offset.max(from)..end.min(self.size)));
            }
            no = SegmentNo(found.0 + 1);
        }
        Ok(None)
    }
}
