//! `livedfs-mem` (LiveDFS 2011, section 2.2): the memory of the fingerprint filter, and the time until it is complete after
//! a full pool was opened, from its checkpoint and, where there is none, from all fingerprint stores.
//!
//! The pool is full of made-up blocks. The device does not write them: only what the pool writes about them takes space.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, Context as _, Result};
use pool::{Options, Pool, PoolError, Sharing};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::{Asked, Meter, MeteredDevice};
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

const REQUEST_BYTES: usize = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;
const CHECKPOINT: &str = "closed: from the checkpoint";
const STORES: &str = "killed, no checkpoint: from all fingerprint stores";

/// One opening.
#[derive(Debug, Serialize)]
struct Opening {
    run: usize,
    what: &'static str,
    /// Until volumes can be used.
    seconds: f64,
    /// Until the filter is complete.
    filter_seconds: f64,
    entries: u64,
    /// Memory of the filter, as it counts it.
    filter_bytes: u64,
    /// What the process has more than before it opened the pool.
    resident_bytes: i64,
    device: Vec<Asked>,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions) -> Result<()> {
    let size = options.bytes(context, 128 << 10, 512);
    context.require_free(size / 16)?;
    let home = files::fresh_dir(&context.space().join("filter"))?;
    let path = home.join("pool");
    MeteredDevice::create_pool(&path, size)?;
    eprintln!("filling a pool of {} GiB", size >> 30);
    let start = Instant::now();
    let data_bytes = fill(&path, context.options.seed)?;
    let fill_seconds = start.elapsed().as_secs_f64();
    let mut openings = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        // It was cut off before it had a checkpoint: this opening is cut off as well, so that the next one finds the same.
        openings.push(opening(context, run, STORES, &path, true)?);
    }
    opening(context, 0, STORES, &path, false)?;
    for run in 0..context.runs() {
        openings.push(opening(context, run, CHECKPOINT, &path, false)?);
    }
    let of = |what: &str, value: fn(&Opening) -> f64| {
        median(openings.iter().filter(|o| o.what == what).map(value))
    };
    let scale = (512u64 << 30) as f64 / size as f64;
    let per_tib = |o: &Opening, bytes: f64| bytes / o.entries.max(1) as f64 * (1u64 << 28) as f64 / GIB;
    let memory = median(openings.iter().map(|o| per_tib(o, o.filter_bytes as f64)));
    let resident = median(openings.iter().map(|o| per_tib(o, o.resident_bytes as f64)));
    let mut bars = vec![
        Bar::at_most("GiB of filter for 1 TiB of blocks of 4 KiB, as the filter counts it", memory, 2.0),
        Bar::shown("the same, all memory that opening the pool takes", resident),
    ];
    let mut table = Table::new([
        "opened",
        "volumes usable after s",
        "filter complete after s",
        "scaled to 512 GiB",
        "entries",
        "filter MiB",
        "memory MiB",
    ]);
    for what in [STORES, CHECKPOINT] {
        let filter_seconds = of(what, |o| o.filter_seconds);
        table.row([
            what.to_owned(),
            figure(of(what, |o| o.seconds), 3),
            figure(filter_seconds, 2),
            figure(filter_seconds.map(|s| s * scale), 1),
            figure(of(what, |o| o.entries as f64), 0),
            figure(of(what, |o| o.filter_bytes as f64 / (1 << 20) as f64), 0),
            figure(of(what, |o| o.resident_bytes as f64 / (1 << 20) as f64), 0),
        ]);
        let what = format!(
            "seconds until the filter of 512 GiB is complete, scaled from {:.1} GiB; {what}",
            size as f64 / GIB
        );
        bars.push(Bar::at_most(what, filter_seconds.map(|s| s * scale), 30.0));
    }
    let text = format!(
        "A pool of {:.1} GiB with {:.1} GiB of different blocks, filled in {fill_seconds:.0} s.\n\n{table}\n{}",
        size as f64 / GIB,
        data_bytes as f64 / GIB,
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        openings: &'a [Opening],
        fill_seconds: f64,
    }
    context.save(context.runs(), size, Results { bars: &bars, openings: &openings, fill_seconds }, &text)?;
    context.print(&text);
    fs::remove_dir_all(home)?;
    Ok(())
}

fn open(path: &Path) -> Result<(Arc<Pool>, Arc<Meter>)> {
    let (device, meter) = MeteredDevice::open(path)?;
    Ok((Pool::open(Box::new(device.forgetful()), Options::default())?, meter))
}

/// Fills a pool, flushes it and cuts it off. Returns the bytes of its volume.
fn fill(path: &Path, seed: u64) -> Result<u64> {
    let (pool, meter) = open(path)?;
    let blocks = Blocks::new(seed);
    // A leaf of the map for 512 blocks, and what leads to leaves.
    let free = pool.stats().free_bytes;
    let bytes = (free - free / 500 - (1 << 20)) / REQUEST_BYTES as u64 * REQUEST_BYTES as u64;
    pool.create_volume("full", bytes, Sharing::Inline)?;
    let volume = pool.volume("full")?;
    let mut buffer = vec![0; REQUEST_BYTES];
    for at in (0..bytes).step_by(REQUEST_BYTES) {
        check_interrupted()?;
        blocks.fill(at / BLOCK_BYTES as u64, &mut buffer);
        match volume.write_at(at, &buffer) {
            Err(PoolError::Full) => bail!("the pool was full at {at} of {bytes} bytes"),
            done => done?,
        }
    }
    volume.flush()?;
    drop(volume);
    meter.cut();
    // It fails: it was cut off.
    let _ = pool.close();
    Ok(bytes)
}

fn opening(context: &Context, run: usize, what: &'static str, path: &Path, cut: bool) -> Result<Opening> {
    context.empty_cache(path)?;
    let before = resident_bytes()?;
    let start = Instant::now();
    let (pool, meter) = open(path)?;
    let seconds = start.elapsed().as_secs_f64();
    pool.settle();
    let filter_seconds = start.elapsed().as_secs_f64();
    let device = meter.take();
    let resident_bytes = resident_bytes()? - before;
    let stats = pool.stats();
    if cut {
        meter.cut();
        let _ = pool.close();
    } else {
        pool.close()?;
    }
    let (entries, filter_bytes) = (stats.filter_entries, stats.filter_bytes);
    Ok(Opening { run, what, seconds, filter_seconds, entries, filter_bytes, resident_bytes, device })
}

fn resident_bytes() -> Result<i64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<i64>()? * 1024)
}
