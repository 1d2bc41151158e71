//! The two-level mapping of a qcow2 image: from guest addresses to places in the file.
//!
//! The L1 table stands in memory; L2 tables are read in slices that a bounded cache keeps. Nothing that an entry claims
//! is trusted: every place is checked against the file before it is used.

use super::entry::{COMPRESSED, OFFSET_MASK, ZERO};
use super::header::Header;
use crate::error::{Blame, Result};
use crate::file::bytes::be_u64;
use crate::mapping::file::MappedFile;
use crate::mapping::run::{Place, Run};
use crate::mapping::tables::{TableBudget, TableCache};
use crate::mapping::unpack::CompressedCluster;

/// L2 tables are read in pieces of this size, or whole where they are smaller.
const SLICE_BYTES: u64 = 16 << 10;
/// What an image keeps of its L2 tables.
const CACHE_BYTES: usize = 256 << 10;

/// Subclusters of a cluster, in images that have them.
const SUBCLUSTERS: u64 = 32;

/// The mapping of one image.
#[derive(Debug)]
pub(super) struct Map {
    version: u32,
    size: u64,
    file_len: u64,
    cluster_bits: u32,
    l2_bits: u32,
    extended: bool,
    /// Offsets of L2 tables; 0: none.
    l1: Vec<u64>,
    l2: TableCache,
}

impl Map {
    /// Reads the L1 table of `file`.
    pub fn load(file: &MappedFile, header: &Header, budget: &mut TableBudget) -> Result<Self> {
        // The header's check bounds it by the L1 table's length, and that by the file's and MAX_L1_BYTES.
        let bytes = header.l1_needed() * 8;
        budget.charge(bytes, &file.blame)?;
        let mut table = vec![0; bytes as usize];
        file.read(header.l1_offset, &mut table, |_| "the L1 table is cut off".into())?;
        let l1: Vec<u64> = table.chunks_exact(8).map(|entry| be_u64(entry, 0) & OFFSET_MASK).collect();
        check_distinct(&l1, &file.blame)?;
        Ok(Self {
            version: header.version,
            size: header.size,
            file_len: file.len(),
            cluster_bits: header.cluster_bits,
            l2_bits: header.l2_bits(),
            extended: header.extended_l2,
            l1,
            l2: TableCache::new(CACHE_BYTES, SLICE_BYTES as usize),
        })
    }

    /// Bytes of a cluster.
    pub fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// The run at `offset`, which must be inside the disk; it ends with the disk and after `max_len` at most.
    pub fn run_at(&mut self, file: &MappedFile, offset: u64, max_len: u64) -> Result<Run> {
        let max_len = max_len.min(self.size - offset);
        let index = (offset >> (self.cluster_bits + self.l2_bits)) as usize;
        let l2_offset = self.l1[index];
        if l2_offset == 0 {
            return Ok(Run {
                len: self.l1_hole_end(index).saturating_sub(offset).min(max_len),
                place: Place::Absent,
            });
        }
        if l2_offset & (self.cluster_bytes() - 1) != 0 {
            return Err(file.blame.corrupt(format!(
                "L1 entry {index} points to offset {l2_offset:#x}, which is not the start of a cluster"
            )));
        }
        let slice_bytes = self.cluster_bytes().min(SLICE_BYTES);
        let entry_bytes = entry_bytes(self.extended);
        let in_table = (offset >> self.cluster_bits) & ((1 << self.l2_bits) - 1);
        let slice_in_table = in_table * entry_bytes / slice_bytes * slice_bytes;
        // No overflow: an offset has 56 bits.
        let slice_at = l2_offset + slice_in_table;
        let slice = self.l2.get(slice_at, slice_bytes as usize, |bytes| {
            file.read(slice_at, bytes, |_| {
                format!("L1 entry {index} points to an L2 table at offset {l2_offset:#x}, which is not in the file")
            })
        })?;
        let view = Slice {
            bytes: &slice,
            extended: self.extended,
            version: self.version,
            cluster_bits: self.cluster_bits,
            first_cluster: (offset >> self.cluster_bits) - in_table + slice_in_table / entry_bytes,
        };
        let run = view.run_at(offset, max_len).map_err(|why| file.blame.corrupt(why))?;
        self.check_inside(file, offset, &run)?;
        Ok(run)
    }

    /// Where the next L1 entry after `index` that has a table begins.
    fn l1_hole_end(&self, index: usize) -> u64 {
        let holes = self.l1[index..].iter().take_while(|entry| **entry == 0).count() as u64;
        (index as u64 + holes).saturating_mul(1 << (self.cluster_bits + self.l2_bits))
    }

    /// Refuses places outside the file: what was cut off must not read as zeros.
    fn check_inside(&self, file: &MappedFile, offset: u64, run: &Run) -> Result<()> {
        let (start, end) = match run.place {
            Place::Absent | Place::Zero => return Ok(()),
            Place::At(host) => (host, host + run.len),
            // Its length counts whole sectors, of which the last may be cut off.
            Place::Packed(cluster) => (cluster.offset, cluster.offset + 1),
        };
        if end > self.file_len {
            return Err(file.blame.corrupt(format!(
                "the data at {offset:#x} should be at {start:#x}..{end:#x}, and the file ends at {:#x}",
                self.file_len
            )));
        }
        Ok(())
    }
}

/// Refuses an L2 table that several L1 entries name: a small file could keep a reader busy for ever with it.
fn check_distinct(l1: &[u64], blame: &Blame) -> Result<()> {
    let mut tables: Vec<u64> = l1.iter().copied().filter(|offset| *offset != 0).collect();
    tables.sort_unstable();
    match tables.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            Err(blame.corrupt(format!("two L1 entries name the L2 table at offset {:#x}", pair[0])))
        }
        None => Ok(()),
    }
}

/// Bytes of an L2 entry.
fn entry_bytes(extended: bool) -> u64 {
    if extended {
        16
    } else {
        8
    }
}

/// Some entries of an L2 table.
struct Slice<'a> {
    bytes: &'a [u8],
    extended: bool,
    version: u32,
    cluster_bits: u32,
    /// The guest cluster of the first entry.
    first_cluster: u64,
}

impl Slice<'_> {
    /// Bits of the smallest piece that has a place of its own.
    fn unit_bits(&self) -> u32 {
        self.cluster_bits - if self.extended { SUBCLUSTERS.ilog2() } else { 0 }
    }

    fn entry_bytes(&self) -> u64 {
        entry_bytes(self.extended)
    }

    fn run_at(&self, offset: u64, max_len: u64) -> std::result::Result<Run, String> {
        let unit_bits = self.unit_bits();
        let unit = 1u64 << unit_bits;
        let in_slice = offset - (self.first_cluster << self.cluster_bits);
        let first = in_slice >> unit_bits;
        let units = (self.bytes.len() as u64 / self.entry_bytes()) << (self.cluster_bits - unit_bits);
        if let place @ Place::Packed(_) = self.place_of(first)? {
            let cluster = 1u64 << self.cluster_bits;
            return Ok(Run { len: (cluster - (offset & (cluster - 1))).min(max_len), place });
        }
        Run::in_table(in_slice, max_len, unit, units, |unit| self.place_of(unit))
    }

    /// Where unit number `unit` of the slice begins.
    fn place_of(&self, unit: u64) -> std::result::Result<Place, String> {
        let index = unit >> (self.cluster_bits - self.unit_bits());
        let guest = || (self.first_cluster + index) << self.cluster_bits;
        let at = (index * self.entry_bytes()) as usize;
        let entry = be_u64(self.bytes, at);
        if entry & COMPRESSED != 0 {
            return Ok(self.packed(entry));
        }
        let offset = entry & OFFSET_MASK;
        if offset & ((1 << self.cluster_bits) - 1) != 0 {
            return Err(format!(
                "the data at {:#x} should be at offset {offset:#x}, which is not the start of a cluster",
                guest()
            ));
        }
        if self.extended {
            let bitmap = be_u64(self.bytes, at + 8);
            let sub = unit % SUBCLUSTERS;
            let is_allocated = bitmap >> sub & 1 != 0;
            let is_zero = bitmap >> (sub + SUBCLUSTERS) & 1 != 0;
            return match (is_allocated, is_zero) {
                (false, false) => Ok(Place::Absent),
                (false, true) => Ok(Place::Zero),
                (true, false) if offset != 0 => Ok(Place::At(offset + (sub << self.unit_bits()))),
                _ => Err(format!(
                    "the subclusters at {:#x} contradict themselves: {entry:#x}, {bitmap:#x}",
                    guest()
                )),
            };
        }
        if entry & ZERO != 0 {
            if self.version < 3 {
                return Err(format!("a zero cluster at {:#x}, which version 2 does not have", guest()));
            }
            return Ok(Place::Zero);
        }
        Ok(match offset {
            0 => Place::Absent,
            host => Place::At(host),
        })
    }

    /// A compressed cluster: the entry's low bits are its offset, those above count the sectors that follow the first.
    fn packed(&self, entry: u64) -> Place {
        let offset_bits = 62 - (self.cluster_bits - 8);
        let offset = entry & ((1 << offset_bits) - 1) & ((1 << 56) - 1);
        let sectors = (entry >> offset_bits & ((1 << (self.cluster_bits - 8)) - 1)) + 1;
        Place::Packed(CompressedCluster { offset, len: sectors * 512 - (offset & 511) })
    }
}
