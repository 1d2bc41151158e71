//! A disk to write as qcow2 version 3.
//!
//! Every cluster's place is fixed before the first write: header, L1 table, L2 tables, refcount table, refcount blocks,
//! then the data clusters in the order of their guest addresses. So writes may come in any order and from any thread
//! without a lock, and the file reads sequentially.

use std::ops::Range;

use super::entry::{COPIED, OFFSET_MASK};
use super::header::{Header, HEADER_LEN_V3};
use crate::disk::Target;
use crate::error::{ImageError, Result};
use crate::mapping::tables::MAX_TOP_TABLE_BYTES;
use crate::output::options::{check_write, TargetOptions};
use crate::output::partial::PartialFile;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Entries of an L1, L2 or refcount table's cluster.
const TABLE_ENTRIES: u64 = CLUSTER / 8;
/// Refcounts (of 16 bits) of a refcount block.
const BLOCK_ENTRIES: u64 = CLUSTER / 2;

/// Guest clusters that follow each other, in the guest and in the file. All numbers count clusters.
#[derive(Debug)]
struct Run {
    guest: u64,
    count: u64,
    host: u64,
}

/// Where everything stands in the file. All numbers count clusters.
#[derive(Debug)]
struct Layout {
    l1_entries: u64,
    l2_at: u64,
    refcount_table_at: u64,
    refcount_table: u64,
    refcount_blocks_at: u64,
    refcount_blocks: u64,
    total: u64,
    runs: Vec<Run>,
}

const L1_AT: u64 = 1;

impl Layout {
    fn plan(size: u64, data: &[Range<u64>]) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for range in data.iter().filter(|r| !r.is_empty()) {
            let mut start = range.start / CLUSTER;
            let end = range.end.div_ceil(CLUSTER);
            if let Some(last) = runs.last_mut() {
                let last_end = last.guest + last.count;
                if start <= last_end {
                    last.count += end.saturating_sub(last_end);
                    continue;
                }
                start = start.max(last_end);
            }
            runs.push(Run { guest: start, count: end - start, host: 0 });
        }
        let data_clusters: u64 = runs.iter().map(|r| r.count).sum();
        let l1_entries = size.div_ceil(CLUSTER * TABLE_ENTRIES);
        let l1 = l1_entries.div_ceil(TABLE_ENTRIES);
        let l2 = tables_of(&runs).count() as u64;
        let l2_at = L1_AT + l1;
        let refcount_table_at = l2_at + l2;
        // The blocks count themselves and their table too: grow until they cover all.
        let (mut table, mut blocks) = (1, 1);
        let total = loop {
            let total = refcount_table_at + table + blocks + data_clusters;
            let needed_blocks = total.div_ceil(BLOCK_ENTRIES);
            let needed_table = needed_blocks.div_ceil(TABLE_ENTRIES);
            if needed_blocks <= blocks && needed_table <= table {
                break total;
            }
            blocks = blocks.max(needed_blocks);
            table = table.max(needed_table);
        };
        let refcount_blocks_at = refcount_table_at + table;
        let mut host = refcount_blocks_at + blocks;
        for run in &mut runs {
            run.host = host;
            host += run.count;
        }
        Self {
            l1_entries,
            l2_at,
            refcount_table_at,
            refcount_table: table,
            refcount_blocks_at,
            refcount_blocks: blocks,
            total,
            runs,
        }
    }
}

/// The numbers of the L2 tables that `runs` need, each once.
fn tables_of(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
    let mut next = 0;
    runs.iter().flat_map(move |run| {
        let first = (run.guest / TABLE_ENTRIES).max(next);
        let end = (run.guest + run.count - 1) / TABLE_ENTRIES + 1;
        next = next.max(end);
        first..end
    })
}

/// Writes a qcow2 file.
#[derive(Debug)]
pub(crate) struct Qcow2Writer {
    file: PartialFile,
    size: u64,
    runs: Vec<Run>,
}

impl Qcow2Writer {
    /// Writes all tables into `file`, for the ranges in `options.data`.
    ///
    /// # Errors
    /// `Refused` where the disk is too large for qcow2, `Full` where there is no room.
    pub fn create(file: PartialFile, options: &TargetOptions) -> Result<Self> {
        // QEMU counts whole sectors only.
        let size = options
            .size
            .checked_next_multiple_of(512)
            .filter(|size| size.div_ceil(CLUSTER * TABLE_ENTRIES) * 8 <= MAX_TOP_TABLE_BYTES)
            .ok_or_else(|| {
                ImageError::refused(
                    file.name(),
                    format!("{} bytes are too large a disk for qcow2", options.size),
                )
            })?;
        let layout = Layout::plan(size, options.data);
        if layout.total * CLUSTER > OFFSET_MASK {
            return Err(ImageError::refused(file.name(), "too much data for a qcow2 file"));
        }
        // All of it is going to be written.
        let file_len = layout.total * CLUSTER;
        file.reserve(file_len, std::slice::from_ref(&(0..file_len)))?;
        write_tables(&file, size, &layout)?;
        Ok(Self { file, size: options.size, runs: layout.runs })
    }

    /// The run that holds guest cluster `cluster`.
    fn run_of(&self, cluster: u64) -> Option<&Run> {
        let after = self.runs.partition_point(|r| r.guest <= cluster);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (cluster < run.guest + run.count).then_some(run)
    }
}

fn write_tables(file: &PartialFile, size: u64, layout: &Layout) -> Result<()> {
    let mut header = [0; HEADER_LEN_V3];
    Header::encode_plain(
        &mut header,
        CLUSTER_BITS,
        size,
        (layout.l1_entries, L1_AT * CLUSTER),
        (layout.refcount_table, layout.refcount_table_at * CLUSTER),
    );
    file.write_at(0, &header)?;

    for (l2_at, table) in (layout.l2_at..).zip(tables_of(&layout.runs)) {
        let entry = (l2_at * CLUSTER) | COPIED;
        file.write_at(L1_AT * CLUSTER + table * 8, &entry.to_be_bytes())?;
        file.write_at(l2_at * CLUSTER, &l2_table(&layout.runs, table))?;
    }

    let mut table = Vec::new();
    for block in 0..layout.refcount_blocks {
        table.extend(((layout.refcount_blocks_at + block) * CLUSTER).to_be_bytes());
    }
    file.write_at(layout.refcount_table_at * CLUSTER, &table)?;
    for block in 0..layout.refcount_blocks {
        let counted = (layout.total - (block * BLOCK_ENTRIES).min(layout.total)).min(BLOCK_ENTRIES);
        let counts: Vec<u8> = (0..counted).flat_map(|_| 1u16.to_be_bytes()).collect();
        file.write_at((layout.refcount_blocks_at + block) * CLUSTER, &counts)?;
    }
    Ok(())
}

/// The bytes of L2 table number `table`.
fn l2_table(runs: &[Run], table: u64) -> Vec<u8> {
    let guest = table * TABLE_ENTRIES..(table + 1) * TABLE_ENTRIES;
    let mut bytes = vec![0; CLUSTER as usize];
    let first = runs.partition_point(|r| r.guest + r.count <= guest.start);
    for run in runs[first..].iter().take_while(|r| r.guest < guest.end) {
        let from = run.guest.max(guest.start);
        let to = (run.guest + run.count).min(guest.end);
        for cluster in from..to {
            let entry = ((run.host + cluster - run.guest) * CLUSTER) | COPIED;
            let at = (cluster - guest.start) as usize * 8;
            bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes());
        }
    }
    bytes
}

impl Target for Qcow2Writer {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self.file.name(), self.size, offset, data.len())?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let Some(run) = self.run_of(at / CLUSTER) else {
                return Err(ImageError::refused(
                    self.file.name(),
                    format!("a write at {at} is outside the ranges that were announced"),
                ));
            };
            let in_run = at - run.guest * CLUSTER;
            let room = run.count * CLUSTER - in_run;
            let n = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            self.file.write_at(run.host * CLUSTER + in_run, &rest[..n])?;
            at += n as u64;
            rest = &rest[n..];
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.file.finish()
    }
}
