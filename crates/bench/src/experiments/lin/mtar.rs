//! `lin-3.5` (Lin 2015, figure 3.5): what deduplication finds in series of releases, as tar archives and migrated.
//!
//! A factor is the length of all archives of a package, divided by that of its distinct chunks; chunks of zeros count
//! nothing. The zeros behind files that alignment adds are in the chunks of migrated archives, so they make their factor
//! smaller.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use archive::mtar::{migrate, restore};
use chunk::{cut, ChunkSpec, Fingerprint, Piece};
use serde::Serialize;

use crate::context::Context;
use crate::images;
use crate::images::generate::Random;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, Bar, Table};

/// The improvement that the paper found least, at 8 KiB.
const IMPROVEMENT_MIN: f64 = 1.1;
/// Bytes of a chunk, in the order of the paper.
const CHUNK_BYTES: [u32; 3] = [2 << 10, 8 << 10, 32 << 10];

/// The releases of a package, oldest first.
pub(super) struct Package {
    pub name: String,
    pub archives: Vec<Vec<u8>>,
}

impl Package {
    /// Those that were fetched; with `--tiny`, made ones.
    pub fn all(context: &Context) -> Result<Vec<Package>> {
        if context.options.tiny {
            Ok(made(context.options.seed))
        } else {
            fetched()
        }
    }
}

/// What was found in a package's archives with one way of cutting.
#[derive(Debug, Serialize)]
struct Found {
    package: String,
    releases: usize,
    tar_bytes: u64,
    /// `fixed` or `cdc`.
    cut: &'static str,
    chunk_bytes: u32,
    /// Of distinct chunks of the archives.
    tar_distinct: u64,
    /// Of distinct chunks of the migrated archives, aligned to the chunk.
    mtar_distinct: u64,
    /// The same aligned to 512 bytes only, as tar has it.
    close_distinct: u64,
    /// Length of the aligned archives.
    mtar_bytes: u64,
}

impl Found {
    fn tar_factor(&self) -> f64 {
        self.tar_bytes as f64 / self.tar_distinct as f64
    }

    fn mtar_factor(&self) -> f64 {
        self.tar_bytes as f64 / self.mtar_distinct as f64
    }

    fn close_factor(&self) -> f64 {
        self.tar_bytes as f64 / self.close_distinct as f64
    }

    fn improvement(&self) -> f64 {
        self.mtar_factor() / self.tar_factor()
    }
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let packages = Package::all(context)?;
    let mut all = Vec::new();
    for package in &packages {
        for chunk_bytes in CHUNK_BYTES {
            for (kind, spec) in [
                ("fixed", ChunkSpec::Fixed { bytes: chunk_bytes }),
                ("cdc", ChunkSpec::content_defined(chunk_bytes)),
            ] {
                all.push(measure(package, kind, chunk_bytes, spec)?);
            }
        }
    }
    let bars = bars(&all);
    let text = format!("{}\n{}", table(&all), bars_table(&bars));
    let paths = draw_figures(context, &all);
    #[derive(Serialize)]
    struct Parameters {
        packages: Vec<String>,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        found: &'a [Found],
    }
    let parameters = Parameters { packages: packages.iter().map(|p| p.name.clone()).collect() };
    context.save(1, parameters, Results { bars: &bars, found: &all }, &text)?;
    context.print(&text);
    paths
}

/// The releases that `tools/fetch-releases` has fetched.
fn fetched() -> Result<Vec<Package>> {
    let root = images::cache()?.join("releases");
    let missing = || format!("{}: there are no releases; run tools/fetch-releases", root.display());
    let mut names: Vec<PathBuf> =
        fs::read_dir(&root).with_context(missing)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    names.retain(|dir| dir.join("order").is_file());
    names.sort();
    ensure!(!names.is_empty(), missing());
    names.iter().map(|dir| package(dir)).collect()
}

fn package(dir: &Path) -> Result<Package> {
    let order = fs::read_to_string(dir.join("order"))?;
    let read = |version: &str| {
        let path = dir.join(format!("{version}.tar"));
        fs::read(&path).with_context(|| path.display().to_string())
    };
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Package { name, archives: order.lines().map(read).collect::<Result<_>>()? })
}

/// Packages of a few files, of which each release changes one.
fn made(seed: u64) -> Vec<Package> {
    let mut random = Random::new(seed);
    let mut package = |name: &str| {
        let mut files: Vec<Vec<u8>> = (0..60).map(|n| bytes(&mut random, 500 + 300 * n)).collect();
        let mut releases = Vec::new();
        for release in 0..6 {
            let n = random.below(files.len() as u64) as usize;
            files[n] = bytes(&mut random, 9000);
            releases.push(tar(&files, release));
        }
        Package { name: name.to_owned(), archives: releases }
    };
    vec![package("small"), package("other")]
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// An archive of these files, with the release as their time.
fn tar(files: &[Vec<u8>], release: u64) -> Vec<u8> {
    let mut archive = Vec::new();
    for (n, content) in files.iter().enumerate() {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: String| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, format!("release-{release}/file{n}"));
        put(124, format!("{:011o}", content.len()));
        put(136, format!("{:011o}", 1_700_000_000 + release));
        put(148, " ".repeat(8));
        put(156, "0".into());
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize((archive.len() + 1024).next_multiple_of(10_240), 0);
    archive
}

fn measure(package: &Package, kind: &'static str, chunk_bytes: u32, spec: ChunkSpec) -> Result<Found> {
    let mut distinct = [Distinct::default(), Distinct::default(), Distinct::default()];
    let mut mtar_bytes = 0;
    for tar in &package.archives {
        let aligned = migrated(tar, chunk_bytes)?;
        mtar_bytes += aligned.len() as u64;
        distinct[0].add(tar, spec);
        distinct[1].add(&aligned, spec);
        distinct[2].add(&migrated(tar, 512)?, spec);
    }
    Ok(Found {
        package: package.name.clone(),
        releases: package.archives.len(),
        tar_bytes: package.archives.iter().map(|tar| tar.len() as u64).sum(),
        cut: kind,
        chunk_bytes,
        tar_distinct: distinct[0].bytes,
        mtar_distinct: distinct[1].bytes,
        close_distinct: distinct[2].bytes,
        mtar_bytes,
    })
}

/// Migrates an archive, and makes sure that it comes back.
fn migrated(tar: &[u8], align: u32) -> Result<Vec<u8>> {
    let (mut stream, mut back) = (Vec::new(), Vec::new());
    migrate(&mut &*tar, &mut stream, align)?;
    restore(&mut &stream[..], &mut back)?;
    ensure!(back == tar, "an archive did not come back as it was");
    Ok(stream)
}

/// Distinct chunks.
#[derive(Default)]
pub(super) struct Distinct {
    seen: HashSet<Fingerprint>,
    pub bytes: u64,
}

impl Distinct {
    pub fn add(&mut self, data: &[u8], spec: ChunkSpec) {
        let mut pieces = Vec::new();
        cut(data, spec, &mut pieces);
        let mut at = 0;
        for piece in pieces {
            let end = at + piece.bytes() as usize;
            if let Piece::Data { bytes } = piece {
                if self.seen.insert(Fingerprint::of(&data[at..end])) {
                    self.bytes += u64::from(bytes);
                }
            }
            at = end;
        }
    }
}

fn table(all: &[Found]) -> Table {
    let mut table = Table::new([
        "package",
        "releases",
        "tar MB",
        "chunks",
        "tar",
        "mtar, close",
        "mtar, aligned",
        "improvement",
        "longer by",
    ]);
    for found in all {
        table.row([
            found.package.clone(),
            found.releases.to_string(),
            figure(Some(found.tar_bytes as f64 / 1e6), 1),
            format!("{} {} KiB", found.cut, found.chunk_bytes >> 10),
            figure(Some(found.tar_factor()), 2),
            figure(Some(found.close_factor()), 2),
            figure(Some(found.mtar_factor()), 2),
            figure(Some(found.improvement()), 2),
            figure(Some(100.0 * (found.mtar_bytes as f64 / found.tar_bytes as f64 - 1.0)), 0) + " %",
        ]);
    }
    table
}

fn bars(all: &[Found]) -> Vec<Bar> {
    let least = |cut: &str, bytes: u32| {
        let those = all.iter().filter(|f| f.cut == cut && f.chunk_bytes == bytes);
        those.map(Found::improvement).reduce(f64::min)
    };
    vec![
        Bar::at_least("least improvement, fixed 8 KiB", least("fixed", 8 << 10), IMPROVEMENT_MIN),
        Bar::at_least("least improvement, cdc 8 KiB", least("cdc", 8 << 10), IMPROVEMENT_MIN),
    ]
}

fn draw_figures(context: &Context, all: &[Found]) -> Result<()> {
    let those: Vec<&Found> = all.iter().filter(|f| f.cut == "fixed" && f.chunk_bytes == 8 << 10).collect();
    let bars = |name: &str, value: &dyn Fn(&Found) -> f64| {
        (name.to_owned(), those.iter().map(|f| Some(value(f))).collect())
    };
    let series = vec![
        bars("tar", &Found::tar_factor),
        bars("migrated, files where tar has them", &Found::close_factor),
        bars("migrated, files at multiples of 8 KiB", &Found::mtar_factor),
    ];
    let groups = those.iter().map(|f| f.package.trim_end_matches("-sys").to_owned()).collect();
    let title = "Releases of packages, chunks of 8 KiB";
    let labels = Labels { title, x: "", y: "deduplication factor" };
    draw(context.out(), "lin-3.5", &labels, &Figure::Bars { groups, series })
}
