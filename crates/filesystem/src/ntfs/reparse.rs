//! What a file is beyond its attributes: reparse points, and the special files of ntfs-3g.

use super::error::{damaged, unsupported};
use super::mft::{File, Mft};
use super::record::{kind, RecordNo};
use crate::bytes::{le16, le32, le64};
use crate::error::{FsError, Result};
use crate::tree::NodeKind;
use crate::wtf8;

const MOUNT_POINT: u32 = 0xa000_0003;
const SYMLINK: u32 = 0xa000_000c;
const LX_SYMLINK: u32 = 0xa000_001d;
const AF_UNIX: u32 = 0x8000_0023;
const LX_FIFO: u32 = 0x8000_0024;
const WIM: u32 = 0x8000_0008;
const DEDUP: u32 = 0x8000_0013;
const WOF: u32 = 0x8000_0017;

/// The data is elsewhere (`OFFLINE`, `RECALL_ON_DATA_ACCESS`).
const ELSEWHERE: u32 = 0x1000 | 0x40_0000;
const SYSTEM: u32 = 0x4;
const RELATIVE: u32 = 1;

/// Windows' limit for the data of a reparse point.
const REPARSE_BYTES_MAX: u64 = 16 << 10;
/// What a special file of ntfs-3g holds at most: its magic, and a path.
const SPECIAL_BYTES: std::ops::RangeInclusive<u64> = 8..=8 + 4096 * 2;

/// What a file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// What its record says.
    Plain,
    /// A link, and where it leads.
    Link(Vec<u8>),
    /// A pipe, a socket or a device.
    Special(NodeKind),
    /// A file whose data this crate cannot give, and why.
    Closed(&'static str),
}

/// What the file is, which has these attributes (of the standard information) and so many bytes of data.
pub(super) fn meaning(mft: &Mft, file: &File, attributes: u32) -> Result<Meaning> {
    let Some(point) = file.stream(&mft.volume, kind::REPARSE_POINT, &[])? else {
        let is_special = attributes & SYSTEM != 0 && !file.is_directory;
        return if is_special { special(mft, file) } else { Ok(Meaning::Plain) };
    };
    let point = point.read_all(&mft.volume, REPARSE_BYTES_MAX)?;
    parse(&point, attributes).ok_or_else(|| {
        let tag = le32(&point, 0).unwrap_or(0);
        damaged(file.number, format!("a reparse point {tag:#x} of {} bytes makes no sense", point.len()))
    })
}

fn parse(point: &[u8], attributes: u32) -> Option<Meaning> {
    let len = usize::from(le16(point, 4)?);
    let data = point.get(8..8 + len)?;
    Some(match le32(point, 0)? {
        MOUNT_POINT => Meaning::Link(names(data, data.get(8..)?, false)?),
        SYMLINK => Meaning::Link(names(data, data.get(12..)?, le32(data, 8)? & RELATIVE != 0)?),
        LX_SYMLINK => Meaning::Link(data.get(4..)?.to_vec()),
        AF_UNIX => Meaning::Special(NodeKind::Socket),
        LX_FIFO => Meaning::Special(NodeKind::Fifo),
        WOF => Meaning::Closed("a file compressed by the system (WOF)"),
        WIM => Meaning::Closed("a file within a WIM image"),
        DEDUP => Meaning::Closed("a file deduplicated by Windows"),
        _ if attributes & ELSEWHERE != 0 => Meaning::Closed("a file whose data is in a cloud or an archive"),
        _ => Meaning::Plain,
    })
}

/// The printed name, or else the name for the system without its prefix.
fn names(data: &[u8], texts: &[u8], is_relative: bool) -> Option<Vec<u8>> {
    let text = |at: usize| {
        let (from, len) = (usize::from(le16(data, at)?), usize::from(le16(data, at + 2)?));
        texts.get(from..from + len).map(wtf8::from_le_bytes)
    };
    let mut target = text(4)?;
    if target.is_empty() {
        target = text(0)?;
        if let Some(path) = target.strip_prefix(br"\??\") {
            target = path.to_vec();
        }
    }
    if is_relative {
        target.iter_mut().filter(|b| **b == b'\\').for_each(|b| *b = b'/');
    }
    Some(target)
}

/// Links and devices as ntfs-3g and Interix keep them: files of the system that begin with a magic number.
fn special(mft: &Mft, file: &File) -> Result<Meaning> {
    let data = match file.stream(&mft.volume, kind::DATA, &[]) {
        Ok(Some(data)) if SPECIAL_BYTES.contains(&data.size) => data,
        Ok(_) | Err(FsError::Unsupported { .. }) => return Ok(Meaning::Plain),
        Err(why) => return Err(why),
    };
    let data = data.read_all(&mft.volume, *SPECIAL_BYTES.end())?;
    let number = |at| le64(&data, at).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    Ok(match data.first_chunk() {
        Some(b"IntxLNK\x01") => Meaning::Link(wtf8::from_le_bytes(&data[8..])),
        Some(b"IntxCHR\0") => Meaning::Special(NodeKind::CharDevice { major: number(8), minor: number(16) }),
        Some(b"IntxBLK\0") => Meaning::Special(NodeKind::BlockDevice { major: number(8), minor: number(16) }),
        _ => Meaning::Plain,
    })
}

/// Refuses data that cannot be given.
pub(super) fn check_open(meaning: &Meaning, number: RecordNo) -> Result<()> {
    match meaning {
        Meaning::Closed(why) => Err(unsupported(number, *why)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(tag: u32, data: &[u8]) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], data].concat()
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    /// A link with a name for the system and a printed one.
    fn link(tag: u32, system: &str, printed: &str, flags: &[u8]) -> Vec<u8> {
        let (system, printed) = (utf16(system), utf16(printed));
        let mut data = Vec::new();
        for n in [0, system.len(), system.len(), printed.len()] {
            data.extend((n as u16).to_le_bytes());
        }
        data.extend_from_slice(flags);
        point(tag, &[data, system, printed].concat())
    }

    fn target(point: &[u8]) -> String {
        match parse(point, 0) {
            Some(Meaning::Link(target)) => String::from_utf8(target).expect("a text"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn links_lead_where_they_are_printed_to() {
        assert_eq!(target(&link(MOUNT_POINT, r"\??\C:\Users", r"C:\Users", &[])), r"C:\Users");
        assert_eq!(target(&link(MOUNT_POINT, r"\??\Volume{1}\", "", &[])), r"Volume{1}\");
        assert_eq!(target(&link(SYMLINK, r"..\ä", r"..\ä", &[1, 0, 0, 0])), "../ä");
        assert_eq!(target(&link(SYMLINK, r"\??\D:\x", r"D:\x", &[0; 4])), r"D:\x");
        assert_eq!(target(&point(LX_SYMLINK, b"\x02\0\0\0a/b")), "a/b");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(matches!(parse(&point(WOF, &[]), 0), Some(Meaning::Closed(_))));
        assert!(matches!(parse(&point(0x9000_001a, &[]), 0x40_0000), Some(Meaning::Closed(_))));
        assert_eq!(parse(&point(0x9000_001a, &[]), 0), Some(Meaning::Plain));
        assert_eq!(parse(&point(AF_UNIX, &[]), 0), Some(Meaning::Special(NodeKind::Socket)));
    }

    #[test]
    fn cut_off_points_are_refused() {
        let whole = link(SYMLINK, "abc", "def", &[0; 4]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], 0), None, "{len}");
        }
        assert_eq!(parse(&point(SYMLINK, b"\0\0\xff\xff\0\0\xff\xff\0\0\0\0abc"), 0), None);
    }
}
