//! Where on the device the bytes of a file lie (FIEMAP).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use serde::Serialize;

/// A part of a file that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
}

const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// The file is synced before its extents are looked up.
const FLAG_SYNC: u32 = 1;
/// The last extent of the file.
const EXTENT_LAST: u32 = 1;
/// Unknown or delayed place, data in the inode, not written: nothing there that could be read.
const EXTENT_NOT_READ: u32 = 0x2 | 0x4 | 0x200 | 0x800;
const EXTENTS_AT_ONCE: usize = 256;

/// `struct fiemap_extent` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of the kernel, with room for extents.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_AT_ONCE],
}

const _: () = assert!(size_of::<RawExtent>() == 56);
const _: () = assert!(size_of::<Request>() == 32 + 56 * EXTENTS_AT_ONCE);

/// The extents of a file, in its order, without holes; `None` where the file system does not tell.
pub fn extents(file: &File) -> io::Result<Option<Vec<Extent>>> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: FLAG_SYNC,
            mapped_extents: 0,
            extent_count: EXTENTS_AT_ONCE as u32,
            reserved: 0,
            extents: [RawExtent::default(); EXTENTS_AT_ONCE],
        };
        // SAFETY: the descriptor is open for as long as `file` is borrowed. The kernel reads the 32 bytes before
        // `extents` and writes them and at most `extent_count` extents behind them, which is what `request` has room
        // for; all of its fields are integers, so that any bytes are valid.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &mut request) };
        if answer != 0 {
            let error = io::Error::last_os_error();
            let untold = [Errno::OPNOTSUPP, Errno::NOTTY, Errno::INVAL];
            return match Errno::from_io_error(&error) {
                Some(errno) if untold.contains(&errno) => Ok(None),
                _ => Err(error),
            };
        }
        let mapped = (request.mapped_extents as usize).min(EXTENTS_AT_ONCE);
        for raw in &request.extents[..mapped] {
            start = raw.logical + raw.length;
            if raw.flags & EXTENT_NOT_READ == 0 {
                let RawExtent { logical, physical, length, .. } = *raw;
                found.push(Extent { logical, physical, length });
            }
        }
        if mapped == 0 || request.extents[mapped - 1].flags & EXTENT_LAST != 0 {
            return Ok(Some(found));
        }
    }
}

/// The parts of `extents` (in the file's order) that a read of `range` of the file touches.
pub fn within(extents: &[Extent], range: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
    let first = extents.partition_point(|e| e.logical + e.length <= range.start);
    let touched = extents[first..].iter().take_while(move |e| e.logical < range.end);
    touched.map(move |e| {
        let from = e.logical.max(range.start);
        let to = (e.logical + e.length).min(range.end);
        Extent { logical: from, physical: e.physical + (from - e.logical), length: to - from }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn extents_cover_the_data_and_pass_over_holes() {
        let file = tempfile::tempfile().expect("file");
        file.write_all_at(&[1; 8192], 0).expect("write");
        file.write_all_at(&[1; 4096], 1 << 20).expect("write");
        let Some(found) = extents(&file).expect("ioctl") else {
            return testing::skip("FIEMAP on the temporary directory", "the file system does not support it");
        };
        assert_eq!(found.iter().map(|e| e.length).sum::<u64>(), 3 * 4096);
        assert!(found.iter().all(|e| e.logical < 8192 || e.logical == 1 << 20), "{found:?}");
    }

    #[test]
    fn a_read_touches_parts_of_extents() {
        let at = |logical, physical, length| Extent { logical, physical, length };
        let all = [at(0, 1000, 10), at(10, 5000, 10), at(40, 7000, 10)];
        let touched = |range| within(&all, range).collect::<Vec<_>>();
        assert_eq!(touched(2..12), [at(2, 1002, 8), at(10, 5000, 2)]);
        assert_eq!(touched(15..45), [at(15, 5005, 5), at(40, 7000, 5)]);
        assert_eq!(touched(20..40), []);
        assert_eq!(touched(0..50), all);
    }
}
