//! `sapwood retain`

use crate::args::{Args, Retain};
use crate::commands::names::open_to_change;
use crate::commands::snapshots::delete::Total;
use crate::commands::snapshots::pattern::{self, Named};
use crate::jobs::config::Config;
use crate::jobs::schedule::Zone;
use crate::terminal::outcome::{exit_code, one_line, with_damage};
use crate::terminal::output::{counted, print_json, size, table};
use crate::terminal::streams::{errln, note_done, outln, toldln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use vault::{format_time, Keeps, RetainReport, SnapshotEntry, Vault};

pub fn run(args: &Args, a: &Retain) -> Result<ExitCode> {
    let vault = open_to_change(args)?;
    let zone = Config::find(args.config.as_deref())?.map(|c| c.zone).unwrap_or_default();
    let Named { disks, damaged } = pattern::find(&vault, &a.disks, a.all)?;
    let start = Instant::now();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let mut total = Total::default();
    for disk in disks {
        // One that fails keeps no other from its turn.
        match retain(&vault, &disk, a, &zone, &mut total) {
            Ok(snapshots) => done.push((disk, snapshots)),
            Err(e) => failed.push((disk, anyhow::Error::from(e))),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let lines: Vec<String> = failed.iter().map(|(disk, e)| format!("{disk}: {}", one_line(e))).collect();
    if args.json {
        print_json(&json!({
            "dry_run": a.dry_run,
            "disks": done.iter().map(|(disk, all)| json!({ "disk": disk, "snapshots": listed(all) })).collect::<Vec<_>>(),
            "failed": lines,
            "damage": damaged,
            "deletion": total.json(seconds),
        }));
    } else {
        show(args, &done);
        let (stay, go) = count(&done);
        if a.dry_run {
            outln!("{} would stay, {go} would be deleted", counted(stay, "snapshot"));
        } else {
            toldln!(
                args.quiet,
                "{} left, {go} deleted; {} given back, {seconds:.2} s",
                counted(stay, "snapshot"),
                size(total.freed_bytes)
            );
            total.explain(args.quiet);
        }
        lines.iter().for_each(|line| errln!("sapwood: {line}"));
    }
    if !a.dry_run {
        note_done(format!("{} snapshots were deleted", count(&done).1));
    }
    let worst = failed.first().map(|(_, e)| e).or(total.held_up.first());
    Ok(worst.map_or_else(|| with_damage(&damaged), exit_code))
}

type Judged = Vec<(SnapshotEntry, Vec<Keeps>)>;

fn retain(vault: &Vault, disk: &str, a: &Retain, zone: &Zone, total: &mut Total) -> vault::Result<Judged> {
    let RetainReport { snapshots, deletion } =
        vault.retain(disk, &a.rules(), &|t| zone.clock(t), a.dry_run)?;
    total.add(disk, deletion);
    Ok(snapshots)
}

fn reasons(why: &[Keeps]) -> Vec<&'static str> {
    why.iter().map(|k| k.name()).collect()
}

fn listed(all: &Judged) -> Vec<serde_json::Value> {
    let one = |(s, why): &(SnapshotEntry, Vec<Keeps>)| json!({ "snapshot": s.id.to_string(), "time": s.time, "stays": !why.is_empty(), "kept_by": reasons(why) });
    all.iter().map(one).collect()
}

fn count(done: &[(String, Judged)]) -> (usize, usize) {
    let all = || done.iter().flat_map(|(_, all)| all);
    let go = all().filter(|(_, why)| why.is_empty()).count();
    (all().count() - go, go)
}

fn show(args: &Args, done: &[(String, Judged)]) {
    if args.quiet {
        return;
    }
    let row = |disk: &String, (s, why): &(SnapshotEntry, Vec<Keeps>)| {
        let what = if why.is_empty() { "goes".to_owned() } else { reasons(why).join(" ") };
        vec![disk.clone(), s.id.to_string(), format_time(s.time), what]
    };
    let rows: Vec<Vec<String>> =
        done.iter().flat_map(|(disk, all)| all.iter().map(|s| row(disk, s))).collect();
    table(&["disk", "snapshot", "time", "stays because"], &rows);
}
