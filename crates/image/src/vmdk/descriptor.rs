//! The text that describes a VMDK disk: in a file of its own, or inside a sparse file.

use super::header::{Header, SECTOR};
use crate::error::{Blame, ImageError, Result};
use crate::file::bytes::{read_full, ReadAt};

/// The longest descriptor: about ten thousand extents.
const MAX_BYTES: u64 = 1 << 20;
/// Each extent holds a file open.
const MAX_EXTENTS: usize = 4096;
/// The parent of a disk that has none.
const NO_PARENT: u32 = u32::MAX;

/// Told where an unsupported kind of VMDK is met.
pub(super) const HINT_CLONE: &str =
    "clone the disk with vmkfstools -i, or export the virtual machine, and use the result";

/// What an extent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExtentKind {
    /// Bytes as they are, from this sector of the file on.
    Flat { name: Vec<u8>, at: u64 },
    /// A sparse file.
    Sparse { name: Vec<u8> },
    /// Zeros.
    Zero,
}

/// A range of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExtentLine {
    /// Its size.
    pub sectors: u64,
    /// Where its bytes are.
    pub kind: ExtentKind,
}

/// What a descriptor says, checked.
#[derive(Debug)]
pub(super) struct Descriptor {
    /// The extents in address order.
    pub extents: Vec<ExtentLine>,
}

impl Descriptor {
    /// Reads a file that is a descriptor.
    pub fn read_file(file: &dyn ReadAt, blame: &Blame) -> Result<Self> {
        let descriptor = Self::read(file, 0, file.len(), blame)?;
        if descriptor.extents.is_empty() {
            return Err(blame.corrupt("the descriptor names no extent"));
        }
        Ok(descriptor)
    }

    /// Reads the descriptor inside a sparse file.
    pub fn read_embedded(file: &dyn ReadAt, header: &Header, blame: &Blame) -> Result<Self> {
        if header.descriptor_at == 0 {
            return Err(lone_extent(blame));
        }
        let range = header
            .descriptor_at
            .checked_mul(SECTOR)
            .zip(header.descriptor_len.checked_mul(SECTOR).filter(|len| *len > 0));
        match range {
            Some((at, len)) if at < file.len() => Self::read(file, at, len, blame),
            _ => Err(blame.corrupt(format!(
                "a descriptor of {} sectors at sector {:#x} in a file of {:#x} bytes",
                header.descriptor_len,
                header.descriptor_at,
                file.len()
            ))),
        }
    }

    fn read(file: &dyn ReadAt, at: u64, len: u64, blame: &Blame) -> Result<Self> {
        if len > MAX_BYTES {
            return Err(blame.corrupt(format!("a descriptor of {len} bytes; {MAX_BYTES} are plausible")));
        }
        let mut text = vec![0; len as usize];
        let n = read_full(file, at, &mut text).map_err(|e| blame.read(e))?;
        text.truncate(n);
        Self::parse(&text, blame)
    }

    /// Parses `text`, which ends at its first NUL.
    fn parse(text: &[u8], blame: &Blame) -> Result<Self> {
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        let mut extents = Vec::new();
        for line in text.split(|b| *b == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let first = line.split(|b| b.is_ascii_whitespace() || *b == b'=').next().unwrap_or_default();
            if [b"RW".as_slice(), b"RDONLY"].iter().any(|access| first.eq_ignore_ascii_case(access)) {
                if extents.len() == MAX_EXTENTS {
                    return Err(blame.unsupported(format!("a disk of more than {MAX_EXTENTS} extents"), None));
                }
                extents.push(parse_extent(line, blame)?);
            } else if first.eq_ignore_ascii_case(b"NOACCESS") {
                return Err(blame.unsupported("an extent that may not be accessed", None));
            } else if first.eq_ignore_ascii_case(b"parentCID") {
                check_parent(line, blame)?;
            }
        }
        Ok(Self { extents })
    }

    /// Refuses a descriptor inside a sparse file that needs other files than this.
    pub fn check_single(&self, blame: &Blame) -> Result<()> {
        match self.extents.as_slice() {
            [] => Err(lone_extent(blame)),
            [ExtentLine { kind: ExtentKind::Sparse { .. }, .. }] => Ok(()),
            _ => Err(blame.unsupported("a sparse file that describes other extents", None)),
        }
    }
}

/// The error of a file that holds only a part of a disk.
fn lone_extent(blame: &Blame) -> ImageError {
    ImageError::refused(
        &blame.path,
        "is one extent of a disk; name the disk's descriptor, the .vmdk file that lists the extents",
    )
}

/// A snapshot says whose content it changes.
fn check_parent(line: &[u8], blame: &Blame) -> Result<()> {
    let value = String::from_utf8_lossy(line);
    let value = value.split_once('=').map_or("", |(_, value)| value.trim());
    match u32::from_str_radix(value, 16) {
        Ok(NO_PARENT) => Ok(()),
        Ok(_) => Err(blame.unsupported("a VMDK snapshot (a disk with a parent)", Some(HINT_CLONE))),
        Err(_) => Err(blame.corrupt(format!("parentCID={value:?}"))),
    }
}

/// Parses `RW 4192256 FLAT "disk-flat.vmdk" 0`.
fn parse_extent(line: &[u8], blame: &Blame) -> Result<ExtentLine> {
    let corrupt =
        || blame.corrupt(format!("the extent line {:?} is malformed", String::from_utf8_lossy(line)));
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        String::from_utf8_lossy(word).into_owned()
    };
    let _access = word();
    let sectors: u64 = word().parse().map_err(|_| corrupt())?;
    let kind = word().to_ascii_uppercase();
    let rest = rest.trim_ascii();
    // The name stands between the first and the last quote; an offset may follow.
    let quotes = rest
        .iter()
        .position(|b| *b == b'"')
        .zip(rest.iter().rposition(|b| *b == b'"'))
        .filter(|(first, last)| first < last);
    let name = || match quotes {
        Some((0, last)) if last > 1 => Ok(rest[1..last].to_vec()),
        _ => Err(corrupt()),
    };
    let offset = || {
        let after = quotes.map_or(rest, |(_, last)| &rest[last + 1..]).trim_ascii();
        if after.is_empty() {
            return Ok(0);
        }
        std::str::from_utf8(after).ok().and_then(|n| n.parse().ok()).ok_or_else(corrupt)
    };
    let kind = match kind.as_str() {
        "FLAT" | "VMFS" => ExtentKind::Flat { name: name()?, at: offset()? },
        "SPARSE" => ExtentKind::Sparse { name: name()? },
        "ZERO" => ExtentKind::Zero,
        "VMFSSPARSE" | "VMFSRDM" | "VMFSRAW" | "SESPARSE" => {
            return Err(blame.unsupported(format!("an ESX {kind} extent"), Some(HINT_CLONE)))
        }
        _ => return Err(corrupt()),
    };
    Ok(ExtentLine { sectors, kind })
}
