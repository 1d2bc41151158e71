//! What a volume of a pool is filled from.

use super::error::is_damage;
use super::snapshot::SnapshotDevice;
use export::{BlockDevice, Extent};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A snapshot whose damage is `InvalidData`: a pool fills a volume around it.
pub struct FillDevice(pub Arc<SnapshotDevice>);

fn told(e: io::Error) -> io::Error {
    if is_damage(&e) {
        io::Error::new(io::ErrorKind::InvalidData, e)
    } else {
        e
    }
}

impl BlockDevice for FillDevice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf).map_err(told)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.0.extents(range, each).map_err(told)
    }
}
