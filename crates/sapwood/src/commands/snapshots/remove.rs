//! `sapwood remove`

use crate::args::Args;
use crate::commands::names::open_to_change;
use crate::commands::snapshots::delete::Total;
use crate::terminal::ask::{can_ask, is_wanted};
use crate::terminal::outcome::exit_code;
use crate::terminal::output::{counted, print_json, size};
use crate::terminal::streams::{note_done, toldln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use vault::VaultError;

pub fn run(args: &Args, disk: &str, yes: bool) -> Result<ExitCode> {
    let vault = open_to_change(args)?;
    let snapshots = counted(vault.snapshots(Some(disk))?.snapshots.len(), "snapshot");
    let ask = || can_ask() && is_wanted(&format!("Remove {disk} with its {snapshots}?"));
    if !yes && !ask() {
        let why = format!("{disk}: was not removed; --yes removes it and its {snapshots} without a question");
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
        toldln!(
            args.quiet,
            "removed {disk} and its {}; {} given back, {seconds:.2} s",
            counted(removed, "snapshot"),
            size(total.freed_bytes)
        );
        total.explain(args.quiet);
        if !is_gone {
            toldln!(args.quiet, "what other disks use of it stays as long as they do");
        }
    }
    Ok(total.held_up.first().map_or(ExitCode::SUCCESS, exit_code))
}
