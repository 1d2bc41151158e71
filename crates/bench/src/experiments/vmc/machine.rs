//! A machine of the cluster: its disks are files, and several tasks at once back them up, each a process that takes the
//! next disk when it is done with one (VM-centric 5.2).

use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use vault::VM_CENTRIC;

use super::{build_set, Set};
use crate::context::Context;
use crate::files::{self, DataRanges, READ_BYTES};
use crate::run::{check_interrupted, Cost};
use crate::vaults::in_process::LocalVault;
use crate::workload::{Cluster, Day, Days};

/// Tasks at once, as in tables 2 and 4.
pub const TASKS: [usize; 4] = [1, 2, 4, 6];

/// A machine, its vault and its disks.
pub struct Machine<'a> {
    context: &'a Context,
    store: PathBuf,
    /// The popular set of its vault.
    pub set: Set,
    disks: Vec<DiskFile<'a>>,
}

/// A disk as it is today.
pub struct DiskFile<'a> {
    days: Days<'a>,
    today: Day,
    /// The disk.
    pub path: PathBuf,
    /// Its newest snapshot.
    pub newest: String,
}

impl DiskFile<'_> {
    /// The name of the disk.
    pub fn name(&self) -> &str {
        &self.today.version.disk
    }

    /// Bytes that are not null.
    pub fn nonzero_bytes(&self) -> u64 {
        self.today.version.nonzero_bytes
    }

    /// What has changed since the newest snapshot.
    pub fn changes(&self) -> &image::Changes {
        &self.today.changes
    }

    /// Bytes that a full read reads.
    fn data_bytes(&self) -> Result<u64> {
        let file = File::open(&self.path)?;
        Ok(DataRanges::new(&file)?.map(|(start, end)| end - start).sum())
    }

    fn next_day(&mut self) -> Result<()> {
        self.today = self.days.next().context("days have no end")?;
        let Day { version, changes } = &self.today;
        let file = File::options().write(true).open(&self.path)?;
        let mut buffer = vec![0; READ_BYTES];
        for range in changes.ranges() {
            let mut at = range.start;
            while at < range.end {
                let length = (range.end - at).min(READ_BYTES as u64) as usize;
                version.read_at(at, &mut buffer[..length])?;
                file.write_all_at(&buffer[..length], at)?;
                at += length as u64;
            }
        }
        Ok(())
    }
}

/// A backup of one disk by a process.
#[derive(Clone, Debug, Serialize)]
pub struct Backup {
    pub disk: String,
    #[serde(flatten)]
    pub cost: Cost,
    /// Bytes of the disk that are not null.
    pub nonzero_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    pub new_bytes: u64,
    pub stored_bytes: u64,
    #[serde(skip)]
    snapshot: String,
}

/// All disks, backed up by so many tasks.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub tasks: usize,
    /// From the first start to the last sync.
    pub seconds: f64,
    pub backups: Vec<Backup>,
}

impl Round {
    /// The sum of something over all backups.
    pub fn sum(&self, of: fn(&Backup) -> u64) -> u64 {
        self.backups.iter().map(of).sum()
    }

    /// Seconds in which a task was at work, of all tasks together.
    pub fn busy_seconds(&self) -> f64 {
        self.backups.iter().map(|b| b.cost.wall_seconds).sum()
    }

    /// Part of a core that a task took while it was at work.
    pub fn cpu_of_task(&self) -> f64 {
        self.backups.iter().map(|b| b.cost.cpu_seconds()).sum::<f64>() / self.busy_seconds()
    }

    /// The most memory that a task took.
    pub fn rss_bytes_max(&self) -> u64 {
        self.backups.iter().map(|b| b.cost.rss_bytes_max).max().unwrap_or(0)
    }
}

impl<'a> Machine<'a> {
    /// A machine with all disks of a cluster, each stored once, and the popular set of these.
    pub fn create(context: &'a Context, cluster: &'a Cluster) -> Result<Self> {
        let store = context.space().join("vault");
        let vault = LocalVault::create(&store, VM_CENTRIC, None)?;
        let set = build_set(context, &vault, cluster)?;
        let mut disks = Vec::new();
        for disk in 0..cluster.shape().disks {
            check_interrupted()?;
            context.require_free(2 * cluster.shape().data_bytes)?;
            let mut days = cluster.days(disk);
            let today = days.next().context("days have no end")?;
            let path = context.space().join(format!("disk{disk}.raw"));
            today.version.write_to(&path)?;
            let newest = vault.backup_since(&today.version, None)?.snapshot.id.to_string();
            disks.push(DiskFile { days, today, path, newest });
        }
        files::sync_file_system(&store)?;
        Ok(Self { context, store, set, disks })
    }

    /// The disks.
    pub fn disks(&self) -> &[DiskFile<'a>] {
        &self.disks
    }

    /// A day goes by on every disk; what will be read is in the page cache.
    pub fn next_day(&mut self) -> Result<()> {
        for disk in &mut self.disks {
            disk.next_day()?;
            files::make_warm(&disk.path)?;
        }
        files::sync_file_system(&self.store)
    }

    /// Backs all disks up with so many tasks at once; `arguments` are those of a disk.
    pub fn back_up(
        &mut self,
        tasks: usize,
        arguments: impl Fn(&DiskFile<'_>) -> Vec<String> + Sync,
    ) -> Result<Round> {
        let (next, backups) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let program = self.context.sapwood()?;
        let (store, disks) = (&self.store, &self.disks);
        // The days of a disk are nobody's business here.
        let files: Vec<(usize, Vec<String>)> = disks.iter().map(&arguments).enumerate().collect();
        let sources: Vec<(String, PathBuf, u64, u64)> = disks
            .iter()
            .map(|d| Ok((d.name().to_owned(), d.path.clone(), d.nonzero_bytes(), d.data_bytes()?)))
            .collect::<Result<_>>()?;
        let start = Instant::now();
        thread::scope(|scope| -> Result<()> {
            let workers: Vec<_> = (0..tasks)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        while let Some((no, arguments)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                            let done = back_up_one(&program, store, &sources[*no], arguments)?;
                            backups.lock().push((*no, done));
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().ok().context("a task has failed")?)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let mut backups = backups.into_inner();
        backups.sort_unstable_by_key(|(no, _)| *no);
        let backups: Vec<Backup> = backups.into_iter().map(|(_, backup)| backup).collect();
        for (disk, backup) in self.disks.iter_mut().zip(&backups) {
            disk.newest.clone_from(&backup.snapshot);
        }
        Ok(Round { tasks, seconds, backups })
    }
}

fn back_up_one(
    program: &Path,
    store: &Path,
    (disk, path, nonzero_bytes, data_bytes): &(String, PathBuf, u64, u64),
    arguments: &[String],
) -> Result<Backup> {
    let mut command = Command::new(program);
    command.arg("--store").arg(store).args(["--json", "--quiet", "backup", disk]).arg(path).args(arguments);
    let done = crate::run::run(&mut command, store)?;
    let said = done.json()?;
    let number = |name: &str| said[name].as_u64().with_context(|| format!("no number {name} in {said}"));
    let read_bytes = match &said["scan"]["bytes"] {
        Value::Number(bytes) => bytes.as_u64().unwrap_or(0),
        _ => *data_bytes,
    };
    Ok(Backup {
        disk: disk.clone(),
        cost: done.cost,
        nonzero_bytes: *nonzero_bytes,
        read_bytes,
        new_bytes: number("new_bytes")?,
        stored_bytes: number("stored_bytes")?,
        snapshot: said["snapshot"].as_str().context("backup named no snapshot")?.to_owned(),
    })
}
