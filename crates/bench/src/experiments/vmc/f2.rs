//! `vmc-f2` (figure 2): how many disks have a chunk, by its rank, after every disk is deduplicated by itself.

use anyhow::{ensure, Result};
use serde::Serialize;
use vault::{PopularStatus, POPULAR_FRACTION, VM_CENTRIC};

use super::month::live_through;
use super::{cluster, Usual, VmcOptions};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, Bar, Table};
use crate::vaults::in_process::LocalVault;
use crate::workload::ClusterShape;

/// Sets that the table tells of, as parts of the distinct chunks.
const FRACTIONS: [f64; 6] = [0.005, 0.01, POPULAR_FRACTION, 0.04, 0.08, 1.0];

/// Chunks that are on the same number of disks.
#[derive(Debug, Serialize)]
struct Class {
    disks: u32,
    chunks: u64,
    bytes: u64,
    /// Of the first of them, from 1 on.
    rank: u64,
}

/// What a set of a size would hold.
#[derive(Debug, Serialize)]
struct Top {
    fraction: f64,
    bytes: u64,
    duplicate_bytes: u64,
    /// Of all duplicates between disks.
    part: f64,
}

/// Runs the experiment. Nothing in it varies between runs.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, Usual::CLUSTER)?;
    let vault = LocalVault::counting(&context.space().join("local"), VM_CENTRIC, None)?;
    let month = live_through(context, &vault, &cluster)?;
    let status = vault.vault().popular_status(context.space())?;
    ensure!(status.damaged.is_empty(), "damaged: {:?}", status.damaged);
    vault.remove()?;
    let classes = ranked(&status);
    let tops: Vec<Top> = FRACTIONS.iter().map(|fraction| top(&status, *fraction)).collect();
    let bars = [
        Bar::shown("slope of the curve between one disk and all", slope(&classes, status.disks)),
        Bar::shown(
            "part of the duplicates between disks in a set of 2 %",
            tops.iter().find(|t| t.fraction == POPULAR_FRACTION).map(|t| t.part),
        ),
    ];
    let text = format!("{}\n{}\n{}", curve(&classes), sets(&tops), bars_table(&bars));
    let line = classes.iter().flat_map(|c| {
        let last = c.rank + c.chunks - 1;
        [c.rank, last].map(|rank| (rank as f64, f64::from(c.disks)))
    });
    let series = vec![(format!("{} disks", status.disks), line.collect())];
    let labels = Labels { title: "Popularity of chunks", x: "rank", y: "disks that have the chunk" };
    draw(context.out(), "vmc-f2", &labels, &Figure::LogLines { series })?;
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        logical_bytes: u64,
        local_bytes: u64,
        chunks: u64,
        classes: &'a [Class],
        sets: &'a [Top],
    }
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
        popularity: &'static str,
    }
    let parameters =
        Parameters { workload: cluster.shape(), popularity: "copies of a chunk once each disk has it once" };
    let results = Results {
        bars: &bars,
        logical_bytes: month.logical_bytes,
        local_bytes: month.live_bytes,
        chunks: status.chunks(),
        classes: &classes,
        sets: &tops,
    };
    context.save(1, parameters, results, &text)?;
    context.print(&text);
    Ok(())
}

fn ranked(status: &PopularStatus) -> Vec<Class> {
    let mut rank = 1;
    let with_rank = status.classes.iter().map(|c| {
        let class = Class { disks: c.disks, chunks: c.chunks, bytes: c.bytes, rank };
        rank += c.chunks;
        class
    });
    with_rank.collect()
}

fn top(status: &PopularStatus, fraction: f64) -> Top {
    let (duplicate_bytes, bytes) = status.of_top(fraction);
    let part = duplicate_bytes as f64 / status.duplicate_bytes().max(1) as f64;
    Top { fraction, bytes, duplicate_bytes, part }
}

/// The slope of the line through the middles of the classes, in a log scale. Chunks that one disk or all of the `disks`
/// have are left out: there the curve cannot go on.
fn slope(classes: &[Class], disks: u64) -> Option<f64> {
    let points: Vec<(f64, f64)> = classes
        .iter()
        .filter(|c| c.disks > 1 && u64::from(c.disks) < disks)
        .map(|c| ((c.rank as f64 * (c.rank + c.chunks - 1) as f64).sqrt().ln(), f64::from(c.disks).ln()))
        .collect();
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    (points.len() > 1 && below > 0.0).then_some(above / below)
}

/// The curve at most at ten places.
fn curve(classes: &[Class]) -> Table {
    let mut table = Table::new(["chunks on disks", "rank from", "to", "MB"]);
    for part in classes.chunks(classes.len().div_ceil(10).max(1)) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        let bytes: u64 = part.iter().map(|c| c.bytes).sum();
        table.row([
            if part.len() > 1 {
                format!("{} to {}", first.disks, last.disks)
            } else {
                first.disks.to_string()
            },
            first.rank.to_string(),
            (last.rank + last.chunks - 1).to_string(),
            format!("{:.1}", bytes as f64 / 1e6),
        ]);
    }
    table
}

fn sets(tops: &[Top]) -> Table {
    let mut table = Table::new(["a set of", "its chunks MB", "duplicates of them MB", "of all %"]);
    for t in tops {
        table.row([
            format!("{} %", 100.0 * t.fraction),
            format!("{:.1}", t.bytes as f64 / 1e6),
            format!("{:.1}", t.duplicate_bytes as f64 / 1e6),
            format!("{:.1}", 100.0 * t.part),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_power_law_is_its_exponent() {
        // 1 / rank: each class has the ranks at which that many disks are reached.
        let mut classes = Vec::new();
        for (disks, first, next) in [(64, 1, 2), (32, 2, 4), (16, 4, 8), (8, 8, 16), (4, 16, 32), (2, 32, 64)]
        {
            classes.push(Class { disks, chunks: next - first, bytes: 0, rank: first });
        }
        let found = slope(&classes, 100).expect("slope");
        assert!((-1.1..-0.9).contains(&found), "{found}");
        assert_eq!(slope(&classes[..1], 100), None);
    }
}
