//! `pool-nbd`: a volume over NBD beside a raw file of the same content, exported by qemu-storage-daemon. `peers-live` has a
//! qcow2 file there as well. `pool-vhost`: the same by vhost-user-blk, as a virtual machine on the host uses it.
//!
//! Both are full before, and in the page cache. Random requests go on for some seconds, sequential ones pass over the disk
//! once; a flush ends each and is in its time. Unique data is new to the pool; duplicates are blocks that a second volume
//! has.

mod client;
mod nbd;
mod vhost;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use pool::{FileDevice, Options, Pool, Sharing};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::MeteredDevice;
use super::PoolsOptions;
use crate::context::Context;
use crate::experiments::exports::server::Server;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::Random;
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::{self, check_interrupted};
use client::{Access, Client};

const DEPTHS: [usize; 2] = [1, 32];
const SEQUENTIAL_BYTES: usize = 1 << 20;
const SAPWOOD: &str = "sapwood pool serve";
const QEMU: &str = "qemu-storage-daemon, raw";
const QCOW2: &str = "qemu-storage-daemon, qcow2";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Work {
    Read,
    UniqueWrite,
    DuplicateWrite,
}

const WORKS: [(Work, &str, f64); 3] = [
    (Work::Read, "read", 0.9),
    (Work::UniqueWrite, "unique write", 0.9),
    (Work::DuplicateWrite, "duplicate write", 1.5),
];

/// One workload against one server.
#[derive(Debug, Serialize)]
struct Measured {
    run: usize,
    server: &'static str,
    work: Work,
    request_bytes: usize,
    depth: usize,
    requests: u64,
    seconds: f64,
    /// Of that, the flush at the end.
    flush_seconds: f64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-9)
    }
}

/// How the disks are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Nbd,
    Vhost,
}

/// Runs `pool-nbd`.
pub fn nbd(context: &Context, options: &PoolsOptions) -> Result<()> {
    run_with(context, options, Protocol::Nbd, &[SAPWOOD, QEMU])
}

/// Runs `pool-vhost`.
pub fn vhost(context: &Context, options: &PoolsOptions) -> Result<()> {
    run_with(context, options, Protocol::Vhost, &[SAPWOOD, QEMU])
}

/// Runs `peers-live`.
pub fn peers(context: &Context, options: &PoolsOptions) -> Result<()> {
    run_with(context, options, Protocol::Nbd, &[SAPWOOD, QEMU, QCOW2])
}

fn run_with(
    context: &Context,
    options: &PoolsOptions,
    protocol: Protocol,
    servers: &[&'static str],
) -> Result<()> {
    let bytes = options.bytes(context, 1024, 16);
    if !run::is_installed("qemu-storage-daemon") {
        anyhow::bail!(
            "qemu-storage-daemon is not installed: install the package qemu-system-common or qemu-utils"
        );
    }
    context.require_free(16 * bytes)?;
    let seconds = if context.options.tiny { 0.1 } else { 3.0 };
    let mut measured = Vec::new();
    let mut fresh = 1 << 40;
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("served"))?;
        let blocks = Blocks::new(context.options.seed);
        fill(&home, bytes, &blocks, servers.contains(&QCOW2))?;
        let mut order = servers.to_vec();
        order.rotate_left(run % servers.len());
        for request_bytes in [BLOCK_BYTES, SEQUENTIAL_BYTES] {
            for (work, ..) in WORKS {
                for depth in DEPTHS {
                    for &server in &order {
                        check_interrupted()?;
                        let running = start(context, &home, protocol, server)?;
                        let step = Step { run, server, work, request_bytes, depth };
                        let mut client = connect(&running, protocol)?;
                        measured.push(step.measure(&mut *client, &blocks, &mut fresh, seconds)?);
                        drop((client, running));
                        files::sync_file_system(&home)?;
                    }
                }
            }
        }
        fs::remove_dir_all(&home)?;
    }
    report(context, bytes, servers, &measured)
}

fn start(context: &Context, home: &Path, protocol: Protocol, server: &str) -> Result<Server> {
    let socket = home.join("disk.socket");
    match (protocol, server) {
        (Protocol::Nbd, SAPWOOD) => {
            Server::pool(&context.sapwood()?, &home.join("pool"), "--nbd", &socket, &socket)
        }
        (Protocol::Vhost, SAPWOOD) => {
            Server::pool(&context.sapwood()?, &home.join("pool"), "--vhost", home, &socket)
        }
        (Protocol::Nbd, QCOW2) => Server::storage_daemon(&home.join("qcow2"), "qcow2", &socket),
        (Protocol::Nbd, _) => Server::storage_daemon(&home.join("raw"), "raw", &socket),
        (Protocol::Vhost, _) => Server::storage_daemon_vhost(&home.join("raw"), &socket),
    }
}

fn connect(server: &Server, protocol: Protocol) -> Result<Box<dyn Client>> {
    Ok(match protocol {
        Protocol::Nbd => {
            Box::new(nbd::NbdClient::connect(server.socket(), "disk").context("connecting to the server")?)
        }
        Protocol::Vhost => {
            Box::new(vhost::VhostClient::connect(server.socket()).context("connecting to the server")?)
        }
    })
}

fn report(context: &Context, bytes: u64, servers: &[&'static str], measured: &[Measured]) -> Result<()> {
    let headings: Vec<&str> = [""].iter().chain(servers).chain(&["", "times raw"]).copied().collect();
    let mut table = Table::new(headings);
    let mut bars = Vec::new();
    for request_bytes in [BLOCK_BYTES, SEQUENTIAL_BYTES] {
        for (work, name, limit) in WORKS {
            for depth in DEPTHS {
                let of =
                    |m: &&Measured| m.request_bytes == request_bytes && m.work == work && m.depth == depth;
                let rates = |server: &'static str| {
                    measured.iter().filter(of).filter(move |m| m.server == server).map(Measured::rate)
                };
                // Both of a run, then the median.
                let ratio = median(rates(SAPWOOD).zip(rates(QEMU)).map(|(a, b)| a / b));
                let is_random = request_bytes == BLOCK_BYTES;
                let (what, unit, scale) = if is_random {
                    ("random 4 KiB", "requests/s", 1.0)
                } else {
                    ("sequential 1 MiB", "MB/s", SEQUENTIAL_BYTES as f64 / 1e6)
                };
                let what = format!("{what} {name}, {depth} at once");
                let shown = |server| figure(median(rates(server)).map(|rate| rate * scale), 0);
                let rates_shown = servers.iter().map(|server| shown(*server));
                let row =
                    [what.clone()].into_iter().chain(rates_shown).chain([unit.into(), figure(ratio, 2)]);
                table.row(row.collect::<Vec<String>>());
                bars.push(Bar::at_least(format!("{what}, times {QEMU}"), ratio, limit));
                if servers.contains(&QCOW2) {
                    let ratio = median(rates(SAPWOOD).zip(rates(QCOW2)).map(|(a, b)| a / b));
                    bars.push(Bar::shown(format!("{what}, times {QCOW2}"), ratio));
                }
            }
        }
    }
    let text =
        format!("{} MiB, medians of {} runs.\n\n{table}\n{}", bytes >> 20, context.runs(), bars_table(&bars));
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    context.save(context.runs(), bytes, Results { bars: &bars, measured }, &text)?;
    context.print(&text);
    Ok(())
}

/// Makes a pool with two full volumes, `disk` and `other`, and a raw file equal to `disk`, and one in qcow2 if it is wanted.
fn fill(home: &Path, bytes: u64, blocks: &Blocks, has_qcow2: bool) -> Result<()> {
    let path = home.join("pool");
    MeteredDevice::create_pool(&path, 8 * bytes + (1 << 30))?;
    let pool = Pool::open(Box::new(FileDevice::open(&path)?), Options::default())?;
    let raw = OpenOptions::new().write(true).create_new(true).open(home.join("raw"))?;
    let mut buffer = vec![0; SEQUENTIAL_BYTES];
    for (n, name) in ["disk", "other"].into_iter().enumerate() {
        pool.create_volume(name, bytes, Sharing::Inline)?;
        let volume = pool.volume(name)?;
        for at in (0..bytes).step_by(SEQUENTIAL_BYTES) {
            blocks.fill((n as u64 * bytes + at) / BLOCK_BYTES as u64, &mut buffer);
            volume.write_at(at, &buffer)?;
            if n == 0 {
                raw.write_all_at(&buffer, at)?;
            }
        }
    }
    pool.close()?;
    raw.sync_all()?;
    if has_qcow2 {
        let mut convert = std::process::Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", "qcow2"]).arg(home.join("raw")).arg(home.join("qcow2"));
        let done = convert.status().context("cannot start qemu-img")?;
        anyhow::ensure!(done.success(), "qemu-img: {done}");
    }
    Ok(())
}

struct Step {
    run: usize,
    server: &'static str,
    work: Work,
    request_bytes: usize,
    depth: usize,
}

impl Step {
    fn measure(
        &self,
        client: &mut dyn Client,
        blocks: &Blocks,
        fresh: &mut u64,
        seconds: f64,
    ) -> Result<Measured> {
        let (size, bytes) = (client.size(), self.request_bytes as u64);
        let is_random = self.request_bytes == BLOCK_BYTES;
        let in_request = bytes / BLOCK_BYTES as u64;
        // Warm, on both sides; it also waits until the pool's filter is there.
        read_all(client)?;
        let mut random = Random::new(*fresh);
        let mut sequential = (0..size / bytes).map(|n| n * bytes);
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(seconds);
        let requests = client.run(self.depth, self.request_bytes, &mut |buffer| {
            let offset = if !is_random {
                sequential.next()?
            } else if Instant::now() < end {
                random.below(size / bytes) * bytes
            } else {
                return None;
            };
            match self.work {
                Work::Read => return Some((Access::Read, offset)),
                Work::UniqueWrite => {
                    blocks.fill(*fresh, buffer);
                    *fresh += in_request;
                }
                Work::DuplicateWrite => {
                    // What the other volume has, whose blocks never change.
                    let first = (size + if is_random { random.below(size / bytes) * bytes } else { offset })
                        / BLOCK_BYTES as u64;
                    blocks.fill(first, buffer);
                }
            }
            Some((Access::Write, offset))
        })?;
        let flushing = Instant::now();
        if self.work != Work::Read {
            client.flush()?;
        }
        let flush_seconds = flushing.elapsed().as_secs_f64();
        let Step { run, server, work, request_bytes, depth } = *self;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Measured { run, server, work, request_bytes, depth, requests, seconds, flush_seconds })
    }
}

fn read_all(client: &mut dyn Client) -> Result<()> {
    let mut offsets = (0..client.size()).step_by(SEQUENTIAL_BYTES);
    client.run(4, SEQUENTIAL_BYTES, &mut |_| Some((Access::Read, offsets.next()?)))?;
    Ok(())
}
