//! The block device of a live restore.

use super::error::io_error;
use super::layers::extents;
use super::snapshot::SnapshotDevice;
use export::{BlockDevice, Extent};
use image::ArrivingDisk;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An arriving disk as a block device.
pub struct ArrivingDevice {
    /// The disk.
    pub disk: Arc<ArrivingDisk>,
    /// What it is restored from.
    pub snapshot: Arc<SnapshotDevice>,
}

impl BlockDevice for ArrivingDevice {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buf).map_err(io_error)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        extents(&self.snapshot, |each| self.disk.layers(range, each), each)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, data).map_err(io_error)
    }

    fn zero(&self, range: Range<u64>, _release: bool) -> io::Result<()> {
        self.disk.zero(range).map_err(io_error)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush().map_err(io_error)
    }
}
