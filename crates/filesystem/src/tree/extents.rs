//! Where the data of a file is, and reading it from there.

use crate::disk::Disk;
use crate::error::Result;

/// A run of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length in bytes, never 0.
    pub len: u64,
    /// Where it is.
    pub place: Place,
}

/// Where a run of data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As it is, from this offset of the volume on.
    Volume(u64),
    /// Within metadata, compressed, or otherwise not as it is: only reading the file gives it.
    Encoded,
    /// Allocated, never written: zeros.
    Zeros,
}

/// Reads a file of `size` bytes whose extents lie in the volume or are zeros.
pub(crate) fn read(
    volume: &dyn Disk,
    extents: &[Extent],
    size: u64,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let len = size.saturating_sub(offset).min(buf.len() as u64);
    let buf = &mut buf[..len as usize];
    buf.fill(0);
    let end = offset + len;
    let from = extents.partition_point(|e| e.offset + e.len <= offset);
    for e in extents[from..].iter().take_while(|e| e.offset < end) {
        if let Place::Volume(at) = e.place {
            let (first, last) = (e.offset.max(offset), (e.offset + e.len).min(end));
            let into = (first - offset) as usize..(last - offset) as usize;
            volume.read_at(at + (first - e.offset), &mut buf[into])?;
        }
    }
    Ok(len as usize)
}
