//! `requests`: what each operation asks of the store, for few and for many disks, and for few and for many snapshots of a
//! disk; and how long it takes on a store behind a network, where each request takes 1, 20 or 100 ms.
//!
//! A disk with ten snapshots is measured twice: one that was just made, and one that was backed up as often as the disk with
//! many, but kept ten. The chunks of an old disk lie in more containers, however many snapshots it has.
//!
//! The store is in memory, and the vault is in this process. All disks are clones of four templates with a block of their
//! own; one disk is the one that is worked on. Delays are real waiting times, so requests that are made at once wait at
//! once.
//!
//! In the end, first backups of clones run at the same time, each in a process of its own as far as the store can tell: if
//! they waited for one another at an object that they have in common, each of them would take longer than one alone.

mod summary;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;
use store::{LocalStore, ObjectStore, SimFs, SimStore};
use vault::{BackupOptions, Progress, Vault, BALANCED};

use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::{Content, Random};
use crate::run::run as run_program;
use crate::vaults::in_process::Nowhere;
use crate::vaults::request_store::{ByObject, RequestMeter, RequestStore, Requests};
use crate::workload::MemoryDisk;

/// The disk that is worked on.
const DISK: &str = "worked-on/vda";
const TEMPLATES: u64 = 4;
/// Backups that run at the same time.
const AT_ONCE: [usize; 3] = [1, 8, 64];
/// Incremental backups and deletions: one may remove containers, another look up hooks or extend the reference index, and most do
/// neither. The one with the median of requests is shown, the mean is what all of them cost.
const TIMES: usize = 41;
/// The same on a slow store.
const SLOW_TIMES: usize = 5;
/// Blocks that change between two snapshots.
const CHANGED_BLOCKS: usize = 16;

/// How large the vaults are.
#[derive(clap::Args, Clone, Debug)]
pub struct RequestsOptions {
    /// Few disks, and few snapshots of one
    #[arg(long, default_value_t = 10)]
    few: usize,
    /// Many of them [default: 10000; with --tiny 30]
    #[arg(long)]
    many: Option<usize>,
    /// Bytes of the disk that is worked on
    #[arg(long, default_value_t = 8 << 20)]
    disk_bytes: usize,
    /// Times of a request in milliseconds [default: 1, 20, 100; with --tiny 1]
    #[arg(long, value_delimiter = ',')]
    delays: Vec<u64>,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    IncrementalBackup,
    FirstBackupOfAClone,
    Restore,
    RestoreOldest,
    DeleteOldest,
    DeleteFromTheMiddle,
    SnapshotsOfTheDisk,
    StatsOfTheDisk,
    SnapshotsOfAll,
    StatsOfAll,
    Collection,
}

use What::*;

const ALL: [What; 11] = [
    IncrementalBackup,
    FirstBackupOfAClone,
    Restore,
    RestoreOldest,
    DeleteOldest,
    DeleteFromTheMiddle,
    SnapshotsOfTheDisk,
    StatsOfTheDisk,
    SnapshotsOfAll,
    StatsOfAll,
    Collection,
];

impl What {
    /// Whether it looks at every disk, so that it is not tried with delays.
    fn is_of_all(self) -> bool {
        matches!(self, SnapshotsOfAll | StatsOfAll | Collection)
    }

    /// What a figure calls it.
    fn label(self) -> &'static str {
        match self {
            IncrementalBackup => "later backup",
            FirstBackupOfAClone => "first backup",
            Restore => "restore",
            RestoreOldest => "restore oldest",
            DeleteOldest => "delete oldest",
            DeleteFromTheMiddle => "delete middle",
            SnapshotsOfTheDisk => "snapshots",
            StatsOfTheDisk => "stats",
            SnapshotsOfAll => "snapshots of all",
            StatsOfAll => "stats of all",
            Collection => "gc",
        }
    }

    fn name(self) -> Result<String> {
        Ok(serde_json::to_value(self)?.as_str().unwrap_or_default().to_owned())
    }
}

/// A vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Shape {
    disks: usize,
    /// Of the disk that is worked on.
    snapshots: usize,
    /// How often it was backed up: all older snapshots were deleted again, each after the next backup.
    backups: usize,
}

impl Shape {
    /// A figure and a table call it so.
    fn name(self) -> String {
        let Shape { disks, snapshots, backups } = self;
        let kept = if backups > snapshots { format!(" of {backups}") } else { String::new() };
        format!("{disks} disks, {snapshots}{kept} snapshots")
    }
}

/// One operation, once.
#[derive(Debug, Serialize)]
struct Step {
    #[serde(flatten)]
    shape: Shape,
    what: What,
    delay_ms: u64,
    seconds: f64,
    /// Of the one with the median of requests.
    requests: Requests,
    /// Of how many this is the mean.
    times: usize,
    mean_requests: f64,
    by_object: ByObject,
}

/// First backups of clones that ran at the same time.
#[derive(Debug, Serialize)]
struct AtOnce {
    backups: usize,
    delay_ms: u64,
    /// Until the last one had ended.
    seconds: f64,
    /// Of all of them.
    requests: Requests,
}

/// The program, run on a vault in a directory.
#[derive(Debug, Serialize)]
struct LocalRun {
    #[serde(flatten)]
    shape: Shape,
    command: String,
    seconds: f64,
    peak_bytes: u64,
}

/// All that was measured.
struct Measured<'a> {
    /// Few of both, many disks, many snapshots, few snapshots of an old disk.
    shapes: [Shape; 4],
    delays: &'a [u64],
    steps: &'a [Step],
    at_once: &'a [AtOnce],
    local: &'a [LocalRun],
}

/// Runs the experiment.
pub fn run(context: &Context, options: &RequestsOptions) -> Result<()> {
    let tiny = context.options.tiny;
    let many = options.many.unwrap_or(if tiny { 30 } else { 10_000 });
    let delays = match (&options.delays[..], tiny) {
        ([], true) => vec![1],
        ([], false) => vec![1, 20, 100],
        (given, _) => given.to_vec(),
    };
    let few = options.few;
    let of = |disks, snapshots, backups| Shape { disks, snapshots, backups };
    let shapes = [of(few, few, few), of(many, few, few), of(few, many, many), of(few, few, many)];
    let (mut steps, mut at_once, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for shape in shapes {
        let mut world = World::build(context, options, shape)?;
        for delay in std::iter::once(0).chain(delays.iter().copied()) {
            for what in ALL {
                if delay > 0 && what.is_of_all() {
                    continue;
                }
                let times = match (what, delay) {
                    (IncrementalBackup | DeleteFromTheMiddle, 0) => TIMES,
                    (IncrementalBackup | DeleteFromTheMiddle, _) => SLOW_TIMES,
                    _ => 1,
                };
                let mut runs = Vec::new();
                for _ in 0..times {
                    runs.push(world.measure(what, delay)?);
                    // As many snapshots as before.
                    match what {
                        IncrementalBackup => world.delete_oldest()?,
                        DeleteOldest | DeleteFromTheMiddle => world.back_up(&world.vault()?)?,
                        _ => {}
                    }
                }
                let mean_requests = runs.iter().map(|r| r.1.all() as f64).sum::<f64>() / times as f64;
                runs.sort_by_key(|(_, requests, _)| requests.all());
                let (seconds, requests, by_object) = runs.swap_remove(runs.len() / 2);
                steps.push(Step {
                    shape,
                    what,
                    delay_ms: delay,
                    seconds,
                    requests,
                    times,
                    mean_requests,
                    by_object,
                });
            }
        }
        if shape.disks == many || shape.snapshots == many {
            local.extend(world.on_a_local_store(context, shape)?);
        }
        if shape.disks == many {
            for delay in &delays {
                for backups in AT_ONCE.into_iter().filter(|n| !tiny || *n < 10) {
                    at_once.push(world.back_up_at_once(backups, *delay)?);
                }
            }
        }
    }
    let measured = Measured { shapes, delays: &delays, steps: &steps, at_once: &at_once, local: &local };
    let text = measured.text()?;
    measured.draw(context)?;
    #[derive(Serialize)]
    struct Parameters<'a> {
        policy: &'a str,
        disk_bytes: usize,
        changed_blocks: usize,
        delays_ms: &'a [u64],
    }
    #[derive(Serialize)]
    struct Results<'a> {
        steps: &'a [Step],
        at_once: &'a [AtOnce],
        local: &'a [LocalRun],
    }
    let parameters = Parameters {
        policy: BALANCED.name,
        disk_bytes: options.disk_bytes,
        changed_blocks: CHANGED_BLOCKS,
        delays_ms: &delays,
    };
    context.save(1, parameters, Results { steps: &steps, at_once: &at_once, local: &local }, &text)?;
    context.print(&text);
    Ok(())
}

/// A vault in memory, and the disk that is worked on.
struct World {
    fs: SimFs,
    meter: RequestMeter,
    content: Content,
    random: Random,
    bytes: Vec<u8>,
    /// How many clones were made.
    clones: u64,
}

impl World {
    fn build(context: &Context, options: &RequestsOptions, shape: Shape) -> Result<World> {
        let fs = SimFs::new(context.options.seed);
        Vault::init(Arc::new(SimStore::create_on(fs.clone())?), &BALANCED)?;
        let mut world = World {
            fs,
            meter: RequestMeter::default(),
            content: Content::new(context.options.seed),
            random: Random::new(context.options.seed),
            bytes: vec![0; options.disk_bytes / BLOCK_BYTES * BLOCK_BYTES],
            clones: 0,
        };
        let vault = world.vault()?;
        for n in 0..shape.disks.saturating_sub(1) {
            let template = n as u64 % TEMPLATES;
            world.back_up_clone(&vault, &format!("vm-{n}/vda"), template)?;
        }
        world.write_template(0);
        for n in 0..shape.backups {
            world.change();
            world.back_up(&vault)?;
            if n >= shape.snapshots {
                world.delete_oldest()?;
            }
        }
        Ok(world)
    }

    /// The vault as a new process opens it.
    fn vault(&self) -> Result<Vault> {
        let store = RequestStore::new(SimStore::open_on(self.fs.process())?, self.meter.clone());
        Ok(Vault::open(Arc::new(store))?)
    }

    fn write_template(&mut self, template: u64) {
        let blocks = (self.bytes.len() / BLOCK_BYTES) as u64;
        for (n, block) in self.bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            self.content.fill((template + 1) * blocks + n as u64, block);
        }
    }

    fn change(&mut self) {
        let blocks = self.bytes.len() / BLOCK_BYTES;
        for _ in 0..CHANGED_BLOCKS {
            let at = self.random.below(blocks as u64) as usize * BLOCK_BYTES;
            let name = self.random.bits();
            self.content.fill(name, &mut self.bytes[at..at + BLOCK_BYTES]);
        }
    }

    fn back_up(&self, vault: &Vault) -> Result<()> {
        let source = Box::new(MemoryDisk(Arc::new(self.bytes.clone())));
        let report = vault.backup(DISK, source, &BackupOptions::default(), &Progress::default())?;
        ensure!(report.reverse.held_up.is_none(), "the reverse pass was held up");
        Ok(())
    }

    fn delete_oldest(&self) -> Result<()> {
        let vault = self.vault()?;
        let listed = vault.snapshots(Some(DISK))?.snapshots;
        let oldest = listed.first().context("no snapshot")?.entry.id.to_string();
        vault.delete(DISK, &[&oldest])?;
        Ok(())
    }

    /// A clone: the beginning of a template, and a block of its own.
    fn back_up_clone(&mut self, vault: &Vault, disk: &str, template: u64) -> Result<()> {
        let source = Box::new(self.clone_of(template));
        vault.backup(disk, source, &BackupOptions::default(), &Progress::default())?;
        Ok(())
    }

    fn clone_of(&mut self, template: u64) -> MemoryDisk {
        let blocks = (self.bytes.len() / BLOCK_BYTES) as u64;
        let mut bytes = vec![0; self.bytes.len().min(1 << 20)];
        for (n, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            self.content.fill((template + 1) * blocks + n as u64, block);
        }
        self.clones += 1;
        self.content.fill(u64::MAX - self.clones, &mut bytes[..BLOCK_BYTES]);
        MemoryDisk(Arc::new(bytes))
    }

    /// First backups of so many clones of one template, at the same time.
    fn back_up_at_once(&mut self, backups: usize, delay: u64) -> Result<AtOnce> {
        let mut all = Vec::new();
        for _ in 0..backups {
            let source = self.clone_of(2);
            all.push((format!("at-once-{}/vda", self.clones), source));
        }
        self.meter.take();
        self.meter.set_delay(Duration::from_millis(delay));
        let start = Instant::now();
        let world = &*self;
        std::thread::scope(|threads| {
            let back_up = |(disk, source): (String, MemoryDisk)| {
                let vault = world.vault()?;
                vault.backup(&disk, Box::new(source), &BackupOptions::default(), &Progress::default())?;
                anyhow::Ok(())
            };
            let running: Vec<_> = all.into_iter().map(|one| threads.spawn(move || back_up(one))).collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        let seconds = start.elapsed().as_secs_f64();
        self.meter.set_delay(Duration::ZERO);
        Ok(AtOnce { backups, delay_ms: delay, seconds, requests: self.meter.take() })
    }

    /// Does it once, as a process of its own, with a delay of so many milliseconds.
    fn measure(&mut self, what: What, delay: u64) -> Result<(f64, Requests, ByObject)> {
        let listed: Vec<String> = {
            let vault = self.vault()?;
            vault.snapshots(Some(DISK))?.snapshots.iter().map(|s| s.entry.id.to_string()).collect()
        };
        self.change();
        let clone = format!("clone-{}/vda", self.clones);
        self.meter.take();
        self.meter.take_by_object();
        self.meter.set_delay(Duration::from_millis(delay));
        let start = Instant::now();
        let vault = self.vault()?;
        match what {
            IncrementalBackup => self.back_up(&vault)?,
            FirstBackupOfAClone => self.back_up_clone(&vault, &clone, 1)?,
            Restore | RestoreOldest => {
                let oldest = listed.first().context("no snapshot")?;
                let spec = if what == Restore { "latest" } else { oldest };
                vault.restore(DISK, spec, |_, _| Ok(Box::new(Nowhere)), &Progress::default())?;
            }
            DeleteOldest => drop(vault.delete(DISK, &[listed.first().context("no snapshot")?])?),
            DeleteFromTheMiddle => drop(vault.delete(DISK, &[&listed[listed.len() / 2]])?),
            SnapshotsOfTheDisk => drop(vault.snapshots(Some(DISK))?),
            StatsOfTheDisk => {
                vault.stats(Some(DISK))?;
                vault.newest_stats(DISK)?;
            }
            SnapshotsOfAll => drop(vault.snapshots(None)?),
            StatsOfAll => drop(vault.stats(None)?),
            Collection => {
                let report = vault.gc(false)?;
                ensure!(report.skipped.is_empty(), "{:?}", report.skipped);
            }
        }
        drop(vault);
        let seconds = start.elapsed().as_secs_f64();
        self.meter.set_delay(Duration::ZERO);
        Ok((seconds, self.meter.take(), self.meter.take_by_object()))
    }

    /// Runs the program on the same vault in a directory.
    fn on_a_local_store(&self, context: &Context, shape: Shape) -> Result<Vec<LocalRun>> {
        let dir = files::fresh_dir(&context.space().join("requests"))?;
        let store = dir.join("vault");
        self.copy_to(&store)?;
        let vault = Vault::open(Arc::new(LocalStore::open(&store)?))?;
        let oldest = vault.snapshots(Some(DISK))?.snapshots.first().context("no snapshot")?.entry.id;
        drop(vault);
        let (source, target) = (dir.join("source.raw"), dir.join("target.raw"));
        let mut bytes = self.bytes.clone();
        bytes[..BLOCK_BYTES].fill(7);
        std::fs::write(&source, bytes)?;
        let (source, target) = (source.to_string_lossy(), target.to_string_lossy());
        let oldest = format!("{DISK}@{oldest}");
        let commands: [&[&str]; 10] = [
            &["snapshots", DISK],
            &["snapshots"],
            &["stats", DISK],
            &["stats"],
            &["backup", DISK, &source],
            &["restore", DISK, &target],
            &["delete", &oldest],
            &["verify"],
            &["reindex"],
            &["gc"],
        ];
        let mut runs = Vec::new();
        for args in commands {
            let mut command = std::process::Command::new(context.sapwood()?);
            command.arg("--json").arg("--store").arg(&store).args(args);
            let cost = run_program(&mut command, &dir)?.cost;
            let paths = [(&*source, "FILE"), (&*target, "FILE"), (&*oldest, "OLDEST"), (DISK, "DISK")];
            let words = args.iter().map(|a| paths.iter().find(|p| p.0 == *a).map_or(*a, |p| p.1));
            let command = words.collect::<Vec<_>>().join(" ");
            runs.push(LocalRun {
                shape,
                command,
                seconds: cost.wall_seconds,
                peak_bytes: cost.rss_bytes_max,
            });
        }
        std::fs::remove_dir_all(dir)?;
        Ok(runs)
    }

    /// Copies the vault into a directory.
    fn copy_to(&self, store: &std::path::Path) -> Result<()> {
        LocalStore::create(store)?;
        let from = SimStore::open_on(self.fs.process())?;
        let mut names = Vec::new();
        from.list("", &mut |entry| {
            names.push(entry);
            Ok(())
        })?;
        for entry in names {
            let path = store.join("objects").join(&entry.name);
            std::fs::create_dir_all(path.parent().context("no folder")?)?;
            std::fs::write(path, from.read(&entry.name, entry.len)?)?;
        }
        files::sync_file_system(store)?;
        Ok(())
    }
}
