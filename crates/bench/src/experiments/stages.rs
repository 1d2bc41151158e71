//! `stages`: where the time of a first and of a later backup goes, by the program's own clocks, and what other codecs
//! would change. Each codec has a vault of its own; they take turns.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files;
use crate::images::GeneratedShape;
use crate::peers::Vault;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{figure, Table};
use crate::run::Cost;

/// The policy's own codec, and others in its place.
const CODECS: [(&str, Option<&str>); 4] =
    [("(default)", None), ("zstd 1", Some("zstd:1")), ("zstd 3", Some("zstd:3")), ("lz4", Some("lz4"))];
/// Stages as `backup --json` names them, in the order of the work.
const STAGES: [&str; 7] = ["read", "analyse", "look_up", "place", "pack", "write", "sync"];

/// One backup.
#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    codec: &'static str,
    disk: String,
    version: usize,
    size_bytes: u64,
    cost: Cost,
    /// Of each of [`STAGES`], all threads together.
    stage_seconds: Vec<f64>,
    /// The pass after the commit.
    reverse_seconds: f64,
}

impl Step {
    fn is_later(&self) -> bool {
        self.version > 0
    }
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 3, size_bytes: 24 << 20 };
    let images = context.images("full", tiny)?;
    let (mut steps, mut stored) = (Vec::new(), Vec::new());
    for run in 0..context.runs() {
        let home = files::fresh_dir(&context.space().join("stages"))?;
        let mut vaults = Vec::new();
        for (n, (name, codec)) in CODECS.iter().enumerate() {
            let path = home.join(format!("vault-{n}"));
            let vault = Vault::new(&context.sapwood()?, path, "balanced", codec.map(str::to_owned));
            vault.init()?;
            vaults.push((*name, vault));
        }
        let mut turn = run;
        for version in 0..images.versions_max() {
            for disk in &images.disks {
                let Some(image) = disk.versions.get(version) else { continue };
                turn += 1;
                for n in 0..vaults.len() {
                    let (codec, vault) = &vaults[(n + turn) % vaults.len()];
                    files::make_warm(&image.path)?;
                    let done = vault.backup(&disk.name, &image.path)?;
                    let seconds = |name: &str| done.said["stage_seconds"][name].as_f64();
                    let stage_seconds: Option<Vec<f64>> = STAGES.iter().map(|name| seconds(name)).collect();
                    steps.push(Step {
                        run,
                        codec,
                        disk: disk.name.clone(),
                        version,
                        size_bytes: image.size_bytes,
                        cost: done.cost,
                        stage_seconds: stage_seconds.context("a stage has no time")?,
                        reverse_seconds: done.said["reverse"]["seconds"].as_f64().unwrap_or(0.0),
                    });
                }
            }
        }
        stored.clear();
        for (codec, vault) in &vaults {
            stored.push((*codec, vault.stored()?.allocated_bytes));
        }
        std::fs::remove_dir_all(home)?;
    }
    let text = format!("{}\n{}", stages_table(&steps), codecs_table(&steps, &stored));
    draw_stages(context, &steps)?;
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        disks: usize,
        stages: [&'static str; 7],
    }
    #[derive(Serialize)]
    struct Results<'a> {
        stored_bytes: &'a [(&'static str, u64)],
        steps: &'a [Step],
    }
    let parameters = Parameters { images: &images.name, disks: images.disks.len(), stages: STAGES };
    context.save(context.runs(), parameters, Results { stored_bytes: &stored, steps: &steps }, &text)?;
    context.print(&text);
    Ok(())
}

/// Means over the backups of a codec, first or later ones.
struct Means {
    seconds: f64,
    cpu: f64,
    reverse: f64,
    stages: Vec<f64>,
    mb_per_second: f64,
}

fn means(steps: &[Step], codec: &str, later: bool) -> Means {
    let of: Vec<&Step> = steps.iter().filter(|s| s.codec == codec && s.is_later() == later).collect();
    let count = of.len().max(1) as f64;
    let mean = |value: &dyn Fn(&Step) -> f64| of.iter().map(|s| value(s)).sum::<f64>() / count;
    let seconds = mean(&|s| s.cost.durable_seconds());
    Means {
        seconds,
        cpu: mean(&|s| s.cost.cpu_seconds()),
        reverse: mean(&|s| s.reverse_seconds),
        stages: (0..STAGES.len()).map(|n| mean(&|s| s.stage_seconds[n])).collect(),
        mb_per_second: mean(&|s| s.size_bytes as f64) / 1e6 / seconds.max(1e-9),
    }
}

fn stages_table(steps: &[Step]) -> Table {
    let mut headings: Vec<String> = ["backup", "s in all", "CPU s"].map(str::to_owned).into();
    headings.extend(STAGES.map(|name| name.replace('_', " ")));
    headings.push("reverse pass".to_owned());
    let mut table = Table::new(headings);
    for (name, later) in [("first", false), ("later", true)] {
        let m = means(steps, CODECS[0].0, later);
        let mut row = vec![name.to_owned()];
        let cells = [m.seconds, m.cpu].into_iter().chain(m.stages).chain([m.reverse]);
        row.extend(cells.map(|seconds| figure(Some(seconds), 3)));
        table.row(row);
    }
    table
}

fn codecs_table(steps: &[Step], stored: &[(&'static str, u64)]) -> Table {
    let mut table = Table::new([
        "codec",
        "first MB/s",
        "later MB/s",
        "later s",
        "of it after the commit",
        "CPU s, later",
        "pack s, later",
        "stored MB",
    ]);
    for (codec, _) in CODECS {
        let (first, later) = (means(steps, codec, false), means(steps, codec, true));
        let bytes = stored.iter().find(|(name, _)| *name == codec).map(|(_, bytes)| *bytes as f64 / 1e6);
        table.row([
            codec.to_owned(),
            figure(Some(first.mb_per_second), 0),
            figure(Some(later.mb_per_second), 0),
            figure(Some(later.seconds), 3),
            figure(Some(later.reverse), 3),
            figure(Some(later.cpu), 3),
            figure(Some(later.stages[4]), 3),
            figure(bytes, 0),
        ]);
    }
    table
}

fn draw_stages(context: &Context, steps: &[Step]) -> Result<()> {
    let mut groups: Vec<String> = STAGES.map(|name| name.replace('_', " ")).into();
    groups.push("reverse pass".to_owned());
    let of_codec = |(codec, _): &(&str, Option<&str>)| {
        let m = means(steps, codec, true);
        ((*codec).to_owned(), m.stages.into_iter().chain([m.reverse]).map(Some).collect())
    };
    let figure = Figure::Bars { groups, series: CODECS.iter().map(of_codec).collect() };
    let title = "Working time of a later backup by stage, all threads, for each codec";
    draw(context.out(), "stages", &Labels { title, x: "", y: "seconds" }, &figure)
}
