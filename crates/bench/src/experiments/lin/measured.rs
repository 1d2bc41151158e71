//! Files that are compressed in several ways: the newest version of each disk, and all its versions as one file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files::require_equal;
use crate::images::{Disk, GeneratedShape};
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{figure, median, Table};
use crate::run::{self, Cost};

use super::ways::Way;

/// What is done of an experiment.
#[derive(clap::Args, Clone, Debug)]
pub struct LinOptions {
    /// Only ways with one of these names, or whose names have one of these in them
    #[arg(long, value_name = "TEXT,…", value_delimiter = ',')]
    pub ways: Vec<String>,
    /// Only these files: image (a disk's newest version), series (all its versions as one file)
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    pub files: Vec<String>,
}

impl LinOptions {
    /// Those of the ways that are wanted.
    pub fn taken<'a>(&self, ways: &'a [Way]) -> Vec<&'a Way> {
        let is_name = |text: &String| ways.iter().any(|way| way.name == *text);
        let takes = |way: &Way, text: &String| {
            way.name == *text || !is_name(text) && way.name.contains(text.as_str())
        };
        let wanted = |way: &&Way| self.ways.is_empty() || self.ways.iter().any(|text| takes(way, text));
        ways.iter().filter(wanted).collect()
    }
}

/// One way of compressing one file, once.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The file.
    pub subject: String,
    /// The way.
    pub way: String,
    run: usize,
    original_bytes: u64,
    archive_bytes: u64,
    compress: Cost,
    decompress: Cost,
}

impl Measured {
    /// Original bytes for one of the archive.
    pub fn factor(&self) -> f64 {
        self.original_bytes as f64 / self.archive_bytes as f64
    }
}

/// All that was measured.
#[derive(Default)]
pub struct All(pub Vec<Measured>);

impl All {
    /// Files, in order.
    pub fn subjects(&self) -> Vec<String> {
        let mut subjects: Vec<String> = Vec::new();
        for m in &self.0 {
            if !subjects.contains(&m.subject) {
                subjects.push(m.subject.clone());
            }
        }
        subjects
    }

    /// Ways, in order.
    pub fn ways(&self) -> Vec<String> {
        let mut ways: Vec<String> = Vec::new();
        for m in &self.0 {
            if !ways.contains(&m.way) {
                ways.push(m.way.clone());
            }
        }
        ways
    }

    fn median(&self, subject: &str, way: &str, of: impl Fn(&Measured) -> f64) -> Option<f64> {
        median(self.0.iter().filter(|m| m.subject == subject && m.way == way).map(of))
    }

    /// How small a file became.
    pub fn factor(&self, subject: &str, way: &str) -> Option<f64> {
        self.median(subject, way, Measured::factor)
    }

    /// MB of the file compressed in a second.
    pub fn pack_rate(&self, subject: &str, way: &str) -> Option<f64> {
        self.median(subject, way, |m| m.original_bytes as f64 / 1e6 / m.compress.durable_seconds())
    }

    /// MB of the file given back in a second.
    pub fn unpack_rate(&self, subject: &str, way: &str) -> Option<f64> {
        self.median(subject, way, |m| m.original_bytes as f64 / 1e6 / m.decompress.durable_seconds())
    }

    /// The least that a function gives for a file.
    pub fn least(&self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        self.subjects().iter().filter_map(|subject| of(subject)).reduce(f64::min)
    }

    /// A row for each file and way.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "file",
            "way",
            "MB",
            "factor",
            "compress MB/s",
            "CPU s",
            "peak MiB",
            "decompress MB/s",
            "CPU s",
            "peak MiB",
        ]);
        for subject in &self.subjects() {
            for way in &self.ways() {
                let of = |of: &dyn Fn(&Measured) -> f64| self.median(subject, way, of);
                table.row([
                    subject.clone(),
                    way.clone(),
                    figure(of(&|m| m.original_bytes as f64 / 1e6), 1),
                    figure(self.factor(subject, way), 3),
                    figure(self.pack_rate(subject, way), 1),
                    figure(of(&|m| m.compress.cpu_seconds()), 1),
                    figure(of(&|m| m.compress.rss_bytes_max as f64 / 1_048_576.0), 0),
                    figure(self.unpack_rate(subject, way), 0),
                    figure(of(&|m| m.decompress.cpu_seconds()), 1),
                    figure(of(&|m| m.decompress.rss_bytes_max as f64 / 1_048_576.0), 0),
                ]);
            }
        }
        table
    }

    /// Draws factors over rates, a line for the levels of each compressor: `NAME-curve-N` for the Nth file.
    pub fn draw_curves(&self, context: &Context, name: &str, title: &str) -> Result<()> {
        for (n, subject) in self.subjects().iter().enumerate() {
            let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
            for way in self.ways() {
                let point = self.pack_rate(subject, &way).zip(self.factor(subject, &way));
                match series.iter_mut().find(|(of, _)| *of == family(&way)) {
                    Some((_, line)) => line.extend(point),
                    None => series.push((family(&way), point.into_iter().collect())),
                }
            }
            series.iter_mut().for_each(|(_, line)| line.sort_by(|a, b| a.0.total_cmp(&b.0)));
            let title = format!("{title}: {subject}");
            let labels = Labels { title: &title, x: "MB/s compressed", y: "compression factor" };
            draw(context.out(), &format!("{name}-curve-{}", n + 1), &labels, &Figure::Curves { series })?;
        }
        Ok(())
    }

    /// Draws factors over both rates, for compressors alone and behind migration: `NAME-compress-N` and `NAME-decompress-N` for
    /// the Nth file.
    pub fn draw_points(&self, context: &Context, name: &str, title: &str) -> Result<()> {
        type Rate = fn(&All, &str, &str) -> Option<f64>;
        let rates: [(&str, Rate); 2] = [("compress", All::pack_rate), ("decompress", All::unpack_rate)];
        for (n, subject) in self.subjects().iter().enumerate() {
            for (suffix, rate) in rates {
                let of = |is_migrated: bool| {
                    // What `mzip` does without migration only explains the table.
                    let ways = self.ways().into_iter().filter(|way| !way.contains("--no-migration"));
                    let ways = ways.filter(|way| way.starts_with("mzip ") == is_migrated);
                    let point = |way: String| {
                        let short = way.trim_start_matches("mzip ").trim_start_matches("none + ");
                        Some((rate(self, subject, &way)?, self.factor(subject, &way)?, short.to_owned()))
                    };
                    ways.filter_map(point).collect()
                };
                let series = vec![("alone".to_owned(), of(false)), ("behind migration".to_owned(), of(true))];
                let (title, x) = (format!("{title}: {subject}"), format!("MB/s {suffix}ed"));
                let labels = Labels { title: &title, x: &x, y: "compression factor" };
                draw(
                    context.out(),
                    &format!("{name}-{suffix}-{}", n + 1),
                    &labels,
                    &Figure::Points { series },
                )?;
            }
        }
        Ok(())
    }

    /// Draws factors and both rates: `NAME-factor`, `NAME-compress`, `NAME-decompress`.
    pub fn draw(&self, context: &Context, name: &str, title: &str) -> Result<()> {
        type Value = fn(&All, &str, &str) -> Option<f64>;
        let values: [(&str, &str, Value); 3] = [
            ("factor", "compression factor", All::factor),
            ("compress", "MB/s compressed", All::pack_rate),
            ("decompress", "MB/s decompressed", All::unpack_rate),
        ];
        let groups = self.subjects();
        for (suffix, y, value) in values {
            let bars = |way: &String| groups.iter().map(|subject| value(self, subject, way)).collect();
            let series = self.ways().iter().map(|way| (way.clone(), bars(way))).collect();
            let labels = Labels { title, x: "", y };
            let figure = Figure::Bars { groups: groups.clone(), series };
            draw(context.out(), &format!("{name}-{suffix}"), &labels, &figure)?;
        }
        Ok(())
    }

    /// Draws factors with a group for each setting and a bar for each compressor: `NAME-factor-N` for the Nth file.
    pub fn draw_settings(&self, context: &Context, name: &str, title: &str) -> Result<()> {
        let of = |part: fn(&str) -> String| {
            let mut all: Vec<String> = Vec::new();
            for part in self.ways().iter().map(|way| part(way)) {
                if !all.contains(&part) {
                    all.push(part);
                }
            }
            all
        };
        let (settings, families) = (of(setting), of(family));
        for (n, subject) in self.subjects().iter().enumerate() {
            let bar = |with: &str, setting: &String| {
                let is_it = |way: &&String| family(way) == with && self::setting(way) == *setting;
                self.factor(subject, self.ways().iter().find(is_it)?)
            };
            let bars = |with: &String| settings.iter().map(|setting| bar(with, setting)).collect();
            let series = families.iter().map(|with| (with.clone(), bars(with))).collect();
            let title = format!("{title}: {subject}");
            let labels = Labels { title: &title, x: "", y: "compression factor" };
            let figure = Figure::Bars { groups: settings.clone(), series };
            draw(context.out(), &format!("{name}-factor-{}", n + 1), &labels, &figure)?;
        }
        Ok(())
    }
}

/// What a way is called without its level: `mzip zstd` of `mzip zstd --level 19`.
fn family(way: &str) -> String {
    way.split(' ').take_while(|word| !word.starts_with('-')).collect::<Vec<_>>().join(" ")
}

/// What a way is beside its compressor: `cdc:8k` of `mzip zstd --chunk cdc:8k`.
fn setting(way: &str) -> String {
    way.split(' ').skip_while(|word| !word.starts_with('-')).skip(1).collect::<Vec<_>>().join(" ")
}

/// The disks of these experiments.
pub fn disks(context: &Context) -> Result<Vec<Disk>> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 2, size_bytes: 3 << 20 };
    Ok(context.images("small", tiny)?.disks)
}

/// Writes the versions of a disk into one file.
pub fn join(context: &Context, disk: &Disk) -> Result<PathBuf> {
    let file = context.space().join("series");
    context.require_free(3 * disk.versions.iter().map(|image| image.size_bytes).sum::<u64>())?;
    let mut to = File::create(&file).with_context(|| file.display().to_string())?;
    for image in &disk.versions {
        let mut from = File::open(&image.path).with_context(|| image.path.display().to_string())?;
        io::copy(&mut from, &mut to)?;
    }
    Ok(file)
}

/// Calls a function with each file that is wanted, and its name.
pub fn for_each_subject(
    context: &Context,
    options: &LinOptions,
    mut work: impl FnMut(&str, &Path) -> Result<()>,
) -> Result<()> {
    let wants = |kind: &str| options.files.is_empty() || options.files.iter().any(|file| file == kind);
    for disk in disks(context)? {
        if let Some(newest) = disk.versions.last().filter(|_| wants("image")) {
            work(&format!("{} image", disk.name), &newest.path)?;
        }
        if disk.versions.len() > 1 && wants("series") {
            let file = join(context, &disk)?;
            work(&format!("{} series", disk.name), &file)?;
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// Compresses the files of all disks in these ways, as often as the context says, in turns.
pub fn measure(context: &Context, options: &LinOptions, ways: &[Way]) -> Result<All> {
    if let Some(text) = options.ways.iter().find(|text| !ways.iter().any(|way| way.name.contains(*text))) {
        let names: Vec<&str> = ways.iter().map(|way| way.name.as_str()).collect();
        bail!("--ways {text}: there is none of this name; there are {}", names.join(", "));
    }
    let sapwood = context.sapwood()?;
    let mut taken = options.taken(ways);
    taken.retain(|way| match way.missing() {
        Some(program) => {
            eprintln!("{program} is not installed: {} is left out; --install brings it", way.name);
            false
        }
        None => true,
    });
    let mut all = All::default();
    for_each_subject(context, options, |subject, file| {
        for run in 0..context.runs() {
            for way in &taken {
                all.0.push(measured(context, &sapwood, subject, file, way, run)?);
            }
        }
        Ok(())
    })?;
    Ok(all)
}

/// Compresses a file, gives it back, and compares it.
fn measured(
    context: &Context,
    sapwood: &Path,
    subject: &str,
    file: &Path,
    way: &Way,
    run: usize,
) -> Result<Measured> {
    let (archive, back) = (context.space().join("archive"), context.space().join("back"));
    let packed = run::run(&mut way.command(sapwood, file, &archive, false), context.space());
    let compress = packed.with_context(|| way.name.clone())?.cost;
    let unpacked = run::run(&mut way.command(sapwood, &archive, &back, true), context.space());
    let decompress = unpacked.with_context(|| way.name.clone())?.cost;
    require_equal(file, &back)?;
    let done = Measured {
        subject: subject.into(),
        way: way.name.clone(),
        run,
        original_bytes: fs::metadata(file)?.len(),
        archive_bytes: fs::metadata(&archive)?.len(),
        compress,
        decompress,
    };
    fs::remove_file(&archive)?;
    fs::remove_file(&back)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::{family, setting, LinOptions, Way};

    #[test]
    fn levels_of_a_compressor_are_one_line() {
        for (way, of) in [("gzip -9", "gzip"), ("mzip zstd --level 19", "mzip zstd"), ("lrzip", "lrzip")] {
            assert_eq!(family(way), of);
        }
        assert_eq!((setting("mzip zstd --chunk cdc:8k"), setting("lrzip")), ("cdc:8k".into(), String::new()));
    }

    #[test]
    fn a_whole_name_is_one_way() {
        let ways = ["--with zstd", "--with zstd --level 19", "--with gzip"].map(Way::mzip);
        for (texts, names) in [
            (&["mzip zstd"][..], &["mzip zstd"][..]),
            (&["zstd"], &["mzip zstd", "mzip zstd --level 19"]),
            (&["mzip zstd", "gzip"], &["mzip zstd", "mzip gzip"]),
            (&[], &["mzip zstd", "mzip zstd --level 19", "mzip gzip"]),
        ] {
            let options =
                LinOptions { ways: texts.iter().map(|&text| text.into()).collect(), files: Vec::new() };
            let taken: Vec<&str> = options.taken(&ways).iter().map(|way| way.name.as_str()).collect();
            assert_eq!(taken, names);
        }
    }
}
