//! `sapwood popular`

use crate::args::{Args, Popular};
use crate::commands::names::open;
use crate::system::own_directory::scratch;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{percent, print_json, size, table};
use crate::terminal::streams::{note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use vault::PopularStatus;

/// Parts of the unique chunks that `status` tells of.
const FRACTIONS: [f64; 7] = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 1.0];
/// Lines of the curve.
const LINES: usize = 16;

pub fn run(args: &Args, what: &Popular) -> Result<ExitCode> {
    match what {
        Popular::Build { fraction, scratch: dir } => build(args, fraction / 100.0, &scratch(dir.as_deref())),
        Popular::Status { scratch: dir } => status(args, &scratch(dir.as_deref())),
    }
}

fn build(args: &Args, fraction: f64, scratch: &Path) -> Result<ExitCode> {
    let r = open(args)?.popular_build(fraction, scratch)?;
    note_done("the popular set was built".into());
    if args.json {
        print_json(&json!({
            "chunks": r.chunks, "bytes": r.bytes, "kept_chunks": r.kept_chunks, "least_disks": r.least_disks,
            "stored_bytes": r.stored_bytes, "damage": r.damaged,
        }));
    } else if r.chunks == 0 {
        outln!("no two disks have a chunk in common: the set is empty");
    } else {
        outln!(
            "the popular set has {} chunks ({}), each of {} disks or more; {} of them are new in it ({} stored)",
            r.chunks,
            size(r.bytes),
            r.least_disks,
            r.chunks - r.kept_chunks,
            size(r.stored_bytes),
        );
    }
    Ok(with_damage(&r.damaged))
}

fn status(args: &Args, scratch: &Path) -> Result<ExitCode> {
    let s = open(args)?.popular_status(scratch)?;
    if args.json {
        let classes =
            s.classes.iter().map(|c| json!({ "disk_count": c.disks, "chunks": c.chunks, "bytes": c.bytes }));
        let fractions = FRACTIONS.iter().map(|f| {
            let (duplicates, bytes) = s.of_top(*f);
            json!({ "fraction": f, "bytes": bytes, "duplicate_bytes": duplicates })
        });
        print_json(&json!({
            "disk_count": s.disks, "chunks": s.chunks(), "duplicate_bytes": s.duplicate_bytes(), "set_chunks": s.set_chunks,
            "classes": classes.collect::<Vec<_>>(), "fractions": fractions.collect::<Vec<_>>(), "damage": s.damaged,
        }));
    } else {
        show(&s);
    }
    Ok(with_damage(&s.damaged))
}

fn show(s: &PopularStatus) {
    outln!(
        "{} disks, {} unique chunks; {} of what they hold are duplicates between disks; {} chunks are in the set",
        s.disks,
        s.chunks(),
        size(s.duplicate_bytes()),
        s.set_chunks
    );
    outln!("");
    outln!("how many disks have a chunk, by its rank");
    let mut rank = 0;
    let most = s.classes.first().map_or(1, |c| c.disks);
    let step = s.classes.len().div_ceil(LINES).max(1);
    for classes in s.classes.chunks(step) {
        let first = rank + 1;
        rank += classes.iter().map(|c| c.chunks).sum::<u64>();
        let bytes: u64 = classes.iter().map(|c| c.bytes).sum();
        let bar = "#".repeat((classes[0].disks as usize * 40).div_ceil(most as usize));
        outln!("{first:>12} to {rank:>12}  {:>9}  {:>6}  {bar}", size(bytes), classes[0].disks);
    }
    outln!("");
    let rows: Vec<Vec<String>> = FRACTIONS
        .iter()
        .map(|f| {
            let (duplicates, bytes) = s.of_top(*f);
            vec![
                format!("{} %", f * 100.0),
                size(bytes),
                size(duplicates),
                percent(duplicates, s.duplicate_bytes().max(1)),
            ]
        })
        .collect();
    table(&["a set of", ">its chunks", ">duplicates of them", ">of all"], &rows);
}
