//! `pool-scale`: volumes of one pool that are written by a thread each. As many as there are cores are compared with one, and
//! sixteen with as many as there are cores, and with sixteen on one core.
//!
//! What this machine's cores can do is measured beside it: threads that make the same data, hash and copy it, with nothing in
//! common. Memory is what they share.
//!
//! A profile tells where threads wait: voluntary switches are waits for a lock or the device, the rest of the time that a
//! thread is not on a core it waits for one.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use pool::{Device, FileDevice, Options, Pool, Sharing};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::MeteredDevice;
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::machine::cpu_seconds;
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

const MANY: usize = 16;
/// Blocks of a request.
const REQUEST_BLOCKS: u64 = 16;

/// Options of `pool-scale`.
#[derive(clap::Args, Clone, Debug)]
pub struct ScaleOptions {
    #[command(flatten)]
    pools: PoolsOptions,
    /// Block device on which the pools are made, instead of a file. What is on it is lost
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Data is counted and not written: what the pool itself costs
    #[arg(long, conflicts_with = "device")]
    forget: bool,
}

/// So many writers, in one run.
#[derive(Debug, Serialize)]
struct Measured {
    run: usize,
    writers: usize,
    /// That the writers and the pool's own threads may use; the system's threads use all.
    cores: usize,
    bytes: u64,
    seconds: f64,
    /// Of all writers.
    cpu_seconds: f64,
    /// How often writers waited for a lock or the device.
    waits: u64,
    /// How often they were sent off their core.
    preempted: u64,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &ScaleOptions) -> Result<()> {
    let bytes = options.pools.bytes(context, 1024, 16);
    if let Some(device) = &options.device {
        let is_device = fs::metadata(device)?.file_type().is_block_device();
        ensure!(is_device, "{} is not a block device", device.display());
    } else if !options.forget {
        context.require_free(2 * bytes + (1 << 30))?;
    }
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let mut counts = vec![(1, cores), (cores, cores), (MANY, cores), (MANY, 1)];
    counts.dedup();
    let blocks = Blocks::new(context.options.seed);
    let mut measured = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let mut order = counts.clone();
        let first = run % order.len();
        order.rotate_left(first);
        for (writers, on) in order {
            check_interrupted()?;
            let _there = on_cores(on)?;
            measured.push(Measured { cores: on, ..measure(context, options, run, writers, bytes, &blocks)? });
        }
    }
    let place = match &options.device {
        Some(device) => device.display().to_string(),
        None if options.forget => "nowhere".to_owned(),
        None => "a file".to_owned(),
    };
    let alone = (0..context.runs())
        .map(
            |_| Ok(alone(cores, bytes, options.forget, &blocks)? / alone(1, bytes, options.forget, &blocks)?),
        )
        .collect::<Result<Vec<f64>>>()?;
    report(context, (bytes, place), cores, &counts, &measured, median(alone))
}

fn report(
    context: &Context,
    (bytes, place): (u64, String),
    cores: usize,
    counts: &[(usize, usize)],
    measured: &[Measured],
    alone: Option<f64>,
) -> Result<()> {
    let of = |(writers, on)| measured.iter().filter(move |m| m.writers == writers && m.cores == on);
    let rate = |m: &Measured| m.bytes as f64 / 1e6 / m.seconds;
    let ratio = |many, few| median(of(many).zip(of(few)).map(|(many, few)| rate(many) / rate(few)));
    let mut table = Table::new([
        "writers",
        "cores",
        "MB/s",
        "CPU s",
        "of the cores' time",
        "waits a request",
        "sent off",
    ]);
    for (writers, on) in counts {
        let value = |value: &dyn Fn(&Measured) -> f64| median(of((*writers, *on)).map(value));
        let part = |m: &Measured| m.cpu_seconds / (m.seconds * m.cores.min(m.writers) as f64);
        let requests = (bytes / BLOCK_BYTES as u64 / REQUEST_BLOCKS) as f64;
        table.row([
            writers.to_string(),
            on.to_string(),
            figure(value(&rate), 0),
            figure(value(&|m| m.cpu_seconds), 2),
            figure(value(&part), 2),
            figure(value(&|m| m.waits as f64 / requests), 3),
            figure(value(&|m| m.preempted as f64), 0),
        ]);
    }
    let of_cores = cores as f64;
    let bars = [
        Bar::at_least(
            format!("{cores} writers, times one"),
            ratio((cores, cores), (1, cores)),
            0.8 * of_cores,
        ),
        Bar::at_least(
            format!("{MANY} writers on {cores} cores, times those on one"),
            ratio((MANY, cores), (MANY, 1)),
            0.8 * of_cores,
        ),
        Bar::at_least(format!("{MANY} writers, times {cores}"), ratio((MANY, cores), (cores, cores)), 0.95),
        Bar::shown(format!("the work alone with nothing in common, {cores} threads, times one"), alone),
    ];
    let text = format!(
        "{} MiB in all, written to {place}, medians of {} runs.\n\n{table}\n{}",
        bytes >> 20,
        context.runs(),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Parameters<'a> {
        bytes: u64,
        place: &'a str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    context.save(
        context.runs(),
        Parameters { bytes, place: &place },
        Results { bars: &bars, measured },
        &text,
    )?;
    context.print(&text);
    Ok(())
}

fn measure(
    context: &Context,
    options: &ScaleOptions,
    run: usize,
    writers: usize,
    bytes: u64,
    blocks: &Blocks,
) -> Result<Measured> {
    let home = files::fresh_dir(&context.space().join("scale"))?;
    let path = options.device.clone().unwrap_or_else(|| home.join("pool"));
    match &options.device {
        Some(device) => Pool::create(&FileDevice::open_to_replace(device)?)?,
        None => MeteredDevice::create_pool(&path, bytes + bytes / 8 + (512 << 20))?,
    }
    let device: Box<dyn Device> = if options.forget {
        Box::new(MeteredDevice::open(&path)?.0.forgetful())
    } else {
        Box::new(FileDevice::open(&path)?)
    };
    let pool = Pool::open(device, Options::default())?;
    let own = bytes / writers as u64 / BLOCK_BYTES as u64 / REQUEST_BLOCKS * REQUEST_BLOCKS;
    for n in 0..writers {
        pool.create_volume(&format!("v{n}"), own.max(1) * BLOCK_BYTES as u64, Sharing::Inline)?;
    }
    context.make_cold(&home)?;
    let barrier = Barrier::new(writers + 1);
    let (seconds, threads) = thread::scope(|scope| -> Result<_> {
        let mut threads = Vec::new();
        for n in 0..writers {
            let (pool, barrier) = (&pool, &barrier);
            threads.push(scope.spawn(move || -> Result<(f64, u64, u64)> {
                let volume = pool.volume(&format!("v{n}"))?;
                let mut buffer = vec![0; REQUEST_BLOCKS as usize * BLOCK_BYTES];
                barrier.wait();
                let before = (thread_cpu_seconds()?, switches()?);
                for first in (0..own).step_by(REQUEST_BLOCKS as usize) {
                    blocks.fill(n as u64 * own + first, &mut buffer);
                    volume.write_at(first * BLOCK_BYTES as u64, &buffer)?;
                }
                let after = switches()?;
                Ok((thread_cpu_seconds()? - before.0, after.0 - before.1 .0, after.1 - before.1 .1))
            }));
        }
        barrier.wait();
        let start = Instant::now();
        let mut all = Vec::new();
        for thread in threads {
            all.push(thread.join().map_err(|_| anyhow::anyhow!("a writer ended unexpectedly"))??);
        }
        pool.flush()?;
        Ok((start.elapsed().as_secs_f64(), all))
    })?;
    pool.close()?;
    fs::remove_dir_all(&home)?;
    Ok(Measured {
        run,
        writers,
        cores: 0,
        bytes: own * writers as u64 * BLOCK_BYTES as u64,
        seconds,
        cpu_seconds: threads.iter().map(|t| t.0).sum(),
        waits: threads.iter().map(|t| t.1).sum(),
        preempted: threads.iter().map(|t| t.2).sum(),
    })
}

/// Bytes a second of threads that make blocks, hash them, and copy them unless `forget`, each by itself.
fn alone(threads: usize, bytes: u64, forget: bool, blocks: &Blocks) -> Result<f64> {
    /// Beyond all caches.
    const COPIES_BYTES: usize = 128 << 20;
    const REQUEST_BYTES: usize = REQUEST_BLOCKS as usize * BLOCK_BYTES;
    let own = bytes / threads as u64 / BLOCK_BYTES as u64 / REQUEST_BLOCKS * REQUEST_BLOCKS;
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| -> Result<f64> {
        let mut all = Vec::new();
        for n in 0..threads as u64 {
            let barrier = &barrier;
            all.push(scope.spawn(move || {
                let mut buffer = vec![0; REQUEST_BYTES];
                let mut copies = vec![1; if forget { 0 } else { COPIES_BYTES }];
                let lengths = [BLOCK_BYTES as u32; REQUEST_BLOCKS as usize];
                let mut found = Vec::new();
                barrier.wait();
                for first in (0..own).step_by(REQUEST_BLOCKS as usize) {
                    blocks.fill(n * own + first, &mut buffer);
                    found.clear();
                    chunk::fingerprints(&buffer, &lengths, &mut found);
                    let at = first as usize * BLOCK_BYTES % COPIES_BYTES;
                    if let Some(copy) = copies.get_mut(at..at + REQUEST_BYTES) {
                        copy.copy_from_slice(&buffer);
                    }
                    std::hint::black_box((&found, &copies));
                }
            }));
        }
        barrier.wait();
        let start = Instant::now();
        for thread in all {
            thread.join().map_err(|_| anyhow::anyhow!("a thread ended unexpectedly"))?;
        }
        Ok((own * threads as u64 * BLOCK_BYTES as u64) as f64 / start.elapsed().as_secs_f64())
    })
}

/// Lets this thread, and those that it starts, run on the first cores only, until this is dropped.
struct OnCores(CpuSet);

fn on_cores(count: usize) -> Result<OnCores> {
    let before = sched_getaffinity(None)?;
    let mut some = CpuSet::new();
    let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu));
    allowed.take(count).for_each(|cpu| some.set(cpu));
    sched_setaffinity(None, &some)?;
    Ok(OnCores(before))
}

impl Drop for OnCores {
    fn drop(&mut self) {
        // It was so before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// How often this thread has waited, and was sent off its core.
fn switches() -> Result<(u64, u64)> {
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let number = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("no {name}"))?.trim().parse()?)
    };
    Ok((number("voluntary_ctxt_switches:")?, number("nonvoluntary_ctxt_switches:")?))
}

fn thread_cpu_seconds() -> Result<f64> {
    cpu_seconds("thread-self").map(|(user, system)| user + system)
}
