//! `livedfs-a4` (LiveDFS 2011, experiment A4): the time that opening a pool takes after its process was killed, after 16 GB
//! were written to it, for pools of two sizes.
//!
//! The process is not killed: its device is cut off at some moment, in the middle of a write, and what it has in memory is
//! thrown away. The file is then as after a kill. The page cache is emptied before the pool is opened.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use pool::{Options, Pool, PoolError, Sharing, Volume};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::{Asked, Meter, MeteredDevice};
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::Random;
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

const REQUEST_BYTES: usize = 1 << 20;
/// Requests between two flushes.
const FLUSH_EVERY: u64 = 64;
const LIMIT_SECONDS: f64 = 2.0;

/// One opening after a crash.
#[derive(Debug, Serialize)]
struct Opening {
    pool_bytes: u64,
    run: usize,
    /// Written before, since the pool was made.
    written_bytes: u64,
    /// Until volumes can be used.
    seconds: f64,
    /// Until the filter is complete.
    filter_seconds: f64,
    /// Bytes that a flush had acknowledged, compared with what was written.
    compared_bytes: u64,
    /// What opening asked of the device.
    device: Vec<Asked>,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions) -> Result<()> {
    let bytes = options.bytes(context, 16_000_000_000 >> 20, 64);
    let sizes: [u64; 2] = if context.options.tiny { [1 << 30, 16 << 30] } else { [64 << 30, 1 << 40] };
    context.require_free(2 * bytes)?;
    let mut openings = Vec::new();
    for size in sizes {
        measure(context, size, bytes, &mut openings)?;
    }
    let of = |size: u64, value: fn(&Opening) -> f64| {
        median(openings.iter().filter(|o| o.pool_bytes == size).map(value))
    };
    let most =
        |size: u64| openings.iter().filter(|o| o.pool_bytes == size).map(|o| o.seconds).reduce(f64::max);
    let mut table = Table::new([
        "pool GiB",
        "openings",
        "median s",
        "most s",
        "journal MB read",
        "filter complete after s",
    ]);
    let mut bars = Vec::new();
    for size in sizes {
        table.row([
            (size >> 30).to_string(),
            openings.iter().filter(|o| o.pool_bytes == size).count().to_string(),
            figure(of(size, |o| o.seconds), 3),
            figure(most(size), 3),
            figure(of(size, |o| journal_bytes(o) as f64 / 1e6), 1),
            figure(of(size, |o| o.filter_seconds), 2),
        ]);
        bars.push(Bar::at_most(
            format!("seconds to open after a kill, {} GiB", size >> 30),
            most(size),
            LIMIT_SECONDS,
        ));
    }
    let text = format!(
        "{:.1} GB written before the first crash.\n\n{table}\n{}",
        bytes as f64 / 1e9,
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        openings: &'a [Opening],
    }
    context.save(context.runs(), bytes, Results { bars: &bars, openings: &openings }, &text)?;
    context.print(&text);
    Ok(())
}

fn journal_bytes(opening: &Opening) -> u64 {
    opening.device.iter().filter(|asked| asked.what == "read journal").map(|asked| asked.bytes).sum()
}

fn measure(context: &Context, size: u64, bytes: u64, openings: &mut Vec<Opening>) -> Result<()> {
    eprintln!("a pool of {} GiB", size >> 30);
    let home = files::fresh_dir(&context.space().join("recovery"))?;
    let path = home.join("pool");
    MeteredDevice::create_pool(&path, size)?;
    let blocks = Blocks::new(context.options.seed);
    let mut random = Random::new(context.options.seed);
    let (mut pool, mut meter) = open(&path)?;
    // Each crash comes after some more writes.
    let more = bytes / 16;
    let volume_bytes = bytes + (context.runs() as u64 + 1) * more;
    pool.create_volume("disk", volume_bytes.next_multiple_of(REQUEST_BYTES as u64), Sharing::Inline)?;
    let mut written = 0;
    for run in 0..context.runs() {
        let aim = bytes + run as u64 * more;
        written = write_until_cut(&pool, &meter, &blocks, written..aim, random.below(300))?;
        drop(pool);
        files::sync_file_system(&home)?;
        context.empty_cache(&path)?;
        let start = Instant::now();
        (pool, meter) = open(&path)?;
        let seconds = start.elapsed().as_secs_f64();
        let device = meter.take();
        pool.settle();
        let filter_seconds = start.elapsed().as_secs_f64();
        let compared_bytes = compare(&*pool.volume("disk")?, &blocks, written)?;
        openings.push(Opening {
            pool_bytes: size,
            run,
            written_bytes: aim,
            seconds,
            filter_seconds,
            compared_bytes,
            device,
        });
    }
    pool.close()?;
    drop(pool);
    fs::remove_dir_all(home)?;
    Ok(())
}

fn open(path: &Path) -> Result<(Arc<Pool>, Arc<Meter>)> {
    let (device, meter) = MeteredDevice::open(path)?;
    Ok((Pool::open(Box::new(device), Options::default())?, meter))
}

/// Writes a range, then goes on writing until the device is cut off. Returns how far flushes were acknowledged.
fn write_until_cut(
    pool: &Arc<Pool>,
    meter: &Meter,
    blocks: &Blocks,
    range: std::ops::Range<u64>,
    cut_after_ms: u64,
) -> Result<u64> {
    let volume = pool.volume("disk")?;
    let (mut flushed, mut at) = (range.start, range.start);
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut write = |at: u64| -> Result<bool> {
        check_interrupted()?;
        blocks.fill(at / BLOCK_BYTES as u64, &mut buffer);
        let done = volume.write_at(at, &buffer).and_then(|()| {
            let end = at + REQUEST_BYTES as u64;
            if end / REQUEST_BYTES as u64 % FLUSH_EVERY == 0 {
                volume.flush()?;
                flushed = end;
            }
            Ok(())
        });
        match done {
            Ok(()) => Ok(true),
            Err(PoolError::Io { .. } | PoolError::Failed(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    while at < range.end {
        if !write(at)? {
            bail!("a write failed before the device was cut off");
        }
        at += REQUEST_BYTES as u64;
    }
    let end = volume.size();
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(cut_after_ms));
            meter.cut();
        });
        while at < end && write(at)? {
            at += REQUEST_BYTES as u64;
        }
        Ok(())
    })?;
    drop(volume);
    // Its threads end, and the file's lock with them. It fails: it was cut off.
    let _ = pool.close();
    Ok(flushed)
}

/// Compares the last of what was flushed.
fn compare(volume: &Volume, blocks: &Blocks, end: u64) -> Result<u64> {
    let start = end.saturating_sub(256 << 20);
    let mut buffer = vec![0; REQUEST_BYTES];
    for at in (start..end).step_by(REQUEST_BYTES) {
        volume.read_at(at, &mut buffer)?;
        if let Some(wrong) = blocks.first_wrong(at / BLOCK_BYTES as u64, &buffer) {
            bail!("block {wrong} was flushed before the crash, and is not what was written");
        }
    }
    Ok(end - start)
}
