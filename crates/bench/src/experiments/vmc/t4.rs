//! `vmc-t4` (table 4): how fast tasks are that nothing limits and that are told what has changed, beside plain copies of
//! the changed segments.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;
use vault::VM_CENTRIC;

use super::machine::{DiskFile, Machine, Round, TASKS};
use super::{cluster, Set, Usual, VmcOptions};
use crate::context::Context;
use crate::files::{fresh_dir, sync_file_system};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::workload::ClusterShape;

/// The disks of `vmc-t2`.
const USUAL: Usual = Usual { disks: 12, days: 1, data_mib: 256 };

/// One number of tasks in one run.
#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    backups: Round,
    /// Plain copies of the segments that the backups read, by so many threads, synced.
    copy_seconds: f64,
    copied_bytes: u64,
}

impl Step {
    /// MB/s of something over all backups.
    fn rate(&self, of: fn(&super::machine::Backup) -> u64) -> f64 {
        mb_per_second(self.backups.sum(of), self.backups.seconds)
    }

    fn copy_rate(&self) -> f64 {
        mb_per_second(self.copied_bytes, self.copy_seconds)
    }
}

/// Runs the experiment: a day for each number of tasks in each run.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let usual = Usual { days: 1 + TASKS.len() * context.runs(), ..USUAL };
    let cluster = cluster(context, options, usual)?;
    let mut machine = Machine::create(context, &cluster)?;
    let lists = context.space().join("lists");
    let mut steps = Vec::new();
    for run in 0..context.runs() {
        for turn in 0..TASKS.len() {
            let tasks = TASKS[(run + turn) % TASKS.len()];
            machine.next_day()?;
            fresh_dir(&lists)?;
            for disk in machine.disks() {
                fs::write(list_of(&lists, disk), listed(disk))?;
            }
            let since = |disk: &DiskFile<'_>| {
                let list = list_of(&lists, disk).display().to_string();
                vec!["--since".into(), disk.newest.clone(), "--changed".into(), list]
            };
            // Neither is always the first one.
            let copies_first = (run + turn) % 2 == 0;
            let before = copies_first.then(|| copy(context, &machine, tasks)).transpose()?;
            let backups = machine.back_up(tasks, since)?;
            let (copy_seconds, copied_bytes) = match before {
                Some(copied) => copied,
                None => copy(context, &machine, tasks)?,
            };
            let step = Step { run, backups, copy_seconds, copied_bytes };
            eprintln!("{tasks} tasks: {:.2} s, copies {copy_seconds:.2} s", step.backups.seconds);
            steps.push(step);
        }
    }
    save(context, cluster.shape(), machine.set, &steps)
}

fn list_of(lists: &Path, disk: &DiskFile<'_>) -> std::path::PathBuf {
    lists.join(disk.name().replace('/', "-"))
}

fn listed(disk: &DiskFile<'_>) -> String {
    disk.changes().ranges().iter().map(|r| format!("{} {}\n", r.start, r.end - r.start)).collect()
}

/// Copies the changed segments of all disks, each disk to a file. Returns the seconds until all is on the disk, and the
/// bytes.
fn copy(context: &Context, machine: &Machine<'_>, tasks: usize) -> Result<(f64, u64)> {
    let dir = fresh_dir(&context.space().join("copies"))?;
    let segment = u64::from(VM_CENTRIC.segment_bytes);
    let jobs: Vec<_> = machine.disks().iter().map(|d| (d.path.clone(), d.changes().clone())).collect();
    let (next, bytes) = (AtomicUsize::new(0), std::sync::atomic::AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let copy_next = || -> Result<()> {
            let mut buffer = vec![0; segment as usize];
            loop {
                let no = next.fetch_add(1, Ordering::Relaxed);
                let Some((path, changes)) = jobs.get(no) else { return Ok(()) };
                let (source, target) = (File::open(path)?, File::create(dir.join(no.to_string()))?);
                let size = source.metadata()?.len();
                for at in (0..size).step_by(segment as usize).filter(|at| changes.touch(*at..*at + segment)) {
                    let length = segment.min(size - at) as usize;
                    source.read_exact_at(&mut buffer[..length], at)?;
                    target.write_all_at(&buffer[..length], at)?;
                    bytes.fetch_add(length as u64, Ordering::Relaxed);
                }
                target.sync_all()?;
            }
        };
        let workers: Vec<_> = (0..tasks).map(|_| scope.spawn(copy_next)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().ok().context("a copy has failed")?)
    })?;
    sync_file_system(&dir)?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_dir_all(dir)?;
    Ok((seconds, bytes.into_inner()))
}

fn save(context: &Context, shape: ClusterShape, set: Set, steps: &[Step]) -> Result<()> {
    let of = |tasks: usize, value: &dyn Fn(&Step) -> f64| {
        median(steps.iter().filter(|s| s.backups.tasks == tasks).map(value))
    };
    let header = [
        "tasks",
        "backup MB/s of the disks",
        "of changed segments",
        "new MB/s",
        "stored MB/s",
        "copies MB/s",
        "backup / copies",
    ];
    let mut table = Table::new(header);
    let ratio = |s: &Step| s.rate(|b| b.read_bytes) / s.copy_rate();
    for tasks in TASKS {
        table.row([
            tasks.to_string(),
            figure(of(tasks, &|s| s.rate(|b| b.nonzero_bytes)), 1),
            figure(of(tasks, &|s| s.rate(|b| b.read_bytes)), 1),
            figure(of(tasks, &|s| s.rate(|b| b.new_bytes)), 1),
            figure(of(tasks, &|s| s.rate(|b| b.stored_bytes)), 1),
            figure(of(tasks, &Step::copy_rate), 1),
            figure(of(tasks, &ratio), 3),
        ]);
    }
    let rate = |tasks| of(tasks, &|s| s.rate(|b| b.nonzero_bytes));
    let mut bars: Vec<Bar> = TASKS[1..]
        .iter()
        .map(|&n| Bar::shown(format!("{n} tasks / 1 task"), rate(n).zip(rate(1)).map(|(a, b)| a / b)))
        .collect();
    bars.push(Bar::shown("one task / plain copies of the changed segments", of(1, &ratio)));
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
        set: Set,
        source_cache: &'static str,
        rates: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    let parameters = Parameters {
        workload: shape,
        set,
        source_cache: "warm",
        rates: "bytes of all disks / seconds from the first start to the last sync; a process for each disk",
    };
    context.save(context.runs(), parameters, Results { bars: &bars, steps }, &text)?;
    context.print(&text);
    Ok(())
}
