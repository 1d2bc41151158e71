//! `sapwood gc` and `sapwood compact`

use crate::args::Args;
use crate::commands::names::open_to_change;
use crate::progress::watch;
use crate::terminal::exit_code::{DAMAGED, REFUSED};
use crate::terminal::output::{counted, print_json, size};
use crate::terminal::streams::{note_done, outln, toldln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vault::GcReport;

pub fn collect(args: &Args, dry_run: bool, all: bool) -> Result<ExitCode> {
    let start = Instant::now();
    let vault = open_to_change(args)?;
    let report = if all { vault.gc_all()? } else { vault.gc(dry_run)? };
    show(args, &report, dry_run, start.elapsed().as_secs_f64())
}

pub fn compact(
    args: &Args,
    disk: Option<&str>,
    threshold: u8,
    recompress: Option<u8>,
    seconds: Option<u64>,
) -> Result<ExitCode> {
    let start = Instant::now();
    let vault = open_to_change(args)?;
    let mut report = vault.compact(disk, f64::from(threshold) / 100.0)?;
    if let Some(level) = recompress {
        let until = seconds.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
        let packed = watch(args.quiet, "recompressing", |p| vault.recompress(disk, level, until, p))?;
        report.add_packed(packed);
    }
    show(args, &report, false, start.elapsed().as_secs_f64())
}

fn show(args: &Args, r: &GcReport, dry_run: bool, seconds: f64) -> Result<ExitCode> {
    if !dry_run {
        note_done(format!("{} was given back", size(r.freed_bytes)));
    }
    if args.json {
        print_json(&json!({
            "dry_run": dry_run,
            "orphans": r.orphans,
            "freed_bytes": r.freed_bytes,
            "dead_sessions": r.dead_sessions,
            "waiting_snapshots": r.waiting,
            "reversed_snapshots": r.reversed,
            "repaired_chunks": r.repaired_chunks,
            "index_parts_removed": r.index_parts,
            "compacted_containers": r.compacted.containers,
            "compacted_before_bytes": r.compacted.before_bytes,
            "compacted_after_bytes": r.compacted.after_bytes,
            "damaged_containers": r.compacted.damaged,
            "left_to_recompress_bytes": r.left_bytes,
            "names_put_back": r.names_put_back,
            "skipped": r.skipped,
            "busy": r.busy,
            "seconds": seconds,
        }));
    } else {
        let would = if dry_run { "would remove" } else { "removed" };
        toldln!(
            args.quiet && !dry_run,
            "{would} {} and {}; {} compacted ({} to {}); {} given back, {seconds:.2} s",
            counted(r.orphans, "orphan"),
            counted(r.dead_sessions, "dead session"),
            counted(r.compacted.containers, "container"),
            size(r.compacted.before_bytes),
            size(r.compacted.after_bytes),
            size(r.freed_bytes),
        );
        if r.left_bytes > 0 {
            toldln!(args.quiet, "{} are left to be compressed again", size(r.left_bytes));
        }
        r.names_put_back.iter().for_each(|disk| toldln!(args.quiet, "put the name of {disk} back"));
        r.skipped.iter().chain(&r.busy).for_each(|s| outln!("skipped: {s}"));
    }
    Ok(if r.compacted.damaged > 0 || !r.skipped.is_empty() {
        ExitCode::from(DAMAGED)
    } else if !r.busy.is_empty() {
        ExitCode::from(REFUSED)
    } else {
        ExitCode::SUCCESS
    })
}
