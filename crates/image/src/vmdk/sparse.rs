//! The mapping of a sparse extent: a grain directory in memory, and grain tables that a bounded cache keeps.

use super::header::{Header, SECTOR};
use crate::error::Result;
use crate::file::bytes::{le_u32, le_u64};
use crate::mapping::file::MappedFile;
use crate::mapping::run::{Place, Run};
use crate::mapping::tables::{TableBudget, TableCache};
use crate::mapping::unpack::{CompressedCluster, Unpacker};

/// What an extent keeps of its grain tables.
const CACHE_BYTES: usize = 16 << 10;
/// The table entry of a grain of zeros, in extents that have them.
const ENTRY_ZERO: u32 = 1;
/// What stands before a compressed grain: its first sector on the disk, and its length.
const MARKER_BYTES: u64 = 12;

/// A sparse extent.
pub(super) struct SparseExtent {
    /// Its file.
    pub file: MappedFile,
    header: Header,
    directory: Vec<u32>,
    tables: TableCache,
}

impl SparseExtent {
    /// Reads the grain directory of `file`.
    pub fn open(file: MappedFile, header: Header, budget: &mut TableBudget) -> Result<Self> {
        let bytes = header.directory_bytes();
        budget.charge(bytes, &file.blame)?;
        let mut directory = vec![0; bytes as usize];
        let at = header.directory_at * SECTOR;
        file.read(at, &mut directory, |_| "the grain directory is cut off".into())?;
        Ok(Self {
            file,
            directory: directory.chunks_exact(4).map(|e| le_u32(e, 0)).collect(),
            tables: TableCache::new(CACHE_BYTES, header.table_entries as usize * 4),
            header,
        })
    }

    /// Sectors of the disk that it holds.
    pub fn sectors(&self) -> u64 {
        self.header.capacity
    }

    /// Bytes of a grain.
    pub fn grain_bytes(&self) -> u64 {
        self.header.grain * SECTOR
    }

    /// Where the compressed bytes of the grain of `offset` are, which has its marker at `host`.
    pub fn grain_at(&self, unpacker: &mut Unpacker, host: u64, offset: u64) -> Result<CompressedCluster> {
        let grain = self.grain_bytes();
        // Deflate makes nothing larger than this; without a marker, what follows the stream is passed over.
        let max_len = 2 * grain;
        if !self.header.has_markers {
            return Ok(CompressedCluster { offset: host, len: max_len });
        }
        let marker = unpacker.peek(&*self.file.file, host, MARKER_BYTES)?;
        if marker.len() < MARKER_BYTES as usize {
            return Err(self.file.blame.corrupt(format!("the marker at offset {host:#x} is cut off")));
        }
        let (sector, len) = (le_u64(marker, 0), u64::from(le_u32(marker, 8)));
        let wanted = offset / grain * self.header.grain;
        if sector != wanted || len == 0 || len > max_len {
            return Err(self.file.blame.corrupt(format!(
                "the marker at offset {host:#x} is of {len} bytes for sector {sector:#x}; the grain of sector {wanted:#x} should be there"
            )));
        }
        Ok(CompressedCluster { offset: host + MARKER_BYTES, len })
    }

    /// The run at `offset` of the extent, which must be inside it; it ends after `max_len` at most.
    pub fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run> {
        let table_bytes = self.header.table_sectors() * SECTOR;
        let index = (offset / table_bytes) as usize;
        let max_len = max_len.min(self.header.capacity * SECTOR - offset);
        let table_at = u64::from(self.directory[index]) * SECTOR;
        if table_at == 0 {
            let holes = self.directory[index..].iter().take_while(|e| **e == 0);
            let end = (index as u64 + holes.count() as u64).saturating_mul(table_bytes);
            return Ok(Run { len: (end - offset).min(max_len), place: Place::Absent });
        }
        let file = &self.file;
        let table = self.tables.get(index as u64, self.header.table_entries as usize * 4, |bytes| {
            file.read(table_at, bytes, |_| {
                format!("grain table {index} should be at offset {table_at:#x}, which is not in the file")
            })
        })?;
        let run = run_in_table(&table, &self.header, offset % table_bytes, max_len)
            .map_err(|why| file.blame.corrupt(why))?;
        let (start, end) = match run.place {
            Place::Absent | Place::Zero => return Ok(run),
            Place::At(host) => (host, host + run.len),
            Place::Packed(grain) => (grain.offset, grain.offset + grain.len),
        };
        if end > self.file.len() {
            return Err(self.file.blame.corrupt(format!(
                "the grain at {offset:#x} should be at {start:#x}..{end:#x}, and the file ends at {:#x}",
                self.file.len()
            )));
        }
        Ok(run)
    }
}

/// The run at `offset` of what `table` maps. A compressed grain's length is that of its marker only.
fn run_in_table(
    table: &[u8],
    header: &Header,
    offset: u64,
    max_len: u64,
) -> std::result::Result<Run, String> {
    let place_of = |index: u64| {
        let entry = le_u32(table, index as usize * 4);
        Ok(match entry {
            0 => Place::Absent,
            ENTRY_ZERO if header.has_zero_grains => Place::Zero,
            _ if header.is_compressed => Place::Packed(CompressedCluster {
                offset: u64::from(entry) * SECTOR,
                len: if header.has_markers { MARKER_BYTES } else { 1 },
            }),
            _ => Place::At(u64::from(entry) * SECTOR),
        })
    };
    Run::in_table(offset, max_len, header.grain * SECTOR, header.table_entries.into(), place_of)
}
