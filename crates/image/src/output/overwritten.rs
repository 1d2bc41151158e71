//! A file or device on which a disk is written over what is there.
//!
//! Until it is complete, its content is neither the old nor the new one. After a failed operation the content is
//! unknown, so all later operations are refused.

use super::options::check_write;
use super::written::WrittenRanges;
use crate::error::{ImageError, Result};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens a file or device for reading and writing.
///
/// # Errors
/// `Refused` if it is a device that is mounted or part of another device.
pub(crate) fn open(path: &Path, name: &str, is_device: bool) -> Result<File> {
    // O_EXCL on a device fails where it is mounted or part of another device.
    let flags = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path);
    opened.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => ImageError::refused(
            name,
            "is in use: mounted, or part of another device; unmount it, or name another one",
        ),
        _ => ImageError::io(name, "open", e),
    })
}

/// Refuses a device that is smaller than the disk.
pub(crate) fn check_room(name: &str, device_bytes: u64, size: u64) -> Result<()> {
    if device_bytes < size {
        let why = format!("the device has {device_bytes} bytes, and the disk has {size}");
        return Err(ImageError::refused(name, why));
    }
    Ok(())
}

/// An opened file or device, what of the disk was written to it, and whether an operation failed.
#[derive(Debug)]
pub(crate) struct Overwritten {
    pub name: String,
    pub file: File,
    size: u64,
    written: Mutex<WrittenRanges>,
    failed: AtomicBool,
    /// Why it is refused after a failure.
    refusal: &'static str,
}

impl Overwritten {
    /// For a disk of `size` bytes. `refusal` says what to do after a failed operation.
    pub fn new(name: String, file: File, size: u64, refusal: &'static str) -> Self {
        let (written, failed) = (Mutex::default(), AtomicBool::new(false));
        Overwritten { name, file, size, written, failed, refusal }
    }

    /// The result of an operation. If it failed, this is poisoned.
    pub fn outcome<T>(&self, op: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|e| {
            self.failed.store(true, Ordering::Release);
            ImageError::io(&self.name, op, e)
        })
    }

    /// Writes a range with `write`.
    pub fn write_at(&self, offset: u64, data: &[u8], write: impl FnOnce() -> io::Result<()>) -> Result<()> {
        self.check_whole()?;
        check_write(&self.name, self.size, offset, data.len())?;
        self.outcome("write", write())?;
        self.written.lock().add(offset..offset + data.len() as u64);
        Ok(())
    }

    /// Makes what was not written zeros with `zero`, and all durable.
    pub fn finish(&self, zero: impl Fn(Range<u64>) -> io::Result<()>) -> Result<()> {
        self.check_whole()?;
        let gaps = self.written.lock().gaps(self.size);
        for gap in gaps {
            self.outcome("zero", zero(gap))?;
        }
        self.outcome("sync", self.file.sync_all())
    }

    fn check_whole(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(ImageError::refused(&self.name, self.refusal));
        }
        Ok(())
    }
}
