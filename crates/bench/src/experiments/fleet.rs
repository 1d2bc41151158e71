//! `fleet`: many clones of few templates, the most common private cloud. Each
//! clone has data of its own; then some of each template's clones get the same
//! upgrade. Sapwood beside its `conventional` policy, restic and borg.
//!
//! Two consecutive versions of a disk of the image set are a template and its
//! upgrade. The tools take turns, clone by clone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::generate::{Content, Random};
use crate::images::{GeneratedShape, Image};
use crate::peers::{self, Tool, Version};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::{run as run_program, Cost};

const TOOLS: [&str; 4] = ["sapwood", peers::CONVENTIONAL, "restic", "borg"];
/// Places at which a clone has data of its own.
const OWN_PLACES: u64 = 16;

/// How large the fleet is.
#[derive(clap::Args, Clone, Debug)]
pub struct FleetOptions {
    /// Clones of each template [default: 5; with --tiny 2]
    #[arg(long)]
    clones: Option<usize>,
    /// Clones of each template that are upgraded [default: half of them, rounded up]
    #[arg(long)]
    upgraded: Option<usize>,
    /// Bytes of its own that each clone has
    #[arg(long, default_value_t = 8 << 20)]
    own_bytes: u64,
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    FirstOfTemplate,
    FurtherClone,
    Upgrade,
    RestoreOfFirst,
    RestoreOfLast,
}

const ALL: [What; 5] =
    [What::FirstOfTemplate, What::FurtherClone, What::Upgrade, What::RestoreOfFirst, What::RestoreOfLast];

#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    tool: String,
    what: What,
    disk: String,
    size_bytes: u64,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Debug, Serialize)]
struct Stored {
    run: usize,
    tool: String,
    clones_bytes: u64,
    upgrades_bytes: u64,
}

/// A clone, and how it is made.
struct Clone<'a> {
    disk: String,
    template: &'a Image,
    upgrade: Option<&'a Image>,
    seed: u64,
    is_first: bool,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &FleetOptions) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 2, versions: 2, size_bytes: 48 << 20 };
    let images = context.images("full", tiny)?;
    let clones = options.clones.unwrap_or(if context.options.tiny { 2 } else { 5 });
    let upgraded = options.upgraded.unwrap_or(clones.div_ceil(2));
    let mut fleet = Vec::new();
    for disk in &images.disks {
        for (number, pair) in disk.versions.chunks_exact(2).enumerate() {
            for clone in 0..clones {
                fleet.push(Clone {
                    disk: format!("{}-{number}-{clone}/vda", disk.name.replace('/', "-")),
                    template: &pair[0],
                    upgrade: (clone < upgraded).then_some(&pair[1]),
                    seed: 1 + fleet.len() as u64,
                    is_first: clone == 0,
                });
            }
        }
    }
    ensure!(!fleet.is_empty(), "no disk of the images has two versions");
    let (mut steps, mut stored) = (Vec::new(), Vec::new());
    for run in 0..context.runs() {
        one_run(context, options, run, &fleet, &mut steps, &mut stored)?;
    }
    let text = summary(&steps, &stored);
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        disks: usize,
        upgraded: usize,
        own_bytes: u64,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        steps: &'a [Step],
        stored: &'a [Stored],
    }
    let upgraded = fleet.iter().filter(|c| c.upgrade.is_some()).count();
    let parameters =
        Parameters { images: &images.name, disks: fleet.len(), upgraded, own_bytes: options.own_bytes };
    context.save(context.runs(), parameters, Results { steps: &steps, stored: &stored }, &text)?;
    context.print(&text);
    Ok(())
}

fn one_run(
    context: &Context,
    options: &FleetOptions,
    run: usize,
    fleet: &[Clone<'_>],
    steps: &mut Vec<Step>,
    stored: &mut Vec<Stored>,
) -> Result<()> {
    let home = files::fresh_dir(&context.space().join("fleet"))?;
    let sapwood = context.sapwood()?;
    let mut tools: Vec<(&str, Box<dyn Tool>)> = Vec::new();
    for name in TOOLS {
        if let Some(mut tool) = peers::tool(name, &home, &sapwood)? {
            tool.create()?;
            tools.push((name, tool));
        }
    }
    let mut turn = run;
    let mut store =
        |tools: &mut Vec<(&str, Box<dyn Tool>)>, clone: &Clone<'_>, number: usize| -> Result<()> {
            let image = if number == 0 { clone.template } else { clone.upgrade.unwrap_or(clone.template) };
            let path = make(context, options, &home, image, clone.seed)?;
            let what = match number {
                0 if clone.is_first => What::FirstOfTemplate,
                0 => What::FurtherClone,
                _ => What::Upgrade,
            };
            for n in 0..tools.len() {
                let at = (n + turn) % tools.len();
                let (name, tool) = &mut tools[at];
                files::make_warm(&path)?;
                let cost = tool.backup(Version { disk: &clone.disk, number, path: &path })?;
                let (tool, disk) = ((*name).to_owned(), clone.disk.clone());
                steps.push(Step { run, tool, what, disk, size_bytes: image.size_bytes, cost });
            }
            turn += 1;
            std::fs::remove_file(path)?;
            Ok(())
        };
    for clone in fleet {
        store(&mut tools, clone, 0)?;
    }
    let after_clones: Vec<u64> =
        tools.iter().map(|(_, t)| Ok(t.stored()?.allocated_bytes)).collect::<Result<_>>()?;
    for clone in fleet.iter().filter(|c| c.upgrade.is_some()) {
        store(&mut tools, clone, 1)?;
    }
    for ((name, tool), clones_bytes) in tools.iter().zip(after_clones) {
        let upgrades_bytes = tool.stored()?.allocated_bytes;
        stored.push(Stored { run, tool: (*name).to_owned(), clones_bytes, upgrades_bytes });
    }
    let last = fleet.len() - 1;
    for (clone, what) in [(&fleet[0], What::RestoreOfFirst), (&fleet[last], What::RestoreOfLast)] {
        let number = usize::from(clone.upgrade.is_some());
        let image = clone.upgrade.unwrap_or(clone.template);
        let path = make(context, options, &home, image, clone.seed)?;
        for (name, tool) in &mut tools {
            let dir = files::fresh_dir(&home.join("restored"))?;
            context.make_cold(tool.repository())?;
            let (target, cost) = tool.restore(Version { disk: &clone.disk, number, path: &path }, &dir)?;
            files::require_equal(&path, &target)?;
            std::fs::remove_dir_all(dir)?;
            let (tool, disk) = ((*name).to_owned(), clone.disk.clone());
            steps.push(Step { run, tool, what, disk, size_bytes: image.size_bytes, cost });
        }
        std::fs::remove_file(path)?;
    }
    for (_, tool) in &mut tools {
        tool.verify()?;
    }
    std::fs::remove_dir_all(home)?;
    Ok(())
}

/// Makes a clone: its image with data of its own at places that depend on the seed.
fn make(context: &Context, options: &FleetOptions, home: &Path, image: &Image, seed: u64) -> Result<PathBuf> {
    let path = home.join("clone.raw");
    context.require_free(files::Space::of(&image.path)?.allocated_bytes + options.own_bytes)?;
    let mut copy = std::process::Command::new("cp");
    copy.args(["--sparse=always", "--reflink=auto"]).arg(&image.path).arg(&path);
    run_program(&mut copy, home)?;
    let file = File::options().write(true).open(&path).context("cannot open the clone")?;
    let (content, mut random) = (Content::new(seed), Random::new(seed));
    let blocks = image.size_bytes / BLOCK_BYTES as u64;
    let of_place = (options.own_bytes / OWN_PLACES / BLOCK_BYTES as u64).max(1);
    let mut block = vec![0; BLOCK_BYTES];
    for _ in 0..OWN_PLACES {
        let first = random.below(blocks.saturating_sub(of_place).max(1));
        for n in 0..of_place {
            content.fill(random.bits(), &mut block);
            file.write_all_at(&block, (first + n) * BLOCK_BYTES as u64)?;
        }
    }
    Ok(path)
}

fn summary(steps: &[Step], stored: &[Stored]) -> String {
    let mut table = Table::new([
        "tool",
        "first MB/s",
        "clone MB/s",
        "upgrade MB/s",
        "restore first MB/s",
        "restore last MB/s",
        "stored clones MB",
        "stored all MB",
    ]);
    let rate = |tool: &str, what: What| {
        let of = steps.iter().filter(|s| s.tool == tool && s.what == what);
        median(of.map(|s| mb_per_second(s.size_bytes, s.cost.durable_seconds())))
    };
    let all = |tool: &str| median(of_tool(stored, tool).map(|s| s.upgrades_bytes as f64));
    for tool in TOOLS {
        let mut cells = vec![tool.to_owned()];
        cells.extend(ALL.iter().map(|what| figure(rate(tool, *what), 0)));
        cells.push(figure(median(of_tool(stored, tool).map(|s| s.clones_bytes as f64 / 1e6)), 0));
        cells.push(figure(all(tool).map(|bytes| bytes / 1e6), 0));
        table.row(cells);
    }
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let bars = [
        Bar::at_most("stored, times `conventional`", ratio(all("sapwood"), all(peers::CONVENTIONAL)), 1.10),
        Bar::at_most("stored, times restic", ratio(all("sapwood"), all("restic")), 0.6),
        Bar::at_least(
            "rate of the first backup of a clone, times that of a later version",
            ratio(rate("sapwood", What::FurtherClone), rate("sapwood", What::Upgrade)),
            0.8,
        ),
        Bar::at_least(
            "rate of restoring the last clone, times that of the first",
            ratio(rate("sapwood", What::RestoreOfLast), rate("sapwood", What::RestoreOfFirst)),
            0.95,
        ),
    ];
    format!("{table}\n{}", bars_table(&bars))
}

fn of_tool<'a>(stored: &'a [Stored], tool: &'a str) -> impl Iterator<Item = &'a Stored> {
    stored.iter().filter(move |s| s.tool == tool)
}
