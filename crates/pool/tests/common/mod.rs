//! Small pools on a simulated disk, and what every test compares them with.
#![allow(clippy::unwrap_used, dead_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use format::pool::Geometry;
use pool::{Device, FsDevice, Options, Pool, Sharing};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::file_system::{Access, FileSystem};
use store::SimFs;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// The seed of a test, printed so that a failure can be seen again with `SAPWOOD_SEED`.
pub fn seed() -> u64 {
    let seed = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("SAPWOOD_SEED={seed}");
    seed
}

/// How much of something a test does: `SAPWOOD_POOL_…`, or what is usual.
pub fn budget(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|s| s.parse().ok()).unwrap_or(usual)
}

/// A random generator.
pub fn dice(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// The pool's file on a simulated disk, seen by a process.
pub fn device(fs: &SimFs, blocks: u64) -> FsDevice<SimFs> {
    let file = fs.open("pool", Access::Create).unwrap();
    let size = blocks * BLOCK as u64;
    if fs.metadata(&file).unwrap().len < size {
        fs.set_len(&file, size).unwrap();
        fs.sync(&file).unwrap();
    }
    FsDevice::new(fs.clone(), file, size)
}

/// An empty pool with groups of 256 blocks and a journal of so many.
pub fn make(fs: &SimFs, blocks: u64, journal: u32) {
    let geometry = Geometry::plan_with(blocks, 256, journal).unwrap();
    Pool::create_with(&device(fs, blocks), geometry).unwrap();
    fs.sync_dir("").unwrap();
}

/// A device that reports the blocks of each read before it happens.
pub struct Watched<F> {
    inner: FsDevice<SimFs>,
    on_read: F,
}

impl<F: Fn(Range<u64>) + Send + Sync> Watched<F> {
    /// The pool's file, with what is called for each read.
    pub fn new(fs: &SimFs, blocks: u64, on_read: F) -> Self {
        Watched { inner: device(fs, blocks), on_read }
    }
}

impl<F: Fn(Range<u64>) + Send + Sync> Device for Watched<F> {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let block = BLOCK as u64;
        (self.on_read)(offset / block..(offset + buf.len() as u64).div_ceil(block));
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// Opens it.
pub fn open(fs: &SimFs, blocks: u64) -> pool::Result<Arc<Pool>> {
    Pool::open(Box::new(device(fs, blocks)), Options { cache_bytes: 4 << 20, ..Options::default() })
}

/// A pool's findings must be none.
#[track_caller]
pub fn assert_whole(pool: &Pool) {
    pool.settle();
    let report = pool.check(true).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", &report.findings[..report.findings.len().min(10)]);
}

/// Content that comes again now and then: one of `kinds` blocks, or zeros.
pub fn content(dice: &mut StdRng, kinds: u64, block: &mut [u8]) {
    match dice.random_range(0..kinds + 1) {
        0 => block.fill(0),
        kind => {
            for (n, piece) in block.chunks_mut(8).enumerate() {
                let word = kind.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n as u64).to_le_bytes();
                piece.copy_from_slice(&word[..piece.len()]);
            }
        }
    }
}

/// Runs a scan to its end, in small steps. Returns how many blocks it read.
pub fn scan(pool: &Pool) -> u64 {
    let mut blocks = 0;
    loop {
        let step = pool.scan_step(64).unwrap();
        blocks += step.blocks;
        if step.is_end {
            return blocks;
        }
    }
}

/// A way of sharing; inline as often as all others.
pub fn sharing(dice: &mut StdRng) -> Sharing {
    match dice.random_range(0..4) {
        0 | 1 => Sharing::Inline,
        2 => Sharing::Background,
        _ => Sharing::Off,
    }
}
