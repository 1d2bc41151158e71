//! What is known of the vault and its jobs, and what is wrong with them.

use super::job_status::JobStatus;
use super::level::{Level, Problem};
use crate::args::Args;
use crate::commands::names::{open_at, store_url};
use crate::commands::snapshots::pattern::fits;
use crate::jobs::config::Config;
use crate::jobs::settings::Job;
use crate::jobs::sizes::Growth;
use crate::jobs::source::DiskSource;
use crate::jobs::state::StateDir;
use crate::live::domain_pattern;
use crate::terminal::outcome::one_line;
use crate::terminal::output::{age, counted};
use crate::times::is_future;
use std::cmp::Reverse;
use vault::{format_time, now, DiskHealth, Health};

/// All that is known.
pub struct Status {
    pub now: i64,
    /// What the vault says; `None` where it cannot be read.
    pub vault: Option<Health>,
    pub jobs: Vec<JobStatus>,
    /// How the vault has grown; `None` where jobs have not kept its size long enough.
    pub growth: Option<Growth>,
    pub problems: Vec<Problem>,
}

impl Status {
    /// Looks at the configuration, the states of jobs and the vault. What keeps it from looking is a problem,
    /// too.
    pub fn look(args: &Args, warn_age: Option<u64>) -> Status {
        let mut status =
            Status { now: now(), vault: None, jobs: Vec::new(), growth: None, problems: Vec::new() };
        let config = Config::find(args.config.as_deref()).unwrap_or_else(|e| {
            status.add(Level::Unknown, one_line(&e));
            None
        });
        let health = store_url(args)
            .and_then(|store| open_at(args, &store))
            .and_then(|vault| vault.health().map_err(anyhow::Error::from));
        match health {
            Ok(health) => status.vault = Some(health),
            // The configuration's error was told.
            Err(e) => {
                let what = one_line(&e);
                if !status.problems.iter().any(|p| p.what == what) {
                    status.add(Level::Unknown, what)
                }
            }
        }
        if let Some(config) = &config {
            status.judge_jobs(config);
            status.growth = status.growth_of(args, config);
        }
        status.judge_disks(config.map(|c| c.jobs).unwrap_or_default().as_slice(), warn_age);
        // Stable: what is worst is told first.
        status.problems.sort_by_key(|p| Reverse(p.level));
        status
    }

    /// Adds a problem.
    pub fn add(&mut self, level: Level, what: String) {
        self.problems.push(Problem { level, what });
    }

    /// That of the worst problem.
    pub fn level(&self) -> Level {
        self.problems.iter().map(|p| p.level).max().unwrap_or(Level::Ok)
    }

    fn judge_jobs(&mut self, config: &Config) {
        let states = match StateDir::of(config) {
            Ok(states) => states,
            Err(e) => return self.add(Level::Unknown, one_line(&e)),
        };
        for job in &config.jobs {
            let status = JobStatus::of(job, &states, self.now);
            self.problems.extend(status.problem());
            self.jobs.push(status);
        }
    }

    /// What cannot be read is no health of the vault.
    fn growth_of(&self, args: &Args, config: &Config) -> Option<Growth> {
        let stored = self.vault.as_ref()?.stored_bytes;
        let sizes = StateDir::of(config).ok()?.sizes(&store_url(args).ok()?).ok()?;
        sizes.growth(stored, self.now)
    }

    fn judge_disks(&mut self, jobs: &[Job], warn_age: Option<u64>) {
        let Some(health) = &self.vault else { return };
        let mut problems = Vec::new();
        let mut add = |level, what| problems.push(Problem { level, what });
        for line in &health.damaged {
            add(Level::Critical, line.clone());
        }
        if health.damaged_popular > 0 {
            add(
                Level::Critical,
                format!("popular set: {}", damaged(health.damaged_popular, "sapwood verify --data")),
            );
        }
        for disk in &health.disks {
            if disk.damaged_containers > 0 {
                let what = damaged(disk.damaged_containers, &format!("sapwood verify {} --data", disk.name));
                add(Level::Critical, format!("{}: {what}", disk.name));
            }
            if let Some(v) = disk.verified.filter(|v| v.damaged_objects > 0 && disk.damaged_containers == 0) {
                let what = format!(
                    "{0}: the verification of {1} found {2} and {3}; `sapwood verify {0} --data` tells more",
                    disk.name,
                    format_time(v.time),
                    counted(v.damaged_objects, "damaged object"),
                    counted(v.damaged_snapshots, "damaged snapshot")
                );
                add(Level::Critical, what);
            }
            let allowed =
                jobs.iter().filter(|j| is_of(disk, j)).filter_map(|j| j.warn_age).min().or(warn_age);
            if allowed.is_some() && disk.newest.is_none() {
                let what =
                    format!("{0}: has no snapshot; `sapwood remove {0}` takes its name away", disk.name);
                add(Level::Warning, what);
            }
            if let Some(newest) = disk.newest.as_ref().filter(|s| is_future(s.time)) {
                let what = format!(
                    "{0}: snapshot {1} is of {2}, in the future, and stays the latest until then; if that time is wrong, \
                     delete {0}@{1}",
                    disk.name,
                    newest.id,
                    format_time(newest.time)
                );
                add(Level::Warning, what);
            }
            if let Some((allowed, newest)) = allowed.zip(disk.newest.as_ref()) {
                if self.now.saturating_sub(newest.time) > i64::try_from(allowed).unwrap_or(i64::MAX) {
                    let (time, age) = (format_time(newest.time), age(self.now - newest.time));
                    add(Level::Warning, format!("{}: newest snapshot is {age} old ({time})", disk.name));
                }
            }
        }
        self.problems.extend(problems);
    }
}

/// Whether a job backs a disk up, by itself, with its machine, or as one of those that fit a pattern.
fn is_of(disk: &DiskHealth, job: &Job) -> bool {
    let vm = disk.name.split_once('/').map(|(vm, _)| vm);
    let fits_pattern = |from: &DiskSource| {
        domain_pattern(&from.source).zip(vm).is_some_and(|(pattern, machine)| fits(pattern, machine))
    };
    job.disks.iter().any(|(name, from)| *name == disk.name || vm == Some(name) || fits_pattern(from))
}

fn damaged(containers: u64, command: &str) -> String {
    let plural = if containers == 1 { "" } else { "s" };
    format!("{containers} damaged container{plural}; `{command}` lists the snapshots they affect")
}
