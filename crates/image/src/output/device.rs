//! A raw disk on a block device.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{seek, OFlags, SeekFrom};

use super::options::{check_write, TargetOptions};
use super::written::WrittenRanges;
use crate::disk::Target;
use crate::error::{ImageError, Result};
use crate::file::lock::{claim, Purpose};
use crate::file::zeros;

/// Writes a device. Bytes beyond the disk's size stay as they are.
#[derive(Debug)]
pub(crate) struct DeviceTarget {
    name: String,
    file: File,
    size: u64,
    written: Mutex<WrittenRanges>,
    failed: AtomicBool,
}

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
                "is a block device, whose content would be lost; let it be overwritten if that is wanted",
            ));
        }
        // O_EXCL on a device fails where it is mounted or part of another device.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits() as i32)
            .open(path)
            .map_err(|e| match e.kind() {
                io::ErrorKind::ResourceBusy => {
                    ImageError::refused(&name, "is in use: mounted, or part of another device")
                }
                _ => ImageError::io(&name, "open", e),
            })?;
        if !options.allow_in_use {
            claim(&file, &name, Purpose::Replace)?;
        }
        let room = seek(&file, SeekFrom::End(0))
            .map_err(|e| ImageError::io(&name, "tell the size of the device", e.into()))?;
        if room < options.size {
            return Err(ImageError::refused(
                &name,
                format!("the device has {room} bytes, and the disk has {}", options.size),
            ));
        }
        Ok(Self { name, file, size: options.size, written: Mutex::default(), failed: AtomicBool::new(false) })
    }

    /// Poisons the target when an operation failed: its content is unknown from then on.
    fn outcome(&self, op: &'static str, result: io::Result<()>) -> Result<()> {
        result.map_err(|e| {
            self.failed.store(true, Ordering::Release);
            ImageError::io(&self.name, op, e)
        })
    }

    fn check_whole(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(ImageError::refused(
                &self.name,
                "an earlier write failed, so that the device cannot be completed",
            ));
        }
        Ok(())
    }
}

impl Target for DeviceTarget {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_whole()?;
        check_write(&self.name, self.size, offset, data.len())?;
        self.outcome("write", self.file.write_all_at(data, offset))?;
        self.written.lock().add(offset..offset + data.len() as u64);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.check_whole()?;
        let gaps = self.written.lock().gaps(self.size);
        for gap in gaps {
            self.outcome("zero", zeros::zero(&self.file, gap))?;
        }
        self.outcome("sync", self.file.sync_all())
    }
}
