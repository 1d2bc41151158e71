//! `vmc-t6` (table 6): what deletion by filters leaks, step by step, beside formula 2 and beside exact summaries.
//!
//! All disks keep all days; then the newest snapshot of each is deleted, and the next, until one is left. Two vaults do
//! the same: what the one with exact summaries still has is what is needed.

use anyhow::{ensure, Result};
use serde::Serialize;
use vault::{filter_shape, leak_ratio, misjudged, ContainerId, Policy, VM_CENTRIC, VM_CENTRIC_BLOOM};

use super::{back_up_disk, build_set, cluster, Usual, VmcOptions, DISKS_OF_MACHINE};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::LocalVault;
use crate::workload::{Cluster, ClusterShape};

/// The disks of one machine; the paper takes 105 disks.
const USUAL: Usual = Usual { disks: DISKS_OF_MACHINE, days: 10, data_mib: 128 };

/// After so many deletions of each disk.
#[derive(Clone, Copy, Debug, Serialize)]
struct Step {
    deletions: u32,
    /// By formula 2, of each disk's own numbers: the mean over the disks.
    estimated: f64,
    /// Chunks that are left and not needed, of all that the disk had: the mean over the disks.
    measured: f64,
    /// The same with exact summaries: the difference from a repaired vault.
    chunks_leaked: u64,
}

/// A disk before anything is deleted.
struct Before {
    /// Chunks of all snapshots: U.
    all: f64,
    /// Chunks of the first snapshot, each reference once: u.
    first: f64,
    /// More chunks in each later one: delta u.
    added: f64,
    /// The part that a filter takes for referenced by mistake.
    misjudged: f64,
}

/// Runs the experiment. Nothing in it varies between runs.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, USUAL)?;
    let shape = cluster.shape();
    ensure!(shape.days > 1, "there is nothing to delete: give more days (--versions)");
    let fill = |name: &str, policy: Policy| -> Result<LocalVault> {
        let vault = LocalVault::create(&context.space().join(name), policy, None)?;
        build_set(context, &vault, &cluster)?;
        for disk in 0..shape.disks {
            context.require_free(2 * shape.data_bytes)?;
            back_up_disk(&vault, &cluster, disk, shape.days)?;
        }
        Ok(vault)
    };
    let (exact, bloom) = (fill("exact", VM_CENTRIC)?, fill("bloom", VM_CENTRIC_BLOOM)?);
    let before: Vec<Before> =
        (0..shape.disks).map(|disk| look(&exact, disk, shape.days)).collect::<Result<_>>()?;
    let mut steps = Vec::new();
    for deletions in 1..shape.days as u32 {
        let (mut leaked, mut parts) = (0, Vec::new());
        for (disk, before) in before.iter().enumerate() {
            check_interrupted()?;
            let name = Cluster::name(disk);
            for vault in [&exact, &bloom] {
                let report = vault.vault().delete(&name, &["latest"])?;
                ensure!(report.held_up.is_none() && report.waiting == 0, "not deleted: {report:?}");
                ensure!(report.repaired_chunks == 0, "a repair came in between: {report:?}");
            }
            let (needed, there) = (live_chunks(&exact, &name)?, live_chunks(&bloom, &name)?);
            ensure!(there >= needed, "{name}: {there} chunks are left of {needed} that are needed");
            leaked += there - needed;
            parts.push((there - needed) as f64 / before.all);
        }
        let mean = |of: &dyn Fn(&Before) -> f64| before.iter().map(of).sum::<f64>() / before.len() as f64;
        let estimated = mean(&|b| leak_ratio(deletions, b.misjudged, b.first, b.added, shape.days));
        let measured = parts.iter().sum::<f64>() / parts.len() as f64;
        steps.push(Step { deletions, estimated, measured, chunks_leaked: leaked });
        eprintln!("{:?}", steps.last());
    }
    // What repairs find is what was missing, and nothing is left then.
    let repaired = bloom.vault().gc(false)?.repaired_chunks;
    let last = steps.last().map_or(0, |s| s.chunks_leaked);
    ensure!(repaired == last, "{last} chunks had leaked, a repair has found {repaired}");
    let exactly = exact.vault().gc(false)?.repaired_chunks;
    let change = median(before.iter().map(|b| b.added / b.first)).unwrap_or(0.0);
    exact.remove()?;
    bloom.remove()?;
    save(context, shape, &steps, change, exactly)
}

/// What formula 2 needs of a disk.
fn look(vault: &LocalVault, disk: usize, days: usize) -> Result<Before> {
    let name = Cluster::name(disk);
    let chunks = vault.vault().disk_chunks(&name)?;
    let mut first = 0;
    let mut count = |container: ContainerId, run: std::ops::Range<u32>| {
        first += if container.is_own() { u64::from(run.end - run.start) } else { 0 };
    };
    let oldest = chunks.snapshots().next().map(|s| s.id);
    for snapshot in chunks.snapshots().filter(|s| Some(s.id) == oldest) {
        chunks.each_run(snapshot, &mut count)?;
    }
    let all = live_chunks(vault, &name)? as f64;
    let (bits, hashes) = filter_shape(first);
    let added = (all - first as f64).max(0.0) / (days - 1) as f64;
    Ok(Before { all, first: first as f64, added, misjudged: misjudged(bits, hashes, all) })
}

fn live_chunks(vault: &LocalVault, disk: &str) -> Result<u64> {
    let containers = vault.vault().disk_chunks(disk)?.containers()?;
    Ok(containers.iter().map(|c| u64::from(c.chunks - c.dead_chunks)).sum())
}

fn save(context: &Context, workload: ClusterShape, steps: &[Step], change: f64, exactly: u64) -> Result<()> {
    let percent = |part: f64| format!("{:.4} %", 100.0 * part);
    let mut table = Table::new(["deletions", "estimated", "measured", "chunks leaked, all disks"]);
    for s in steps {
        table.row([
            s.deletions.to_string(),
            percent(s.estimated),
            percent(s.measured),
            s.chunks_leaked.to_string(),
        ]);
    }
    let worst = steps.iter().map(|s| s.measured - s.estimated).fold(f64::NEG_INFINITY, f64::max);
    let bars = [
        Bar::at_most("measured less estimated, at its worst", Some(worst), 0.0),
        Bar::at_most("chunks leaked with exact summaries", Some(exactly as f64), 0.0),
        Bar::shown("new chunks of a day / chunks of the first (published: 0.025)", Some(change)),
    ];
    let text = format!("{table}\n{}", bars_table(&bars));
    let line = |of: fn(&Step) -> f64| steps.iter().map(|s| (f64::from(s.deletions), 100.0 * of(s))).collect();
    let series = vec![("estimated".into(), line(|s| s.estimated)), ("measured".into(), line(|s| s.measured))];
    let labels = Labels { title: "Leaks of deletion by filters", x: "deletions", y: "% of a disk's chunks" };
    draw(context.out(), "vmc-t6", &labels, &Figure::Lines { series })?;
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
        added_of_first: f64,
    }
    let results = Results { bars: &bars, steps, added_of_first: change };
    context.save(1, Parameters { workload }, results, &text)?;
    context.print(&text);
    Ok(())
}
