//! `lin-2.6` (Lin 2015, figure 2.6): the three movers, when memory is short, on this disk and on the model of a rotating one.
//!
//! The file is all versions of a disk; the memory is a quarter of it. On this disk the page cache is empty before, and the
//! clock counts. The model serves the reads that each mover makes, in their order, as if the file lay in one piece.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use archive::mzip::{
    compress, ChunkSpec, Compressor, Disk, Mover, Options, Progress, ReadAt, SimilarityMethod, Source,
};
use serde::Serialize;

use crate::context::Context;
use crate::layout::extents::Extent;
use crate::layout::seek_model::{Service, ST1000DM003};
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::{self, Cost};

use super::measured::{disks, join};

const MOVERS: [Mover; 3] = [Mover::Memory, Mover::Chunk, Mover::MultiPass];
/// The least memory that `mzip` takes.
const MEMORY_MIN: u64 = 32 << 20;
const GIB: u64 = 1 << 30;

/// One mover and one file.
#[derive(Debug, Serialize)]
struct Measured {
    disk: String,
    mover: &'static str,
    original_bytes: u64,
    archive_bytes: u64,
    memory_bytes: u64,
    /// Of each run.
    costs: Vec<Cost>,
    /// Reads on the model.
    model: Service,
    /// What is chosen for a rotating disk.
    chosen_for_rotating: &'static str,
}

impl Measured {
    fn seconds(&self) -> f64 {
        median(self.costs.iter().map(Cost::durable_seconds)).unwrap_or_default()
    }

    fn cpu_seconds(&self) -> f64 {
        median(self.costs.iter().map(Cost::cpu_seconds)).unwrap_or_default()
    }
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let sapwood = context.sapwood()?;
    let mut all = Vec::new();
    for disk in disks(context)? {
        let file = join(context, &disk)?;
        let bytes = fs::metadata(&file)?.len();
        let memory = (bytes / 4).max(MEMORY_MIN);
        let chosen = modelled(context, &file, None, memory)?.0;
        for mover in MOVERS {
            let archive = context.space().join("archive");
            let memory = if mover == Mover::Memory { 3 * bytes + GIB } else { memory };
            let mut costs = Vec::new();
            let mut archive_bytes = 0;
            for _ in 0..context.runs() {
                context.make_cold(&file)?;
                let mut command = Command::new(&sapwood);
                command.args(["--quiet", "mzip", "--with", "gzip", "--mover", mover.name(), "--memory"]);
                command.arg(memory.to_string()).arg(&file).arg("-o").arg(&archive);
                costs.push(run::run(&mut command, context.space())?.cost);
                archive_bytes = fs::metadata(&archive)?.len();
                fs::remove_file(&archive)?;
            }
            all.push(Measured {
                disk: disk.name.clone(),
                mover: mover.name(),
                original_bytes: bytes,
                archive_bytes,
                memory_bytes: memory,
                costs,
                model: modelled(context, &file, Some(mover), memory)?.1,
                chosen_for_rotating: chosen,
            });
        }
    }
    let bars = bars(&all);
    let text = format!("{}\n{}", table(&all), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        compressor: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    let results = Results { bars: &bars, measured: &all };
    context.save(context.runs(), Parameters { compressor: "gzip" }, results, &text)?;
    draw_figure(context, &all)?;
    context.print(&text);
    Ok(())
}

/// A file whose reads are noted.
struct Noted {
    file: File,
    len: u64,
    reads: Mutex<Vec<Extent>>,
}

impl ReadAt for Noted {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let read = Extent { logical: offset, physical: offset, length: bytes.len() as u64 };
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push(read);
        self.file.read_exact_at(bytes, offset)
    }
}

/// Which mover was taken, and how long its reads take on the model.
fn modelled(
    context: &Context,
    file: &Path,
    mover: Option<Mover>,
    memory: u64,
) -> Result<(&'static str, Service)> {
    let input = Noted { file: File::open(file)?, len: fs::metadata(file)?.len(), reads: Mutex::default() };
    let options = Options {
        compressor: Compressor::Gzip,
        level: 1,
        chunk: ChunkSpec::content_defined(8192),
        similarity: SimilarityMethod::Odess,
        migrate: true,
        delta: false,
        mover,
        disk: Disk::SPINNING,
        memory,
        // So that there is one order of reads.
        threads: 1,
        scratch: context.space().to_path_buf(),
    };
    let done = compress(Source::At(&input), &mut io::sink(), &options, &Progress::default())?;
    let reads = input.reads.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((done.mover.map_or("none", Mover::name), ST1000DM003.serve(reads)))
}

fn table(all: &[Measured]) -> Table {
    let mut table = Table::new([
        "disk",
        "mover",
        "MB",
        "memory MiB",
        "MB/s here",
        "CPU s",
        "peak MiB",
        "model: reading s",
        "model: seeks",
        "model: MB/s",
    ]);
    for m in all {
        let peak = m.costs.iter().map(|cost| cost.rss_bytes_max).max().unwrap_or_default();
        let megabytes = m.original_bytes as f64 / 1e6;
        table.row([
            m.disk.clone(),
            m.mover.to_owned(),
            figure(Some(megabytes), 1),
            (m.memory_bytes >> 20).to_string(),
            figure(Some(megabytes / m.seconds()), 0),
            figure(Some(m.cpu_seconds()), 1),
            (peak >> 20).to_string(),
            figure(Some(m.model.seconds), 1),
            m.model.seeks.to_string(),
            // Computing and reading after each other, as the paper's tools did.
            figure(Some(megabytes / (m.model.seconds + m.cpu_seconds())), 1),
        ]);
    }
    table
}

fn bars(all: &[Measured]) -> Vec<Bar> {
    let disks: Vec<&str> = all.iter().filter(|m| m.mover == "memory").map(|m| m.disk.as_str()).collect();
    let of = |disk: &str, mover: &str| all.iter().find(|m| m.disk == disk && m.mover == mover);
    let least =
        |value: &dyn Fn(&str) -> Option<f64>| disks.iter().filter_map(|disk| value(disk)).reduce(f64::min);
    let model = |disk: &str| Some(of(disk, "chunk")?.model.seconds / of(disk, "multipass")?.model.seconds);
    let here = |disk: &str| Some(of(disk, "memory")?.seconds() / of(disk, "chunk")?.seconds());
    // Whether the formula chose what the model finds faster.
    let right = |disk: &str| {
        let (chunk, passes) = (of(disk, "chunk")?, of(disk, "multipass")?);
        let faster = if chunk.model.seconds <= passes.model.seconds { "chunk" } else { "multipass" };
        Some(f64::from(u8::from(chunk.chosen_for_rotating == faster || chunk.chosen_for_rotating == "none")))
    };
    vec![
        Bar::shown("chunk-level reading beside multi-pass, on the model", least(&model)),
        Bar::at_least("the formula chooses what the model finds faster", least(&right), 1.0),
        Bar::at_least("chunk-level on this disk, of the rate in memory", least(&here), 0.8),
    ]
}

fn draw_figure(context: &Context, all: &[Measured]) -> Result<()> {
    let mut groups: Vec<String> = all.iter().map(|m| m.disk.clone()).collect();
    groups.dedup();
    let series = MOVERS.iter().flat_map(|mover| {
        let those = all.iter().filter(|m| m.mover == mover.name());
        let rate = |m: &Measured, seconds: f64| Some(m.original_bytes as f64 / 1e6 / seconds);
        let here = those.clone().map(|m| rate(m, m.seconds())).collect();
        let model = those.map(|m| rate(m, m.model.seconds + m.cpu_seconds())).collect();
        [(format!("{}, this disk", mover.name()), here), (format!("{}, model", mover.name()), model)]
    });
    let labels = Labels { title: "Movers, memory for a quarter of the file", x: "", y: "MB/s compressed" };
    draw(context.out(), "lin-2.6", &labels, &Figure::LogBars { groups, series: series.collect() })
}
