//! The header of a sparse extent.

use crate::error::{Blame, Result};
use crate::file::bytes::{le_u16, le_u32, le_u64, read_full, ReadAt};
use crate::mapping::tables::MAX_TOP_TABLE_BYTES;

/// What errors call the format.
pub(super) const FORMAT: &str = "vmdk";

/// Offsets and lengths in a VMDK count sectors of this many bytes.
pub(super) const SECTOR: u64 = 512;

/// The first four bytes of a sparse extent.
pub(super) const MAGIC: [u8; 4] = *b"KDMV";

const FLAG_NEWLINE_TEST: u32 = 1 << 0;
const FLAG_ZERO_GRAINS: u32 = 1 << 2;
const FLAG_COMPRESSED: u32 = 1 << 16;
const FLAG_MARKERS: u32 = 1 << 17;

/// What the four bytes of the newline test must be; a transfer as text changes them.
const NEWLINE_TEST: [u8; 4] = *b"\n \r\n";
/// The grain directory's offset is in the footer.
const DIRECTORY_AT_END: u64 = u64::MAX;
const ALGORITHM_DEFLATE: u16 = 1;
const MARKER_END_OF_STREAM: u32 = 0;
const MARKER_FOOTER: u32 = 3;

const MAX_GRAIN_SECTORS: u64 = 0x20_0000;
/// A compressed grain is held in memory whole.
const MAX_COMPRESSED_GRAIN_SECTORS: u64 = 1 << 14;
const MAX_TABLE_ENTRIES: u32 = 512;
/// The largest disk whose addresses fit a signed number.
const MAX_SECTORS: u64 = (i64::MAX as u64) / SECTOR;

/// What a header says, checked. Offsets and sizes count sectors.
#[derive(Debug, Clone)]
pub(super) struct Header {
    /// Size of the disk.
    pub capacity: u64,
    /// Size of a grain.
    pub grain: u64,
    /// Entries of a grain table.
    pub table_entries: u32,
    /// Offset of the grain directory.
    pub directory_at: u64,
    /// Offset of the descriptor; 0 where there is none.
    pub descriptor_at: u64,
    /// Size of the descriptor.
    pub descriptor_len: u64,
    /// Whether table entries of 1 stand for zeros.
    pub has_zero_grains: bool,
    /// Whether grains are compressed.
    pub is_compressed: bool,
    /// Whether a marker precedes each compressed grain.
    pub has_markers: bool,
}

impl Header {
    /// Reads the header of `file`, or the footer where the header says so.
    pub fn read(file: &dyn ReadAt, blame: &Blame) -> Result<Self> {
        let mut buf = [0; SECTOR as usize];
        let got = read_full(file, 0, &mut buf).map_err(|e| blame.read(e))?;
        if got < buf.len() || buf[..4] != MAGIC {
            return Err(blame.corrupt("no complete header"));
        }
        let header = Self::decode(&buf, blame)?;
        if header.directory_at != DIRECTORY_AT_END {
            header.check_directory(file.len(), blame)?;
            return Ok(header);
        }
        let footer = Self::read_footer(file, blame)?;
        if (footer.capacity, footer.grain) != (header.capacity, header.grain) {
            return Err(blame.corrupt("the footer contradicts the header"));
        }
        footer.check_directory(file.len(), blame)?;
        Ok(Self { descriptor_at: header.descriptor_at, descriptor_len: header.descriptor_len, ..footer })
    }

    /// The last three sectors: a marker, the header again with the directory's place, the end of the stream.
    fn read_footer(file: &dyn ReadAt, blame: &Blame) -> Result<Self> {
        let cut = || blame.corrupt("the file has no footer: it is cut off, or was not written to its end");
        let mut buf = [0; 3 * SECTOR as usize];
        let at = file.len().checked_sub(buf.len() as u64).ok_or_else(cut)?;
        let got = read_full(file, at, &mut buf).map_err(|e| blame.read(e))?;
        let (marker, rest) = buf.split_at(SECTOR as usize);
        let (footer, end) = rest.split_at(SECTOR as usize);
        // A marker: a value, the size of its data, and its kind.
        let is_footer = le_u32(marker, 8) == 0 && le_u32(marker, 12) == MARKER_FOOTER;
        let is_end = le_u32(end, 8) == 0 && le_u32(end, 12) == MARKER_END_OF_STREAM;
        if got < buf.len() || !is_footer || !is_end || footer[..4] != MAGIC {
            return Err(cut());
        }
        let footer = Self::decode(footer, blame)?;
        if footer.directory_at == DIRECTORY_AT_END {
            return Err(blame.corrupt("the footer does not say where the grain directory is"));
        }
        Ok(footer)
    }

    /// Takes the fields from the bytes of a header, of which there must be a sector.
    fn decode(buf: &[u8], blame: &Blame) -> Result<Self> {
        let version = le_u32(buf, 4);
        if !(1..=3).contains(&version) {
            return Err(blame.unsupported(format!("{FORMAT} version {version}"), None));
        }
        let flags = le_u32(buf, 8);
        if flags & FLAG_NEWLINE_TEST != 0 && buf[73..77] != NEWLINE_TEST {
            return Err(blame.corrupt("a transfer as text has changed its line ends"));
        }
        let header = Self {
            capacity: le_u64(buf, 12),
            grain: le_u64(buf, 20),
            descriptor_at: le_u64(buf, 28),
            descriptor_len: le_u64(buf, 36),
            table_entries: le_u32(buf, 44),
            directory_at: le_u64(buf, 56),
            has_zero_grains: flags & FLAG_ZERO_GRAINS != 0,
            is_compressed: flags & FLAG_COMPRESSED != 0,
            has_markers: flags & FLAG_MARKERS != 0,
        };
        let max_grain = if header.is_compressed { MAX_COMPRESSED_GRAIN_SECTORS } else { MAX_GRAIN_SECTORS };
        if !header.grain.is_power_of_two() || header.grain > max_grain {
            return Err(blame.corrupt(format!("grains of {} sectors", header.grain)));
        }
        if !(1..=MAX_TABLE_ENTRIES).contains(&header.table_entries) {
            return Err(blame.corrupt(format!(
                "grain tables of {} entries; 1 to {MAX_TABLE_ENTRIES} are possible",
                header.table_entries
            )));
        }
        if header.capacity > MAX_SECTORS {
            return Err(blame.corrupt(format!("a disk of {} sectors", header.capacity)));
        }
        let algorithm = le_u16(buf, 77);
        if header.is_compressed && algorithm != ALGORITHM_DEFLATE {
            return Err(blame.unsupported(format!("compression algorithm {algorithm}"), None));
        }
        Ok(header)
    }

    /// Sectors of the disk that one grain table maps.
    pub fn table_sectors(&self) -> u64 {
        self.grain * u64::from(self.table_entries)
    }

    /// Bytes of the grain directory.
    pub fn directory_bytes(&self) -> u64 {
        self.capacity.div_ceil(self.table_sectors()) * 4
    }

    fn check_directory(&self, file_len: u64, blame: &Blame) -> Result<()> {
        let bytes = self.directory_bytes();
        if bytes > MAX_TOP_TABLE_BYTES {
            return Err(blame
                .corrupt(format!("a grain directory of {bytes} bytes; {MAX_TOP_TABLE_BYTES} are possible")));
        }
        let end = self.directory_at.checked_mul(SECTOR).and_then(|at| at.checked_add(bytes));
        if end.is_none_or(|end| end > file_len) || self.directory_at == 0 {
            return Err(blame.corrupt(format!(
                "a grain directory of {bytes} bytes at sector {:#x} in a file of {file_len:#x} bytes",
                self.directory_at
            )));
        }
        Ok(())
    }
}
