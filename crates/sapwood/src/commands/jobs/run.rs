//! `sapwood run`

use super::job::JobRun;
use super::report::JobReport;
use crate::args::Args;
use crate::commands::names::{open_at, store_url};
use crate::jobs::config::Config;
use crate::jobs::due::is_due;
use crate::jobs::settings::Job;
use crate::jobs::sizes::SizePoint;
use crate::jobs::state::{Outcome, StateDir};
use crate::progress::{catch_signals, is_stopped};
use crate::terminal::exit_code::{FAILED, INTERRUPTED, REFUSED};
use crate::terminal::outcome::one_line;
use crate::terminal::output::{counted, print_json, size};
use crate::terminal::streams::{errln, outln};
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use std::time::Instant;
use vault::now;

/// What came of all jobs.
#[derive(Default)]
struct Total {
    jobs: Vec<JobReport>,
    /// Jobs that another process runs.
    running: Vec<String>,
    /// What failed beside the jobs: locks and states.
    failed: Vec<String>,
}

pub fn run(args: &Args, names: &[String], due: bool) -> Result<ExitCode> {
    let config = Config::need(args.config.as_deref())?;
    let jobs = config.named(names)?;
    config.check_commands()?;
    // Jobs that look after other vaults need none.
    let store = if jobs.iter().all(|job| job.store.is_some()) { String::new() } else { store_url(args)? };
    let states = StateDir::of(&config)?;
    catch_signals();
    let start = Instant::now();
    let mut total = Total::default();
    for job in jobs {
        if is_stopped() {
            break;
        }
        if let Err(e) = one(args, job, &store, &states, due, &mut total) {
            let why = format!("job {}: {}", job.name, one_line(&e));
            errln!("sapwood: {why}");
            total.failed.push(why);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    // A cron line for jobs that are not due sends no mail.
    let is_idle = due && total.jobs.is_empty();
    if args.json {
        print_json(&total.json(seconds));
    } else if !args.quiet && !is_idle {
        outln!("{}", total.line(seconds));
    }
    Ok(total.exit_code(due))
}

/// Runs a job if it should run.
fn one(args: &Args, job: &Job, store: &str, states: &StateDir, due: bool, total: &mut Total) -> Result<()> {
    let store = job.store.as_deref().unwrap_or(store);
    // Without a schedule it is never due, and needs no lock.
    if due && job.schedule.is_none() {
        return Ok(());
    }
    let Some(_lock) = states.lock(&job.name)? else {
        if !due {
            let holder = states.holder(&job.name);
            errln!("sapwood: job {}: is running already, by {holder}; wait until it has ended", job.name);
        }
        total.running.push(job.name.clone());
        return Ok(());
    };
    // Under the lock: another process may have run it just now.
    let last = states.read(&job.name).unwrap_or_else(|e| {
        errln!("sapwood: job {}: {}; it counts as never run", job.name, one_line(&e));
        None
    });
    // Another configuration may have a job of this name.
    let last = last.filter(|s| s.store.is_empty() || s.store == store);
    if due && !is_due(job, last.as_ref(), now()) {
        return Ok(());
    }
    let report = JobReport::begin(&job.name, store, last.and_then(|s| s.last_success));
    states.write(&report.state)?;
    let mut run = JobRun::new(args, job, store, report);
    run.run();
    let written = states.write(&run.report.state);
    total.jobs.push(run.report);
    written?;
    keep_size(args, store, states)
}

/// Keeps the vault's size for `status`. A vault that cannot be read was an error of the job.
fn keep_size(args: &Args, store: &str, states: &StateDir) -> Result<()> {
    let Ok(stored_bytes) = open_at(args, store).and_then(|vault| Ok(vault.stored_bytes()?)) else {
        return Ok(());
    };
    states.add_size(&SizePoint { time: now(), store: store.to_owned(), stored_bytes })
}

impl Total {
    fn outcome(&self) -> Outcome {
        let has = |outcome| self.jobs.iter().any(|j| j.outcome() == outcome);
        if is_stopped() || has(Outcome::Interrupted) {
            Outcome::Interrupted
        } else if has(Outcome::Failed) || !self.failed.is_empty() {
            Outcome::Failed
        } else {
            Outcome::Done
        }
    }

    /// A job that runs already is where `--due` wants it.
    fn exit_code(&self, due: bool) -> ExitCode {
        match self.outcome() {
            Outcome::Interrupted => ExitCode::from(INTERRUPTED),
            Outcome::Failed => ExitCode::from(FAILED),
            Outcome::Done if !due && !self.running.is_empty() => ExitCode::from(REFUSED),
            Outcome::Done => ExitCode::SUCCESS,
        }
    }

    fn json(&self, seconds: f64) -> Value {
        json!({
            "outcome": self.outcome().name(),
            "jobs": self.jobs.iter().map(JobReport::json).collect::<Vec<_>>(),
            "running": self.running,
            "failed": self.failed,
            "seconds": seconds,
        })
    }

    fn line(&self, seconds: f64) -> String {
        let failed = self.jobs.iter().filter(|j| j.outcome() == Outcome::Failed).count() + self.failed.len();
        let (done, not): (Vec<usize>, Vec<usize>) = self.jobs.iter().map(JobReport::counts).unzip();
        let (done, not): (usize, usize) = (done.iter().sum(), not.iter().sum());
        let mut parts = vec![format!("{}, {failed} failed", counted(self.jobs.len(), "job"))];
        if !self.running.is_empty() {
            parts.push(format!("{} running already", self.running.len()));
        }
        if done + not > 0 || self.jobs.iter().all(|j| j.verified_disks == 0) {
            parts.push(format!("{} backed up, {not} not", counted(done, "disk")));
        }
        let verified: u64 = self.jobs.iter().map(|j| j.verified_disks).sum();
        if verified > 0 {
            parts.push(format!("{} verified", counted(verified, "disk")));
        }
        let deleted: u64 = self.jobs.iter().map(|j| j.deleted_snapshots).sum();
        let freed: u64 = self.jobs.iter().map(|j| j.freed_bytes).sum();
        let copied: u64 = self.jobs.iter().map(|j| j.copied_snapshots).sum();
        if copied > 0 {
            parts.push(format!("{} copied", counted(copied, "snapshot")));
        }
        parts.push(format!("{} deleted, {} given back", counted(deleted, "snapshot"), size(freed)));
        let left: u64 = self.jobs.iter().map(|j| j.left_bytes).sum();
        if left > 0 {
            parts.push(format!("{} left to compress again", size(left)));
        }
        let stopped = if is_stopped() { "interrupted: " } else { "" };
        format!("{stopped}{}, {seconds:.1} s", parts.join("; "))
    }
}
