//! What a file has that becomes extended attributes: alternate data streams, and extended attributes of OS/2 (`$EA`),
//! which WSL uses for owners and modes.

use super::mft::{File, Mft};
use super::record::{kind, Attribute};
use super::stream::Stream;
use crate::bytes::{le16, le32};
use crate::error::{FsError, Result};
use crate::tree::{Attributes, Content, Unread};
use crate::wtf8;
use std::collections::BTreeMap;

/// The largest stream that is read. Linux takes no larger extended attribute.
const VALUE_BYTES_MAX: u64 = 64 << 10;
/// The largest sum of them.
const VALUES_BYTES_MAX: u64 = 16 << 20;
/// Windows' limit for all of `$EA`.
const EA_BYTES_MAX: u64 = 64 << 10;
/// Where a file that WOF compressed has its data: no attribute. Reading such a file fails.
const WOF_STREAM: &[u8] = b"WofCompressedData";

/// Attributes of a file; `unread` are those that are too large, encrypted, damaged or without a possible name.
pub(super) fn read(mft: &Mft, file: &File) -> Result<Attributes> {
    let mut found = Attributes::default();
    streams(mft, file, &mut found)?;
    os2(mft, file, &mut found)?;
    found.values.sort();
    Ok(found)
}

/// The content of a stream that [`read`] has left out.
pub(super) fn long<'a>(mft: &'a Mft, file: &File, name: &[u8]) -> Result<Option<Content<'a>>> {
    let of_name = |(units, _): &(&[u16], _)| attribute_name(units) == name;
    let Some((_, parts)) = named_streams(file).into_iter().find(of_name) else { return Ok(None) };
    let Some(stream) = Stream::assemble_stored(&mft.volume, file.number, &parts)? else { return Ok(None) };
    let (size, extents) = (stream.size, stream.extents.clone());
    Ok(Some(Content::new(size, extents, move |offset, buf| stream.read_at(&mft.volume, offset, buf))))
}

/// The parts of each stream that has a name.
fn named_streams(file: &File) -> BTreeMap<&[u16], Vec<&Attribute>> {
    let mut streams: BTreeMap<&[u16], Vec<&Attribute>> = BTreeMap::new();
    for part in file.all(kind::DATA).filter(|a| !a.name.is_empty()) {
        streams.entry(&part.name).or_default().push(part);
    }
    streams
}

/// What a stream is called as an extended attribute.
fn attribute_name(stream: &[u16]) -> Vec<u8> {
    [b"user.stream.", &wtf8::from_units(stream)[..]].concat()
}

fn streams(mft: &Mft, file: &File, found: &mut Attributes) -> Result<()> {
    let mut room = VALUES_BYTES_MAX;
    for (stream, parts) in named_streams(file) {
        if wtf8::from_units(stream) == WOF_STREAM && file.all(kind::REPARSE_POINT).next().is_some() {
            continue;
        }
        let name = attribute_name(stream);
        let value = if name.contains(&0) {
            Err("its name contains a zero byte".into())
        } else {
            unless_unreadable(value(mft, file, &parts, room))?
        };
        match value {
            Ok(value) => {
                room -= value.len() as u64;
                found.values.push((name, value));
            }
            Err(why) => found.unread.push(Unread { name, why }),
        }
    }
    Ok(())
}

/// The bytes of a stream, or why they are not read.
fn value(
    mft: &Mft,
    file: &File,
    parts: &[&Attribute],
    room: u64,
) -> Result<std::result::Result<Vec<u8>, String>> {
    let Some(data) = Stream::assemble(&mft.volume, file.number, parts)? else { return Ok(Ok(Vec::new())) };
    let size = data.size;
    Ok(if size > VALUE_BYTES_MAX {
        Err(format!("a stream of {size} bytes, and an extended attribute has at most {VALUE_BYTES_MAX}"))
    } else if size > room {
        Err(format!("a stream of {size} bytes, beyond {VALUES_BYTES_MAX} in all streams of the file"))
    } else {
        Ok(data.read_all(&mft.volume, VALUE_BYTES_MAX)?)
    })
}

/// `$EA`: each entry has the offset of the next one, flags, the lengths of name and value, and these.
fn os2(mft: &Mft, file: &File, found: &mut Attributes) -> Result<()> {
    let read = || {
        let bytes = file.stream(&mft.volume, kind::EA, &[])?;
        bytes.map(|bytes| bytes.read_all(&mft.volume, EA_BYTES_MAX)).transpose()
    };
    let bytes = match unless_unreadable(read().map(Ok))? {
        Ok(None) => return Ok(()),
        Ok(Some(bytes)) => bytes,
        Err(why) => {
            found.unread.push(Unread { name: b"$EA".to_vec(), why });
            return Ok(());
        }
    };
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let Some((name, value, len)) = entry(rest) else {
            let why = format!("damaged: its entry at {:#x} makes no sense", bytes.len() - rest.len());
            found.unread.push(Unread { name: b"$EA".to_vec(), why });
            break;
        };
        found.values.push(([b"user.ea.", name].concat(), value.to_vec()));
        rest = &rest[len..];
    }
    Ok(())
}

/// Name, value and length of the first entry; the last one tells no length.
fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    const HEAD: usize = 8;
    let (next, name_len) = (le32(bytes, 0)? as usize, usize::from(*bytes.get(5)?));
    let value_at = HEAD + name_len + 1;
    let end = value_at + usize::from(le16(bytes, 6)?);
    let name = bytes.get(HEAD..HEAD + name_len)?;
    let value = bytes.get(value_at..end)?;
    let len = if next == 0 { bytes.len() } else { next };
    (name_len > 0 && !name.contains(&0) && (end..=bytes.len()).contains(&len)).then_some((name, value, len))
}

/// Damage, and what is not supported, as a text; errors of the disk below stay errors.
fn unless_unreadable<T>(
    read: Result<std::result::Result<T, String>>,
) -> Result<std::result::Result<T, String>> {
    match read {
        Err(e @ FsError::Read(_)) => Err(e),
        Err(why) => Ok(Err(why.to_string())),
        Ok(read) => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_os2() {
        let two =
            [&[20, 0, 0, 0, 0, 6, 4, 0][..], b"$LXUID\0\xe8\x03\0\0\0", &[0, 0, 0, 0, 0, 1, 0, 0], b"E\0"]
                .concat();
        assert_eq!(entry(&two), Some((&b"$LXUID"[..], &b"\xe8\x03\0\0"[..], 20)));
        assert_eq!(entry(&two[20..]), Some((&b"E"[..], &b""[..], 10)));
        for (at, wrong) in [(0, 3), (0, 31), (1, 1), (5, 0), (5, 30), (6, 40), (9, 0)] {
            let mut bytes = two.clone();
            bytes[at] = wrong;
            assert_eq!(entry(&bytes), None, "{wrong} at {at}");
        }
    }
}
