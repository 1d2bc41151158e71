//! The block device of a live restore.

use super::error::io_error;
use export::BlockDevice;
use image::ArrivingDisk;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An arriving disk as a block device.
pub struct ArrivingDevice(pub Arc<ArrivingDisk>);

impl BlockDevice for ArrivingDevice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf).map_err(io_error)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data).map_err(io_error)
    }

    fn zero(&self, range: Range<u64>, _release: bool) -> io::Result<()> {
        self.0.zero(range).map_err(io_error)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().map_err(io_error)
    }
}
