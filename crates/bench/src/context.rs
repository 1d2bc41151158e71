//! What every experiment shares: its options, its temporary directory, and the
//! place and frame of its result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tempfile::TempDir;

use crate::files::{self, Cold};
use crate::images::{self, GeneratedShape, ImageSet};
use crate::machine::{self, Machine};
use crate::results::report;
use crate::run;

/// Options that all experiments understand.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Directory with images.json (default: the set the experiment is made for,
    /// under $SAPWOOD_IMAGES or the user's cache)
    #[arg(long, global = true, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Runs; medians are reported [default: 3, with --tiny 1]
    #[arg(long, global = true, value_name = "N")]
    pub runs: Option<usize>,
    /// Tiny parameters and generated images: seconds instead of hours
    #[arg(long, global = true)]
    pub tiny: bool,
    /// Where results go [default: bench-results in the build directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Temporary files go into a directory below this [default: beside the images]
    #[arg(long, global = true, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// The sapwood program [default: the one beside this program]
    #[arg(long, global = true, value_name = "PATH")]
    pub sapwood: Option<PathBuf>,
    /// Use only the first N disks
    #[arg(long, global = true, value_name = "N")]
    pub disks: Option<usize>,
    /// Use only the first N versions of each disk
    #[arg(long, global = true, value_name = "N")]
    pub versions: Option<usize>,
    /// Seed of generated content
    #[arg(long, global = true, default_value_t = 1)]
    pub seed: u64,
    /// Install missing peers and gnuplot from the distribution
    #[arg(long, global = true)]
    pub install: bool,
}

/// A started experiment. Its temporary directory is removed with it.
pub struct Context {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The options.
    pub options: Options,
    space: TempDir,
    out: PathBuf,
    machine: Machine,
    commit: String,
    sapwood: Option<PathBuf>,
}

/// The program that was measured.
#[derive(Serialize)]
struct Sapwood {
    version: String,
    /// Of the program file: tells builds of one version apart.
    blake3: String,
}

/// The frame of a result file.
#[derive(Serialize)]
struct ResultFile<'a, P, R> {
    experiment: &'a str,
    commit: &'a str,
    sapwood: Option<Sapwood>,
    machine: &'a Machine,
    load_at_end: String,
    runs: usize,
    tiny: bool,
    seed: u64,
    parameters: P,
    results: R,
}

impl Context {
    /// Prepares the directories of `experiment`.
    pub fn start(experiment: &'static str, options: Options) -> Result<Self> {
        let target = target_dir()?;
        let work = match (&options.work, &options.images) {
            (Some(work), _) => work.clone(),
            (None, Some(images)) => match images.canonicalize()?.parent() {
                Some(beside) => beside.to_owned(),
                None => images.clone(),
            },
            (None, None) if options.tiny => target.clone(),
            (None, None) => images::default_root()?,
        };
        fs::create_dir_all(&work).with_context(|| format!("cannot make the directory {}", work.display()))?;
        let space = tempfile::Builder::new().prefix("sapwood-bench-").tempdir_in(work.canonicalize()?)?;
        let out = match &options.out {
            Some(out) => out.clone(),
            None => target.join("bench-results"),
        };
        fs::create_dir_all(&out)?;
        let machine = Machine::describe(space.path())?;
        let sapwood = copy_sapwood(&options, space.path())?;
        Ok(Self { experiment, options, space, out, machine, commit: machine::commit(), sapwood })
    }

    /// How often to measure.
    pub fn runs(&self) -> usize {
        let usual = if self.options.tiny { 1 } else { 3 };
        self.options.runs.unwrap_or(usual).max(1)
    }

    /// The temporary directory.
    pub fn space(&self) -> &Path {
        self.space.path()
    }

    /// Where results go.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Fails unless the disk of the temporary directory has room for `bytes`.
    pub fn require_free(&self, bytes: u64) -> Result<()> {
        files::require_free(self.space(), bytes)
    }

    /// Empties the page cache before `path` is read.
    pub fn make_cold(&self, path: &Path) -> Result<Cold> {
        files::make_cold(path, self.options.tiny)
    }

    /// Empties the page cache, without a look at what the host has in its own.
    pub fn empty_cache(&self, path: &Path) -> Result<Cold> {
        files::empty_cache(path, self.options.tiny)
    }

    /// The images to store: those of `--images`, else the set called `setting`;
    /// with `--tiny` a generated set.
    pub fn images(&self, setting: &str, tiny: GeneratedShape) -> Result<ImageSet> {
        let mut set = self.whole_images(setting, tiny)?;
        set.truncate(self.options.disks, self.options.versions);
        Ok(set)
    }

    /// The same images, whatever `--disks` and `--versions` say: raw material of workloads, to which these apply.
    pub fn whole_images(&self, setting: &str, tiny: GeneratedShape) -> Result<ImageSet> {
        match &self.options.images {
            Some(dir) => ImageSet::load(dir),
            None if self.options.tiny => {
                ImageSet::generate(&self.space().join("images"), self.options.seed, tiny)
            }
            None => ImageSet::load(&images::default_root()?.join(setting)),
        }
    }

    /// The sapwood program, a copy that no build replaces during the experiment.
    pub fn sapwood(&self) -> Result<PathBuf> {
        self.sapwood.clone().context(
            "no sapwood program beside this one: build it with `cargo build --release`, or name it with --sapwood PATH",
        )
    }

    /// Writes the result of an experiment measured `runs` times, and its tables.
    pub fn save(
        &self,
        runs: usize,
        parameters: impl Serialize,
        results: impl Serialize,
        text: &str,
    ) -> Result<()> {
        let describe = |path: &PathBuf| -> Result<Sapwood> {
            Ok(Sapwood {
                version: run::first_line(Command::new(path).arg("--version"))?,
                blake3: chunk::Fingerprint::of(&fs::read(path)?).to_string(),
            })
        };
        let file = ResultFile {
            experiment: self.experiment,
            commit: &self.commit,
            sapwood: self.sapwood.as_ref().map(describe).transpose()?,
            machine: &self.machine,
            load_at_end: machine::load(),
            runs,
            tiny: self.options.tiny,
            seed: self.options.seed,
            parameters,
            results,
        };
        report::write_json(&self.out.join(format!("{}.json", self.experiment)), &file)?;
        fs::write(self.out.join(format!("{}.md", self.experiment)), text)?;
        Ok(())
    }

    /// Prints the tables, and where the result is.
    pub fn print(&self, text: &str) {
        println!("{text}");
        if self.options.tiny {
            eprintln!("tiny parameters: this shows that the experiment works, the figures mean nothing");
        }
        eprintln!("results: {}", self.out.display());
    }
}

/// Copies the sapwood program into `space`; none when it is not where it is by default.
fn copy_sapwood(options: &Options, space: &Path) -> Result<Option<PathBuf>> {
    let source = match &options.sapwood {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("sapwood"),
    };
    if options.sapwood.is_none() && !source.is_file() {
        return Ok(None);
    }
    let directory = space.join("program");
    fs::create_dir(&directory)?;
    let copy = directory.join("sapwood");
    fs::copy(&source, &copy).with_context(|| format!("cannot copy {}", source.display()))?;
    Ok(Some(copy))
}

/// The build directory that holds this program.
fn target_dir() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.parent().context("this program has no directory")?;
    Ok(profile.parent().unwrap_or(profile).to_owned())
}
