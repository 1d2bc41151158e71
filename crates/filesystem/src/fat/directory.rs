//! Entries of directories, 32 bytes each.

use super::names::{self, LongName};
use crate::bytes::{array, le16, le32};
use crate::tree::Time;

/// Bytes of an entry, of a long name's parts too.
pub(super) const ENTRY_BYTES: usize = 32;

const READ_ONLY: u8 = 0x01;
const LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
/// A piece of a long name has all of these.
const LONG_NAME: u8 = 0x0f;
const ATTRIBUTES: u8 = 0x3f;

const DELETED: u8 = 0xe5;
const END: u8 = 0;

/// 1980-01-01, from when dates count, in seconds since 1970.
const FIRST_DAY: i64 = 3652;
const DAY_SECONDS: i64 = 86400;

/// What an entry says of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether its attribute says that it must not be written.
    pub is_read_only: bool,
    /// 0 where there is no data.
    pub first: u32,
    /// Bytes of a file.
    pub size: u32,
    /// When its data changed last.
    pub modified: Time,
}

/// A name and its entry's place in the directory, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// In UTF-8, lone surrogates as WTF-8.
    pub name: Vec<u8>,
    /// Where its short entry begins.
    pub at: usize,
}

/// What stands in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// The files and directories in it, in their order.
    pub names: Vec<Named>,
    /// The label of the volume, in its root.
    pub label: Option<Vec<u8>>,
}

impl Item {
    /// Takes an entry; `None` if it stands for no file.
    pub fn parse(entry: &[u8; ENTRY_BYTES], is_fat32: bool) -> Option<Item> {
        let attributes = entry[11];
        if [DELETED, END].contains(&entry[0]) || attributes & LABEL != 0 {
            return None;
        }
        let high = if is_fat32 { le16(entry, 20)? } else { 0 };
        Some(Item {
            is_directory: attributes & DIRECTORY != 0,
            is_read_only: attributes & READ_ONLY != 0,
            first: u32::from(high) << 16 | u32::from(le16(entry, 26)?),
            size: le32(entry, 28)?,
            modified: time(le16(entry, 24)?, le16(entry, 22)?),
        })
    }
}

/// Takes a directory apart.
pub(super) fn contents(bytes: &[u8]) -> Contents {
    let mut found = Contents::default();
    let mut long = LongName::default();
    for at in (0..bytes.len()).step_by(ENTRY_BYTES) {
        let Some(entry) = array::<ENTRY_BYTES>(bytes, at).filter(|e| e[0] != END) else { break };
        let raw: [u8; 11] = array(&entry, 0).unwrap_or_default();
        match entry[11] & ATTRIBUTES {
            _ if entry[0] == DELETED => long = LongName::default(),
            LONG_NAME => long.push(&entry),
            attributes if attributes & LABEL != 0 => {
                long = LongName::default();
                found.label.get_or_insert_with(|| names::text(&raw, false).into_bytes());
            }
            _ if raw.trim_ascii_end() == b"." || raw.trim_ascii_end() == b".." => long = LongName::default(),
            _ => {
                let name = long.finish(&raw).unwrap_or_else(|| names::short(&raw, entry[12]));
                found.names.push(Named { name, at });
            }
        }
    }
    found
}

/// Dates and times have no zone; they are taken for UTC. Numbers that are too large count on.
fn time(date: u16, time: u16) -> Time {
    let (year, month, day) = (i64::from(date >> 9), i64::from(date >> 5 & 15), i64::from(date & 31));
    // Years count from 1980, a leap year; 2100 is none, and the last is 2107.
    let month = (month.clamp(1, 12) - 1) as usize;
    let is_leap = year % 4 == 0 && year != 120;
    let before_year = year * 365 + (year + 3) / 4 - i64::from(year > 120);
    let before_month =
        [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month] + i64::from(is_leap && month > 1);
    let days = FIRST_DAY + before_year + before_month + day.max(1) - 1;
    let (hours, minutes, pairs) = (i64::from(time >> 11), i64::from(time >> 5 & 63), i64::from(time & 31));
    Time { seconds: days * DAY_SECONDS + hours * 3600 + minutes * 60 + pairs * 2, nanos: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_1980() {
        let of = |y: u16, m: u16, d: u16, h: u16, min: u16, s: u16| {
            time((y - 1980) << 9 | m << 5 | d, h << 11 | min << 5 | (s / 2)).seconds
        };
        assert_eq!(of(1980, 1, 1, 0, 0, 0), 315_532_800);
        assert_eq!(of(2000, 2, 29, 23, 59, 58), 951_868_798);
        assert_eq!(of(2000, 3, 1, 0, 0, 0), 951_868_800);
        assert_eq!(of(2026, 11, 22, 12, 0, 0), 1_795_348_800);
        assert_eq!(of(2099, 12, 31, 0, 0, 0), 4_102_358_400);
        assert_eq!(of(2100, 3, 1, 0, 0, 0), 4_107_542_400);
        assert_eq!(of(2107, 12, 31, 23, 59, 58), 4_354_819_198);
        assert_eq!(time(0, 0).seconds, 315_532_800);
    }

    fn entry(name: &[u8; 11], attributes: u8) -> Vec<u8> {
        let mut entry = name.to_vec();
        entry.push(attributes);
        entry.resize(ENTRY_BYTES, 0);
        entry
    }

    #[test]
    fn only_files_and_directories_have_names() {
        let bytes = [
            entry(b".          ", 0x10),
            entry(b"..         ", 0x10),
            entry(b"MY LABEL   ", 0x08),
            entry(b"\xe5ELETED    ", 0x20),
            entry(b"FILE    TXT", 0x21),
            entry(b"DIR        ", 0x10),
            entry(b"\0          ", 0),
            entry(b"BEYOND     ", 0x20),
        ]
        .concat();
        let found = contents(&bytes);
        let names: Vec<_> = found.names.iter().map(|n| (n.name.as_slice(), n.at)).collect();
        assert_eq!(names, [(&b"FILE.TXT"[..], 128), (b"DIR", 160)]);
        assert_eq!(found.label.as_deref(), Some(&b"MY LABEL"[..]));
    }
}
