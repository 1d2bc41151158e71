//! `peers-backup`, `peers-incremental`, `peers-restore`, and `peers` for all
//! three: Sapwood beside what people use today.
//!
//! Each run gives each tool a new, empty repository for all disks and goes
//! through the versions as the weeks would: version by version, disk by disk.
//! Within each such step the tools take turns, in an order that rotates with
//! step and run, so that a noisy minute hits all alike. Sources are read once
//! before each backup (warm); restores start with an empty page cache (cold)
//! except for the tool's own program, and are compared with their source byte by byte. All repositories and
//! targets are on one file system, and every step ends with a `syncfs` of it.

mod measure;
mod step;
mod summary;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files::Cold;
use crate::images::{Disk, GeneratedShape, ImageSet};
use crate::peers::{self, Description, Mode};
use measure::Bench;
pub use step::{Measured, Measurement, Step};

/// What the comparison consists of.
#[derive(clap::Args, Clone, Debug)]
pub struct PeersOptions {
    /// Comparisons: default, zstd3, lz4, zstd1 [default: default,zstd3,lz4; with --tiny default]
    #[arg(long, value_delimiter = ',')]
    modes: Vec<String>,
    /// Only these tools, by the names of the result's table [default: all of the comparisons]
    #[arg(long, value_delimiter = ',')]
    tools: Vec<String>,
    /// Leave out cp, zstd and qcow2
    #[arg(long)]
    no_yardsticks: bool,
}

#[derive(Serialize)]
struct Parameters<'a> {
    images: &'a str,
    disks: Vec<DiskParameters>,
    modes: &'a [Mode],
    tools: &'a [Description],
    not_installed: &'a [String],
    source_cache: &'a str,
    restore_cache: Option<Cold>,
    throughput: &'a str,
}

#[derive(Serialize)]
struct DiskParameters {
    name: String,
    versions: usize,
    size_bytes: u64,
}

/// Runs the experiment. The result so far is written after each run, for a run
/// of all tools over all versions takes hours.
pub fn run(context: &Context, options: &PeersOptions, measured: Measured) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 2, size_bytes: 24 << 20 };
    let mut images = context.images("full", tiny)?;
    if !measured.stores_all_versions() {
        images.truncate(None, Some(1));
    }
    let modes = modes(context, options)?;
    let mut bench = Bench::new(context, &images, measured, tool_names(options, &modes))?;
    if !context.options.tiny {
        bench.rehearse()?;
    }
    let mut measurement = Measurement {
        modes,
        tools: bench.tools.clone(),
        missing: bench.missing.clone(),
        steps: Vec::new(),
        newest: images.versions_max() - 1,
    };
    let mut text = String::new();
    for run in 0..context.runs() {
        measurement.steps.extend(bench.one_run(run)?);
        text = save(context, &images, &measurement, measured, run + 1, bench.cold)?;
    }
    context.print(&text);
    Ok(())
}

/// Writes the result and draws the figures; returns the tables.
fn save(
    context: &Context,
    images: &ImageSet,
    measurement: &Measurement,
    measured: Measured,
    runs: usize,
    restore_cache: Option<Cold>,
) -> Result<String> {
    #[derive(Serialize)]
    struct Results<'a> {
        summary: &'a summary::Summary,
        steps: &'a [Step],
    }
    let summary = summary::summarise(measurement, measured);
    summary::draw(context, measurement, measured)?;
    let describe = |disk: &'_ Disk| DiskParameters {
        name: disk.name.clone(),
        versions: disk.versions.len(),
        size_bytes: disk.versions[0].size_bytes,
    };
    let parameters = Parameters {
        images: &images.name,
        disks: images.disks.iter().map(describe).collect(),
        modes: &measurement.modes,
        tools: &measurement.tools,
        not_installed: &measurement.missing,
        source_cache: "warm: read once before each backup",
        restore_cache,
        throughput: "length of the disks / (wall time until the tool returned + syncfs)",
    };
    let text = summary.text();
    context.save(runs, parameters, Results { summary: &summary, steps: &measurement.steps }, &text)?;
    Ok(text)
}

fn modes(context: &Context, options: &PeersOptions) -> Result<Vec<Mode>> {
    let usual: &[&str] = if context.options.tiny { &["default"] } else { &["default", "zstd3", "lz4"] };
    let wanted: Vec<&str> = match options.modes.as_slice() {
        [] => usual.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let find = |name: &&str| {
        let mode = peers::MODES.iter().find(|mode| mode.name == *name);
        mode.copied().with_context(|| format!("no mode {name}"))
    };
    wanted.iter().map(find).collect()
}

fn tool_names(options: &PeersOptions, modes: &[Mode]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let of_modes = modes.iter().flat_map(|mode| std::iter::once(&mode.subject).chain(mode.peers));
    let yardsticks = peers::YARDSTICKS.iter();
    for name in of_modes.chain(yardsticks.filter(|_| !options.no_yardsticks)) {
        if !names.iter().any(|known| known == name) {
            names.push((*name).to_owned());
        }
    }
    if !options.tools.is_empty() {
        names.retain(|name| options.tools.contains(name));
    }
    names
}
