//! `lin-2.4` (Lin 2015, figures 2.4 and 2.5): compressors alone, and behind migration, in the same run.
//!
//! What is compressed is one file for each disk: its versions, one behind the other. The factor is the length of that file,
//! divided by that of the archive. All go back and are compared.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files::require_equal;
use crate::images::{Disk, GeneratedShape};
use crate::results::report::{bars_table, figure, Bar, Table};
use crate::run::{self, Cost};

/// What the paper found least for gzip: 23 % more.
const IMPROVEMENT_MIN: f64 = 1.23;
/// Tools, with arguments for their usual level and all cores where they can use them.
const TOOLS: [(&str, &str); 4] = [("gzip", "-6"), ("bzip2", "-9"), ("zstd", "-3 -q -T0"), ("xz", "-6 -T0")];
/// Ways to find similar chunks.
const METHODS: [&str; 2] = ["odess", "rabin"];

/// One way of compressing one file.
#[derive(Debug, Serialize)]
struct Measured {
    disk: String,
    compressor: &'static str,
    /// How similar chunks were found; none of the tool alone.
    method: Option<&'static str>,
    original_bytes: u64,
    archive_bytes: u64,
    compress: Cost,
    decompress: Cost,
}

impl Measured {
    fn factor(&self) -> f64 {
        self.original_bytes as f64 / self.archive_bytes as f64
    }

    fn rate(&self, cost: &Cost) -> f64 {
        self.original_bytes as f64 / 1e6 / cost.durable_seconds()
    }
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let set =
        context.images("small", GeneratedShape { suites: 1, disks: 1, versions: 3, size_bytes: 16 << 20 })?;
    let sapwood = context.sapwood()?;
    let mut all = Vec::new();
    for disk in &set.disks {
        let file = context.space().join("versions");
        join(disk, &file)?;
        for (tool, arguments) in TOOLS {
            if run::is_installed(tool) {
                all.push(alone(context, disk, &file, tool, arguments)?);
            }
            for method in METHODS {
                all.push(migrated(context, &sapwood, disk, &file, tool, method)?);
            }
        }
    }
    let bars = bars(&all);
    let text = format!("{}\n{}", table(&all), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        chunk: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    context.save(1, Parameters { chunk: "cdc:8k" }, Results { bars: &bars, measured: &all }, &text)?;
    context.print(&text);
    Ok(())
}

/// Writes the versions of a disk into one file.
fn join(disk: &Disk, file: &Path) -> Result<()> {
    let mut to = File::create(file).with_context(|| file.display().to_string())?;
    for image in &disk.versions {
        let mut from = File::open(&image.path).with_context(|| image.path.display().to_string())?;
        io::copy(&mut from, &mut to)?;
    }
    Ok(())
}

fn alone(
    context: &Context,
    disk: &Disk,
    file: &Path,
    tool: &'static str,
    arguments: &str,
) -> Result<Measured> {
    let shell = |line: String, from: &Path, to: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", &line]).arg(from).arg(to);
        command
    };
    measured(context, disk, file, tool, None, |from, to, is_back| {
        let how = if is_back { "-d" } else { arguments };
        shell(format!("{tool} {how} -c < \"$0\" > \"$1\""), from, to)
    })
}

fn migrated(
    context: &Context,
    sapwood: &Path,
    disk: &Disk,
    file: &Path,
    tool: &'static str,
    method: &'static str,
) -> Result<Measured> {
    measured(context, disk, file, tool, Some(method), |from, to, is_back| {
        let mut command = Command::new(sapwood);
        if is_back {
            command.args(["--quiet", "munzip"]);
        } else {
            command.args(["--quiet", "mzip", "--with", tool, "--similarity", method]);
        }
        command.arg(from).arg("-o").arg(to);
        command
    })
}

/// Compresses a file, gives it back, and compares it.
fn measured(
    context: &Context,
    disk: &Disk,
    file: &Path,
    compressor: &'static str,
    method: Option<&'static str>,
    command: impl Fn(&Path, &Path, bool) -> Command,
) -> Result<Measured> {
    let (archive, back): (PathBuf, PathBuf) = (context.space().join("archive"), context.space().join("back"));
    let compress = run::run(&mut command(file, &archive, false), context.space())?.cost;
    let decompress = run::run(&mut command(&archive, &back, true), context.space())?.cost;
    require_equal(file, &back)?;
    let done = Measured {
        disk: disk.name.clone(),
        compressor,
        method,
        original_bytes: fs::metadata(file)?.len(),
        archive_bytes: fs::metadata(&archive)?.len(),
        compress,
        decompress,
    };
    fs::remove_file(&archive)?;
    fs::remove_file(&back)?;
    Ok(done)
}

fn table(all: &[Measured]) -> Table {
    let mut table = Table::new([
        "disk",
        "compressor",
        "migrated",
        "MB",
        "factor",
        "compress MB/s",
        "user s",
        "peak MiB",
        "decompress MB/s",
        "user s",
    ]);
    for m in all {
        table.row([
            m.disk.clone(),
            m.compressor.to_owned(),
            m.method.unwrap_or("no").to_owned(),
            figure(Some(m.original_bytes as f64 / 1e6), 1),
            figure(Some(m.factor()), 2),
            figure(Some(m.rate(&m.compress)), 0),
            figure(Some(m.compress.user_seconds), 1),
            figure(Some(m.compress.rss_bytes_max as f64 / 1_048_576.0), 0),
            figure(Some(m.rate(&m.decompress)), 0),
            figure(Some(m.decompress.user_seconds), 1),
        ]);
    }
    table
}

fn bars(all: &[Measured]) -> Vec<Bar> {
    let of = |disk: &str, method: Option<&str>| {
        all.iter()
            .find(|m| m.disk == disk && m.compressor == "gzip" && m.method == method)
            .map(Measured::factor)
    };
    let least = |than: Option<&str>| {
        let disks = all.iter().map(|m| m.disk.as_str());
        disks.filter_map(|disk| Some(of(disk, Some("odess"))? / of(disk, than)?)).reduce(f64::min)
    };
    vec![
        Bar::at_least("least improvement of gzip by migration", least(None), IMPROVEMENT_MIN),
        Bar::at_least("least factor of odess beside rabin, gzip", least(Some("rabin")), 0.99),
    ]
}
