//! The L1 and L2 tables of an overlay in memory.

use super::layout::{Layout, BLOCK_BYTES, CLUSTERS_MAX, CLUSTER_BYTES, L2_ENTRIES};
use super::space::Space;
use crate::error::{ImageError, Result};
use crate::file::bytes::{be_u32, be_u64};
use crate::file::random_file::RandomFile;
use crate::qcow2::entry::{COMPRESSED, COPIED, OFFSET_MASK};
use crate::qcow2::header::FORMAT;
use std::collections::HashMap;

/// L2 tables in memory that need not be written; more of them make room.
const CLEAN_TABLES_MAX: usize = 192;
/// Entries of a table that are written at once: 4 KiB.
const PIECE_ENTRIES: u64 = 256;

/// What an L2 entry says of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where its data is in the file; 0: nowhere.
    pub host: u64,
    /// A bit for each block that has data.
    data: u32,
    /// A bit for each block that is zeros.
    zeros: u32,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Base,
    Zeros,
    Data,
}

/// Bits `first..=last`.
fn mask(first: u64, last: u64) -> u32 {
    let below = |n: u64| ((1u64 << n) - 1) as u32;
    below(last + 1) & !below(first)
}

impl Entry {
    /// The state of the block at offset `at` of the cluster, and where the run of blocks in that state ends.
    pub fn run(&self, at: u64) -> (State, u64) {
        let block = at / BLOCK_BYTES;
        let state = self.state(block);
        let end = (block + 1..32).find(|b| self.state(*b) != state).unwrap_or(32);
        (state, end * BLOCK_BYTES)
    }

    /// Whether all of these blocks have data.
    pub fn are_data(&self, first: u64, last: u64) -> bool {
        self.data & mask(first, last) == mask(first, last)
    }

    fn state(&self, block: u64) -> State {
        match (self.data >> block & 1, self.zeros >> block & 1) {
            (1, _) => State::Data,
            (_, 1) => State::Zeros,
            _ => State::Base,
        }
    }

    fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let entry = if self.host == 0 { 0 } else { self.host | COPIED };
        bytes[..8].copy_from_slice(&entry.to_be_bytes());
        let bitmap = u64::from(self.zeros) << 32 | u64::from(self.data);
        bytes[8..].copy_from_slice(&bitmap.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Entry {
        let (entry, bitmap) = (be_u64(bytes, 0), be_u64(bytes, 8));
        Entry { host: entry & OFFSET_MASK, data: bitmap as u32, zeros: (bitmap >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Table {
    entries: Box<[Entry]>,
    /// A bit for each piece that differs from the disk.
    dirty: u32,
    /// Pieces of it are on their way to the disk.
    writing: bool,
}

/// The L1 table, and L2 tables as far as they are needed.
#[derive(Debug)]
pub(super) struct Tables {
    /// Where L2 tables are in the file; 0: there is none.
    l1: Vec<u64>,
    l1_dirty: bool,
    l2: HashMap<u64, Table>,
}

/// Bytes and where they go.
type Piece = (u64, Vec<u8>);

/// What has to be written to the disk, in this order.
pub(super) struct Dirty {
    /// Pieces of L2 tables.
    pub l2: Vec<Piece>,
    /// The L1 table, if it has changed.
    pub l1: Option<Piece>,
    /// Which tables and pieces those of L2 are.
    tables: Vec<(u64, u32)>,
}

impl Tables {
    /// The tables of an empty overlay.
    pub fn new(l1_entries: u64) -> Tables {
        Tables { l1: vec![0; l1_entries as usize], l1_dirty: false, l2: HashMap::new() }
    }

    /// The offset of the table of a cluster, if it has to be loaded.
    pub fn to_load(&self, cluster: u64) -> Option<u64> {
        let index = cluster / L2_ENTRIES;
        let at = self.l1[index as usize];
        (at != 0 && !self.l2.contains_key(&index)).then_some(at)
    }

    /// Takes a table that was read.
    pub fn loaded(&mut self, cluster: u64, bytes: &[u8]) {
        self.make_room();
        let entries = bytes.chunks_exact(16).map(Entry::decode).collect();
        self.l2.insert(cluster / L2_ENTRIES, Table { entries, dirty: 0, writing: false });
    }

    /// Where the clusters without a table end, if this one has none.
    pub fn absent_until(&self, cluster: u64) -> Option<u64> {
        let index = cluster / L2_ENTRIES;
        let absent = self.l1[index as usize..].iter().take_while(|at| **at == 0).count() as u64;
        (absent > 0).then_some((index + absent) * L2_ENTRIES)
    }

    /// Drops clean tables if there are many.
    fn make_room(&mut self) {
        if self.l2.len() >= CLEAN_TABLES_MAX {
            self.l2.retain(|_, t| t.dirty != 0 || t.writing);
        }
    }

    /// Adds an empty table at offset `at` of the file.
    pub fn add(&mut self, cluster: u64, at: u64) {
        self.make_room();
        let index = cluster / L2_ENTRIES;
        let entries = vec![Entry::default(); L2_ENTRIES as usize].into_boxed_slice();
        self.l2.insert(index, Table { entries, dirty: 0, writing: false });
        self.l1[index as usize] = at;
        self.l1_dirty = true;
    }

    /// The entry of a cluster, whose table must be in memory if it has one.
    pub fn get(&self, cluster: u64) -> Entry {
        let table = self.l2.get(&(cluster / L2_ENTRIES));
        table.map_or_else(Entry::default, |t| t.entries[(cluster % L2_ENTRIES) as usize])
    }

    /// Blocks of a cluster have data now, at `host` of the file.
    pub fn set_data(&mut self, cluster: u64, host: u64, first: u64, last: u64) {
        self.change(cluster, |e| {
            e.host = host;
            e.data |= mask(first, last);
            e.zeros &= !mask(first, last);
        });
    }

    /// Blocks of a cluster are zeros now. Returns where its data was if there is none left.
    pub fn set_zeros(&mut self, cluster: u64, first: u64, last: u64) -> Option<u64> {
        let mut freed = None;
        self.change(cluster, |e| {
            e.zeros |= mask(first, last);
            e.data &= !mask(first, last);
            if e.data == 0 && e.host != 0 {
                freed = Some(std::mem::take(&mut e.host));
            }
        });
        freed
    }

    fn change(&mut self, cluster: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(table) = self.l2.get_mut(&(cluster / L2_ENTRIES)) {
            let at = cluster % L2_ENTRIES;
            let entry = &mut table.entries[at as usize];
            let before = *entry;
            change(entry);
            if *entry != before {
                table.dirty |= 1 << (at / PIECE_ENTRIES);
            }
        }
    }

    /// How many tables differ from the disk.
    pub fn dirty_tables(&self) -> usize {
        self.l2.values().filter(|t| t.dirty != 0).count()
    }

    /// What has to be written to the disk. [`Tables::written`] must follow.
    pub fn take_dirty(&mut self, l1_offset: u64) -> Dirty {
        let (mut pieces, mut tables) = (Vec::new(), Vec::new());
        for (index, table) in self.l2.iter_mut().filter(|(_, t)| t.dirty != 0) {
            let dirty = std::mem::take(&mut table.dirty);
            table.writing = true;
            tables.push((*index, dirty));
            for piece in (0..32u64).filter(|p| dirty >> p & 1 == 1) {
                let first = piece * PIECE_ENTRIES;
                let of_piece = &table.entries[first as usize..(first + PIECE_ENTRIES) as usize];
                let bytes = of_piece.iter().flat_map(Entry::encode).collect();
                pieces.push((self.l1[*index as usize] + first * 16, bytes));
            }
        }
        let l1 = std::mem::take(&mut self.l1_dirty).then(|| {
            let entries = self.l1.iter().map(|at| if *at == 0 { 0 } else { at | COPIED });
            (l1_offset, entries.flat_map(u64::to_be_bytes).collect())
        });
        Dirty { l2: pieces, l1, tables }
    }

    /// Ends the writing of dirty pieces: with `done` they are on the disk, else they are dirty again.
    pub fn written(&mut self, dirty: &Dirty, done: bool) {
        for (index, pieces) in &dirty.tables {
            if let Some(table) = self.l2.get_mut(index) {
                table.writing = false;
                table.dirty |= if done { 0 } else { *pieces };
            }
        }
        self.l1_dirty |= dirty.l1.is_some() && !done;
    }
}

/// Reads all tables of a file, and returns which clusters they use.
///
/// # Errors
/// `Corrupt` where a cluster is used twice or is not within the file.
pub(super) fn load(file: &dyn RandomFile, name: &str, layout: &Layout) -> Result<(Tables, Space)> {
    let failed = |e| ImageError::read(name, "read", e);
    let corrupt = |why: String| ImageError::corrupt(name, FORMAT, why);
    let clusters = file.len().map_err(failed)?.div_ceil(CLUSTER_BYTES);
    if clusters > CLUSTERS_MAX {
        return Err(corrupt(format!("a file of {clusters} clusters, more than its refcounts can count")));
    }
    let mut space = Space::default();
    space.take(0..1);
    if !space.take(layout.l1_clusters()) || layout.l1_clusters().end > clusters {
        return Err(corrupt(format!(
            "the L1 table at offset {:#x} is not within the file",
            layout.l1_offset
        )));
    }
    let mut take = |host: u64, what: &str| {
        if host % CLUSTER_BYTES != 0 || host / CLUSTER_BYTES >= clusters {
            return Err(corrupt(format!(
                "{what} should be at offset {host:#x}, which is not a cluster of the file"
            )));
        }
        let cluster = host / CLUSTER_BYTES;
        if space.take(cluster..cluster + 1) {
            Ok(())
        } else {
            Err(corrupt(format!("the cluster at offset {host:#x} is used twice, the second time as {what}")))
        }
    };
    let mut l1 = vec![0; layout.l1_entries() as usize * 8];
    file.read_at(layout.l1_offset, &mut l1).map_err(failed)?;
    let l1: Vec<u64> = l1.chunks_exact(8).map(|e| be_u64(e, 0) & OFFSET_MASK).collect();
    let mut bytes = vec![0; CLUSTER_BYTES as usize];
    for (index, at) in l1.iter().enumerate().filter(|(_, at)| **at != 0) {
        take(*at, &format!("L2 table {index}"))?;
        file.read_at(*at, &mut bytes).map_err(failed)?;
        for (n, raw) in bytes.chunks_exact(16).enumerate() {
            let entry = Entry::decode(raw);
            let guest = (index as u64 * L2_ENTRIES + n as u64) * CLUSTER_BYTES;
            if be_u64(raw, 0) & COMPRESSED != 0 {
                return Err(corrupt(format!(
                    "the data at {guest:#x} is compressed, which sapwood does not write here"
                )));
            }
            if entry.data & entry.zeros != 0 || (entry.host == 0 && entry.data != 0) {
                return Err(corrupt(format!("the subclusters at {guest:#x} contradict themselves")));
            }
            if entry.host != 0 {
                take(entry.host, &format!("the data at {guest:#x}"))?;
            }
        }
    }
    space.take_refcounts(refcount_clusters(file, clusters).map_err(failed)?.into_iter());
    Ok((Tables { l1, l1_dirty: false, l2: HashMap::new() }, space))
}

/// The clusters of the refcounts that the header names, as far as they are there.
fn refcount_clusters(file: &dyn RandomFile, clusters: u64) -> std::io::Result<Vec<u64>> {
    let mut head = [0; 104];
    file.read_at(0, &mut head)?;
    let (table, count) = (be_u64(&head, 48), u64::from(be_u32(&head, 56)));
    let mut found = Vec::new();
    let is_cluster = |at: u64| at != 0 && at % CLUSTER_BYTES == 0 && at / CLUSTER_BYTES < clusters;
    for at in (0..count.min(8)).map(|n| table.saturating_add(n * CLUSTER_BYTES)).filter(|at| is_cluster(*at))
    {
        found.push(at / CLUSTER_BYTES);
        let mut bytes = vec![0; CLUSTER_BYTES as usize];
        file.read_at(at, &mut bytes)?;
        let blocks = bytes.chunks_exact(8).map(|b| be_u64(b, 0)).filter(|at| is_cluster(*at));
        found.extend(blocks.map(|at| at / CLUSTER_BYTES));
    }
    Ok(found)
}
