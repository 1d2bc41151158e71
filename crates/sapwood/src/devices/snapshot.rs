//! A snapshot as a block device.

use export::{Block, BlockDevice, Extent};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use vault::{OpenSnapshot, VaultError};

/// A snapshot as a block device.
pub struct SnapshotDevice {
    snapshot: OpenSnapshot,
    damaged: AtomicBool,
}

impl SnapshotDevice {
    /// Serves an open snapshot.
    pub fn new(snapshot: OpenSnapshot) -> Self {
        SnapshotDevice { snapshot, damaged: AtomicBool::new(false) }
    }

    /// Whether damage was met while it was read.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn failed(&self, e: VaultError) -> io::Error {
        self.damaged.fetch_or(e.is_damage(), Ordering::Relaxed);
        io::Error::other(e)
    }
}

impl BlockDevice for SnapshotDevice {
    fn size(&self) -> u64 {
        self.snapshot.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.snapshot.read_at(offset, buf).map_err(|e| self.failed(e))
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.snapshot.read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            // An overlay has whole sectors: those beyond the end of the snapshot are zeros.
            let data = if at < self.size() {
                self.snapshot.next_data(at).map_err(|e| self.failed(e))?
            } else {
                None
            };
            let data = data.filter(|d| d.start < range.end).unwrap_or(range.end..range.end);
            let hole = Extent { range: at..data.start, block: Block::Hole };
            let found = Extent { range: data.clone(), block: Block::Data };
            if (at < data.start && !each(hole)) || (!data.is_empty() && !each(found)) {
                break;
            }
            at = data.end;
        }
        Ok(())
    }
}

/// A snapshot as the base of an overlay or of a live restore.
pub struct SnapshotBase(pub Arc<SnapshotDevice>);

impl image::Base for SnapshotBase {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let inside = self.0.size().saturating_sub(offset).min(buf.len() as u64);
        let (data, behind) = buf.split_at_mut(inside as usize);
        behind.fill(0);
        if data.is_empty() {
            Ok(())
        } else {
            self.0.read_at(offset, data)
        }
    }
}

/// A snapshot as a disk with file systems on it.
pub struct SnapshotDisk(pub OpenSnapshot);

impl filesystem::Disk for SnapshotDisk {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> filesystem::Result<()> {
        self.0.read_at(offset, buf).map_err(|e| io::Error::other(e).into())
    }
}
