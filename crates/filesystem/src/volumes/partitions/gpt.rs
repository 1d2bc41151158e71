//! GPT: a header and an array of entries behind the first sector, and copies of both at the end.

use super::partition::Partition;
use crate::bytes::{array, le16, le32, le64};
use crate::disk::{Disk, Piece};
use crate::error::{FsError, Result};

const MAGIC: &[u8] = b"EFI PART";
const HEADER_BYTES: usize = 92;
const CHECKSUM: std::ops::Range<usize> = 16..20;
const ENTRY_BYTES_MIN: usize = 128;
/// Entries take no more than this.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// More than Linux has numbers for.
const PARTITIONS_MAX: usize = 1024;
const NAME: std::ops::Range<usize> = 56..128;

/// The partitions by the first header that is valid.
pub(super) fn read(disk: &dyn Disk) -> Result<Vec<Partition>> {
    let mut wrongs = Vec::new();
    for sector_bytes in [512, 4096] {
        let sectors = disk.size() / sector_bytes;
        for sector in [1, sectors.saturating_sub(1)] {
            match read_at(disk, sector, sector_bytes)? {
                Ok(partitions) => return Ok(partitions),
                Err(why) => wrongs.push(format!("at offset {}: {why}", sector * sector_bytes)),
            }
        }
    }
    Err(FsError::corrupt("the partition table (GPT)", wrongs.join("; ")))
}

type Checked<T> = std::result::Result<T, String>;

/// Reads the table whose header is in `sector`; the inner error says what is wrong with it.
fn read_at(disk: &dyn Disk, sector: u64, sector_bytes: u64) -> Result<Checked<Vec<Partition>>> {
    let mut header = vec![0; sector_bytes as usize];
    let at = sector * sector_bytes;
    if at.checked_add(sector_bytes).is_none_or(|end| end > disk.size()) {
        return Ok(Err("beyond the disk".into()));
    }
    disk.read_at(at, &mut header)?;
    let header = match Header::decode(&header, sector, sector_bytes, disk.size()) {
        Ok(header) => header,
        Err(why) => return Ok(Err(why)),
    };
    let mut entries = vec![0; header.table_bytes as usize];
    disk.read_at(header.table_at, &mut entries)?;
    let got = crc32fast::hash(&entries);
    if got != header.table_checksum {
        let why = format!("the checksum of its entries is {got:#x} instead of {:#x}", header.table_checksum);
        return Ok(Err(why));
    }
    let entries = entries.chunks_exact(header.entry_bytes).zip(1..);
    let partitions = entries.filter_map(|(entry, n)| partition(entry, n, sector_bytes).transpose());
    let partitions: Checked<Vec<Partition>> = partitions.take(PARTITIONS_MAX + 1).collect();
    Ok(partitions.and_then(|found| match found.len() {
        0..=PARTITIONS_MAX => Ok(found),
        _ => Err(format!("there are more than {PARTITIONS_MAX} partitions")),
    }))
}

/// What a header says, checked.
struct Header {
    table_at: u64,
    table_bytes: u64,
    entry_bytes: usize,
    table_checksum: u32,
}

impl Header {
    fn decode(sector: &[u8], no: u64, sector_bytes: u64, disk_bytes: u64) -> Checked<Header> {
        if !sector.starts_with(MAGIC) {
            return Err("no header".into());
        }
        let field = |at| le32(sector, at).unwrap_or(0);
        let header_bytes = field(12) as usize;
        let Some(header) = sector.get(..header_bytes).filter(|h| h.len() >= HEADER_BYTES) else {
            return Err(format!("a header of {header_bytes} bytes"));
        };
        let mut zeroed = header.to_vec();
        zeroed[CHECKSUM].fill(0);
        let (stored, got) = (field(CHECKSUM.start), crc32fast::hash(&zeroed));
        if stored != got {
            return Err(format!("the header's checksum is {got:#x} instead of {stored:#x}"));
        }
        if le64(header, 24) != Some(no) {
            return Err("the header belongs elsewhere".into());
        }
        let (first, count, entry_bytes) = (le64(header, 72).unwrap_or(0), field(80), field(84));
        let table_bytes = u64::from(count) * u64::from(entry_bytes);
        let table_at = first.checked_mul(sector_bytes);
        let end = table_at.and_then(|at| at.checked_add(table_bytes));
        match table_at {
            Some(table_at)
                if end.is_some_and(|end| end <= disk_bytes)
                    && table_bytes <= TABLE_BYTES_MAX
                    && entry_bytes.is_power_of_two()
                    && entry_bytes as usize >= ENTRY_BYTES_MIN =>
            {
                Ok(Header {
                    table_at,
                    table_bytes,
                    entry_bytes: entry_bytes as usize,
                    table_checksum: field(88),
                })
            }
            _ => Err(format!("{count} entries of {entry_bytes} bytes from sector {first} on")),
        }
    }
}

/// `None`: the entry is not used.
fn partition(entry: &[u8], number: u32, sector_bytes: u64) -> Checked<Option<Partition>> {
    let type_id: [u8; 16] = array(entry, 0).unwrap_or_default();
    if type_id == [0; 16] {
        return Ok(None);
    }
    let (first, last) = (le64(entry, 32).unwrap_or(0), le64(entry, 40).unwrap_or(0));
    let piece = last
        .checked_sub(first)
        .and_then(|n| n.checked_add(1)?.checked_mul(sector_bytes))
        .zip(first.checked_mul(sector_bytes))
        .map(|(len, offset)| Piece { offset, len });
    let Some(piece) = piece else {
        return Err(format!("partition {number} is said to be in the sectors {first}..={last}"));
    };
    let name = entry.get(NAME).unwrap_or_default().chunks_exact(2);
    let name: Vec<u16> = name.map(|c| le16(c, 0).unwrap_or(0)).take_while(|c| *c != 0).collect();
    Ok(Some(Partition { number, piece, type_id: guid(&type_id), label: String::from_utf16_lossy(&name) }))
}

/// The first three numbers are little-endian.
fn guid(bytes: &[u8; 16]) -> String {
    let [a3, a2, a1, a0, b1, b0, c1, c0, rest @ ..] = *bytes;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<String>();
    let parts = [&[a0, a1, a2, a3][..], &[b0, b1], &[c0, c1], &rest[..2], &rest[2..]];
    parts.map(hex).join("-")
}
