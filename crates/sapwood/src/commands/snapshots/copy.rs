//! `sapwood copy`

use crate::args::{Args, Copy};
use crate::commands::names::{open_at_to_change, open_to_read};
use crate::commands::snapshots::pattern::{self, Named};
use crate::live::{CHECKPOINT_TAG, IMAGE_TAG};
use crate::progress;
use crate::terminal::outcome::{exit_code, one_line, with_damage};
use crate::terminal::output::{counted, print_json, size};
use crate::terminal::streams::{errln, note_done, outln, toldln};
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use std::time::Instant;
use vault::{Copied, CopyOptions, CopyReport, Progress, Vault, VaultError};

/// What became of one disk, or of one of its snapshots.
struct Done {
    name: String,
    report: CopyReport,
    error: Option<anyhow::Error>,
}

pub fn run(args: &Args, a: &Copy) -> Result<ExitCode> {
    let (from, to) = (open_to_read(args)?, open_at_to_change(args, &a.to)?);
    check_other(&from, &to)?;
    let (single, patterns): (Vec<String>, Vec<String>) =
        a.names.iter().cloned().partition(|n| n.contains('@'));
    let Named { disks, damaged } = pattern::find(&from, &patterns, a.all)?;
    let names: Vec<String> = disks.into_iter().chain(single).collect();
    let start = Instant::now();
    let done = progress::watch(args.quiet, "copy", |progress| copy_all(args, &from, &to, names, progress));
    let seconds = start.elapsed().as_secs_f64();
    let sum = |of: fn(&Copied) -> u64| done.iter().flat_map(|d| &d.report.copied).map(of).sum::<u64>();
    let snapshots = sum(|_| 1);
    let (read, stored) = (sum(|c| c.read_bytes), sum(|c| c.snapshot.stored_bytes));
    let failed: Vec<String> = done.iter().filter_map(|d| Some(line(&d.name, d.error.as_ref()?))).collect();
    if args.json {
        print_json(&json!({
            "to": to.location(),
            "disks": done.iter().map(listed).collect::<Vec<_>>(),
            "snapshot_count": snapshots,
            "read_bytes": read,
            "stored_bytes": stored,
            "failed": failed,
            "damage": damaged,
            "seconds": seconds,
        }));
    } else {
        toldln!(
            args.quiet,
            "{} copied: {} read, {} stored, {seconds:.2} s",
            counted(snapshots, "snapshot"),
            size(read),
            size(stored)
        );
        failed.iter().for_each(|line| errln!("sapwood: {line}"));
    }
    note_done(format!("{snapshots} snapshots were copied"));
    let worst = done.iter().find_map(|d| d.error.as_ref());
    Ok(worst.map_or_else(|| with_damage(&damaged), exit_code))
}

/// Refuses the vault itself as the one that it is copied to.
pub fn check_other(from: &Vault, to: &Vault) -> Result<()> {
    let place = |vault: &Vault| {
        let location = vault.location();
        std::fs::canonicalize(&location).unwrap_or_else(|_| location.into())
    };
    if place(from) == place(to) {
        let why = format!("{}: is the vault that is copied; name another one", to.location());
        return Err(VaultError::Usage(why).into());
    }
    Ok(())
}

/// Copies one after the other. One that fails keeps no other from its turn, unless the user has stopped all of them.
fn copy_all(args: &Args, from: &Vault, to: &Vault, names: Vec<String>, progress: &Progress) -> Vec<Done> {
    let mut all = Vec::new();
    for name in names {
        let (disk, spec) = match name.split_once('@') {
            Some((disk, spec)) => (disk, Some(spec.to_owned())),
            None => (name.as_str(), None),
        };
        let options = options(spec);
        let mut report = CopyReport::default();
        let copied = from.copy(disk, to, &options, progress, &mut report);
        let stopped = matches!(copied, Err(VaultError::Cancelled));
        let done = Done { error: copied.err().map(anyhow::Error::from), name, report };
        if !args.json && !args.quiet {
            tell(&done);
        }
        all.push(done);
        if stopped {
            break;
        }
    }
    all
}

/// What a copy leaves out: tags that lead the next backup of the vault that made them.
pub fn options(snapshot: Option<String>) -> CopyOptions {
    CopyOptions { snapshot, tags_left_out: [CHECKPOINT_TAG, IMAGE_TAG].map(str::to_owned).into() }
}

fn line(name: &str, e: &anyhow::Error) -> String {
    let why = one_line(e);
    // Many errors name the disk themselves.
    if why.starts_with(name) {
        why
    } else {
        format!("{name}: {why}")
    }
}

fn tell(Done { name, report, .. }: &Done) {
    let read: u64 = report.copied.iter().map(|c| c.read_bytes).sum();
    let stored: u64 = report.copied.iter().map(|c| c.snapshot.stored_bytes).sum();
    let mut line = format!(
        "{name}: {} copied, {} read, {} stored",
        counted(report.copied.len(), "snapshot"),
        size(read),
        size(stored)
    );
    if report.there > 0 {
        line += &format!("; {} were there", report.there);
    }
    if report.older > 0 {
        line += &format!(
            "; {} older than the newest that both vaults have are not there and were left out",
            report.older
        );
    }
    outln!("{line}");
}

fn listed(Done { name, report, error }: &Done) -> Value {
    let copied = |c: &Copied| {
        let s = &c.snapshot;
        json!({
            "snapshot": s.id.to_string(),
            "time": s.time,
            "read_bytes": c.read_bytes,
            "new_bytes": s.new_bytes,
            "stored_bytes": s.stored_bytes,
        })
    };
    json!({
        "disk": name,
        "copied": report.copied.iter().map(copied).collect::<Vec<_>>(),
        "there": report.there,
        "older": report.older,
        "error": error.as_ref().map(one_line),
    })
}
