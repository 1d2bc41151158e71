//! `sapwood remove`

use crate::args::Args;
use crate::commands::names::open;
use crate::commands::snapshots::delete::Total;
use crate::terminal::outcome::exit_code;
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{err, note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Instant;
use vault::VaultError;

pub fn run(args: &Args, disk: &str, yes: bool) -> Result<ExitCode> {
    let vault = open(args)?;
    let snapshots = vault.snapshots(Some(disk))?.snapshots.len();
    if !yes && !is_wanted(disk, snapshots) {
        let why = format!(
            "{disk}: was not removed; --yes removes it and its {snapshots} snapshots without a question"
        );
        return Err(VaultError::Refused(why).into());
    }
    let start = Instant::now();
    let report = vault.remove(disk)?;
    let seconds = start.elapsed().as_secs_f64();
    note_done(format!("{disk} was removed"));
    let (removed, is_gone) = (report.deletion.deleted.len(), report.is_gone);
    let mut total = Total::default();
    total.add(disk, report.deletion);
    if args.json {
        print_json(&json!({
            "disk": disk, "removed_snapshots": removed, "is_gone": is_gone, "deletion": total.json(seconds),
        }));
    } else {
        outln!(
            "removed {disk} and its {removed} snapshots; {} given back, {seconds:.2} s",
            size(total.freed_bytes)
        );
        total.explain();
        if !is_gone {
            outln!("what other disks use of it stays as long as they do");
        }
    }
    Ok(total.held_up.first().map_or(ExitCode::SUCCESS, exit_code))
}

/// Asks at a terminal.
fn is_wanted(disk: &str, snapshots: usize) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    err(&format!("Remove {disk} with its {snapshots} snapshots? [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
