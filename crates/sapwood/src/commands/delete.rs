//! `sapwood delete`

use super::open;
use crate::args::Args;
use crate::outcome::DAMAGED;
use crate::output::{print_json, size};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use vault::VaultError;

pub fn run(args: &Args, names: &[String]) -> Result<ExitCode> {
    let mut by_disk: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let Some((disk, spec)) = name.split_once('@') else {
            let why = format!("{name}: name the snapshot too, like {name}@latest~1; nothing was deleted");
            return Err(VaultError::Usage(why).into());
        };
        by_disk.entry(disk).or_default().push(spec);
    }
    let vault = open(args)?;
    let start = Instant::now();
    let (mut deleted, mut freed, mut waiting, mut held_up) = (Vec::new(), 0, 0, Vec::new());
    let mut repaired = 0;
    for (disk, specs) in by_disk {
        let report = vault.delete(disk, &specs)?;
        deleted.extend(report.deleted.iter().map(|s| format!("{disk}@{}", s.id)));
        freed += report.freed_bytes;
        repaired += report.repaired_chunks;
        waiting += report.waiting;
        held_up.extend(report.held_up);
    }
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        print_json(&json!({
            "deleted": deleted, "freed_bytes": freed, "waiting_snapshots": waiting, "repaired_chunks": repaired,
            "held_up": held_up, "seconds": seconds,
        }));
    } else {
        println!("deleted {}; {} given back, {seconds:.2} s", deleted.join(", "), size(freed));
        held_up.iter().for_each(|why| println!("no space was given back: {why}"));
        if waiting > 0 {
            println!("the space of {waiting} deleted snapshots waits for a running backup; `sapwood gc` takes it later");
        }
    }
    Ok(if held_up.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}
