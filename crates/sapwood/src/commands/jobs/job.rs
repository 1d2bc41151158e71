//! One run of one job: its steps in order (docs/flows/jobs.md).

use super::report::{outcome_of, JobReport};
use crate::args::{Args, Backup};
use crate::commands::backup::{domains_of, Backed, Machine};
use crate::commands::names::open_at_to_change;
use crate::commands::snapshots::copy::{check_other, options as copy_options};
use crate::devices::OpenVault;
use crate::jobs::settings::Job;
use crate::jobs::shell_command;
use crate::jobs::source::DiskSource;
use crate::jobs::state::Outcome;
use crate::live::domain_pattern;
use crate::progress::{is_stopped, watch};
use crate::terminal::escape::shell_word;
use crate::terminal::outcome::one_line;
use crate::terminal::streams::{errln, outln};
use anyhow::Result;
use std::io::IsTerminal;
use std::time::Instant;
use vault::{CopyReport, Vault, VaultError};

/// A run of a job on a store.
pub struct JobRun<'a> {
    pub args: &'a Args,
    pub job: &'a Job,
    pub store: &'a str,
    pub report: JobReport,
    /// Its disks and machines, those among them that fit a pattern.
    disks: Vec<(String, DiskSource)>,
    /// Whether a signal kept it from something.
    is_cut: bool,
}

impl<'a> JobRun<'a> {
    /// One that is about to begin.
    pub fn new(args: &'a Args, job: &'a Job, store: &'a str, report: JobReport) -> Self {
        JobRun { args, job, store, report, disks: Vec::new(), is_cut: false }
    }

    /// All steps. What fails is in the report, and was said.
    pub fn run(&mut self) {
        if let Err(why) = self.command("before", self.job.before.as_deref()) {
            let outcome = if is_stopped() { Outcome::Interrupted } else { Outcome::Failed };
            self.failed(outcome, format!("the command before {why}; nothing was done"));
        } else {
            match open_at_to_change(self.args, self.store) {
                Ok(vault) => {
                    self.work(&vault);
                    self.tell_damage(&vault);
                }
                Err(e) => self.failed(outcome_of(&e), one_line(&e)),
            }
        }
        if self.is_cut {
            self.failed(Outcome::Interrupted, "a signal stopped it before its end".to_owned());
        }
        if let Err(why) = self.command("after", self.job.after.as_deref()) {
            self.failed(Outcome::Failed, format!("the command after {why}"));
        }
        self.report.end();
    }

    /// What needs the vault.
    fn work(&mut self, vault: &Vault) {
        let disks = if self.job.is_upkeep() { self.all_disks(vault) } else { self.back_up_all(vault) };
        let uncopied = self.copy(vault, &disks);
        // Of a disk whose backup or copy failed nothing is deleted.
        for disk in disks.iter().filter(|d| !uncopied.contains(d)) {
            self.step(disk, |run| run.retain(vault, disk));
        }
        self.verify(vault, &disks);
        self.step("gc", |run| run.collect(vault));
        let until = self.job.recompress_for.and_then(|limit| Instant::now().checked_add(limit));
        for disk in &disks {
            self.step(disk, |run| run.recompress(vault, disk, until));
        }
    }

    /// The disks that the vault has. What hides others is a failure.
    fn all_disks(&mut self, vault: &Vault) -> Vec<String> {
        match vault.disk_names() {
            Ok((disks, damaged)) => {
                damaged.into_iter().for_each(|line| self.failed(Outcome::Failed, line));
                disks
            }
            Err(e) => {
                let e = e.into();
                self.failed(outcome_of(&e), one_line(&e));
                Vec::new()
            }
        }
    }

    /// Backs up each disk and machine. Returns the disks that have a new snapshot.
    fn back_up_all(&mut self, vault: &Vault) -> Vec<String> {
        self.find_machines();
        let mut stored = Vec::new();
        for (disk, source) in &self.disks.clone() {
            if self.is_stopped() {
                break;
            }
            match self.back_up(vault, disk, source) {
                Ok(made) => {
                    for one in made.disks.iter().chain(&made.definition) {
                        self.report.stored(one);
                        stored.push(one.disk.clone());
                        if !self.args.json && !self.args.quiet {
                            outln!("{}", one.line());
                        }
                    }
                    if source.is_domain() && made.definition.is_none() {
                        let why = format!("{disk}: libvirt's definition of it is not kept");
                        self.failed(Outcome::Failed, why);
                    }
                }
                Err(e) => {
                    let why = self.report.not_stored(disk, &e);
                    errln!("sapwood: job {}: {why}", self.job.name);
                }
            }
        }
        stored
    }

    /// Sets the disks: of those that the job names by a pattern all that there are now.
    fn find_machines(&mut self) {
        let is_named = |name: &String| self.job.disks.iter().any(|(other, _)| other == name);
        let mut disks = Vec::new();
        let mut failed = None;
        for (name, source) in &self.job.disks {
            let Some(pattern) = domain_pattern(&source.source) else {
                disks.push((name.clone(), source.clone()));
                continue;
            };
            match domains_of(pattern) {
                Ok(domains) => {
                    disks.extend(domains.into_iter().filter(|name| !is_named(name)).map(|domain| {
                        let source =
                            DiskSource { source: format!("libvirt:{domain}").into(), ..source.clone() };
                        (domain, source)
                    }))
                }
                Err(e) => failed = Some(one_line(&e)),
            }
        }
        self.disks = disks;
        if let Some(why) = failed {
            self.failed(Outcome::Failed, why);
        }
    }

    fn back_up(&self, vault: &Vault, disk: &str, source: &DiskSource) -> Result<Machine> {
        let a = self.as_backup(disk, source);
        let what = Backed::parse(&a)?;
        let quiet = self.is_quiet();
        // A thread of its own: the idle priority of `limit` stays with it.
        std::thread::scope(|scope| {
            let work = || what.back_up(quiet, &a, vault);
            let thread = std::thread::Builder::new().name("job".into()).spawn_scoped(scope, work);
            let thread = thread.map_err(VaultError::Thread)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The arguments of the same `sapwood backup`. What a job does not set is as on a command line without options.
    fn as_backup(&self, disk: &str, source: &DiskSource) -> Backup {
        Backup {
            disk: disk.to_owned(),
            source: source.source.clone(),
            force: source.force,
            policy: self.job.policy.clone(),
            isolate: self.job.isolate,
            codec: self.job.codec.clone(),
            // For the disks of running machines only.
            scratch: self.job.scratch.clone().filter(|_| source.is_live()),
            pool: self.job.pool.clone().filter(|_| source.is_volume()),
            agent: source.agent.clone(),
            limit: self.job.limit,
            tag: self.job.tags.iter().map(|(k, v)| format!("{k}={v}")).collect(),
            source_format: source.source_format.clone(),
            allow_backing_outside: source.allow_backing_outside,
            ..Backup::default()
        }
    }

    /// Copies the job's disks to the other vault, with what earlier runs have left to do, also where the backup failed.
    /// Returns those that are not all there; where they cannot be listed, those that were backed up.
    fn copy(&mut self, vault: &Vault, backed_up: &[String]) -> Vec<String> {
        let Some(url) = &self.job.copy_to else { return Vec::new() };
        let disks = match self.disks_in(vault) {
            Ok(disks) => disks,
            Err(e) => {
                self.failed(outcome_of(&e), format!("nothing was copied: {}", one_line(&e)));
                return backed_up.to_vec();
            }
        };
        let to = open_at_to_change(self.args, url).and_then(|to| check_other(vault, &to).map(|()| to));
        let to = match to {
            Ok(to) => to,
            Err(e) => {
                self.failed(outcome_of(&e), format!("nothing was copied: {}", one_line(&e)));
                return disks;
            }
        };
        let mut uncopied = Vec::new();
        for disk in disks {
            if !self.step(&disk, |run| run.copy_disk(vault, &disk, &to)) {
                uncopied.push(disk);
            }
        }
        self.tell_damage(&to);
        uncopied
    }

    /// The disks of the job that the vault has, those of its machines among them.
    fn disks_in(&self, vault: &Vault) -> Result<Vec<String>> {
        let is_its = |disk: &String| {
            let machine = disk.split_once('/').map_or("", |(machine, _)| machine);
            self.job.is_upkeep() || self.disks.iter().any(|(name, _)| name == disk || name == machine)
        };
        Ok(vault.disk_names()?.0.into_iter().filter(is_its).collect())
    }

    /// Records the damage that was met in a vault. It is a failure, unless a signal has come: then the next run meets it again.
    fn tell_damage(&mut self, vault: &OpenVault) {
        match vault.damage_recorded() {
            Some(why) if self.is_stopped() => errln!("sapwood: job {}: {why}", self.job.name),
            Some(why) => self.failed(Outcome::Failed, format!("{}: {why}", vault.location())),
            None => {}
        }
    }

    fn copy_disk(&mut self, vault: &Vault, disk: &str, to: &Vault) -> Result<()> {
        let mut report = CopyReport::default();
        let options = copy_options(None);
        let copied = watch(self.is_quiet(), disk, |p| vault.copy(disk, to, &options, p, &mut report));
        self.report.copied_snapshots += report.copied.len() as u64;
        Ok(copied?)
    }

    fn retain(&mut self, vault: &Vault, disk: &str) -> Result<()> {
        let Some(rules) = &self.job.retain else { return Ok(()) };
        let deletion = vault.retain(disk, rules, &|t| self.job.zone.clock(t), false)?.deletion;
        self.report.deleted_snapshots += deletion.deleted.len() as u64;
        self.report.freed_bytes += deletion.freed_bytes;
        deletion.held_up.map_or(Ok(()), |e| Err(e.into()))
    }

    /// The command with which the job's vault is looked at.
    pub(super) fn sapwood(&self) -> String {
        let store = self.job.store.as_ref();
        store.map_or("sapwood".to_owned(), |store| format!("sapwood --store {}", shell_word(store)))
    }

    fn collect(&mut self, vault: &Vault) -> Result<()> {
        if !self.job.gc {
            return Ok(());
        }
        let report = vault.gc(false)?;
        self.report.freed_bytes += report.freed_bytes;
        if let Some(first) = report.skipped.first() {
            anyhow::bail!("skipped because of damage: {first}");
        }
        Ok(())
    }

    fn recompress(&mut self, vault: &Vault, disk: &str, until: Option<Instant>) -> Result<()> {
        let Some(level) = self.job.recompress else { return Ok(()) };
        let report = watch(self.is_quiet(), disk, |p| vault.recompress(Some(disk), level, until, p))?;
        self.report.freed_bytes += report.freed_bytes;
        self.report.left_bytes += report.left_bytes;
        if let Some(first) = report.skipped.first().or(report.busy.first()) {
            anyhow::bail!("recompression stopped: {first}");
        }
        match report.compacted.damaged {
            0 => Ok(()),
            n => {
                let sapwood = self.sapwood();
                anyhow::bail!("{n} damaged containers; `{sapwood} verify {disk} --data` lists them")
            }
        }
    }

    /// A step that goes on with the next one if it fails. Returns whether it was done.
    pub(super) fn step(&mut self, of: &str, work: impl FnOnce(&mut Self) -> Result<()>) -> bool {
        if self.is_stopped() {
            return false;
        }
        if let Err(e) = work(self) {
            // It looks after what is there: what somebody has taken away meanwhile is not.
            if self.job.is_upkeep() && matches!(e.downcast_ref(), Some(VaultError::NotFound { .. })) {
                return true;
            }
            let why = one_line(&e);
            let why = if why.starts_with(of) { why } else { format!("{of}: {why}") };
            self.failed(outcome_of(&e), why);
            return false;
        }
        true
    }

    pub(super) fn is_stopped(&mut self) -> bool {
        self.is_cut |= is_stopped();
        is_stopped()
    }

    fn failed(&mut self, outcome: Outcome, why: String) {
        errln!("sapwood: job {}: {why}", self.job.name);
        self.report.note(outcome, why);
    }

    fn command(&self, which: &str, command: Option<&str>) -> Result<(), String> {
        let Some(command) = command else { return Ok(()) };
        let is_before = which == "before";
        let outcome = if is_before { "" } else { self.report.outcome().name() };
        let disks = self.report.state.disks.iter();
        let failed = disks.filter(|d| d.outcome != Outcome::Done).map(|d| d.disk.as_str());
        let environment = [
            ("SAPWOOD_COMMAND", which.to_owned()),
            ("SAPWOOD_JOB", self.job.name.clone()),
            ("SAPWOOD_STORE", self.store.to_owned()),
            ("SAPWOOD_OUTCOME", outcome.to_owned()),
            ("SAPWOOD_FAILED_DISKS", failed.collect::<Vec<_>>().join(" ")),
        ];
        shell_command::run(command, &environment, self.job.command_timeout, is_before)
    }

    /// Progress is for people who watch.
    pub(super) fn is_quiet(&self) -> bool {
        self.args.quiet || !std::io::stderr().is_terminal()
    }
}
