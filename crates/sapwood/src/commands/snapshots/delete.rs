//! `sapwood delete`

use crate::args::Args;
use crate::commands::names::open_to_change;
use crate::terminal::ask::{can_ask, is_wanted};
use crate::terminal::outcome::{exit_code, one_line};
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{errln, note_done, outln, toldln};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use vault::{format_time, DeleteReport, SnapshotEntry, Vault, VaultError};

pub fn run(args: &Args, names: &[String], yes: bool) -> Result<ExitCode> {
    let mut by_disk: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names {
        let Some((disk, spec)) = name.split_once('@') else {
            let why = format!("{name}: name the snapshot too, like {name}@latest~1; nothing was deleted");
            return Err(VaultError::Usage(why).into());
        };
        by_disk.entry(disk).or_default().push(spec.to_owned());
    }
    let vault = open_to_change(args)?;
    if !yes && can_ask() {
        confirm(&vault, &mut by_disk)?;
    } else if by_disk.len() > 1 {
        // Of one disk all are found before any is deleted; a wrong name must not be met half-way.
        for (disk, specs) in &mut by_disk {
            *specs = ids_of(&vault, disk, specs)?.into_keys().collect();
        }
    }
    let start = Instant::now();
    let mut total = Total::default();
    let mut failed = None;
    for (disk, specs) in by_disk {
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        match vault.delete(disk, &specs) {
            Ok(report) => {
                let is_empty = vault.snapshots(Some(disk)).is_ok_and(|left| left.snapshots.is_empty());
                total.emptied.extend(is_empty.then(|| disk.to_owned()));
                total.add(disk, report);
            }
            Err(e) => {
                total.failed.push(one_line(&anyhow::Error::msg(e.to_string())));
                failed = Some(anyhow::Error::from(e));
                break;
            }
        }
    }
    // Deletions before a failure are reported too.
    if failed.is_none() || !total.deleted.is_empty() {
        total.show(args, start.elapsed().as_secs_f64());
    }
    match failed {
        Some(e) => Err(e),
        None => Ok(total.held_up.first().map_or(ExitCode::SUCCESS, exit_code)),
    }
}

/// Shows which snapshots go, and asks. What is deleted then is what was shown, whatever is backed up meanwhile.
fn confirm(vault: &Vault, by_disk: &mut BTreeMap<&str, Vec<String>>) -> Result<()> {
    for (disk, specs) in by_disk {
        let found = ids_of(vault, disk, specs)?;
        for snapshot in found.values() {
            errln!("{disk}@{}  {}  {}", snapshot.id, format_time(snapshot.time), size(snapshot.size));
        }
        let ids: Vec<String> = found.into_keys().collect();
        if ids.len() == vault.snapshots(Some(disk))?.snapshots.len() {
            errln!("{disk}: has no snapshot left then; `sapwood remove` takes its name away, too");
        }
        *specs = ids;
    }
    if is_wanted("Delete?") {
        Ok(())
    } else {
        Err(VaultError::Refused("nothing was deleted; --yes deletes without a question".into()).into())
    }
}

/// The snapshots of a disk that are meant, by their ids.
fn ids_of(vault: &Vault, disk: &str, specs: &[String]) -> vault::Result<BTreeMap<String, SnapshotEntry>> {
    let found = |spec: &String| vault.find(disk, spec).map(|s| (s.id.to_string(), s));
    specs.iter().map(found).collect()
}

/// What was done to all disks.
#[derive(Default)]
pub struct Total {
    deleted: Vec<String>,
    /// Disks that have no snapshot left.
    emptied: Vec<String>,
    /// What could not be done.
    failed: Vec<String>,
    pub freed_bytes: u64,
    waiting: usize,
    waiting_for: Vec<String>,
    left_shared: u64,
    repaired_chunks: u64,
    pub held_up: Vec<anyhow::Error>,
}

impl Total {
    pub fn add(&mut self, disk: &str, report: DeleteReport) {
        self.deleted.extend(report.deleted.iter().map(|s| format!("{disk}@{}", s.id)));
        self.freed_bytes += report.freed_bytes;
        self.waiting += report.waiting;
        self.left_shared += report.left_shared;
        self.waiting_for.extend(report.waiting_for);
        self.repaired_chunks += report.repaired_chunks;
        self.held_up.extend(report.held_up.map(anyhow::Error::from));
    }

    fn show(&self, args: &Args, seconds: f64) {
        note_done(format!("{} deleted", self.deleted.join(", ")));
        if args.json {
            print_json(&self.json(seconds));
            return;
        }
        let (all, freed) = (self.deleted.join(", "), size(self.freed_bytes));
        toldln!(args.quiet, "deleted {all}; {freed} given back, {seconds:.2} s");
        for disk in &self.emptied {
            outln!("{disk}: has no snapshot left; `sapwood remove {disk}` takes its name away, too");
        }
        self.explain(args.quiet);
    }

    pub fn json(&self, seconds: f64) -> serde_json::Value {
        let held_up: Vec<String> = self.held_up.iter().map(one_line).collect();
        json!({
            "deleted": self.deleted, "emptied_disks": self.emptied, "failed": self.failed, "freed_bytes": self.freed_bytes, "waiting_snapshots": self.waiting,
            "left_shared_containers": self.left_shared,
            "repaired_chunks": self.repaired_chunks, "held_up_reasons": held_up, "seconds": seconds,
        })
    }

    /// Says what space was not given back, and why.
    pub fn explain(&self, quiet: bool) {
        for why in self.held_up.iter().map(one_line) {
            outln!(
                "deleted snapshots are gone from the list, but not all of their space was given back: {why}"
            );
        }
        if self.waiting > 0 {
            let what = match self.waiting_for.as_slice() {
                [] => "a running backup".to_owned(),
                others => others.join(", "),
            };
            toldln!(
                quiet,
                "the space of {} deleted snapshots waits for {what}; `sapwood gc` takes it later",
                self.waiting
            );
        }
        if self.left_shared > 0 {
            toldln!(
                quiet,
                "many disks share {} containers that these snapshots used; `sapwood gc` gives back what none of them needs",
                self.left_shared
            );
        }
    }
}
