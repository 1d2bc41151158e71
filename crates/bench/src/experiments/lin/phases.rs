//! How long the parts of migratory compression take (Lin 2015, figures 2.8 b and 2.9 b).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Result;
use archive::mzip::{compress, levels, Compressor, Disk, Options, Progress, SimilarityMethod, Source};
use serde::Serialize;

use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{figure, median, Table};

use super::measured::{for_each_subject, LinOptions};
use super::ways::Way;

/// What `mzip` takes on a machine of 8 GiB if nothing else is asked for.
const MEMORY: u64 = 1 << 30;
/// What the columns are called.
const PHASES: [&str; 3] = ["finding", "planning", "moving and compressing"];

/// One way and one file: seconds of each run, for each phase.
#[derive(Debug, Serialize)]
pub struct Phased {
    subject: String,
    way: String,
    seconds: Vec<[f64; 3]>,
}

impl Phased {
    fn of(&self, phase: usize) -> Option<f64> {
        median(self.seconds.iter().map(|run| run[phase]))
    }
}

/// Compresses the files of all disks in these ways, within this process.
pub fn measure(context: &Context, options: &LinOptions, ways: &[Way]) -> Result<Vec<Phased>> {
    let mut all = Vec::new();
    for_each_subject(context, options, |subject, file| {
        let first = all.len();
        for run in 0..context.runs() {
            let taken = options.taken(ways).into_iter();
            for (n, (way, how)) in taken.filter_map(|way| Some((way, way.mzip_options()?))).enumerate() {
                if run == 0 {
                    all.push(Phased { subject: subject.into(), way: way.name.clone(), seconds: Vec::new() });
                }
                all[first + n].seconds.push(phases(context, file, how)?);
            }
        }
        Ok(())
    })?;
    Ok(all)
}

fn phases(context: &Context, file: &Path, (with, chunk): (&str, &str)) -> Result<[f64; 3]> {
    let compressor = Compressor::named(with).unwrap_or(Compressor::Zstd);
    let input = File::open(file)?;
    let len = fs::metadata(file)?.len();
    let options = Options {
        compressor,
        level: levels(compressor).1,
        chunk: chunk.parse()?,
        similarity: SimilarityMethod::Odess,
        migrate: true,
        delta: false,
        mover: None,
        disk: Disk::SOLID,
        memory: MEMORY,
        threads: std::thread::available_parallelism().map_or(2, |n| n.get()),
        scratch: context.space().to_path_buf(),
    };
    let archive = context.space().join("archive");
    let mut output = BufWriter::with_capacity(1 << 20, File::create(&archive)?);
    let done = compress(Source::At(&(&input, len)), &mut output, &options, &Progress::default())?;
    output.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::remove_file(&archive)?;
    let phases = done.phases;
    Ok([phases.find, phases.plan, phases.pack].map(|phase| phase.as_secs_f64()))
}

/// A row for each file and way.
pub fn table(all: &[Phased]) -> Table {
    let mut table = Table::new(["file", "way", "finding s", "planning s", "moving and compressing s"]);
    for phased in all {
        let seconds = [0, 1, 2].map(|phase| figure(phased.of(phase), 2));
        let [find, plan, pack] = seconds;
        table.row([phased.subject.clone(), phased.way.clone(), find, plan, pack]);
    }
    table
}

/// Draws `NAME-phases`.
pub fn draw_figure(context: &Context, name: &str, all: &[Phased]) -> Result<()> {
    // `gzip cdc:8k` of `mzip gzip --chunk cdc:8k`; with the file, where there are several.
    let subjects: BTreeSet<&str> = all.iter().map(|p| p.subject.as_str()).collect();
    let short = |p: &Phased| p.way.trim_start_matches("mzip ").replace("--chunk ", "");
    let group = |p: &Phased| match subjects.len() {
        1 => short(p),
        _ => format!("{}, {}", p.subject, short(p)),
    };
    let groups = all.iter().map(group).collect();
    let bars = |phase: usize| all.iter().map(|phased| phased.of(phase)).collect();
    let series = PHASES.iter().enumerate().map(|(n, phase)| ((*phase).to_owned(), bars(n))).collect();
    let labels = Labels { title: "Parts of the work", x: "", y: "seconds" };
    draw(context.out(), &format!("{name}-phases"), &labels, &Figure::Bars { groups, series })
}
