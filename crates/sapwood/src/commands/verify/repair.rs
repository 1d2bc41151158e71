//! `sapwood repair`

use super::lost_files::{self, LostFiles};
use super::{affected, damage_json};
use crate::args::{Args, Repair};
use crate::commands::names::{open, open_at, source_format, store_options, store_url};
use crate::progress::watch;
use crate::terminal::exit_code::DAMAGED;
use crate::terminal::output::{counted, print_json, size};
use crate::terminal::streams::{errln, note_done, outln, toldln};
use anyhow::Result;
use image::SourceOptions;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;
use vault::{OpenDisk, RepairOptions, RepairReport, Vault};

/// Files of one snapshot that are printed; the rest is counted.
const FILES_MAX: usize = 50;

pub fn run(args: &Args, a: &Repair) -> Result<ExitCode> {
    let store = store::open(&store_url(args)?, &store_options(args))?;
    let is_recovered = Vault::recover_file(&*store)?;
    drop(store);
    if is_recovered {
        errln!(
            "sapwood: vault.json and vault.copy were made anew; their policy is that of the newest snapshot"
        );
    }
    let vault = open(args)?;
    let format = source_format(a.source_format.as_deref())?;
    let options = RepairOptions {
        disk: a.disk.clone(),
        data: a.data,
        vaults: a.from_vault.iter().map(|url| open_at(args, url)).collect::<Result<_>>()?,
        disks: a
            .from_source
            .iter()
            .map(|path| -> OpenDisk<'_> {
                // Every chunk is compared with its fingerprint: nothing else of what an image leads to is stored, and one
                // that a guest writes meanwhile serves as well.
                let how = SourceOptions {
                    format,
                    allow_in_use: true,
                    allow_backing_outside: true,
                    follow_names: true,
                    ..SourceOptions::default()
                };
                Box::new(move || image::open(path, &how))
            })
            .collect(),
    };
    let report = watch(args.quiet, a.disk.as_deref().unwrap_or("repair"), |p| vault.repair(&options, p))?;
    note_done(format!("{} damaged containers were written again", report.containers));
    let lost = lost_by_disk(args, &vault, &report)?;
    if args.json {
        print_report(&report, is_recovered, &lost);
    } else {
        print_lines(args.quiet, a.data, &report, &lost);
    }
    Ok(if report.after.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}

/// What cannot be read of the newest snapshot of each disk that is still damaged.
fn lost_by_disk(args: &Args, vault: &Vault, report: &RepairReport) -> Result<Vec<LostFiles>> {
    let mut newest: BTreeMap<String, (i64, String)> = BTreeMap::new();
    let listed = vault.snapshots(None)?;
    let hit: HashSet<&str> = report.after.iter().flat_map(|d| &d.snapshots).map(String::as_str).collect();
    for s in listed.snapshots {
        let name = format!("{}@{}", s.disk, s.entry.id);
        if hit.contains(name.as_str()) {
            let of_disk = newest.entry(s.disk).or_insert((i64::MIN, String::new()));
            if s.entry.time >= of_disk.0 {
                *of_disk = (s.entry.time, name);
            }
        }
    }
    newest.into_values().map(|(_, name)| lost_files::find(args, vault, &name, &report.lost)).collect()
}

fn print_report(r: &RepairReport, is_recovered: bool, lost: &[LostFiles]) {
    print_json(&json!({
        "damaged_before": r.before.iter().map(damage_json).collect::<Vec<_>>(),
        "damaged": r.after.iter().map(damage_json).collect::<Vec<_>>(),
        "is_recovered": is_recovered,
        "manifests": r.manifests,
        "pages": r.pages,
        "recipes": r.recipes,
        "containers": r.containers,
        "chunks_salvaged": r.chunks.salvaged,
        "chunks_found": r.chunks.found,
        "put_off": r.put_off,
        "no_room": r.no_room,
        "lost": lost.iter().map(LostFiles::json).collect::<Vec<_>>(),
    }));
}

fn print_lines(quiet: bool, data: bool, r: &RepairReport, lost: &[LostFiles]) {
    if r.before.is_empty() {
        let more = if data { "" } else { "; `sapwood repair --data` reads all chunks first" };
        toldln!(quiet, "no damage is known{more}");
        return;
    }
    for d in &r.after {
        outln!("{}: {}; {}", d.object, d.why, affected(d));
    }
    for l in lost {
        match l.bytes {
            Some(bytes) => outln!("{}: {} in {} places cannot be read", l.snapshot, size(bytes), l.ranges),
            None => outln!("{}: nothing of it can be read", l.snapshot),
        }
        for file in l.files.iter().take(FILES_MAX) {
            outln!("  {file}");
        }
        if l.files.len() > FILES_MAX {
            outln!("  and {} more files", l.files.len() - FILES_MAX);
        }
        for why in &l.unknown {
            outln!("  {why}");
        }
    }
    for object in &r.put_off {
        outln!("{object}: not repaired now: other maintenance of its disk is at work; run it again");
    }
    for object in &r.no_room {
        outln!("{object}: not repaired: the store is full; make room and run it again");
    }
    for (count, what) in [
        (r.manifests, "manifests were put again from their commit records"),
        (r.pages, "pages of container tables were made again"),
        (r.recipes, "recipes were made again"),
    ] {
        if count > 0 {
            toldln!(quiet, "{count} {what}");
        }
    }
    let (healed, left) = (r.before.len().saturating_sub(r.after.len()), r.after.len());
    toldln!(
        quiet && left == 0,
        "{healed} of {} healed: {} chunks from what is left of their groups, {} found elsewhere",
        counted(r.before.len(), "damaged object"),
        r.chunks.salvaged,
        r.chunks.found
    );
}
