//! `livedfs-a` (LiveDFS 2011, experiments A1 to A3): sequential write of unique data, sequential read, and a second write
//! of the same data, to a volume of a pool in a file, and to a plain file of the same file system.
//!
//! Each begins with an empty page cache, reads and second writes with a pool that was just opened. What makes the data is
//! not timed; the sync at the end of a write is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, Context as _, Result};
use pool::{Options, Pool, Sharing, Stages};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::{Asked, Meter, MeteredDevice};
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::machine::cpu_seconds;
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::check_interrupted;

/// Bytes of a request.
const REQUEST_BYTES: usize = 1 << 20;
const UNIQUE: &str = "livedfs-a1 sequential unique write";
const READ: &str = "livedfs-a2 sequential read";
const DUPLICATE: &str = "livedfs-a3 sequential duplicate write";
const PHASES: [(&str, f64); 3] = [(UNIQUE, 0.96), (READ, 0.97), (DUPLICATE, 2.2)];
const POOL: &str = "pool";
const PLAIN: &str = "plain file";

/// One phase of one run.
#[derive(Debug, Serialize)]
struct Phase {
    run: usize,
    phase: &'static str,
    side: &'static str,
    bytes: u64,
    /// All requests, and the sync.
    seconds: f64,
    /// The sync alone.
    sync_seconds: f64,
    /// Processor time of this process meanwhile.
    user_seconds: f64,
    system_seconds: f64,
    /// Of a pool: where the time of writes went.
    stages: Vec<(&'static str, f64)>,
    /// Of a pool: what was asked of the file.
    device: Vec<Asked>,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions) -> Result<()> {
    let bytes = options.bytes(context, 4096, 16);
    context.require_free(4 * bytes)?;
    let blocks = Blocks::new(context.options.seed);
    let mut phases = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        measure(context, run, bytes, &blocks, &mut phases)?;
    }
    let rate = |phase: &str, side: &str| {
        let of = phases.iter().filter(|p| p.phase == phase && p.side == side);
        median(of.map(|p| mb_per_second(p.bytes, p.seconds)))
    };
    let ratio = |phase: &str| {
        median((0..context.runs()).filter_map(|run| {
            let seconds = |side: &str| {
                phases.iter().find(|p| p.run == run && p.phase == phase && p.side == side).map(|p| p.seconds)
            };
            Some(seconds(PLAIN)? / seconds(POOL)?)
        }))
    };
    let bars: Vec<Bar> = PHASES
        .iter()
        .map(|(phase, limit)| Bar::at_least(format!("{phase}, times a plain file"), ratio(phase), *limit))
        .collect();
    let mut table =
        Table::new(["", "pool MB/s", "plain file MB/s", "CPU s pool", "CPU s plain", "sync s pool", "plain"]);
    for (phase, _) in PHASES {
        let of = |side: &'static str, value: fn(&Phase) -> f64| {
            median(phases.iter().filter(|p| p.phase == phase && p.side == side).map(value))
        };
        let cpu = |p: &Phase| p.user_seconds + p.system_seconds;
        table.row([
            phase.to_owned(),
            figure(rate(phase, POOL), 0),
            figure(rate(phase, PLAIN), 0),
            figure(of(POOL, cpu), 2),
            figure(of(PLAIN, cpu), 2),
            figure(of(POOL, |p| p.sync_seconds), 2),
            figure(of(PLAIN, |p| p.sync_seconds), 2),
        ]);
    }
    let text = format!(
        "{} MiB, medians of {} runs.\n\n{table}\n{}\n{}",
        bytes >> 20,
        context.runs(),
        stages(&phases),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        phases: &'a [Phase],
    }
    #[derive(Serialize)]
    struct Parameters {
        bytes: u64,
        request_bytes: usize,
    }
    let parameters = Parameters { bytes, request_bytes: REQUEST_BYTES };
    context.save(context.runs(), parameters, Results { bars: &bars, phases: &phases }, &text)?;
    context.print(&text);
    Ok(())
}

/// Where the time of the pool went: medians, in seconds.
fn stages(phases: &[Phase]) -> Table {
    let of_pool = |phase: &'static str| phases.iter().filter(move |p| p.phase == phase && p.side == POOL);
    let mut names: Vec<&'static str> = Vec::new();
    for phase in phases {
        let of_phase = phase.stages.iter().map(|s| s.0).chain(phase.device.iter().map(|asked| asked.what));
        for name in of_phase {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut table = Table::new(["pool, seconds (MB)", "a1", "a2", "a3"]);
    for name in names {
        let mut row = vec![name.to_owned()];
        for (phase, _) in PHASES {
            let stage =
                median(of_pool(phase).filter_map(|p| p.stages.iter().find(|s| s.0 == name)).map(|s| s.1));
            let asked = || of_pool(phase).filter_map(|p| p.device.iter().find(|asked| asked.what == name));
            row.push(match (stage, median(asked().map(|a| a.seconds))) {
                (Some(seconds), _) => format!("{seconds:.2}"),
                (_, Some(seconds)) => {
                    let bytes = median(asked().map(|a| a.bytes as f64)).unwrap_or(0.0);
                    format!("{seconds:.2} ({:.1})", bytes / 1e6)
                }
                _ => String::new(),
            });
        }
        table.row(row);
    }
    table
}

/// The files of a run, and the pool if it is open.
struct Sides<'a> {
    run: usize,
    bytes: u64,
    home: PathBuf,
    blocks: &'a Blocks,
    pool: Option<(Arc<Pool>, Arc<Meter>)>,
}

fn measure(
    context: &Context,
    run: usize,
    bytes: u64,
    blocks: &Blocks,
    phases: &mut Vec<Phase>,
) -> Result<()> {
    let home = files::fresh_dir(&context.space().join("pools"))?;
    // What a pool takes beside the data, and what it keeps free, is below this.
    MeteredDevice::create_pool(&home.join("pool"), bytes + bytes / 8 + (512 << 20))?;
    let mut sides = Sides { run, bytes, home, blocks, pool: None };
    sides.open()?;
    for volume in ["first", "second"] {
        sides.pool()?.0.create_volume(volume, bytes, Sharing::Inline)?;
    }
    for (n, (phase, _)) in PHASES.into_iter().enumerate() {
        if phase != UNIQUE {
            sides.close()?;
            sides.open()?;
        }
        let mut order = [POOL, PLAIN];
        order.rotate_left((run + n) % 2);
        for side in order {
            // Before each side: memory that was emptied long ago is slower to fill, where a host gives it out.
            context.make_cold(&sides.home)?;
            phases.push(sides.phase(phase, side, if phase == DUPLICATE { "second" } else { "first" })?);
        }
    }
    let (pool, _) = sides.pool()?;
    let stored = pool.stats();
    if stored.filter_entries != bytes / BLOCK_BYTES as u64 {
        bail!(
            "{} blocks were stored, not {}: duplicates were not shared",
            stored.filter_entries,
            bytes / BLOCK_BYTES as u64
        );
    }
    sides.close()?;
    fs::remove_dir_all(&sides.home)?;
    Ok(())
}

impl Sides<'_> {
    /// Opens the pool, and waits for its filter.
    fn open(&mut self) -> Result<()> {
        let (device, meter) = MeteredDevice::open(&self.home.join("pool"))?;
        let pool = Pool::open(Box::new(device), Options::default())?;
        pool.settle();
        self.pool = Some((pool, meter));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some((pool, _)) = self.pool.take() {
            pool.close()?;
        }
        Ok(())
    }

    fn pool(&self) -> Result<&(Arc<Pool>, Arc<Meter>)> {
        self.pool.as_ref().context("the pool is not open")
    }

    /// Does one phase on one side.
    fn phase(&self, phase: &'static str, side: &'static str, target: &str) -> Result<Phase> {
        let (pool, meter) = self.pool()?;
        meter.take();
        let (stages_before, cpu_before) = (pool.stages(), cpu_seconds("self")?);
        let (seconds, sync_seconds) = if side == POOL {
            let volume = pool.volume(target)?;
            let requests = match phase {
                READ => self.requests(phase, |offset, buf| Ok(volume.read_at(offset, buf)?))?,
                _ => self.requests(phase, |offset, buf| Ok(volume.write_at(offset, buf)?))?,
            };
            let start = Instant::now();
            if phase != READ {
                volume.flush()?;
            }
            (requests, start.elapsed().as_secs_f64())
        } else {
            let path = self.home.join(target);
            if phase == READ {
                let file = File::open(path)?;
                (self.requests(phase, |offset, buf| Ok(file.read_exact_at(buf, offset)?))?, 0.0)
            } else {
                let file = OpenOptions::new().write(true).create_new(true).open(path)?;
                let requests = self.requests(phase, |offset, buf| Ok(file.write_all_at(buf, offset)?))?;
                let start = Instant::now();
                file.sync_data()?;
                (requests, start.elapsed().as_secs_f64())
            }
        };
        let cpu = cpu_seconds("self")?;
        Ok(Phase {
            run: self.run,
            phase,
            side,
            bytes: self.bytes,
            seconds: seconds + sync_seconds,
            sync_seconds,
            user_seconds: cpu.0 - cpu_before.0,
            system_seconds: cpu.1 - cpu_before.1,
            stages: if side == POOL { named(pool.stages(), stages_before) } else { Vec::new() },
            device: if side == POOL { meter.take() } else { Vec::new() },
        })
    }

    /// Runs `each` for all requests. Returns the seconds that they took.
    fn requests(&self, phase: &str, mut each: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<f64> {
        let mut buffer = vec![0; REQUEST_BYTES];
        let mut seconds = 0.0;
        for offset in (0..self.bytes).step_by(REQUEST_BYTES) {
            check_interrupted()?;
            let first = offset / BLOCK_BYTES as u64;
            if phase != READ {
                self.blocks.fill(first, &mut buffer);
            }
            let start = Instant::now();
            each(offset, &mut buffer)?;
            seconds += start.elapsed().as_secs_f64();
            if phase == READ {
                if let Some(wrong) = self.blocks.first_wrong(first, &buffer) {
                    bail!("block {wrong} is not what was written");
                }
            }
        }
        Ok(seconds)
    }
}

fn named(now: Stages, before: Stages) -> Vec<(&'static str, f64)> {
    [
        ("fingerprints", now.hash - before.hash),
        ("look up in filter and fingerprint stores", now.find - before.find),
        ("allocate and write data", now.data - before.data),
        ("change maps and counts", now.map - before.map),
    ]
    .map(|(name, time)| (name, time.as_secs_f64()))
    .to_vec()
}
