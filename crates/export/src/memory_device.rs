//! A device in memory that can be told to fail, and to wait.

use crate::device::{Block, BlockDevice, Extent};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

pub const BLOCK: u64 = 4096;

pub struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Blocks that were given back.
    holes: Mutex<Vec<bool>>,
    pub writable: bool,
    pub flushes: AtomicU64,
    /// What every request fails with.
    pub fails: Mutex<Option<io::Error>>,
    /// Reads at or behind this offset fail.
    pub bad_from: AtomicU64,
    /// Nothing is known of what blocks hold.
    pub silent: AtomicBool,
    /// What has changed since the state called `b0`; an error for one called `lost`.
    pub changed_since_b0: Vec<Range<u64>>,
    /// Each write takes a millisecond.
    pub slow: AtomicBool,
    /// Reads that begin at offset 0 wait while this is set; how many do.
    held: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Memory {
    pub fn new(size: u64) -> Memory {
        Memory {
            bytes: Mutex::new((0..size).map(byte).collect()),
            holes: Mutex::new(vec![false; size.div_ceil(BLOCK) as usize]),
            writable: true,
            flushes: AtomicU64::new(0),
            fails: Mutex::new(None),
            bad_from: AtomicU64::new(u64::MAX),
            silent: AtomicBool::new(false),
            changed_since_b0: Vec::new(),
            slow: AtomicBool::new(false),
            held: Mutex::new((false, 0)),
            changed: Condvar::new(),
        }
    }

    pub fn read_only(size: u64) -> Memory {
        Memory { writable: false, ..Memory::new(size) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    pub fn fail(&self, with: Option<io::Error>) {
        *self.fails.lock().unwrap() = with;
    }

    /// Makes a block a hole.
    pub fn punch(&self, block: u64) {
        let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        self.bytes.lock().unwrap()[range].fill(0);
        self.holes.lock().unwrap()[block as usize] = true;
    }

    /// Reads at offset 0 wait from now on.
    pub fn hold(&self) {
        self.held.lock().unwrap().0 = true;
    }

    /// They go on.
    pub fn release(&self) {
        self.held.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    /// Reads that wait.
    pub fn waiting(&self) -> usize {
        self.held.lock().unwrap().1
    }

    fn check(&self) -> io::Result<()> {
        self.fails.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

/// What a byte is at first.
pub fn byte(at: u64) -> u8 {
    (at / 512).wrapping_mul(37).wrapping_add(at) as u8 | 1
}

impl BlockDevice for Memory {
    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset == 0 {
            let mut held = self.held.lock().unwrap();
            held.1 += 1;
            held = self.changed.wait_while(held, |h| h.0).unwrap();
            held.1 -= 1;
        }
        self.check()?;
        if offset + buf.len() as u64 > self.bad_from.load(Ordering::SeqCst) {
            return Err(io::Error::other("a bad sector"));
        }
        let at = offset as usize;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[at..at + buf.len()]);
        Ok(())
    }

    /// Some are ready, some are not.
    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        offset % 1024 == 512 && self.read_at(offset, buf).is_ok()
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.check()?;
        if self.silent.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (bytes, holes) = (self.bytes(), self.holes.lock().unwrap().clone());
        let mut at = range.start;
        while at < range.end {
            let block = at / BLOCK;
            // The last one may reach beyond the range, and the device.
            let end = (block + 1) * BLOCK;
            let is_zero = bytes[at as usize..bytes.len().min(end as usize)].iter().all(|b| *b == 0);
            let block = match (holes[block as usize], is_zero) {
                (true, true) => Block::Hole,
                (false, true) => Block::Zeros,
                _ => Block::Data,
            };
            if !each(Extent { range: at..end, block }) {
                break;
            }
            at = end;
        }
        Ok(())
    }

    fn earlier(&self) -> Vec<String> {
        let all = ["b0", "lost", "unlike"].map(String::from);
        if self.changed_since_b0.is_empty() {
            Vec::new()
        } else {
            all.into()
        }
    }

    fn changed_since(&self, earlier: &str) -> io::Result<Option<Vec<Range<u64>>>> {
        match earlier {
            "b0" if !self.changed_since_b0.is_empty() => Ok(Some(self.changed_since_b0.clone())),
            "lost" => Err(io::Error::other("a bad sector")),
            _ => Ok(None),
        }
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        if self.slow.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let at = offset as usize;
        self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn zero(&self, range: Range<u64>, release: bool) -> io::Result<()> {
        self.check()?;
        self.bytes.lock().unwrap()[range.start as usize..range.end as usize].fill(0);
        let mut holes = self.holes.lock().unwrap();
        for block in range.start.div_ceil(BLOCK)..range.end / BLOCK {
            holes[block as usize] = release;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.check()?;
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
