//! What deduplication would save on given data, and what its tables would cost (Paulo 2009,
//! chapter 3).
//!
//! Counts every chunk by the first 8 bytes of its fingerprint. Within its memory the census is
//! exact; beyond it goes on with a sample of the prefixes, every occurrence of which has been
//! counted since the first, and scales what it found in the sample up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::fingerprint::Fingerprint;
use crate::piece::Piece;
use crate::prefix_table::PrefixTable;

/// Counts chunks as they go by.
pub struct Census {
    /// Prefix to (occurrences, length).
    table: PrefixTable,
    chunks: u64,
    bytes: u64,
    null_bytes: u64,
}

impl Census {
    /// An empty census that takes at most `bytes` of memory: 20 bytes per unique chunk suffice for
    /// an exact result.
    pub fn with_capacity_bytes(bytes: usize) -> Self {
        Self { table: PrefixTable::with_capacity_bytes(bytes), chunks: 0, bytes: 0, null_bytes: 0 }
    }

    /// Counts one chunk that is not null.
    pub fn add(&mut self, fingerprint: &Fingerprint, bytes: u32) {
        self.chunks += 1;
        self.bytes += u64::from(bytes);
        if let Some((value, _)) = self.table.get_or_insert(fingerprint.prefix(), [0, bytes]) {
            value[0] = value[0].saturating_add(1);
        }
    }

    /// Counts a range of zeros.
    pub fn add_null(&mut self, bytes: u64) {
        self.null_bytes += bytes;
    }

    /// Counts a segment's pieces, the data ones with these fingerprints in order.
    pub fn add_pieces(&mut self, pieces: &[Piece], fingerprints: &[Fingerprint]) {
        let mut fingerprints = fingerprints.iter();
        for piece in pieces {
            match *piece {
                Piece::Null { bytes } => self.add_null(u64::from(bytes)),
                Piece::Data { bytes } => {
                    if let Some(fingerprint) = fingerprints.next() {
                        self.add(fingerprint, bytes);
                    }
                }
            }
        }
    }

    /// The result so far, with the `popular_max` chunks that occur most often.
    pub fn report(&self, popular_max: usize) -> CensusReport {
        let scale = 1u64 << self.table.sampled_bits();
        let mut report = CensusReport {
            chunks: self.chunks,
            bytes: self.bytes,
            null_bytes: self.null_bytes,
            sampled_bits: self.table.sampled_bits(),
            ..CensusReport::default()
        };
        let mut popular = BinaryHeap::new();
        for (prefix, [copies, bytes]) in self.table.iter() {
            let class = copies.max(1).next_power_of_two().trailing_zeros() as usize;
            if report.classes.len() <= class {
                report.classes.resize(class + 1, DuplicateClass::default());
            }
            let counted = &mut report.classes[class];
            counted.unique_chunks += scale;
            counted.chunks += u64::from(copies) * scale;
            counted.unique_bytes += u64::from(bytes) * scale;
            counted.bytes += u64::from(copies) * u64::from(bytes) * scale;
            popular.push(Reverse((copies, Reverse(prefix), bytes)));
            if popular.len() > popular_max {
                popular.pop();
            }
        }
        for (no, class) in report.classes.iter_mut().enumerate() {
            class.copies_max = 1u64 << no;
            class.copies_min = (class.copies_max / 2 + 1).min(class.copies_max);
            report.unique_chunks += class.unique_chunks;
            report.unique_bytes += class.unique_bytes;
        }
        report.unique_chunks = report.unique_chunks.min(report.chunks);
        report.unique_bytes = report.unique_bytes.min(report.bytes);
        report.single_chunks = report.classes.first().map_or(0, |class| class.unique_chunks);
        report.popular = popular
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((copies, Reverse(prefix), bytes))| Popular { prefix, copies, bytes })
            .collect();
        report
    }

    /// Memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// What a [`Census`] found. Chunks and bytes leave null ranges out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CensusReport {
    /// Chunks seen, exact.
    pub chunks: u64,
    /// Bytes in them, exact.
    pub bytes: u64,
    /// Bytes in null ranges, exact.
    pub null_bytes: u64,
    /// Different chunks.
    pub unique_chunks: u64,
    /// Bytes when each chunk is kept once.
    pub unique_bytes: u64,
    /// Chunks that occur once.
    pub single_chunks: u64,
    /// Unique chunks by how often they occur: once, twice, 3-4 times, 5-8 times, and so on.
    pub classes: Vec<DuplicateClass>,
    /// The chunks that occur most often, first the most frequent. Of the sample only, when there
    /// is one.
    pub popular: Vec<Popular>,
    /// 0: exact. k: uniques and classes are estimated from one prefix in 2^k.
    pub sampled_bits: u32,
}

/// The unique chunks that occur a given number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateClass {
    /// Least number of occurrences.
    pub copies_min: u64,
    /// Greatest number of occurrences.
    pub copies_max: u64,
    /// Different chunks.
    pub unique_chunks: u64,
    /// All their occurrences.
    pub chunks: u64,
    /// Bytes when each is kept once.
    pub unique_bytes: u64,
    /// Bytes in all their occurrences.
    pub bytes: u64,
}

/// A chunk that occurs often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popular {
    /// First 8 bytes of its fingerprint, as [`Fingerprint::prefix`] gives them.
    pub prefix: u64,
    /// Occurrences.
    pub copies: u32,
    /// Length.
    pub bytes: u32,
}

/// Bytes of metadata that a design keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataCost {
    /// For each chunk of the address space: the translation table.
    pub chunk_bytes: u64,
    /// For each unique chunk: the hash-to-address table.
    pub unique_chunk_bytes: u64,
}

impl MetadataCost {
    /// Physical addresses of 64 bits; hashes of 160 bits with an address and a reference count of
    /// 32 bits (Paulo 2009, 3.2).
    pub const PAULO: Self = Self { chunk_bytes: 8, unique_chunk_bytes: 20 + 8 + 4 };
}

impl CensusReport {
    /// Whether every number was counted rather than estimated.
    pub fn is_exact(&self) -> bool {
        self.sampled_bits == 0
    }

    /// Occurrences beyond each chunk's first: "blocks to eliminate" in Paulo's table 3.1.
    pub fn duplicate_chunks(&self) -> u64 {
        self.chunks - self.unique_chunks
    }

    /// Bytes that deduplication saves, null ranges not among them, metadata not subtracted.
    pub fn saved_bytes(&self) -> u64 {
        self.bytes - self.unique_bytes
    }

    /// Share of the chunks that have a duplicate: "duplicates per regular block" in table 3.1.
    pub fn duplicated_share(&self) -> f64 {
        ratio(self.chunks - self.single_chunks.min(self.chunks), self.chunks)
    }

    /// Mean number of further copies of a chunk that has any: "duplicates per duplicated block" in
    /// table 3.1.
    pub fn duplicates_per_duplicated(&self) -> f64 {
        ratio(self.duplicate_chunks(), self.unique_chunks.saturating_sub(self.single_chunks))
    }

    /// Size of the tables that sharing needs (tables 3.2 and 3.3).
    pub fn metadata_bytes(&self, cost: MetadataCost) -> u64 {
        self.chunks * cost.chunk_bytes + self.unique_chunks * cost.unique_chunk_bytes
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests;
