//! `sapwood snapshots`

use crate::args::Args;
use crate::commands::names::open;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{print_json, size, table};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use vault::format_time;

pub fn run(args: &Args, disk: Option<&str>) -> Result<ExitCode> {
    let listing = open(args)?.snapshots(disk)?;
    let all = &listing.snapshots;
    if args.json {
        let list: Vec<_> = all
            .iter()
            .map(|s| {
                let e = &s.entry;
                json!({
                    "disk": s.disk,
                    "snapshot": e.id.to_string(),
                    "time": e.time,
                    "parent": e.parent.map(|p| p.to_string()),
                    "policy": e.policy,
                    "size": e.size,
                    "data_bytes": e.data_bytes,
                    "changed_bytes": e.changed_bytes,
                    "new_bytes": e.new_bytes,
                    "stored_bytes": e.stored_bytes,
                    "held": e.held,
                    "tags": e.tags.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                })
            })
            .collect();
        print_json(&json!({ "snapshots": list, "damaged": listing.damaged }));
        return Ok(with_damage(&listing.damaged));
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|s| {
            let e = &s.entry;
            let held = e.held.then(|| "held".to_owned());
            let tags = held.into_iter().chain(e.tags.iter().map(|(k, v)| format!("{k}={v}")));
            let tags: Vec<String> = tags.collect();
            vec![
                s.disk.clone(),
                e.id.to_string(),
                format_time(e.time),
                size(e.size),
                size(e.new_bytes),
                size(e.stored_bytes),
                tags.join(" "),
            ]
        })
        .collect();
    table(&["disk", "snapshot", "time (UTC)", ">size", ">new", ">stored", "tags"], &rows);
    Ok(with_damage(&listing.damaged))
}
