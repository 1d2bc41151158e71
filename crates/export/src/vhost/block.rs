//! A request of a guest, and how it is carried out (virtio 1.2, section 5.2.6).

use super::config::{RANGES_MAX, SECTOR_BYTES};
use super::ring::Chain;
use crate::device::BlockDevice;
use std::io::{self, Read, Write};
use std::ops::Range;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::{Reader, Writer};

/// Reads up to this length that need no waiting are answered before the next request is taken.
const QUICK_BYTES: usize = 32 << 10;
/// Longer requests are carried out in pieces of this size, so that memory is bounded.
const PIECE_BYTES: usize = 1 << 20;
/// A range to discard or to zero.
const RANGE_BYTES: usize = 16;

/// A disk as its clients see it.
pub(super) struct Disk<'a> {
    /// What it is.
    pub device: &'a dyn BlockDevice,
    /// What it is called.
    pub name: &'a str,
    /// The guest does not flush: each write must be durable when it is done.
    pub writes_through: bool,
}

/// A request whose parts were found.
struct Request<'a> {
    kind: u32,
    sector: u64,
    /// What the guest sends.
    input: Reader<'a>,
    /// What the guest is sent.
    output: Writer<'a>,
    status: Writer<'a>,
}

/// What came of a request.
pub(super) struct Outcome {
    /// Bytes that were written into the guest's memory.
    pub written: u32,
    /// Why it failed.
    pub failure: Option<String>,
}

/// A request that cannot be answered.
pub(super) struct Unanswerable(pub String);

/// A request that fails: the status that the guest is told, and why.
struct Failure(u32, String);

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure(VIRTIO_BLK_S_IOERR, e.to_string())
    }
}

/// Answers a small read that needs no waiting. Returns how many bytes were written into the guest's memory, or `None` if it is
/// no such read.
pub(super) fn answer_quickly(disk: &Disk, chain: &Chain, buf: &mut Vec<u8>) -> Option<u32> {
    let mut r = Request::parse(chain).ok()?;
    let len = r.output.available_bytes();
    if r.kind != VIRTIO_BLK_T_IN || len == 0 || len > QUICK_BYTES {
        return None;
    }
    let range = r.range(disk, len).ok()?;
    buf.resize(len, 0);
    if !disk.device.read_ready(range.start, buf) {
        return None;
    }
    r.output.write_all(buf).ok()?;
    r.status.write_all(&[VIRTIO_BLK_S_OK as u8]).ok()?;
    Some(len as u32 + 1)
}

/// Carries a request out.
pub(super) fn carry_out(disk: &Disk, chain: &Chain, buf: &mut Vec<u8>) -> Result<Outcome, Unanswerable> {
    let mut r = Request::parse(chain)?;
    let done = r.carry_out(disk, buf);
    let (status, failure) = match done {
        Ok(()) => (VIRTIO_BLK_S_OK, None),
        Err(Failure(status, why)) => (status, Some(r.describe(&why))),
    };
    r.status.write_all(&[status as u8]).map_err(|e| Unanswerable(e.to_string()))?;
    Ok(Outcome { written: r.output.bytes_written() as u32 + 1, failure })
}

impl<'a> Request<'a> {
    fn parse(chain: &'a Chain) -> Result<Request<'a>, Unanswerable> {
        let memory = chain.memory();
        let broken = |what: &str| Unanswerable(format!("a request {what}"));
        let outside = |_| broken("outside of the guest's memory");
        let mut input = chain.clone().reader(memory).map_err(outside)?;
        let mut output = chain.clone().writer(memory).map_err(outside)?;
        let mut head = [0; 16];
        input.read_exact(&mut head).map_err(|_| broken("without a header"))?;
        let status_at = output.available_bytes().checked_sub(1).ok_or_else(|| broken("without a status"))?;
        let status = output.split_at(status_at).map_err(|_| broken("without a status"))?;
        Ok(Request { kind: u32_at(&head, 0), sector: u64_at(&head, 8), input, output, status })
    }

    fn carry_out(&mut self, disk: &Disk, buf: &mut Vec<u8>) -> Result<(), Failure> {
        let device = disk.device;
        match self.kind {
            VIRTIO_BLK_T_IN => {
                let range = self.range(disk, self.output.available_bytes())?;
                return in_pieces(range, |at, len| {
                    buf.resize(len, 0);
                    device.read_at(at, buf)?;
                    self.output.write_all(buf)
                });
            }
            VIRTIO_BLK_T_GET_ID => {
                let id: Vec<u8> = disk
                    .name
                    .bytes()
                    .chain(std::iter::repeat(0))
                    .take(VIRTIO_BLK_ID_BYTES as usize)
                    .collect();
                let len = self.output.available_bytes().min(id.len());
                return Ok(self.output.write_all(&id[..len])?);
            }
            VIRTIO_BLK_T_FLUSH => return Ok(device.flush()?),
            VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {}
            _ => return Err(Failure(VIRTIO_BLK_S_UNSUPP, "is not known here".into())),
        }
        if !device.is_writable() {
            return Err(Failure(VIRTIO_BLK_S_IOERR, "the disk is read-only".into()));
        }
        if self.kind == VIRTIO_BLK_T_OUT {
            let range = self.range(disk, self.input.available_bytes())?;
            in_pieces(range, |at, len| {
                buf.resize(len, 0);
                self.input.read_exact(buf)?;
                device.write_at(at, buf)
            })?;
        } else {
            for (range, flags) in self.ranges(disk)? {
                match (self.kind, flags) {
                    (VIRTIO_BLK_T_DISCARD, 0) => device.discard(range)?,
                    (VIRTIO_BLK_T_WRITE_ZEROES, 0) => device.zero(range, false)?,
                    (VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) => {
                        device.zero(range, true)?
                    }
                    _ => return Err(Failure(VIRTIO_BLK_S_UNSUPP, "has a flag that it cannot have".into())),
                }
            }
        }
        if disk.writes_through {
            device.flush()?;
        }
        Ok(())
    }

    /// The range of a request with so much data.
    fn range(&self, disk: &Disk, len: usize) -> Result<Range<u64>, Failure> {
        range(disk, self.sector, len as u64)
    }

    /// The ranges of a request that discards or zeroes, and their flags.
    fn ranges(&mut self, disk: &Disk) -> Result<Vec<(Range<u64>, u32)>, Failure> {
        let len = self.input.available_bytes();
        if len == 0 || len % RANGE_BYTES != 0 || len / RANGE_BYTES > RANGES_MAX {
            return Err(Failure(VIRTIO_BLK_S_UNSUPP, format!("has {len} bytes of ranges")));
        }
        let mut bytes = vec![0; len];
        self.input.read_exact(&mut bytes)?;
        let ranges = bytes.chunks_exact(RANGE_BYTES).map(|r| {
            let len = u64::from(u32_at(r, 8)) * SECTOR_BYTES;
            Ok((range(disk, u64_at(r, 0), len)?, u32_at(r, 12)))
        });
        let ranges: Result<Vec<_>, Failure> = ranges.collect();
        Ok(ranges?.into_iter().filter(|(range, _)| !range.is_empty()).collect())
    }

    fn describe(&self, why: &str) -> String {
        let what = match self.kind {
            VIRTIO_BLK_T_IN => "read",
            VIRTIO_BLK_T_OUT => "write",
            VIRTIO_BLK_T_FLUSH => "flush",
            VIRTIO_BLK_T_DISCARD => "discard",
            VIRTIO_BLK_T_WRITE_ZEROES => "write zeros",
            kind => return format!("request of type {kind}: {why}"),
        };
        format!("{what} at sector {}: {why}", self.sector)
    }
}

fn range(disk: &Disk, sector: u64, len: u64) -> Result<Range<u64>, Failure> {
    let start = sector.checked_mul(SECTOR_BYTES);
    let range = start.and_then(|start| Some(start..start.checked_add(len)?));
    match range {
        Some(_) if len % SECTOR_BYTES != 0 => {
            Err(Failure(VIRTIO_BLK_S_IOERR, format!("{len} bytes are not whole sectors")))
        }
        Some(range) if range.end <= disk.device.size() => Ok(range),
        _ => Err(Failure(VIRTIO_BLK_S_IOERR, "is beyond the end of the disk".into())),
    }
}

/// Does something for each piece of a range: its offset and its length.
fn in_pieces(range: Range<u64>, mut each: impl FnMut(u64, usize) -> io::Result<()>) -> Result<(), Failure> {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(PIECE_BYTES as u64) as usize;
        each(at, len)?;
        at += len as u64;
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}
