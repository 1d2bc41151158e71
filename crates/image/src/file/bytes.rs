//! Bytes at offsets: the readers of all formats use this trait, so they read from a file or from memory.

use std::io;
use std::ops::Range;

/// Bytes of a known number, read at any offset.
pub trait ReadAt: Send + Sync {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads into `buf` from `offset`; may return less than `buf.len()`, and 0 at the end only.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file became shorter than [`ReadAt::len`] said.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The next range at or after `from` that is no hole; `None`: nothing but holes up to the end.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        Ok((from < self.len()).then(|| from..self.len()))
    }

    /// Tells the system that `range` will be read soon.
    fn will_need(&self, _range: Range<u64>) {}
}

impl ReadAt for Box<dyn ReadAt> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        (**self).next_data(from)
    }

    fn will_need(&self, range: Range<u64>) {
        (**self).will_need(range);
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| self.get(at..)) else {
            return Ok(0);
        };
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Reads until `buf` is full or the bytes end, and returns how many were read.
pub(crate) fn read_full(file: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let Some(at) = offset.checked_add(done as u64) else {
            break;
        };
        match file.read_at(at, &mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Copies `N` bytes out of a buffer of fixed size.
fn array<const N: usize>(buf: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&buf[at..at + N]);
    bytes
}

/// The big-endian number at `at`; `buf` must hold it.
pub(crate) fn be_u32(buf: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(buf, at))
}

/// The big-endian number at `at`; `buf` must hold it.
pub(crate) fn be_u64(buf: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(buf, at))
}

/// The little-endian number at `at`; `buf` must hold it.
pub(crate) fn le_u16(buf: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(buf, at))
}

/// The little-endian number at `at`; `buf` must hold it.
pub(crate) fn le_u32(buf: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(buf, at))
}

/// The little-endian number at `at`; `buf` must hold it.
pub(crate) fn le_u64(buf: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(buf, at))
}
