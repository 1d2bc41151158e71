//! `unchanged`: a backup of a disk in which nothing changed, by full scan,
//! against a program that only reads and hashes the same file, in the same run.

use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files;
use crate::images::{Disk, GeneratedShape};
use crate::peers::{snapshot, Vault};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::{run as run_program, Cost};

/// One measurement of one disk.
#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    disk: String,
    what: What,
    size_bytes: u64,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    FirstBackup,
    UnchangedBackup,
    HashOnly,
    HashOnlyData,
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 1, size_bytes: 64 << 20 };
    let images = context.images("full", tiny)?;
    let mut steps = Vec::new();
    for disk in &images.disks {
        measure(context, disk, &mut steps)?;
    }
    let ratio = |to: What| {
        let ratios = (0..context.runs()).filter_map(|run| {
            let backup = seconds(&steps, run, What::UnchangedBackup)?;
            Some(backup / seconds(&steps, run, to)?)
        });
        median(ratios)
    };
    let bars = [
        Bar::at_most("backup of an unchanged disk, times reading and hashing it", ratio(What::HashOnly), 1.2),
        Bar::shown(
            "the same, times hashing that passes over holes and null blocks",
            ratio(What::HashOnlyData),
        ),
    ];
    let mut table = Table::new(["disk", "what", "s wall", "s sync", "s CPU", "MB/s", "peak MiB"]);
    for disk in &images.disks {
        for what in [What::FirstBackup, What::UnchangedBackup, What::HashOnly, What::HashOnlyData] {
            let of = || steps.iter().filter(|s| s.disk == disk.name && s.what == what);
            let figure_of = |value: fn(&Cost) -> f64| median(of().map(|step| value(&step.cost)));
            let rate = median(of().map(|s| mb_per_second(s.size_bytes, s.cost.wall_seconds)));
            let peak = of().map(|step| step.cost.rss_bytes_max).max().unwrap_or(0);
            table.row([
                disk.name.clone(),
                serde_json::to_value(what)?.as_str().unwrap_or_default().to_owned(),
                figure(figure_of(|cost| cost.wall_seconds), 3),
                figure(figure_of(|cost| cost.sync_seconds), 3),
                figure(figure_of(Cost::cpu_seconds), 3),
                figure(rate, 0),
                (peak >> 20).to_string(),
            ]);
        }
    }
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        source_cache: &'a str,
        ratio: &'a str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    let parameters = Parameters {
        images: &images.name,
        source_cache: "warm: read once before each step",
        ratio: "wall time with sync of the backups of all disks / wall time of the hashing of all",
    };
    context.save(context.runs(), parameters, Results { bars: &bars, steps: &steps }, &text)?;
    context.print(&text);
    Ok(())
}

fn seconds(steps: &[Step], run: usize, what: What) -> Option<f64> {
    let of = steps.iter().filter(|step| step.run == run && step.what == what);
    let sum: f64 = of.map(|step| step.cost.durable_seconds()).sum();
    (sum > 0.0).then_some(sum)
}

fn measure(context: &Context, disk: &Disk, steps: &mut Vec<Step>) -> Result<()> {
    let Some(image) = disk.versions.last() else {
        return Ok(());
    };
    let mut record = |run, what, cost| {
        steps.push(Step { run, disk: disk.name.clone(), what, size_bytes: image.size_bytes, cost });
    };
    context.require_free(2 * files::Space::of(&image.path)?.allocated_bytes)?;
    let home = files::fresh_dir(&context.space().join("unchanged"))?;
    let vault = Vault::new(&context.sapwood()?, home.join("vault"), "balanced", None);
    vault.init()?;
    files::make_warm(&image.path)?;
    record(0, What::FirstBackup, vault.backup(&disk.name, &image.path)?.cost);
    let mut newest = String::new();
    for run in 0..context.runs() {
        let mut backup_cost = None;
        for turn in 0..3 {
            files::make_warm(&image.path)?;
            match (run + turn) % 3 {
                0 => {
                    let backup = vault.backup(&disk.name, &image.path)?;
                    newest = snapshot(&backup)?;
                    backup_cost = Some(backup.cost);
                }
                1 => record(run, What::HashOnly, hash_only(&image.path, false)?),
                _ => record(run, What::HashOnlyData, hash_only(&image.path, true)?),
            }
        }
        if let Some(cost) = backup_cost {
            record(run, What::UnchangedBackup, cost);
        }
    }
    let target = home.join("restored.raw");
    ensure!(!newest.is_empty(), "nothing was backed up");
    vault.restore(&format!("{}@{newest}", disk.name), &target)?;
    files::require_equal(&image.path, &target)?;
    std::fs::remove_dir_all(home)?;
    Ok(())
}

/// Hashes in a process of its own, which pays for its start as the backup does.
/// It writes nothing, so nothing it costs lies in the sync.
fn hash_only(image: &Path, data_only: bool) -> Result<Cost> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("hash-only").arg(image);
    if data_only {
        command.arg("--data-only");
    }
    let mut cost = run_program(&mut command, Path::new("/"))?.cost;
    cost.sync_seconds = 0.0;
    Ok(cost)
}
