//! A block device to serve.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What a range of a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Data.
    Data,
    /// Zeros that take no space.
    Hole,
    /// Zeros that take space.
    Zeros,
}

/// A range of a device and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The range.
    pub range: Range<u64>,
    /// What it holds.
    pub block: Block,
}

/// A disk that others read and may write, from several threads and clients at once.
///
/// Ranges lie within the device: the server checks them. Every read that begins after a write has returned sees it; it
/// is durable when a [`BlockDevice::flush`] that began later has returned.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes. It may grow.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Fills `buf` only if that needs no waiting and little work. Returns whether it did.
    fn read_ready(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }

    /// What a range holds: extents in order, without gaps, from `range.start` on, until `each` returns `false` or the range
    /// is covered. Cheap: no data is read. The last one may reach beyond the range.
    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        each(Extent { range, block: Block::Data });
        Ok(())
    }

    /// The names of earlier states that it can be compared with.
    fn earlier(&self) -> Vec<String> {
        Vec::new()
    }

    /// The ranges in which it may differ from an earlier state, in order; `None` where it has none of this name, or they
    /// cannot be compared.
    fn changed_since(&self, _earlier: &str) -> io::Result<Option<Vec<Range<u64>>>> {
        Ok(None)
    }

    /// Whether it can be written.
    fn is_writable(&self) -> bool {
        false
    }

    /// Writes.
    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    /// Writes zeros; with `release` the space may be freed.
    fn zero(&self, _range: Range<u64>, _release: bool) -> io::Result<()> {
        Err(read_only())
    }

    /// Discards a range: its content is undefined from then on.
    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        self.zero(range, true)
    }

    /// Makes durable what was written before.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: BlockDevice + ?Sized> BlockDevice for Arc<T> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buf)
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        (**self).read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        (**self).extents(range, each)
    }

    fn earlier(&self) -> Vec<String> {
        (**self).earlier()
    }

    fn changed_since(&self, earlier: &str) -> io::Result<Option<Vec<Range<u64>>>> {
        (**self).changed_since(earlier)
    }

    fn is_writable(&self) -> bool {
        (**self).is_writable()
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, data)
    }

    fn zero(&self, range: Range<u64>, release: bool) -> io::Result<()> {
        (**self).zero(range, release)
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        (**self).discard(range)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the device is read-only")
}
