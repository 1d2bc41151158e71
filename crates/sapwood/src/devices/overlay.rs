//! A writable snapshot: writes go into a qcow2 overlay.

use super::error::io_error;
use super::layers::extents;
use super::snapshot::{SnapshotBase, SnapshotDevice};
use export::{BlockDevice, Extent};
use image::qcow2::Overlay;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An overlay over a snapshot.
pub struct OverlayDevice {
    overlay: Overlay,
    snapshot: Arc<SnapshotDevice>,
}

impl OverlayDevice {
    /// Opens or creates an overlay over a snapshot: `open` is called with the snapshot as its base.
    pub fn new(
        snapshot: Arc<SnapshotDevice>,
        open: impl FnOnce(SnapshotBase) -> image::Result<Overlay>,
    ) -> image::Result<OverlayDevice> {
        Ok(OverlayDevice { overlay: open(SnapshotBase(snapshot.clone()))?, snapshot })
    }

    /// Makes everything durable, and the refcounts of the file correct.
    pub fn close(&self) -> image::Result<()> {
        self.overlay.close()
    }
}

impl BlockDevice for OverlayDevice {
    fn size(&self) -> u64 {
        self.overlay.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.overlay.read_at(offset, buf).map_err(io_error)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        extents(&self.snapshot, |each| self.overlay.layers(range, each), each)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.overlay.write_at(offset, data).map_err(io_error)
    }

    fn zero(&self, range: Range<u64>, _release: bool) -> io::Result<()> {
        self.overlay.zero(range).map_err(io_error)
    }

    fn flush(&self) -> io::Result<()> {
        self.overlay.flush().map_err(io_error)
    }
}
