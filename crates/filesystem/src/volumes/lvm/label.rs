//! The label of a physical volume, and its areas of metadata.

use super::error::corrupt;
use crate::bytes::{le32, le64};
use crate::disk::Disk;
use crate::error::Result;

const SECTOR_BYTES: usize = 512;
/// The label is in one of the first sectors.
const LABEL_SECTORS: usize = 4;
const LABEL_MAGIC: &[u8] = b"LABELONE";
const LABEL_TYPE: &[u8] = b"LVM2 001";
/// What the label's checksum covers begins here.
const LABEL_SUMMED_AT: usize = 20;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
const AREA_HEADER_BYTES: u64 = 512;
/// What checksums start from.
const CHECKSUM_SEED: u32 = 0xf597_a6cf;
const ID_BYTES: usize = 32;
const AREA_BYTES: usize = 16;
/// The longest metadata that is read.
const TEXT_BYTES_MAX: u64 = 8 << 20;
const FLAG_IGNORED: u32 = 1;

/// The label's sector, if there is one in the first bytes of a volume.
fn label_sector(head: &[u8]) -> Option<(u64, &[u8])> {
    let mut sectors = (0..).zip(head.chunks_exact(SECTOR_BYTES)).take(LABEL_SECTORS);
    sectors.find(|(_, s)| s.starts_with(LABEL_MAGIC) && s[24..].starts_with(LABEL_TYPE))
}

/// Whether a volume that begins with these bytes is a physical volume.
pub(crate) fn is_member(head: &[u8]) -> bool {
    label_sector(head).is_some()
}

/// What a label says.
pub(super) struct Label {
    /// The volume's identity.
    pub id: String,
    /// Where its areas of metadata are: offset and length.
    areas: Vec<(u64, u64)>,
}

impl Label {
    /// Reads the label of a physical volume; an error where there is none, or it is damaged.
    pub fn read(disk: &dyn Disk) -> Result<Label> {
        let head = read_range(disk, 0, (LABEL_SECTORS * SECTOR_BYTES) as u64, "label")?;
        let Some((no, sector)) = label_sector(&head) else { return Err(corrupt("label", "it is missing")) };
        let (stored, got) = (le32(sector, 16).unwrap_or(0), checksum(&sector[LABEL_SUMMED_AT..]));
        if stored != got {
            let why = format!("the checksum of sector {no} is {got:#x}, and {stored:#x} is stored");
            return Err(corrupt("label", why));
        }
        let at = le32(sector, 20).unwrap_or(0) as usize;
        Label::decode(sector.get(at..).unwrap_or_default()).ok_or_else(|| {
            corrupt("label", format!("what it says from byte {at} of sector {no} on is cut off"))
        })
    }

    /// Identity, size, then two lists of areas that end with an empty one: of data, and of metadata.
    fn decode(bytes: &[u8]) -> Option<Label> {
        let id = std::str::from_utf8(bytes.get(..ID_BYTES)?).ok()?;
        let mut areas = bytes
            .get(ID_BYTES + 8..)?
            .chunks_exact(AREA_BYTES)
            .map(|area| Some((le64(area, 0)?, le64(area, 8)?)).filter(|(offset, _)| *offset != 0));
        areas.by_ref().find(Option::is_none)?;
        let areas: Vec<(u64, u64)> = areas.map_while(|area| area).collect();
        Some(Label { id: id.into(), areas })
    }

    /// The text of the first area that has one.
    pub fn metadata(&self, disk: &dyn Disk) -> Result<Option<String>> {
        let mut wrong = None;
        for (offset, len) in &self.areas {
            match read_area(disk, *offset, *len) {
                Ok(Some(text)) => return Ok(Some(text)),
                Ok(None) => {}
                Err(why) => wrong = Some(why),
            }
        }
        wrong.map_or(Ok(None), Err)
    }
}

/// CRC-32 from [`CHECKSUM_SEED`] on, not inverted at either end.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!CHECKSUM_SEED);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The text in an area: a header, then a buffer that is used round and round.
fn read_area(disk: &dyn Disk, offset: u64, len: u64) -> Result<Option<String>> {
    let what = format!("metadata at offset {offset}");
    let header = read_range(disk, offset, AREA_HEADER_BYTES, &what)?;
    let (stored, got) = (le32(&header, 0).unwrap_or(0), checksum(&header[4..]));
    if stored != got || !header[4..].starts_with(AREA_MAGIC) {
        return Err(corrupt(what, format!("the header's checksum is {got:#x}, and {stored:#x} is stored")));
    }
    // The area's version, place and length again; then where its text is.
    let (start, size) = (le64(&header, 24).unwrap_or(0), le64(&header, 32).unwrap_or(0));
    let (text_at, text_len) = (le64(&header, 40).unwrap_or(0), le64(&header, 48).unwrap_or(0));
    let (text_sum, flags) = (le32(&header, 56).unwrap_or(0), le32(&header, 60).unwrap_or(0));
    if text_at == 0 || flags & FLAG_IGNORED != 0 {
        return Ok(None);
    }
    let room = size.saturating_sub(AREA_HEADER_BYTES);
    let is_inside = (AREA_HEADER_BYTES..size).contains(&text_at) && text_len <= room.min(TEXT_BYTES_MAX);
    if (start, size) != (offset, len) || !is_inside {
        let why = format!("{text_len} bytes of text at {text_at} in {size} bytes at {start}, of {len}");
        return Err(corrupt(what, why));
    }
    let first = text_len.min(size - text_at);
    let mut text = read_range(disk, start.saturating_add(text_at), first, &what)?;
    text.extend(read_range(disk, start + AREA_HEADER_BYTES, text_len - first, &what)?);
    let got = checksum(&text);
    if got != text_sum {
        return Err(corrupt(what, format!("the text's checksum is {got:#x}, and {text_sum:#x} is stored")));
    }
    let zeros = text.iter().rev().take_while(|b| **b == 0).count();
    text.truncate(text.len() - zeros);
    String::from_utf8(text).map(Some).map_err(|why| corrupt(what, why.to_string()))
}

/// Reads a range that the volume must have.
fn read_range(disk: &dyn Disk, offset: u64, len: u64, what: &str) -> Result<Vec<u8>> {
    if offset.checked_add(len).is_none_or(|end| end > disk.size()) {
        let why = format!("{len} bytes at offset {offset} are beyond the end at {}", disk.size());
        return Err(corrupt(what, why));
    }
    let mut bytes = vec![0; len as usize];
    disk.read_at(offset, &mut bytes)?;
    Ok(bytes)
}
