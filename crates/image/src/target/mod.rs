//! Disks to write. A file appears under its name only when it is complete; see [`partial`].

mod device;
mod flusher;
mod partial;
mod pipe;
mod raw;
mod replaced;
mod written;

pub(crate) use partial::{PartialFile, FILE_MODE};
pub use pipe::PipeTarget;
pub use replaced::Replaced;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::qcow2::Qcow2Writer;
use crate::{ImageError, Result, Target};

/// How the target holds the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetFormat {
    /// The bytes as they are.
    #[default]
    Raw,
    /// qcow2 version 3.
    Qcow2,
}

/// What a target is to become.
#[derive(Debug, Clone, Copy, Default)]
pub struct TargetOptions<'a> {
    /// Size of the disk in bytes.
    pub size: u64,
    /// How the target holds it.
    pub format: TargetFormat,
    /// Whether a file that exists is replaced; devices are written only with this.
    pub overwrite: bool,
    /// Whether that is done, too, to a file or device that another process has open (QEMU's locks).
    pub allow_in_use: bool,
    /// The ranges that are going to be written, sorted by address. Room for them is reserved at once, in address
    /// order. A qcow2 target takes writes only in the 64 KiB clusters that these ranges touch; the others take
    /// writes anywhere.
    pub data: &'a [Range<u64>],
    /// Permissions of the file. Without them a file that is replaced passes its own on; others give everybody but owner and
    /// group nothing.
    pub mode: Option<u32>,
}

/// Makes the target at `path`; `-` is standard output.
///
/// A file is written as `NAME.sapwood-partial` beside its name and gets its name in [`Target::finish`]; until then a
/// file of that name stays as it was. The partial file goes away when the target is dropped unfinished.
///
/// # Errors
/// `Refused` where the path exists and `overwrite` is off, where a device is smaller than the disk or in use, and where
/// the path is no file or device. `InUse` where another process has open what would be lost. `Full` where the room for `data` is not there.
pub fn create_target(path: &Path, options: &TargetOptions) -> Result<Box<dyn Target>> {
    let name = path.display().to_string();
    check_ranges(&name, options)?;
    let is_device = fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    if options.mode.is_some() && (is_device || path.as_os_str() == "-") {
        return Err(ImageError::refused(&name, "only a file that is made takes permissions"));
    }
    if path.as_os_str() == "-" {
        if options.format != TargetFormat::Raw {
            return Err(ImageError::refused(
                "-",
                "only a raw disk can be written to standard output; name a file instead",
            ));
        }
        return Ok(Box::new(PipeTarget::stdout(options.size)?));
    }
    if is_device {
        if options.format != TargetFormat::Raw {
            return Err(ImageError::refused(
                &name,
                "only a raw disk can be written to a block device; name a file instead",
            ));
        }
        return Ok(Box::new(device::DeviceTarget::open(path, options)?));
    }
    let file = PartialFile::create(path, options)?;
    Ok(match options.format {
        TargetFormat::Raw => Box::new(raw::RawTarget::create(file, options)?),
        TargetFormat::Qcow2 => Box::new(Qcow2Writer::create(file, options)?),
    })
}

/// Refuses ranges that are out of order or outside the disk.
fn check_ranges(name: &str, options: &TargetOptions) -> Result<()> {
    let mut end = 0;
    for range in options.data {
        if range.start < end || range.end < range.start || range.end > options.size {
            return Err(ImageError::refused(
                name,
                format!(
                    "data range {}..{} is out of order or outside the disk of {} bytes",
                    range.start, range.end, options.size
                ),
            ));
        }
        end = range.end;
    }
    Ok(())
}

/// Refuses a write that ends behind the disk.
pub(crate) fn check_write(name: &str, size: u64, offset: u64, len: usize) -> Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ImageError::refused(
            name,
            format!("a write of {len} bytes at {offset} ends behind the disk of {size} bytes"),
        )),
    }
}
