//! `livedfs-b3` (LiveDFS 2011, experiment B3, figure 12): how long it takes from the command until machines run whose images
//! Glance has on a pool's mount, and on ext4.
//!
//! As a compute node does it, each machine's image is fetched from Glance into a file of the node, here in memory if there is
//! room, and QEMU is started with it; when it answers, the machine runs. Nothing is cached before: not in the page cache, nor
//! in the pool's server, nor, on the image store's side, by the host that this machine may run on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{bail, Context as _, Result};
use serde::Serialize;

use super::service::{Service, IMAGES};
use crate::context::Context;
use crate::files;
use crate::images::{Disk, GeneratedShape};
use crate::mounted::{DiskOptions, Kind, Mounted};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::{self, check_interrupted, succeed};

/// Where files are in memory.
const MEMORY: &str = "/dev/shm";

/// Machines started together.
#[derive(Clone, Debug, Serialize)]
struct Start {
    run: usize,
    store: Kind,
    /// The first of them.
    image: String,
    machines: usize,
    /// From the command until all images are there.
    fetch_seconds: f64,
    /// Until all machines run.
    seconds: f64,
    /// Processor time of the pool's server.
    server_cpu_seconds: f64,
}

/// Runs the experiment.
pub fn run(context: &Context, disk: DiskOptions) -> Result<()> {
    let tiny = GeneratedShape { suites: 2, disks: 2, versions: 1, size_bytes: 16 << 20 };
    let mut images = context.images("livedfs", tiny)?;
    images.truncate(None, Some(1));
    if !Service::is_installed() && !context.options.tiny {
        bail!("Glance is not installed; tools/install-packages glance does that");
    }
    let sizes: Vec<u64> = images.disks.iter().map(|disk| disk.versions[0].size_bytes).collect();
    let data: u64 = sizes.iter().sum();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let node = Node::make(context, largest * at_once(context).count() as u64)?;
    context.require_free(data)?;
    let mut starts = Vec::new();
    // One after the other: each with all images.
    for kind in [Kind::Pool, Kind::Ext4] {
        let home = context.space().join(format!("store-{kind:?}"));
        let mut store = Mounted::create(context, kind, &home, data, disk)?;
        store.mount()?;
        let place = store.directory(IMAGES)?;
        let service = Service::start(&files::fresh_dir(&context.space().join("glance"))?, &place)?;
        eprintln!("{kind:?}: {} images are inserted", images.disks.len());
        let insert = |disk: &Disk| service.upload(&disk.name, &disk.versions[0].path);
        let ids: Vec<String> = images.disks.iter().map(insert).collect::<Result<_>>()?;
        for run in 0..context.runs() {
            for machines in at_once(context) {
                let step = Step { run, machines, node: &node, service: &service };
                step.start_all(context, &mut store, &images.disks, &ids, &mut starts)?;
            }
        }
    }
    report(context, &images.name, disk, &node, &starts)
}

fn at_once(context: &Context) -> impl Iterator<Item = usize> {
    let most = if context.options.tiny { 2 } else { 4 };
    1..=most
}

/// Where images are fetched to. Dropped, it is gone.
struct Node(PathBuf);

impl Node {
    fn make(context: &Context, bytes: u64) -> Result<Self> {
        let memory = Path::new(MEMORY);
        if files::free_bytes(memory).is_ok_and(|free| free / 2 > bytes) {
            let own = memory.join(format!("sapwood-bench-{}", std::process::id()));
            return Ok(Node(files::fresh_dir(&own)?));
        }
        context.require_free(bytes)?;
        Ok(Node(files::fresh_dir(&context.space().join("node"))?))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is done once for each image, or group of them.
struct Step<'a> {
    run: usize,
    machines: usize,
    node: &'a Node,
    service: &'a Service,
}

impl Step<'_> {
    /// Starts machines in groups until each image was started once.
    fn start_all(
        &self,
        context: &Context,
        store: &mut Mounted,
        disks: &[Disk],
        ids: &[String],
        starts: &mut Vec<Start>,
    ) -> Result<()> {
        for (disks, ids) in disks.chunks(self.machines).zip(ids.chunks(self.machines)) {
            if ids.len() < self.machines {
                break;
            }
            check_interrupted()?;
            // What the host of this machine has in its own cache is the same on both sides.
            for id in ids {
                files::make_warm(&store.directory(IMAGES)?.join(id))?;
            }
            store.sync()?;
            store.remount()?;
            context.empty_cache(&store.directory(IMAGES)?)?;
            starts.push(self.start(store, &disks[0].name, ids)?);
            for (n, disk) in disks.iter().enumerate() {
                let target = self.target(n);
                files::require_equal(&disk.versions[0].path, &target)?;
                fs::remove_file(target)?;
            }
        }
        Ok(())
    }

    fn target(&self, n: usize) -> PathBuf {
        self.node.0.join(format!("{n}.raw"))
    }

    fn start(&self, store: &Mounted, image: &str, ids: &[String]) -> Result<Start> {
        let (cpu, start) = (store.server_seconds(), Instant::now());
        let one = |(n, id): (usize, &String)| -> Result<(f64, f64)> {
            succeed(&mut self.service.download(id, &self.target(n)))?;
            let fetched = start.elapsed().as_secs_f64();
            start_machine(&self.target(n))?;
            Ok((fetched, start.elapsed().as_secs_f64()))
        };
        let done: Vec<(f64, f64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = ids.iter().enumerate().map(|it| scope.spawn(move || one(it))).collect();
            let joined =
                threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a machine's thread failed")));
            joined.collect::<Result<_>>()
        })?;
        let last = |value: fn(&(f64, f64)) -> f64| done.iter().map(value).fold(0.0, f64::max);
        Ok(Start {
            run: self.run,
            store: store.kind,
            image: image.to_owned(),
            machines: self.machines,
            fetch_seconds: last(|d| d.0),
            seconds: last(|d| d.1),
            server_cpu_seconds: store.server_seconds() - cpu,
        })
    }
}

/// Starts a machine with a disk, waits until it answers, and ends it.
fn start_machine(disk: &Path) -> Result<()> {
    const QEMU: &str = "qemu-system-x86_64";
    if !run::is_installed(QEMU) {
        return Ok(());
    }
    let mut machine = Command::new(QEMU)
        .args([
            "-accel",
            "tcg",
            "-m",
            "128",
            "-nodefaults",
            "-display",
            "none",
            "-S",
            "-qmp",
            "stdio",
            "-drive",
        ])
        .arg(format!("file={},format=raw,if=virtio,cache=none", disk.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start QEMU")?;
    let mut greeting = String::new();
    let said = machine.stdout.take().context("QEMU has no output")?;
    let read = BufReader::new(said).read_line(&mut greeting);
    let _ = machine.kill();
    machine.wait()?;
    read?;
    if !greeting.contains("QMP") {
        bail!("QEMU does not start with {}: {greeting}", disk.display());
    }
    Ok(())
}

fn report(context: &Context, images: &str, disk: DiskOptions, node: &Node, starts: &[Start]) -> Result<()> {
    let mut table =
        Table::new(["machines at once", "pool, s", "ext4, s", "ratio", "pool's server, s of processor"]);
    let mut bars = Vec::new();
    for machines in at_once(context) {
        let of = |kind: Kind| starts.iter().filter(move |s| (s.machines, s.store) == (machines, kind));
        let pair = |pool: &Start| {
            let ext4 = of(Kind::Ext4).find(|s| (s.run, &s.image) == (pool.run, &pool.image))?;
            Some(pool.seconds / ext4.seconds.max(1e-9))
        };
        let ratio = median(of(Kind::Pool).filter_map(pair));
        let seconds = |kind| median(of(kind).map(|s| s.seconds));
        let cpu = median(of(Kind::Pool).map(|s| s.server_cpu_seconds));
        table.row([
            machines.to_string(),
            figure(seconds(Kind::Pool), 2),
            figure(seconds(Kind::Ext4), 2),
            figure(ratio, 2),
            figure(cpu, 2),
        ]);
        bars.push(Bar::at_most(format!("start-up, {machines} at once, times ext4"), ratio, 1.1));
    }
    let through =
        if Service::is_installed() { "Glance" } else { "plain copies, because Glance is not installed" };
    let disk = disk.words();
    let text = format!(
        "Medians of {} runs over all images, through {through}; {disk}; fetched to {}.\n\n{table}\n{}",
        context.runs(),
        if node.0.starts_with(MEMORY) { "memory" } else { "the same disk" },
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        through: &'a str,
        disk: &'a str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        starts: &'a [Start],
    }
    let parameters = Parameters { images, through, disk: &disk };
    context.save(context.runs(), parameters, Results { bars: &bars, starts }, &text)?;
    context.print(&text);
    Ok(())
}
