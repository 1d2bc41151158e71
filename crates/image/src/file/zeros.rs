//! Zeroing a range of a file or a device.

use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The alignment at which a device is zeroed without writing: no logical sector in use is larger.
const ZERO_ALIGN: u64 = 4096;

/// Zeros to write where the device cannot be told to zero itself.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Writes zeros over `range`.
fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let n = (range.end - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

/// Makes `range` read as zeros, by the device itself where it can.
pub(crate) fn zero(file: &File, range: Range<u64>) -> io::Result<()> {
    make(file, range, FallocateFlags::ZERO_RANGE)
}

/// The same, and frees the space where that is possible.
pub(crate) fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    make(file, range, FallocateFlags::PUNCH_HOLE)
}

fn make(file: &File, range: Range<u64>, how: FallocateFlags) -> io::Result<()> {
    let inner = range.start.next_multiple_of(ZERO_ALIGN)..range.end / ZERO_ALIGN * ZERO_ALIGN;
    if inner.is_empty() {
        return write_zeros(file, range);
    }
    write_zeros(file, range.start..inner.start)?;
    let len = inner.end - inner.start;
    match fallocate(file, how | FallocateFlags::KEEP_SIZE, inner.start, len) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::NODEV | Errno::INTR) => {
            write_zeros(file, inner.clone())?;
        }
        Err(e) => return Err(e.into()),
    }
    write_zeros(file, inner.end..range.end)
}
