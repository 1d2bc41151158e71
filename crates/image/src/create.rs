//! Making the target of a disk by its path: a file, a device, or standard output.

use crate::disk::Target;
use crate::error::{ImageError, Result};
use crate::output::device::DeviceTarget;
use crate::output::options::{TargetFormat, TargetOptions};
use crate::output::partial::PartialFile;
use crate::output::pipe::PipeTarget;
use crate::output::raw::RawTarget;
use crate::qcow2::Qcow2Writer;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

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
        return Ok(Box::new(DeviceTarget::open(path, options)?));
    }
    let file = PartialFile::create(path, options)?;
    Ok(match options.format {
        TargetFormat::Raw => Box::new(RawTarget::create(file, options)?),
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
