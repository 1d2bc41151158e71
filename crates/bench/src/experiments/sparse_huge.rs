//! `sparse-huge`: a sparse disk of 1 TiB with 4 GiB of data scattered over it,
//! against a dense disk of the same data: memory must not grow with the length,
//! and time should follow the data.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::files::{self, Cold, BLOCK_BYTES};
use crate::images::generate::{Content, Random};
use crate::peers::{snapshot, Vault};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::Cost;

const RSS_BYTES_MAX: u64 = 256 << 20;

/// The two disks' shape.
#[derive(Clone, Copy, Debug, Serialize)]
struct Shape {
    sparse_bytes: u64,
    data_bytes: u64,
    /// Data lies in extents of one block up to this.
    extent_bytes_max: u64,
}

/// One measured step.
#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    disk: &'static str,
    what: What,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    FirstBackup,
    UnchangedBackup,
    Restore,
}

const ALL: [What; 3] = [What::FirstBackup, What::UnchangedBackup, What::Restore];
const SPARSE: &str = "sparse";
const DENSE: &str = "dense";

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let shape = if context.options.tiny {
        Shape { sparse_bytes: 16 << 30, data_bytes: 32 << 20, extent_bytes_max: 256 << 10 }
    } else {
        Shape { sparse_bytes: 1 << 40, data_bytes: 4 << 30, extent_bytes_max: 2 << 20 }
    };
    // Both disks, a vault, and what is restored.
    context.require_free(4 * shape.data_bytes)?;
    let sparse = context.space().join("sparse.raw");
    let dense = context.space().join("dense.raw");
    let content = Content::new(context.options.seed);
    write_sparse(&content, &sparse, shape, context.options.seed)?;
    content.write(&File::create(&dense)?, 0, shape.data_bytes, 0)?;
    let disks = [(SPARSE, sparse), (DENSE, dense)];
    let mut steps = Vec::new();
    let mut cold = None;
    for run in 0..context.runs() {
        for turn in 0..disks.len() {
            let (name, path) = &disks[(run + turn) % disks.len()];
            cold = Some(measure(context, run, (name, path), &mut steps)?);
        }
    }
    let bars = bars(&steps, context.runs());
    let text = format!("{}\n{}", table(&steps), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        shape: Shape,
        source_cache: &'static str,
        restore_cache: Option<Cold>,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    let parameters =
        Parameters { shape, source_cache: "warm: read once before each backup", restore_cache: cold };
    context.save(context.runs(), parameters, Results { bars: &bars, steps: &steps }, &text)?;
    context.print(&text);
    Ok(())
}

/// Scatters extents of random lengths: the disk is cut into as many equal slots
/// as there are extents, and each lies at a random block of its own slot.
fn write_sparse(content: &Content, path: &Path, shape: Shape, seed: u64) -> Result<()> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let mut random = Random::new(seed ^ 0x5eed);
    let mut lengths = Vec::new();
    let mut left = shape.data_bytes / BLOCK;
    while left > 0 {
        let length = (1 + random.below(shape.extent_bytes_max / BLOCK)).min(left);
        lengths.push(length);
        left -= length;
    }
    let slot = shape.sparse_bytes / BLOCK / lengths.len() as u64;
    let file = File::create(path)?;
    file.set_len(shape.sparse_bytes)?;
    let mut written = 0;
    for (i, length) in lengths.iter().enumerate() {
        let offset = i as u64 * slot + random.below(slot - length);
        content.write(&file, offset * BLOCK, length * BLOCK, written)?;
        written += length;
    }
    Ok(())
}

fn measure(
    context: &Context,
    run: usize,
    (name, source): (&'static str, &PathBuf),
    steps: &mut Vec<Step>,
) -> Result<Cold> {
    let mut record = |what: What, cost: Cost| {
        eprintln!(
            "run {run} {name:6} {what:?} {:.2} s, {} MiB",
            cost.durable_seconds(),
            cost.rss_bytes_max >> 20
        );
        steps.push(Step { run, disk: name, what, cost });
    };
    let home = files::fresh_dir(&context.space().join("vault"))?;
    let vault = Vault::new(&context.sapwood()?, home.join("vault"), "balanced", None);
    vault.init()?;
    let disk = format!("{name}/vda");
    files::make_warm(source)?;
    record(What::FirstBackup, vault.backup(&disk, source)?.cost);
    files::make_warm(source)?;
    let second = vault.backup(&disk, source)?;
    record(What::UnchangedBackup, second.cost);
    let target = home.join("restored.raw");
    let cold = context.make_cold(&home)?;
    record(What::Restore, vault.restore(&format!("{disk}@{}", snapshot(&second)?), &target)?.cost);
    files::require_equal(source, &target)?;
    std::fs::remove_dir_all(home)?;
    Ok(cold)
}

fn bars(steps: &[Step], runs: usize) -> Vec<Bar> {
    let mut bars = Vec::new();
    for what in ALL {
        let name = serde_json::to_value(what).unwrap_or_default();
        let name = name.as_str().unwrap_or_default().replace('-', " ");
        let peak = steps
            .iter()
            .filter(|step| step.disk == SPARSE && step.what == what)
            .map(|step| step.cost.rss_bytes_max)
            .max();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        bars.push(Bar::at_most(
            format!("sparse, {name}: peak memory, MiB"),
            peak.map(mib),
            mib(RSS_BYTES_MAX),
        ));
        let seconds = |run, disk| {
            let mut of = steps.iter().filter(|s| s.run == run && s.disk == disk && s.what == what);
            of.next().map(|step| step.cost.durable_seconds())
        };
        let ratios = (0..runs).filter_map(|run| Some(seconds(run, SPARSE)? / seconds(run, DENSE)?));
        bars.push(Bar::shown(format!("sparse, {name}: time, times the dense disk"), median(ratios)));
    }
    bars
}

fn table(steps: &[Step]) -> Table {
    let mut table = Table::new(["disk", "step", "s wall", "s sync", "s CPU", "peak MiB"]);
    for disk in [SPARSE, DENSE] {
        for what in ALL {
            let of = || steps.iter().filter(|step| step.disk == disk && step.what == what);
            let median_of = |value: fn(&Cost) -> f64| figure(median(of().map(|s| value(&s.cost))), 2);
            let peak = of().map(|step| step.cost.rss_bytes_max).max().unwrap_or(0);
            table.row([
                disk.to_owned(),
                format!("{what:?}"),
                median_of(|cost| cost.wall_seconds),
                median_of(|cost| cost.sync_seconds),
                median_of(Cost::cpu_seconds),
                (peak >> 20).to_string(),
            ]);
        }
    }
    table
}
