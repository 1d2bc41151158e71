//! A cache of decompressed chunk groups, for exports and mounts, which read groups repeatedly.

use crate::base::error::{Named, Result, VaultError};
use crate::base::gate::{Gate, Passage};
use crate::base::memory::give_back;
use crate::container::group_reader::{check_cipher, extent, GroupReader};
use crate::manifest::folder::Folder;
use chunk::Fingerprint;
use format::{names, Codec, ContainerId, DiskId, Group, GroupNo, Table, TableIndex, TableRange, WriterNo};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::Weighter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Chunks of a group stored raw that are read as one.
pub(crate) const SLICE_CHUNKS: u32 = 64;

/// Length that a group is thought to have, to size the cache's tables.
const GROUP_BYTES_USUAL: u64 = 256 << 10;

/// Which group, and which [`SLICE_CHUNKS`] of one that is stored raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    /// Whose container; zeros where disks share it.
    pub disk: DiskId,
    pub container: ContainerId,
    /// The container's table: compaction cuts groups anew.
    pub table: WriterNo,
    pub group: GroupNo,
    pub slice: u32,
}

/// Memory of groups that are being read, in bytes, or else half of the cache: each thread may read another one.
const LOADING_BYTES: u64 = 32 << 20;
/// What the cache may always take, if its budget is not less: the largest group.
const ROOM_MIN: u64 = 16 << 20;
/// Smaller differences of what it may take do not count.
const ROOM_STEP: u64 = 8 << 20;

/// Decompressed groups within a budget of memory, for any number of open snapshots of one vault.
pub(crate) struct GroupCache {
    groups: Cache<GroupKey, Arc<OpenGroup>, ByBytes>,
    readers: Mutex<Vec<GroupReader>>,
    budget: u64,
    /// What of the budget it may take now.
    room: AtomicU64,
    loading: Gate,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<GroupKey, Arc<OpenGroup>> for ByBytes {
    fn weight(&self, _: &GroupKey, group: &Arc<OpenGroup>) -> u64 {
        (group.bytes.len() + group.lengths.len() * 40) as u64
    }
}

/// A group, or a slice of one, in memory.
pub(crate) struct OpenGroup {
    bytes: Vec<u8>,
    /// Its first chunk.
    first: TableIndex,
    lengths: Vec<u32>,
    fingerprints: Vec<[u8; 32]>,
    /// A bit for each chunk that was compared with its fingerprint.
    compared: Vec<AtomicU64>,
    /// Until the cache counts its memory; as long as it is there, if the cache does not keep it.
    passage: Mutex<Option<Passage>>,
}

/// A chunk that does not match its fingerprint.
pub(crate) struct Mismatch(TableIndex);

impl GroupCache {
    /// A cache that holds up to `bytes` of decompressed groups.
    pub fn new(bytes: u64) -> GroupCache {
        let items = (bytes / GROUP_BYTES_USUAL).max(16) as usize;
        GroupCache {
            groups: Cache::with_weighter(items, bytes, ByBytes),
            readers: Mutex::default(),
            budget: bytes,
            room: AtomicU64::new(bytes),
            loading: Gate::new(LOADING_BYTES.max(bytes / 2)),
        }
    }

    /// Has it take no more than about so many bytes of its budget, but for a largest group.
    pub fn set_room(&self, bytes: u64) {
        let room = if bytes < self.budget { bytes / ROOM_STEP * ROOM_STEP } else { bytes };
        let room = room.max(ROOM_MIN).min(self.budget);
        let before = self.room.swap(room, Ordering::Relaxed);
        if room != before {
            self.groups.set_capacity(room);
        }
        if room < before {
            give_back();
        }
    }

    /// The bytes that it may hold.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Whether a group is there.
    pub fn has(&self, key: &GroupKey) -> bool {
        self.groups.peek(key).is_some()
    }

    /// A group that is there.
    pub fn get_ready(&self, key: &GroupKey) -> Option<Arc<OpenGroup>> {
        self.groups.get(key)
    }

    /// A group. The first thread that needs it reads and decompresses it; others wait. Who has another one that the cache does
    /// not keep lets that go first.
    pub fn get(&self, key: &GroupKey, load: impl FnOnce() -> Result<OpenGroup>) -> Result<Arc<OpenGroup>> {
        let mut is_new = false;
        let group = self.groups.get_or_insert_with(key, || {
            is_new = true;
            load().map(Arc::new)
        })?;
        if is_new && self.has(key) {
            group.passage.lock().take();
        }
        Ok(group)
    }

    /// Reads a group, or a slice of one.
    pub fn load(&self, folder: &Folder, table: &Table, key: &GroupKey) -> Result<OpenGroup> {
        let object = names::data(&folder.path, table.data);
        let group = table
            .groups
            .get(key.group.0 as usize)
            .ok_or_else(|| VaultError::corrupt(&object, format!("has no group {}", key.group)))?;
        let indices = indices_of(group, key.slice);
        let at = extent(table, group, indices);
        let unpacked = if group.codec == Codec::Raw { 0 } else { group.raw_len };
        let passage = self.loading.pass(at.end - at.start + u64::from(unpacked));
        let mut stored = vec![0; (at.end - at.start) as usize];
        folder.store.read_at(&object, at.start, &mut stored).named()?;
        let bytes = if group.codec == Codec::Raw {
            check_cipher(&object, group)?;
            stored
        } else {
            self.unpack(&object, table, group, &stored)?
        };
        Ok(OpenGroup {
            bytes,
            first: indices.start,
            lengths: indices.of(&table.lengths).to_vec(),
            compared: (0..indices.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            passage: Mutex::new(Some(passage)),
            fingerprints: indices.of(&table.fingerprints).to_vec(),
        })
    }

    fn unpack(&self, object: &str, table: &Table, group: &Group, stored: &[u8]) -> Result<Vec<u8>> {
        let readers = || self.readers.lock();
        let mut reader = readers().pop().unwrap_or_else(GroupReader::new);
        let opened = reader.open(object, table, group, stored);
        let bytes = reader.take();
        readers().push(reader);
        opened.map(|()| bytes)
    }
}

/// The chunks of a group that are read as one.
pub(crate) fn indices_of(group: &Group, slice: u32) -> TableRange {
    if group.codec != Codec::Raw {
        return group.indices();
    }
    let first = (slice * SLICE_CHUNKS).min(group.count);
    TableIndex(group.first.0 + first).range(SLICE_CHUNKS.min(group.count - first))
}

impl OpenGroup {
    /// Copies bytes from offset `at` on, after comparing the chunks that they are of.
    pub fn copy(&self, at: usize, out: &mut [u8]) -> std::result::Result<(), Mismatch> {
        self.compare(at..at + out.len())?;
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
        Ok(())
    }

    /// Compares the chunks that a range of bytes is of with their fingerprints, those that nobody has compared yet.
    pub fn compare(&self, range: Range<usize>) -> std::result::Result<(), Mismatch> {
        let (mut start, mut n) = (0, 0);
        while n < self.lengths.len() && start + self.lengths[n] as usize <= range.start {
            start += self.lengths[n] as usize;
            n += 1;
        }
        let (from, mut end) = (n, start);
        let mut all = true;
        while n < self.lengths.len() && end < range.end {
            all &= self.compared[n / 64].load(Ordering::Relaxed) >> (n % 64) & 1 == 1;
            end += self.lengths[n] as usize;
            n += 1;
        }
        if all {
            return Ok(());
        }
        let mut found: Vec<Fingerprint> = Vec::with_capacity(n - from);
        chunk::fingerprints(&self.bytes[start..end], &self.lengths[from..n], &mut found);
        for (index, f) in (from..n).zip(&found) {
            if f.0 != self.fingerprints[index] {
                return Err(Mismatch(TableIndex(self.first.0 + index as u32)));
            }
            self.compared[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Mismatch {
    /// The error, for a chunk of `table` in `folder`.
    pub fn into_error(self, folder: &Folder, table: &Table) -> VaultError {
        let no = table.number_at(self.0).map_or(0, |c| c.0);
        let why = format!("chunk {no} does not match its fingerprint");
        VaultError::corrupt(&names::data(&folder.path, table.data), why)
    }
}
