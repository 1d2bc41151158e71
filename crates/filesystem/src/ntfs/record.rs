//! Records of the master file table, their fixups, and the attributes in them.

use super::error::{damaged, Subject, NAME};
use super::runs::Vcn;
use crate::bytes::{le16, le32, le64};
use crate::error::FsError;
use crate::wtf8;
use std::fmt;

/// Kinds of attributes.
pub(super) mod kind {
    /// Times and attributes of DOS.
    pub const STANDARD_INFORMATION: u32 = 0x10;
    /// In which records the attributes of a large file are.
    pub const ATTRIBUTE_LIST: u32 = 0x20;
    /// A name, and the directory that it stands in.
    pub const FILE_NAME: u32 = 0x30;
    /// The label.
    pub const VOLUME_NAME: u32 = 0x60;
    /// Version and flags of the volume.
    pub const VOLUME_INFORMATION: u32 = 0x70;
    /// The data of a file, or a stream with a name.
    pub const DATA: u32 = 0x80;
    /// The root of a directory's index.
    pub const INDEX_ROOT: u32 = 0x90;
    /// The blocks of a directory's index.
    pub const INDEX_ALLOCATION: u32 = 0xa0;
    /// What stands in the place of the file: a link, for example.
    pub const REPARSE_POINT: u32 = 0xc0;
    /// Extended attributes of OS/2.
    pub const EA: u32 = 0xe0;
    /// Behind the last attribute of a record.
    pub const END: u32 = 0xffff_ffff;
}

/// Each so many bytes of a record end in two that stand elsewhere, whatever the disk's sectors are.
const FIXUP_BYTES: usize = 512;

const IN_USE: u16 = 1;
const DIRECTORY: u16 = 2;

/// A record's number in the master file table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordNo(pub u64);

/// The record of the journal.
pub(super) const LOG: RecordNo = RecordNo(2);
/// The record of the volume's label and flags.
pub(super) const VOLUME: RecordNo = RecordNo(3);
/// The record of the root directory.
pub(super) const ROOT: RecordNo = RecordNo(5);

impl fmt::Display for RecordNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Subject for RecordNo {
    fn subject(&self) -> String {
        format!("{NAME}, record {self}")
    }
}

/// A record, and how often it was used anew: 48 bits and 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reference(pub u64);

impl Reference {
    /// A reference to a record, with the sequence that it must have.
    pub fn new(record: RecordNo, sequence: u16) -> Reference {
        Reference(record.0 | u64::from(sequence) << 48)
    }

    /// The record that it leads to.
    pub fn record(self) -> RecordNo {
        RecordNo(self.0 & 0xffff_ffff_ffff)
    }

    /// 0 where it does not matter.
    pub fn sequence(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// A record, checked.
#[derive(Debug)]
pub(super) struct Record {
    /// Counts how often the record was used anew.
    pub sequence: u16,
    /// Whether its file is a directory.
    pub is_directory: bool,
    /// The file that this record goes on with; its number is 0 in the first record of a file.
    pub base: Reference,
    /// Its attributes, in their order.
    pub attributes: Vec<Attribute>,
}

/// An attribute, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// A number of [`kind`].
    pub kind: u32,
    /// In UTF-16; empty for most.
    pub name: Vec<u16>,
    /// Whether its data is compressed, encrypted or sparse.
    pub flags: u16,
    /// Its bytes, or where they are.
    pub body: Body,
}

/// Where the bytes of an attribute are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Resident(Vec<u8>),
    Mapped(Mapped),
}

/// A part of a stream in clusters. The sizes are those of the stream, and only good in its first part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The first cluster of the stream that is in this part.
    pub first: Vcn,
    /// Mapping pairs.
    pub pairs: Vec<u8>,
    /// Clusters of a unit of compression, as a power of two.
    pub unit_bits: u8,
    /// Bytes of the stream.
    pub size: u64,
    /// Bytes from the beginning on that were written; behind them it reads as zeros.
    pub initialized: u64,
}

impl Record {
    /// Takes the bytes of a record that is in use.
    pub fn parse(mut bytes: Vec<u8>, number: RecordNo) -> Result<Record, FsError> {
        let wrong = |why: String| damaged(number, why);
        fix_up(&mut bytes, b"FILE").map_err(wrong)?;
        let field16 = |at| le16(&bytes, at).unwrap_or(0);
        let flags = field16(0x16);
        if flags & IN_USE == 0 {
            return Err(wrong("the record is not in use".into()));
        }
        let used = le32(&bytes, 0x18).unwrap_or(0);
        let area = bytes.get(usize::from(field16(0x14))..used as usize).ok_or_else(|| {
            wrong(format!(
                "attributes at {:#x}, and {used:#x} bytes used of {:#x}",
                field16(0x14),
                bytes.len()
            ))
        })?;
        Ok(Record {
            sequence: field16(0x10),
            is_directory: flags & DIRECTORY != 0,
            base: Reference(le64(&bytes, 0x20).unwrap_or(0)),
            attributes: attributes(area).map_err(wrong)?,
        })
    }
}

/// Puts the ends of the pieces of a record or an index block back. Says what is wrong with it.
pub(super) fn fix_up(bytes: &mut [u8], magic: &[u8; 4]) -> Result<(), String> {
    if !bytes.starts_with(magic) {
        let found = bytes.get(..4).unwrap_or_default();
        return Err(format!("it begins with {found:x?}, not with {}", String::from_utf8_lossy(magic)));
    }
    let at = usize::from(le16(bytes, 4).unwrap_or(0));
    let count = usize::from(le16(bytes, 6).unwrap_or(0));
    let pieces = bytes.len() / FIXUP_BYTES;
    let stored: Option<Vec<u8>> = bytes.get(at..at + count * 2).map(<[u8]>::to_vec);
    let Some(stored) = stored.filter(|_| count == pieces + 1) else {
        return Err(format!("fixups for {count} pieces at {at:#x} of {:#x} bytes", bytes.len()));
    };
    let (mark, ends) = stored.split_at(2);
    for (n, (piece, end)) in bytes.chunks_exact_mut(FIXUP_BYTES).zip(ends.chunks_exact(2)).enumerate() {
        let last = &mut piece[FIXUP_BYTES - 2..];
        if last != mark {
            return Err(format!("piece {n} ends in {last:x?}, not in {mark:x?}: it was written in part"));
        }
        last.copy_from_slice(end);
    }
    Ok(())
}

fn attributes(area: &[u8]) -> Result<Vec<Attribute>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(kind) = le32(area, at).filter(|kind| *kind != kind::END) {
        let len = le32(area, at + 4).unwrap_or(0) as usize;
        let whole = area.get(at..at.saturating_add(len)).filter(|_| len >= 0x18);
        let attribute = whole.and_then(|bytes| attribute(kind, bytes));
        found.push(
            attribute.ok_or_else(|| format!("the attribute {kind:#x} of {len:#x} bytes makes no sense"))?,
        );
        at += len;
    }
    Ok(found)
}

fn attribute(kind: u32, bytes: &[u8]) -> Option<Attribute> {
    let name_at = usize::from(le16(bytes, 0x0a)?);
    let name_units = usize::from(*bytes.get(9)?);
    let name = if name_units == 0 { &[] } else { bytes.get(name_at..name_at + name_units * 2)? };
    let body = if *bytes.get(8)? == 0 {
        let (len, at) = (le32(bytes, 0x10)? as usize, usize::from(le16(bytes, 0x14)?));
        Body::Resident(bytes.get(at..at.checked_add(len)?)?.to_vec())
    } else {
        Body::Mapped(Mapped {
            first: Vcn(le64(bytes, 0x10)?),
            pairs: bytes.get(usize::from(le16(bytes, 0x20)?)..)?.to_vec(),
            unit_bits: *bytes.get(0x22)?,
            size: le64(bytes, 0x30)?,
            initialized: le64(bytes, 0x38)?,
        })
    };
    Some(Attribute { kind, name: wtf8::units(name), flags: le16(bytes, 0x0c)?, body })
}

/// An entry of an attribute list: in which record a part of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// A number of [`kind`].
    pub kind: u32,
    /// Whether the attribute has a name.
    pub is_named: bool,
    /// The first cluster of the stream that is in this part.
    pub first: Vcn,
    /// The record that holds the part.
    pub place: Reference,
}

/// Takes an attribute list apart. Says what is wrong with it.
pub(super) fn attribute_list(bytes: &[u8]) -> Result<Vec<Listed>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let entry = || {
            let first = Vcn(le64(bytes, at + 8)?);
            let place = Reference(le64(bytes, at + 0x10)?);
            Some(Listed { kind: le32(bytes, at)?, is_named: *bytes.get(at + 6)? != 0, first, place })
        };
        let len = usize::from(le16(bytes, at + 4).unwrap_or(0));
        let entry = entry().filter(|_| len >= 0x18);
        found.push(
            entry.ok_or_else(|| {
                format!("the attribute list has {len} bytes at {at:#x} of {:#x}", bytes.len())
            })?,
        );
        at += len;
    }
    Ok(found)
}
