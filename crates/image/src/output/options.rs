//! What to make: size, format and permissions of a target.

use crate::error::{ImageError, Result};
use std::ops::Range;

/// How the target holds the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetFormat {
    /// The bytes as they are.
    #[default]
    Raw,
    /// qcow2 version 3.
    Qcow2,
}

/// What to make of a target.
#[derive(Debug, Clone, Copy, Default)]
pub struct TargetOptions<'a> {
    /// Size of the disk in bytes.
    pub size: u64,
    /// How the target holds it.
    pub format: TargetFormat,
    /// Whether a file that exists is replaced; devices are written only with this.
    pub overwrite: bool,
    /// Whether to overwrite even a file or device that another process has open (QEMU's locks).
    pub allow_in_use: bool,
    /// The ranges that are going to be written, sorted by address. Room for them is reserved at once, in address
    /// order. A qcow2 target takes writes only in the 64 KiB clusters that these ranges touch; the others take
    /// writes anywhere.
    pub data: &'a [Range<u64>],
    /// Permissions of the file. `None`: those of the file that is replaced, or 640 less the umask for a new one.
    pub mode: Option<u32>,
}

/// Refuses a write that ends beyond the disk.
pub(crate) fn check_write(name: &str, size: u64, offset: u64, len: usize) -> Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ImageError::refused(
            name,
            format!("a write of {len} bytes at {offset} ends beyond the disk of {size} bytes"),
        )),
    }
}
