//! `livedfs-a-mount` (LiveDFS 2011, experiments A1 to A3, through the mount): sequential write of unique data, sequential
//! read, a second write of the same data, and random reads, in a file of a pool and in one of ext4.
//!
//! Each begins with a file system that was just mounted, and an empty page cache. What makes the data is not timed; the
//! sync at the end of a write is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use serde::Serialize;

use crate::context::Context;
use crate::experiments::pools::blocks::Blocks;
use crate::experiments::pools::PoolsOptions;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::Random;
use crate::machine::cpu_seconds;
use crate::mounted::{self, DiskOptions, Kind, Mounted};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::check_interrupted;

/// Bytes of a sequential request.
const REQUEST_BYTES: usize = 1 << 20;
/// Threads of random reads that wait for the disk at once.
const READERS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    UniqueWrite,
    Read,
    DuplicateWrite,
    RandomRead,
    RandomReadManyAtOnce,
}

const WORKS: [(Work, &str, f64); 5] = [
    (Work::UniqueWrite, "sequential unique write", 0.9),
    (Work::Read, "sequential read", 0.9),
    (Work::DuplicateWrite, "sequential duplicate write", 2.2),
    (Work::RandomRead, "random 4 KiB reads, one at once", 0.7),
    (Work::RandomReadManyAtOnce, "random 4 KiB reads, 16 at once", 0.7),
];

/// One workload on one side in one run.
#[derive(Debug, Serialize)]
struct Measured {
    run: usize,
    side: Kind,
    work: Work,
    bytes: u64,
    /// All requests, and the sync.
    seconds: f64,
    /// The sync alone.
    sync_seconds: f64,
    /// Processor time of this process, and of the server.
    cpu_seconds: f64,
    server_cpu_seconds: f64,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions, disk: DiskOptions) -> Result<()> {
    let bytes = options.bytes(context, 4096, 16);
    context.require_free(4 * bytes)?;
    let seconds = if context.options.tiny { 0.1 } else { 5.0 };
    let blocks = Blocks::new(context.options.seed);
    let mut measured = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("mounts"))?;
        let mut sides = mounted::comparable(run)?
            .into_iter()
            .map(|kind| Mounted::create(context, kind, &home, 2 * bytes, disk))
            .collect::<Result<Vec<_>>>()?;
        for (work, ..) in WORKS {
            for side in &mut sides {
                // In the mount's cache, and in the device's.
                side.make_cold(context, 2 * bytes + (1 << 30))?;
                measured.push(measure(run, side, work, bytes, &blocks, seconds)?);
            }
        }
        drop(sides);
        fs::remove_dir_all(&home)?;
    }
    report(context, bytes, disk, &measured)
}

fn report(context: &Context, bytes: u64, disk: DiskOptions, measured: &[Measured]) -> Result<()> {
    let mut table =
        Table::new(["", "pool MB/s", "ext4 MB/s", "ratio", "CPU s pool", "of that the server", "CPU s ext4"]);
    let mut bars = Vec::new();
    for (work, name, limit) in WORKS {
        let of = |side: Kind| measured.iter().filter(move |m| m.work == work && m.side == side);
        let rates = |side| of(side).map(|m| mb_per_second(m.bytes, m.seconds));
        // Both of a run, then the median.
        let ratio = median(rates(Kind::Pool).zip(rates(Kind::Ext4)).map(|(pool, ext4)| pool / ext4));
        let server = |m: &Measured| m.server_cpu_seconds;
        table.row([
            name.to_owned(),
            figure(median(rates(Kind::Pool)), 0),
            figure(median(rates(Kind::Ext4)), 0),
            figure(ratio, 2),
            figure(median(of(Kind::Pool).map(|m| m.cpu_seconds + server(m))), 2),
            figure(median(of(Kind::Pool).map(server)), 2),
            figure(median(of(Kind::Ext4).map(|m| m.cpu_seconds)), 2),
        ]);
        bars.push(Bar::at_least(format!("{name}, times ext4"), ratio, limit));
    }
    let text = format!(
        "{} MiB, medians of {} runs, {}.\n\n{table}\n{}",
        bytes >> 20,
        context.runs(),
        disk.words(),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    #[derive(Serialize)]
    struct Parameters {
        bytes: u64,
        disk: String,
        request_bytes: usize,
    }
    let parameters = Parameters { bytes, disk: disk.words(), request_bytes: REQUEST_BYTES };
    context.save(context.runs(), parameters, Results { bars: &bars, measured }, &text)?;
    context.print(&text);
    Ok(())
}

fn measure(
    run: usize,
    side: &Mounted,
    work: Work,
    file_bytes: u64,
    blocks: &Blocks,
    seconds: f64,
) -> Result<Measured> {
    let place = side.place();
    let cpu = || -> Result<(f64, f64)> {
        let (user, system) = cpu_seconds("self")?;
        Ok((user + system, side.server_seconds()))
    };
    let before = cpu()?;
    let (bytes, seconds, sync_seconds) = match work {
        Work::UniqueWrite => write(&place.join("first"), file_bytes, blocks)?,
        Work::DuplicateWrite => write(&place.join("second"), file_bytes, blocks)?,
        Work::Read => read(&place.join("first"), file_bytes, blocks)?,
        Work::RandomRead => random_reads(&place.join("first"), file_bytes, blocks, 1, seconds)?,
        Work::RandomReadManyAtOnce => {
            random_reads(&place.join("first"), file_bytes, blocks, READERS, seconds)?
        }
    };
    let after = cpu()?;
    Ok(Measured {
        run,
        side: side.kind,
        work,
        bytes,
        seconds,
        sync_seconds,
        cpu_seconds: after.0 - before.0,
        server_cpu_seconds: after.1 - before.1,
    })
}

/// Returns bytes, seconds in all, and seconds of the sync.
fn write(path: &Path, bytes: u64, blocks: &Blocks) -> Result<(u64, f64, f64)> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut seconds = 0.0;
    for offset in (0..bytes).step_by(REQUEST_BYTES) {
        check_interrupted()?;
        blocks.fill(offset / BLOCK_BYTES as u64, &mut buffer);
        let start = Instant::now();
        file.write_all_at(&buffer, offset)?;
        seconds += start.elapsed().as_secs_f64();
    }
    let start = Instant::now();
    file.sync_data()?;
    let sync_seconds = start.elapsed().as_secs_f64();
    Ok((bytes, seconds + sync_seconds, sync_seconds))
}

fn read(path: &Path, bytes: u64, blocks: &Blocks) -> Result<(u64, f64, f64)> {
    let file = File::open(path)?;
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut seconds = 0.0;
    for offset in (0..bytes).step_by(REQUEST_BYTES) {
        check_interrupted()?;
        let start = Instant::now();
        file.read_exact_at(&mut buffer, offset)?;
        seconds += start.elapsed().as_secs_f64();
        if let Some(wrong) = blocks.first_wrong(offset / BLOCK_BYTES as u64, &buffer) {
            bail!("{}: block {wrong} is not what was written", path.display());
        }
    }
    Ok((bytes, seconds, 0.0))
}

/// Reads blocks at random for some seconds, by so many threads.
fn random_reads(
    path: &Path,
    bytes: u64,
    blocks: &Blocks,
    threads: usize,
    seconds: f64,
) -> Result<(u64, f64, f64)> {
    let file = File::open(path)?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let reader = |seed: u64| -> Result<u64> {
        let mut random = Random::new(seed);
        let mut buffer = vec![0; BLOCK_BYTES];
        let mut read = 0;
        while Instant::now() < end {
            check_interrupted()?;
            let block = random.below(bytes / BLOCK_BYTES as u64);
            file.read_exact_at(&mut buffer, block * BLOCK_BYTES as u64)?;
            if blocks.first_wrong(block, &buffer).is_some() {
                bail!("{}: block {block} is not what was written", path.display());
            }
            read += BLOCK_BYTES as u64;
        }
        Ok(read)
    };
    let read = thread::scope(|scope| -> Result<u64> {
        let readers: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(move || reader(seed))).collect();
        let results = readers.into_iter().map(|r| r.join().unwrap_or_else(|_| bail!("a reader panicked")));
        results.sum()
    })?;
    Ok((read, start.elapsed().as_secs_f64(), 0.0))
}
