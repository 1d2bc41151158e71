//! `sapwood verify`

mod lost_files;
pub mod repair;

use crate::args::Args;
use crate::commands::names::{open, split};
use crate::commands::snapshots::pattern::{self, Named};
use crate::progress::watch;
use crate::terminal::exit_code::DAMAGED;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{counted, print_json, rate, size};
use crate::terminal::streams::{errln, outln, toldln};
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use std::time::Instant;
use vault::{Damage, VaultError, VerifyReport};

/// Snapshots of one line; the rest is counted.
const SNAPSHOTS_MAX: usize = 20;

pub fn run(args: &Args, names: &[String], data: bool) -> Result<ExitCode> {
    let vault = open(args)?;
    let start = Instant::now();
    let (report, hidden) = match names {
        [] => (watch(args.quiet, "verify", |p| vault.verify(None, data, p))?, Vec::new()),
        [name] if name.contains('@') => {
            let (disk, snapshot) = split(name);
            let what = Some((disk, Some(snapshot)));
            (watch(args.quiet, name, |p| vault.verify(what, data, p))?, Vec::new())
        }
        names => {
            if let Some(name) = names.iter().find(|name| name.contains('@')) {
                let why = format!("{name}: verify one snapshot at a time, or whole disks");
                return Err(VaultError::Usage(why).into());
            }
            let Named { disks, damaged } = pattern::find(&vault, names, false)?;
            let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
            let of = if let [one] = disks[..] { one } else { "verify" };
            (watch(args.quiet, of, |p| vault.verify_disks(&disks, data, p))?, damaged)
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        print_report(&report, &hidden, seconds);
    } else {
        for d in &report.damaged {
            outln!("{}: {}; {}", d.object, d.why, affected(d));
        }
        toldln!(args.quiet && report.damaged.is_empty(), "{}", summary(&report, data, seconds));
        toldln!(args.quiet || report.damaged.is_empty(), "`sapwood repair` heals what can be healed");
    }
    if report.others_left && !args.json {
        toldln!(args.quiet, "other disks may be affected, too: `sapwood verify` names their snapshots");
    }
    if let Some(why) = report.not_kept.as_ref().filter(|_| !args.json) {
        toldln!(args.quiet, "`status` and `snapshots` will not know of this: {why}");
    }
    if let Some(why) = &report.unrecorded {
        errln!("sapwood: damaged containers could not be recorded, backups may still match them: {why}");
    }
    let hidden = with_damage(&hidden);
    Ok(if report.damaged.is_empty() { hidden } else { ExitCode::from(DAMAGED) })
}

/// `hidden`: damage that may keep disks from being found that the patterns fit.
fn print_report(r: &VerifyReport, hidden: &[String], seconds: f64) {
    let damaged: Vec<_> = r.damaged.iter().map(damage_json).collect();
    print_json(&json!({
        "disk_count": r.disks,
        "snapshot_count": r.snapshots,
        "containers": r.containers,
        "objects": r.objects_checked,
        "data_bytes": r.data_bytes,
        "stored_bytes_read": r.stored_bytes_read,
        "seconds": seconds,
        "others_left": r.others_left,
        "is_kept": r.not_kept.is_none(),
        "damaged": damaged,
        "damage": hidden,
    }));
}

fn damage_json(d: &Damage) -> Value {
    let snapshots = d.snapshots.iter().map(|name| {
        let (disk, id) = split(name);
        json!({ "disk": disk, "snapshot": id })
    });
    json!({ "object": d.object, "why": d.why, "snapshots": snapshots.collect::<Vec<_>>() })
}

fn affected(d: &Damage) -> String {
    let (shown, more) = d.snapshots.split_at(d.snapshots.len().min(SNAPSHOTS_MAX));
    match (shown, more.len()) {
        ([], _) => "affects no snapshot".into(),
        (_, 0) => format!("affects {}", shown.join(" ")),
        (_, n) => format!("affects {} and {n} more", shown.join(" ")),
    }
}

fn summary(r: &VerifyReport, data: bool, seconds: f64) -> String {
    let read = if data {
        format!("{} of chunks ({} stored)", size(r.data_bytes), size(r.stored_bytes_read))
    } else if r.stored_bytes_read > 0 {
        let bytes = size(r.stored_bytes_read);
        format!("{bytes} of chunks read, which were known to be damaged: whether others are right, only --data can tell")
    } else {
        "no chunks read: whether their bytes are right, only --data can tell".into()
    };
    let speed = if data { format!(", {}", rate(r.data_bytes, seconds)) } else { String::new() };
    let found = match r.damaged.len() {
        0 => "no damage".into(),
        n => counted(n, "damaged object"),
    };
    format!(
        "{}, {}, {}, {}, {read}: {found}, {seconds:.1} s{speed}",
        counted(r.disks, "disk"),
        counted(r.snapshots, "snapshot"),
        counted(r.containers, "container"),
        counted(r.objects_checked, "object")
    )
}
