//! A raw disk on a block device.

use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{seek, SeekFrom};

use super::options::TargetOptions;
use super::overwritten::{check_room, open, Overwritten};
use crate::disk::Target;
use crate::error::{ImageError, Result};
use crate::file::lock::{claim, Purpose};
use crate::file::zeros;

/// Writes a device. Bytes beyond the disk's size stay as they are.
#[derive(Debug)]
pub(crate) struct DeviceTarget(Overwritten);

impl DeviceTarget {
    /// Opens a device that nobody else uses.
    ///
    /// # Errors
    /// `Refused` without `options.overwrite`, where it is mounted, and where it is smaller than the disk; `InUse` where
    /// another process has it open.
    pub fn open(path: &Path, options: &TargetOptions) -> Result<Self> {
        let name = path.display().to_string();
        if !options.overwrite {
            return Err(ImageError::refused(
                &name,
                "is a block device, whose content would be lost; give --force if that is wanted",
            ));
        }
        let file = open(path, &name, true)?;
        if !options.allow_in_use {
            claim(&file, &name, Purpose::Replace)?;
        }
        let room = seek(&file, SeekFrom::End(0))
            .map_err(|e| ImageError::io(&name, "tell the size of the device", e.into()))?;
        check_room(&name, room, options.size)?;
        let refusal = "an earlier write failed, so that the device cannot be completed";
        Ok(DeviceTarget(Overwritten::new(name, file, options.size, refusal)))
    }
}

impl Target for DeviceTarget {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data, || self.0.file.write_all_at(data, offset))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish(|gap| zeros::zero(&self.0.file, gap))
    }
}
