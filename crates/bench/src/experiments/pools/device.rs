//! A pool's device that counts what is asked of it by the area it is asked of, and can be cut off.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use format::pool::{Geometry, PoolBlock, BLOCK_BYTES};
use pool::{Device, FileDevice};
use serde::Serialize;

use super::blocks::MARK;

/// What is done where, in the order of the counters.
const WHAT: [&str; 10] = [
    "read journal",
    "write journal",
    "read catalog, summary, superblock",
    "write catalog, summary, superblock",
    "read filter",
    "write filter",
    "read fingerprint stores",
    "write fingerprint stores",
    "read data and maps",
    "write data and maps",
];

#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

/// What was asked of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// What, and of which area.
    pub what: &'static str,
    /// How often.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Seconds that callers waited, all threads.
    pub seconds: f64,
}

/// Counters, and the switch that cuts the device off.
#[derive(Default)]
pub struct Meter {
    counters: [Counter; WHAT.len()],
    syncs: Counter,
    is_cut: AtomicBool,
}

impl Meter {
    /// From now on nothing is written any more: for the file it is as if the process had been killed.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    /// What was asked since it was last asked.
    pub fn take(&self) -> Vec<Asked> {
        let named = WHAT.iter().copied().zip(&self.counters).chain([("sync", &self.syncs)]);
        named
            .map(|(what, counter)| Asked {
                what,
                calls: counter.calls.swap(0, Ordering::Relaxed),
                bytes: counter.bytes.swap(0, Ordering::Relaxed),
                seconds: counter.nanos.swap(0, Ordering::Relaxed) as f64 / 1e9,
            })
            .filter(|asked| asked.calls > 0)
            .collect()
    }
}

/// The device.
pub struct MeteredDevice {
    file: FileDevice,
    geometry: Geometry,
    meter: Arc<Meter>,
    /// Numbered blocks are not written: they take no space, and cannot be read.
    is_forgetful: bool,
}

impl MeteredDevice {
    /// Makes a sparse file for a pool of so many bytes, and an empty pool in it.
    pub fn create_pool(path: &Path, bytes: u64) -> Result<()> {
        pool::Pool::create(&FileDevice::create(path, bytes)?)?;
        Ok(())
    }

    /// Opens a pool's file.
    pub fn open(path: &Path) -> Result<(Self, Arc<Meter>)> {
        let file = FileDevice::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let geometry = Geometry::plan(file.size() / BLOCK_BYTES as u64)?;
        let meter = Arc::new(Meter::default());
        Ok((Self { file, geometry, meter: Arc::clone(&meter), is_forgetful: false }, meter))
    }

    /// Numbered blocks are counted, but not written.
    pub fn forgetful(self) -> Self {
        Self { is_forgetful: true, ..self }
    }

    /// Where everything lies.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn counter(&self, offset: u64, is_write: bool) -> &Counter {
        let block = PoolBlock(offset / BLOCK_BYTES as u64);
        let g = &self.geometry;
        let area = if block >= g.groups_start() {
            let within = (block.0 - g.groups_start().0) % u64::from(g.group_blocks);
            if within < u64::from(g.fingerprint_pages()) {
                3
            } else {
                4
            }
        } else if block >= g.filter_start(0) {
            2
        } else if block >= g.journal_start() && block < g.catalog_start() {
            0
        } else {
            1
        };
        &self.meter.counters[2 * area + usize::from(is_write)]
    }
}

fn counted(counter: &Counter, bytes: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    let done = work();
    counter.nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    counter.calls.fetch_add(1, Ordering::Relaxed);
    counter.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    done
}

impl Device for MeteredDevice {
    fn location(&self) -> String {
        self.file.location()
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        counted(self.counter(offset, false), buf.len(), || self.file.read_at(buf, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.meter.is_cut.load(Ordering::SeqCst) {
            return Err(io::Error::other("the device was cut off"));
        }
        let is_forgotten = self.is_forgetful && data.starts_with(&MARK);
        counted(self.counter(offset, true), data.len(), || {
            if is_forgotten {
                Ok(())
            } else {
                self.file.write_at(data, offset)
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        counted(&self.meter.syncs, 0, || self.file.sync())
    }
}
