//! `paulo-6.5` and `paulo-6.7` (Paulo 2009, sections 6.3 and 6.4): writes and reads of virtual machines, to volumes that share
//! in the background and to volumes that do not share.
//!
//! Each machine has a volume, and writers with a part of it each. A run measures both sides, in turns. The oracle keeps what
//! was written last to each block.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use pool::{FileDevice, Options, Pool, Scanning, Sharing, Volume};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::MeteredDevice;
use super::tpcc::{classes, Class, Contents, NuRand};
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::Random;
use crate::machine::cpu_seconds;
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

const MACHINES: u64 = 3;
const WRITERS: u64 = 4;
const BACKGROUND: &str = "background";
const OFF: &str = "off";
/// Rounds of reads of a run, both sides in each.
const READ_ROUNDS: usize = 4;
/// How long background sharing may take to finish.
const SHARING_TIME: Duration = Duration::from_secs(600);

/// Options of these two.
#[derive(clap::Args, Clone, Debug)]
pub struct PauloOptions {
    #[command(flatten)]
    pool: PoolsOptions,
    /// Duplicates as `sapwood study --json` has found them, instead of those of the paper
    #[arg(long, value_name = "FILE")]
    study: Option<PathBuf>,
    /// Blocks that each writer writes; reads as many in `paulo-6.7`
    #[arg(long, value_name = "N")]
    blocks: Option<u64>,
    /// Blocks a second that all writers write together, as the disk of the paper allowed 2,952; as many as they can without it
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// What background sharing reads in a second, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    share_mib: u64,
}

/// One side of one run, or of one round of reads.
#[derive(Debug, Serialize)]
struct Measured {
    run: usize,
    side: &'static str,
    blocks: u64,
    seconds: f64,
    /// Of one request, seconds.
    latency: f64,
    cpu_seconds: f64,
    /// Of the background: what was shared when the writers ended.
    shared_meanwhile: u64,
}

/// What sharing found, beside the oracle.
#[derive(Debug, Serialize)]
struct Found {
    run: usize,
    /// Blocks that were written.
    mapped: u64,
    /// Different ones.
    different: u64,
    /// Blocks that are stored when all had been cold.
    stored: u64,
    seconds: f64,
}

struct Work<'a> {
    context: &'a Context,
    blocks: &'a Blocks,
    classes: &'a [Class],
    options: &'a PauloOptions,
    /// Bytes of all volumes together.
    bytes: u64,
    /// Requests of each writer.
    requests: u64,
}

/// A pool of one side, and what is in it.
struct Side {
    name: &'static str,
    pool: Arc<Pool>,
    volumes: Vec<Arc<Volume>>,
    /// What was written last to each block, of each volume; 0: nothing.
    last: Vec<Vec<u64>>,
}

impl<'a> Work<'a> {
    fn new(
        context: &'a Context,
        blocks: &'a Blocks,
        classes: &'a [Class],
        options: &'a PauloOptions,
    ) -> Result<Self> {
        let bytes = options.pool.bytes(context, 6144, 24);
        let requests = options.blocks.unwrap_or(if context.options.tiny { 200 } else { 60_000 });
        context.require_free(4 * MACHINES * WRITERS * requests * BLOCK_BYTES as u64 + (2 << 30))?;
        Ok(Work { context, blocks, classes, options, bytes, requests })
    }

    fn volume_blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64 / MACHINES / WRITERS * WRITERS
    }

    fn make(&self, home: &Path, name: &'static str) -> Result<Side> {
        let path = home.join(name);
        MeteredDevice::create_pool(&path, 2 * self.bytes + (512 << 20))?;
        let (sharing, scanning) = match name {
            BACKGROUND => {
                let pause = Duration::from_secs(1);
                (
                    Sharing::Background,
                    Some(Scanning { bytes_per_second: self.options.share_mib << 20, pause }),
                )
            }
            _ => (Sharing::Off, None),
        };
        let pool =
            Pool::open(Box::new(FileDevice::open(&path)?), Options { scanning, ..Options::default() })?;
        let mut volumes = Vec::new();
        for n in 0..MACHINES {
            let name = format!("vm{n}");
            pool.create_volume(&name, self.volume_blocks() * BLOCK_BYTES as u64, sharing)?;
            volumes.push(pool.volume(&name)?);
        }
        let last = vec![vec![0; self.volume_blocks() as usize]; MACHINES as usize];
        Ok(Side { name, pool, volumes, last })
    }

    /// All writers, at once. `each` does a request for the block of a volume and tells what it wrote.
    fn requests(
        &self,
        side: &Side,
        seed: u64,
        each: impl Fn(&Volume, u64, u64, u64, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<(f64, f64)> {
        let part = self.volume_blocks() / WRITERS;
        let start = Barrier::new((MACHINES * WRITERS) as usize + 1);
        let interval = self.options.rate.map(|rate| (MACHINES * WRITERS) as f64 / rate);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (machine, volume) in side.volumes.iter().enumerate() {
                for writer in 0..WRITERS {
                    let (each, start) = (&each, &start);
                    threads.push(scope.spawn(move || -> Result<f64> {
                        let mut random = Random::new(seed ^ (machine as u64) << 8 ^ writer);
                        let nurand = NuRand::new(part, &mut random);
                        let mut buffer = vec![0; BLOCK_BYTES];
                        start.wait();
                        let begun = Instant::now();
                        let mut waited = 0.0;
                        for n in 0..self.requests {
                            let block = writer * part + nurand.next(&mut random);
                            if let Some(interval) = interval {
                                let due = begun + Duration::from_secs_f64(interval * n as f64);
                                let rest = due.saturating_duration_since(Instant::now());
                                waited += rest.as_secs_f64();
                                thread::sleep(rest);
                            }
                            each(volume, machine as u64, block, writer * self.requests + n, &mut buffer)?;
                        }
                        Ok((begun.elapsed().as_secs_f64() - waited) / self.requests as f64)
                    }));
                }
            }
            start.wait();
            let begun = Instant::now();
            let mut latency = 0.0;
            for thread in threads {
                let one = thread.join().map_err(|_| anyhow::anyhow!("a writer ended unexpectedly"))??;
                latency += one / (MACHINES * WRITERS) as f64;
            }
            Ok((begun.elapsed().as_secs_f64(), latency))
        })
    }

    /// Writes to one side, and syncs.
    fn write(&self, side: &mut Side, run: usize) -> Result<Measured> {
        let seed = self.context.options.seed ^ (run as u64) << 32;
        let mut random = Random::new(seed);
        let contents = Contents::new(self.classes, MACHINES * WRITERS * self.requests, &mut random);
        let number = |machine: u64, n: u64| contents.number(machine * WRITERS * self.requests + n) + 1;
        let cpu = cpu_seconds("self")?;
        let begun = Instant::now();
        let (_, latency) = self.requests(side, seed, |volume, machine, block, n, buffer| {
            self.blocks.fill(number(machine, n), buffer);
            Ok(volume.write_at(block * BLOCK_BYTES as u64, buffer)?)
        })?;
        side.pool.flush()?;
        let seconds = begun.elapsed().as_secs_f64();
        let shared_meanwhile = side.pool.stats().scans.shared_blocks;
        let used = cpu_seconds("self")?;
        // The same again, without writing.
        let part = self.volume_blocks() / WRITERS;
        for machine in 0..MACHINES {
            for writer in 0..WRITERS {
                let mut random = Random::new(seed ^ machine << 8 ^ writer);
                let nurand = NuRand::new(part, &mut random);
                for n in 0..self.requests {
                    let block = writer * part + nurand.next(&mut random);
                    side.last[machine as usize][block as usize] = number(machine, writer * self.requests + n);
                }
            }
        }
        Ok(Measured {
            run,
            side: side.name,
            blocks: MACHINES * WRITERS * self.requests,
            seconds,
            latency,
            cpu_seconds: used.0 + used.1 - cpu.0 - cpu.1,
            shared_meanwhile,
        })
    }

    /// Reads from one side.
    fn read(&self, side: &Side, run: usize, round: usize) -> Result<Measured> {
        let cpu = cpu_seconds("self")?;
        let seed = self.context.options.seed ^ (run as u64) << 32 ^ (round as u64) << 40 ^ 1;
        let (seconds, latency) = self.requests(side, seed, |volume, _, block, _, buffer| {
            Ok(volume.read_at(block * BLOCK_BYTES as u64, buffer)?)
        })?;
        let used = cpu_seconds("self")?;
        Ok(Measured {
            run,
            side: side.name,
            blocks: MACHINES * WRITERS * self.requests,
            seconds,
            latency,
            cpu_seconds: used.0 + used.1 - cpu.0 - cpu.1,
            shared_meanwhile: 0,
        })
    }

    /// Waits until background sharing has looked at everything, and compares it with the oracle.
    fn settle(&self, side: &Side, run: usize) -> Result<Found> {
        let begun = Instant::now();
        while side.pool.usage()?.unshared_bytes > 0 {
            check_interrupted()?;
            if begun.elapsed() > SHARING_TIME {
                break;
            }
            thread::sleep(Duration::from_millis(500));
        }
        let written = || side.last.iter().flatten().filter(|number| **number != 0);
        let different: HashSet<u64> = written().copied().collect();
        let usage = side.pool.usage()?;
        Ok(Found {
            run,
            mapped: written().count() as u64,
            different: different.len() as u64,
            stored: usage.stored_bytes / BLOCK_BYTES as u64,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    /// Every block is what was written last.
    fn verify(&self, side: &Side) -> Result<()> {
        let mut buffer = vec![0; BLOCK_BYTES];
        for (volume, last) in side.volumes.iter().zip(&side.last) {
            for (block, number) in last.iter().enumerate() {
                volume.read_at((block * BLOCK_BYTES) as u64, &mut buffer)?;
                let is_right = match number {
                    0 => buffer.iter().all(|byte| *byte == 0),
                    number => self.blocks.first_wrong(*number, &buffer).is_none(),
                };
                if !is_right {
                    bail!("{}: block {block} of {} is not what was written last", side.name, volume.name());
                }
            }
        }
        Ok(())
    }
}

/// Runs `paulo-6.5`.
pub fn write(context: &Context, options: &PauloOptions) -> Result<()> {
    let (blocks, classes) = (Blocks::new(context.options.seed), classes(options.study.as_deref())?);
    let work = Work::new(context, &blocks, &classes, options)?;
    let (mut measured, mut found) = (Vec::new(), Vec::new());
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("paulo"))?;
        let mut order = [BACKGROUND, OFF];
        order.rotate_left(run % 2);
        for name in order {
            check_interrupted()?;
            let mut side = work.make(&home, name)?;
            context.make_cold(&home)?;
            measured.push(work.write(&mut side, run)?);
            if name == BACKGROUND {
                found.push(work.settle(&side, run)?);
            }
            work.verify(&side)?;
            let Side { pool, volumes, .. } = side;
            drop(volumes);
            pool.close()?;
            drop(pool);
            fs::remove_file(home.join(name))?;
        }
    }
    let saved = |f: &Found| f.mapped.saturating_sub(f.stored) as f64;
    let of_oracle = median(found.iter().map(|f| saved(f) / (f.mapped - f.different).max(1) as f64));
    let bars = [
        Bar::at_least("writes with background sharing, times those without", ratio(&measured), 0.96),
        Bar::at_least("saved, times what an oracle finds", of_oracle, 0.95),
        Bar::shown("saved, of what was written", median(found.iter().map(|f| saved(f) / f.mapped as f64))),
        Bar::shown(
            "blocks shared while writers wrote, many of them overwritten later, times those saved in the end",
            median(
                found
                    .iter()
                    .zip(measured.iter().filter(|m| m.side == BACKGROUND))
                    .map(|(f, m)| m.shared_meanwhile as f64 / saved(f).max(1.0)),
            ),
        ),
    ];
    report(&work, &bars, &measured, &found)
}

/// Runs `paulo-6.7`.
pub fn read(context: &Context, options: &PauloOptions) -> Result<()> {
    let (blocks, classes) = (Blocks::new(context.options.seed), classes(options.study.as_deref())?);
    let work = Work::new(context, &blocks, &classes, options)?;
    let (mut measured, mut found) = (Vec::new(), Vec::new());
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("paulo"))?;
        let mut sides = Vec::new();
        for name in [BACKGROUND, OFF] {
            let mut side = work.make(&home, name)?;
            work.write(&mut side, run)?;
            if name == BACKGROUND {
                found.push(work.settle(&side, run)?);
            }
            // Both are in the page cache from here on.
            work.verify(&side)?;
            sides.push(side);
        }
        for round in 0..READ_ROUNDS {
            for n in 0..sides.len() {
                check_interrupted()?;
                let side = &sides[(n + round + run) % sides.len()];
                measured.push(work.read(side, run * READ_ROUNDS + round, round)?);
            }
        }
        for Side { pool, volumes, .. } in sides {
            drop(volumes);
            pool.close()?;
        }
        fs::remove_dir_all(&home)?;
    }
    let bars =
        [Bar::at_least("reads of volumes with shared blocks, times those without", ratio(&measured), 0.99)];
    report(&work, &bars, &measured, &found)
}

/// The median over runs of throughput with sharing in the background by that without.
fn ratio(measured: &[Measured]) -> Option<f64> {
    let of = |side: &'static str| measured.iter().filter(move |m| m.side == side);
    let pair = |m: &Measured| {
        let other = of(OFF).find(|other| other.run == m.run)?;
        Some(other.seconds / m.seconds)
    };
    median(of(BACKGROUND).filter_map(pair))
}

fn report(work: &Work<'_>, bars: &[Bar], measured: &[Measured], found: &[Found]) -> Result<()> {
    let mut table = Table::new(["", BACKGROUND, OFF]);
    let of = |side: &'static str, value: &dyn Fn(&Measured) -> f64| {
        median(measured.iter().filter(|m| m.side == side).map(value))
    };
    let mut row = |what: &str, digits: usize, value: &dyn Fn(&Measured) -> f64| {
        table.row([what.to_owned(), figure(of(BACKGROUND, value), digits), figure(of(OFF, value), digits)]);
    };
    row("blocks a second", 0, &|m| m.blocks as f64 / m.seconds);
    row("latency, µs", 1, &|m| m.latency * 1e6);
    row("processor, s", 2, &|m| m.cpu_seconds);
    row("seconds", 2, &|m| m.seconds);
    let mut oracle = Table::new(["run", "written blocks", "different", "stored", "s until all were shared"]);
    for f in found {
        oracle.row([
            (f.run + 1).to_string(),
            f.mapped.to_string(),
            f.different.to_string(),
            f.stored.to_string(),
            format!("{:.1}", f.seconds),
        ]);
    }
    let text = format!(
        "{MACHINES} machines with {WRITERS} writers, {} blocks each, medians of {} runs.\n\n{table}\n{oracle}\n{}",
        work.requests,
        work.context.runs(),
        bars_table(bars)
    );
    #[derive(Serialize)]
    struct Parameters<'a> {
        bytes: u64,
        requests: u64,
        rate: Option<f64>,
        share_mib: u64,
        classes: &'a [Class],
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
        found: &'a [Found],
    }
    let PauloOptions { rate, share_mib, .. } = *work.options;
    let parameters =
        Parameters { bytes: work.bytes, requests: work.requests, rate, share_mib, classes: work.classes };
    work.context.save(work.context.runs(), parameters, Results { bars, measured, found }, &text)?;
    work.context.print(&text);
    Ok(())
}
