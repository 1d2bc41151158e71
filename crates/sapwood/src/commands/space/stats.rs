//! `sapwood stats`

use crate::args::Args;
use crate::commands::names::open;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{percent, print_json, size, table};
use crate::terminal::streams::outln;
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use vault::{DiskStats, Fragmentation, NewestStats};

/// Owners that are named one by one; the others are counted.
const OWNERS_SHOWN: usize = 10;

pub fn run(args: &Args, disk: Option<&str>) -> Result<ExitCode> {
    let vault = open(args)?;
    let stats = vault.stats(disk)?;
    let newest = match disk.filter(|_| stats.damaged.is_empty()) {
        Some(disk) => vault.newest_stats(disk)?,
        None => None,
    };
    let logical: u64 = stats.disks.iter().map(|d| d.logical_bytes).sum();
    let nonzero: u64 = stats.disks.iter().map(|d| d.nonzero_bytes).sum();
    let (data, metadata) = (stats.data_bytes(), stats.metadata_bytes());
    if args.json {
        print_json(&json!({
            "logical_bytes": logical,
            "nonzero_bytes": nonzero,
            "data_bytes": data,
            "metadata_bytes": metadata,
            "stored_bytes": data + metadata,
            "popular_data_bytes": stats.popular.data,
            "popular_metadata_bytes": stats.popular.metadata(),
            "other_bytes": stats.other_bytes,
            "disks": stats.disks.iter().map(disk_json).collect::<Vec<_>>(),
            "newest": newest.as_ref().map(newest_json),
            "damage": stats.damaged,
        }));
        return Ok(with_damage(&stats.damaged));
    }
    let rows: Vec<Vec<String>> = stats.disks.iter().map(disk_row).collect();
    let headings = ["disk", ">snapshots", ">size of all", ">not zero", ">data", ">metadata", ">dead"];
    table(&headings, &rows);
    if let Some(newest) = &newest {
        print_newest(newest);
    }
    if stats.popular.data > 0 {
        outln!("popular set: {} data, {} metadata", size(stats.popular.data), size(stats.popular.metadata()));
    }
    outln!(
        "{} of disks ({} not zero) in {}: {} data, {} metadata; {} of the size, {} of what is not zero",
        size(logical),
        size(nonzero),
        size(data + metadata),
        size(data),
        size(metadata),
        percent(data + metadata, logical),
        percent(data + metadata, nonzero),
    );
    if stats.disks.iter().any(|d| d.damaged > 0) {
        outln!("there are damaged containers; `sapwood verify --data` tells which snapshots they affect");
    }
    Ok(with_damage(&stats.damaged))
}

fn disk_row(d: &DiskStats) -> Vec<String> {
    vec![
        d.name.clone(),
        d.snapshots.to_string(),
        size(d.logical_bytes),
        size(d.nonzero_bytes),
        size(d.bytes.data),
        size(d.bytes.metadata()),
        size(d.dead_bytes),
    ]
}

fn disk_json(d: &DiskStats) -> Value {
    json!({
        "disk": d.name,
        "snapshot_count": d.snapshots,
        "logical_bytes": d.logical_bytes,
        "nonzero_bytes": d.nonzero_bytes,
        "data_bytes": d.bytes.data,
        "table_bytes": d.bytes.tables,
        "recipe_bytes": d.bytes.recipes,
        "other_bytes": d.bytes.other,
        "dead_bytes": d.dead_bytes,
        "live_chunks": d.live_chunks,
        "containers": d.containers,
        "foreign_containers": d.foreign_containers,
        "owners": d.owners,
        "damaged_containers": d.damaged,
        "released_objects": d.released,
    })
}

fn newest_json(n: &NewestStats) -> Value {
    let taken = n.taken.iter().map(|t| json!({ "owner": t.owner, "bytes": t.bytes }));
    json!({
        "fragmentation": fragmentation_json(n.fragmentation),
        "own_bytes": n.own_bytes,
        "taken": taken.collect::<Vec<_>>(),
    })
}

/// Where the newest snapshot of a disk lies, and what it takes from whom.
fn print_newest(n: &NewestStats) {
    let f = n.fragmentation;
    outln!(
        "the newest snapshot: {} runs in {} groups of {} containers; a restore reads {:.2} bytes for each that it wants",
        f.runs,
        f.groups,
        f.containers,
        f.amplification(),
    );
    let taken: u64 = n.taken.iter().map(|t| t.bytes).sum();
    outln!(
        "of its {} are its own {}, taken from others {}",
        size(f.wanted_bytes),
        size(n.own_bytes),
        size(taken)
    );
    for t in n.taken.iter().take(OWNERS_SHOWN) {
        outln!("  {} from {}", size(t.bytes), t.owner);
    }
    let more = n.taken.len().saturating_sub(OWNERS_SHOWN);
    if more > 0 {
        outln!("  and from {more} more");
    }
}

/// How scattered a snapshot is, as `stats` and `map` give it.
pub fn fragmentation_json(f: Fragmentation) -> Value {
    json!({
        "runs": f.runs,
        "containers": f.containers,
        "groups": f.groups,
        "wanted_bytes": f.wanted_bytes,
        "fetched_bytes": f.fetched_bytes,
        "stored_bytes": f.stored_bytes,
        "amplification": f.amplification(),
    })
}
