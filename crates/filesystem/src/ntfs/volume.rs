//! The volume, and reading it without reaching beyond its end.

use super::boot::Geometry;
use super::error::{damaged, Subject};
use crate::disk::Disk;
use crate::error::Result;
use std::sync::Arc;

/// A disk with the geometry of its boot sector.
pub(super) struct Volume {
    /// What it is read from.
    pub disk: Arc<dyn Disk>,
    /// What its boot sector says.
    pub geometry: Geometry,
}

impl Volume {
    /// How many clusters the disk has, whatever the boot sector says.
    pub fn clusters(&self) -> u64 {
        self.disk.size() / self.geometry.cluster_bytes
    }

    /// Reads what an object of the file system has there.
    pub fn read(&self, what: impl Subject, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.disk.size();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > size) {
            let why = format!("{:#x} bytes at {offset:#x} of a volume of {size:#x}", buf.len());
            return Err(damaged(what, why));
        }
        self.disk.read_at(offset, buf)
    }
}
