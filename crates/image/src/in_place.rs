//! A raw disk in a file or on a device that is there: only what differs is written.

use crate::disk::Target;
use crate::error::{ImageError, Result};
use crate::file::lock::{claim, Purpose};
use crate::file::zeros;
use crate::open::format::{Content, Format, HEAD_BYTES};
use crate::output::overwritten::{check_room, open, Overwritten};
use rustix::fs::{seek, SeekFrom};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What is compared, and written, as a whole.
const BLOCK_BYTES: usize = 4096;
/// Bytes of a file that are looked at in one go.
const PIECE_BYTES: u64 = 1 << 20;

/// Opens what is at `path` to make it a disk of `size` bytes. `changed` counts the bytes that are written or made zeros.
///
/// Until [`Target::finish`] has returned, the disk is neither what it was nor what it is to be.
///
/// # Errors
/// `Refused` where the path is no raw file or device, or a device is smaller than the disk, or mounted; `InUse` where
/// another process has it open.
pub fn open_in_place(path: &Path, size: u64, changed: Arc<AtomicU64>) -> Result<Box<dyn Target>> {
    let name = path.display().to_string();
    let kind = std::fs::metadata(path).map_err(|e| ImageError::io(&name, "open", e))?.file_type();
    let is_device = kind.is_block_device();
    if !is_device && !kind.is_file() {
        return Err(ImageError::refused(&name, "is neither a file nor a block device"));
    }
    let file = open(path, &name, is_device)?;
    claim(&file, &name, Purpose::Replace)?;
    let length =
        seek(&file, SeekFrom::End(0)).map_err(|e| ImageError::io(&name, "tell the size of", e.into()))?;
    if is_device {
        check_room(&name, length, size)?;
    }
    let refusal = "an earlier write failed, so that the disk cannot be completed; run it again";
    let target = InPlace { disk: Overwritten::new(name, file, size, refusal), is_device, changed };
    target.check_raw(length)?;
    if !is_device && length != size {
        target.disk.outcome("set the size of", target.disk.file.set_len(size))?;
    }
    Ok(Box::new(target))
}

/// A disk that is made another one.
struct InPlace {
    disk: Overwritten,
    is_device: bool,
    changed: Arc<AtomicU64>,
}

impl InPlace {
    /// Refuses an image: its blocks are not those of the disk.
    fn check_raw(&self, length: u64) -> Result<()> {
        let Overwritten { name, file, .. } = &self.disk;
        let mut head = vec![0; HEAD_BYTES.min(length as usize)];
        file.read_exact_at(&mut head, 0).map_err(|e| ImageError::io(name, "read", e))?;
        let what = match Content::of_head(&head) {
            Content::Disk(Format::Raw) => return Ok(()),
            Content::Disk(format) => format.name(),
            Content::Container(what) => what,
        };
        let why = format!(
            "begins like {what}, and only a raw disk can be restored in place; without --in-place, --force replaces it"
        );
        Err(ImageError::refused(name, why))
    }

    /// Writes the blocks of `data` that are not there.
    fn write_differing(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut there = vec![0; data.len()];
        self.disk.file.read_exact_at(&mut there, offset)?;
        for run in differing(&there, data) {
            self.disk.file.write_all_at(&data[run.clone()], offset + run.start as u64)?;
            self.changed.fetch_add(run.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the parts of a range zeros that are not.
    fn clear(&self, range: Range<u64>) -> io::Result<()> {
        let file = &self.disk.file;
        let zeros = vec![0; PIECE_BYTES as usize];
        let mut there = vec![0; PIECE_BYTES as usize];
        let mut at = range.start;
        while at < range.end {
            if !self.is_device {
                // Holes need not be read.
                match seek(file, SeekFrom::Data(at)) {
                    Ok(data) if data >= range.end => return Ok(()),
                    Ok(data) => at = at.max(data),
                    Err(rustix::io::Errno::NXIO) => return Ok(()),
                    // The file system does not tell.
                    Err(_) => {}
                }
            }
            let n = (range.end - at).min(PIECE_BYTES) as usize;
            file.read_exact_at(&mut there[..n], at)?;
            for run in differing(&there[..n], &zeros[..n]) {
                let of_disk = at + run.start as u64..at + run.end as u64;
                if self.is_device {
                    zeros::zero(file, of_disk)?;
                } else {
                    zeros::punch(file, of_disk)?;
                }
                self.changed.fetch_add(run.len() as u64, Ordering::Relaxed);
            }
            at += n as u64;
        }
        Ok(())
    }
}

/// The runs of blocks in which two buffers of one length differ.
fn differing(a: &[u8], b: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (n, (x, y)) in a.chunks(BLOCK_BYTES).zip(b.chunks(BLOCK_BYTES)).enumerate() {
        if x == y {
            continue;
        }
        let start = n * BLOCK_BYTES;
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = start + x.len(),
            _ => runs.push(start..start + x.len()),
        }
    }
    runs
}

impl Target for InPlace {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.disk.write_at(offset, data, || self.write_differing(offset, data))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.disk.finish(|gap| self.clear(gap))
    }
}
