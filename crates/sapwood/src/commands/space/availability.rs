//! `sapwood stats --availability`

use crate::args::{Args, Availability};
use crate::commands::names::open;
use crate::system::own_directory::scratch;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{print_json, table};
use crate::terminal::streams::outln;
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use vault::Cluster;

/// Failures that are looked at, as in table 7 of the paper.
const FAILED: [u32; 4] = [3, 5, 10, 20];

pub fn run(args: &Args, a: &Availability) -> Result<ExitCode> {
    let cluster = Cluster { machines: a.machines, replicas: a.replicas, shared_replicas: a.shared_replicas };
    cluster.check(0)?;
    let sharing = open(args)?.sharing(&scratch(None))?;
    let (n1, n2, no) = sharing.blocks();
    let mut all = Vec::new();
    for failed in FAILED.into_iter().filter(|d| *d <= a.machines) {
        all.push((failed, sharing.availability(cluster, failed)?));
    }
    if args.json {
        let row = |(failed, a): &(u32, vault::Availability)| json!({ "failed_machines": failed, "centric": a.centric, "oblivious": a.oblivious });
        let rows = all.iter().map(row);
        print_json(&json!({
            "disk_count": sharing.disks(), "own_blocks": n1, "shared_blocks": n2, "oblivious_blocks": no,
            "machine_count": cluster.machines, "replicas": cluster.replicas, "shared_replicas": cluster.shared_replicas,
            "availability": rows.collect::<Vec<_>>(), "damage": sharing.damaged,
        }));
        return Ok(with_damage(&sharing.damaged));
    }
    outln!(
        "{} disks need on average {n1:.1} containers of their own and {n2:.1} that they share; stored without regard to \
         disks, {no:.1} that any disk may share",
        sharing.disks()
    );
    outln!(
        "on {} machines, {} replicas of a container, {} of a shared one: disks whose snapshots are all there",
        cluster.machines,
        cluster.replicas,
        cluster.shared_replicas
    );
    let percent = |part: f64| format!("{:.4} %", 100.0 * part);
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|(failed, a)| {
            let parts = [a.centric, a.oblivious].map(percent);
            std::iter::once(failed.to_string()).chain(parts).collect()
        })
        .collect();
    let headings = ["machines failed", ">as stored", ">without regard to disks"];
    table(&headings, &rows);
    Ok(with_damage(&sharing.damaged))
}
