//! `fleet`: many clones of few templates, the most common private cloud. Each clone has data of its own; then all of a
//! template's clones get the same upgrade, and later a second one. Sapwood beside its `conventional` policy, restic and
//! borg, which take turns, backup by backup.
//!
//! The first three versions of each disk of the image sets are a template and its upgrades. In the end the newest versions
//! of some clones are restored: by each tool, and beside it from a vault that has nothing else than that clone.

mod clones;
mod restores;
mod results;
mod summary;

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files;
use crate::images::{default_root, GeneratedShape, ImageSet};
use crate::peers::{self, Tool, Version};
use crate::run::Cost;
use clones::{Clone, Maker, VERSIONS};
use results::{Results, Step, Stored, What, TOOLS};

/// Points of a tool's curve of stored bytes, about.
const POINTS: usize = 60;

/// How large the fleet is.
#[derive(clap::Args, Clone, Debug)]
pub struct FleetOptions {
    /// Clones of each template [default: 25; with --tiny 2]
    #[arg(long)]
    clones: Option<usize>,
    /// Clones of each template that are upgraded [default: all]
    #[arg(long)]
    upgraded: Option<usize>,
    /// Bytes of its own that each clone has
    #[arg(long, default_value_t = 8 << 20)]
    own_bytes: u64,
    /// Templates are cut to so many MiB, so that the run ends within hours
    #[arg(long, default_value_t = 1024)]
    cut_mib: u64,
    /// Only these tools [default: sapwood, sapwood-conventional, restic, borg]
    #[arg(long, value_delimiter = ',')]
    tools: Vec<String>,
    /// Clones that are restored [default: 5; with --tiny 1]
    #[arg(long)]
    restored: Option<usize>,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &FleetOptions) -> Result<()> {
    let images = image_sets(context)?;
    let clones = options.clones.unwrap_or(if context.options.tiny { 2 } else { 25 });
    let upgraded = options.upgraded.unwrap_or(clones).min(clones);
    let fleet = clones::fleet(&images, clones, upgraded);
    ensure!(!fleet.is_empty(), "no disk of the images has {VERSIONS} versions");
    let mut results = Results::default();
    for run in 0..context.runs() {
        Run::start(context, options, run, &fleet, &mut results)?.whole()?;
        save(context, options, run + 1, &fleet, &results)?;
    }
    context.print(&summary::text(&results));
    Ok(())
}

/// The images of `--full` and of `--small`, or those of `--images`.
fn image_sets(context: &Context) -> Result<Vec<ImageSet>> {
    let tiny = GeneratedShape { suites: 1, disks: 2, versions: VERSIONS as u64, size_bytes: 48 << 20 };
    let mut sets = vec![context.images("full", tiny)?];
    if context.options.images.is_none() && !context.options.tiny {
        sets.push(ImageSet::load(&default_root()?.join("small"))?);
    }
    Ok(sets)
}

fn save(
    context: &Context,
    options: &FleetOptions,
    runs: usize,
    fleet: &[Clone<'_>],
    results: &Results,
) -> Result<()> {
    #[derive(Serialize)]
    struct Parameters {
        templates: Vec<String>,
        clones: usize,
        upgraded: usize,
        own_bytes: u64,
        cut_mib: u64,
    }
    let parameters = Parameters {
        templates: fleet.iter().filter(|c| c.is_first).map(|c| c.template.clone()).collect(),
        clones: fleet.len(),
        upgraded: fleet.iter().filter(|c| c.is_upgraded).count(),
        own_bytes: options.own_bytes,
        cut_mib: options.cut_mib,
    };
    summary::draw(context, results)?;
    context.save(runs, parameters, results, &summary::text(results))
}

/// One run: every tool has a repository, and takes its turn in each step.
struct Run<'a> {
    context: &'a Context,
    run: usize,
    fleet: &'a [Clone<'a>],
    maker: Maker<'a>,
    tools: Vec<(String, Box<dyn Tool>)>,
    restored: usize,
    results: &'a mut Results,
    backups: usize,
    /// Stored bytes are looked at after so many backups.
    every: usize,
}

impl<'a> Run<'a> {
    fn start(
        context: &'a Context,
        options: &'a FleetOptions,
        run: usize,
        fleet: &'a [Clone<'a>],
        results: &'a mut Results,
    ) -> Result<Self> {
        let home = files::fresh_dir(&context.space().join("fleet"))?;
        let sapwood = context.sapwood()?;
        let usual = || TOOLS.map(str::to_owned).to_vec();
        let wanted = if options.tools.is_empty() { usual() } else { options.tools.clone() };
        let mut tools = Vec::new();
        for name in wanted {
            match peers::tool(&name, &home, &sapwood)? {
                Some(mut tool) => {
                    tool.create()?;
                    tools.push((name, tool));
                }
                None => eprintln!("{name} is not installed and was left out; --install installs it"),
            }
        }
        let upgraded = fleet.iter().filter(|c| c.is_upgraded).count();
        let every = ((fleet.len() + (VERSIONS - 1) * upgraded) / POINTS).max(1);
        let restored = options.restored.unwrap_or(if context.options.tiny { 1 } else { 5 });
        let maker = Maker { context, home, own_bytes: options.own_bytes, length_max: options.cut_mib << 20 };
        Ok(Run { context, run, fleet, maker, tools, restored, results, backups: 0, every })
    }

    fn whole(mut self) -> Result<()> {
        let mut rounds = Vec::new();
        for number in 0..VERSIONS {
            for clone in self.fleet.iter().filter(|c| number == 0 || c.is_upgraded) {
                self.store(clone, number)?;
            }
            self.look_at_stored()?;
            rounds.push(self.backups);
        }
        self.results.rounds = rounds;
        for clone in clones::spread(self.fleet, self.restored) {
            self.restore(clone)?;
        }
        for (_, tool) in &mut self.tools {
            tool.verify()?;
        }
        std::fs::remove_dir_all(self.maker.home)?;
        Ok(())
    }

    /// Every tool stores a version of a clone.
    fn store(&mut self, clone: &Clone<'_>, number: usize) -> Result<()> {
        let (path, size_bytes) = self.maker.make(clone, number)?;
        let what = match number {
            0 if clone.is_first => What::FirstOfTemplate,
            0 => What::FurtherClone,
            1 => What::FirstUpgrade,
            _ => What::SecondUpgrade,
        };
        let count = self.tools.len();
        for n in 0..count {
            let at = (n + self.backups + self.run) % count;
            files::make_warm(&path)?;
            let (name, tool) = &mut self.tools[at];
            let version = Version { disk: &clone.disk, number, path: &path };
            let cost = tool.backup(version).with_context(|| format!("{name}: {}", version.label()))?;
            let tool = name.clone();
            self.record(tool, what, clone, size_bytes, cost);
        }
        self.backups += 1;
        std::fs::remove_file(path)?;
        if self.backups % self.every == 0 {
            self.look_at_stored()?;
        }
        Ok(())
    }

    fn look_at_stored(&mut self) -> Result<()> {
        let (run, backups) = (self.run, self.backups);
        for (name, tool) in &self.tools {
            let bytes = tool.stored()?.allocated_bytes;
            self.results.stored.push(Stored { run, tool: name.clone(), backups, bytes });
        }
        Ok(())
    }

    /// Every tool restores the newest version of a clone; then Sapwood does, from a vault that only has this clone, too.
    fn restore(&mut self, clone: &Clone<'_>) -> Result<()> {
        let number = clone.newest();
        let (path, size_bytes) = self.maker.make(clone, number)?;
        let version = Version { disk: &clone.disk, number, path: &path };
        for n in 0..self.tools.len() {
            let (name, tool) = &mut self.tools[n];
            let dir = files::fresh_dir(&self.maker.home.join("restored"))?;
            self.context.make_cold(tool.repository())?;
            let (target, cost) = tool.restore(version, &dir)?;
            files::require_equal(&path, &target).with_context(|| format!("{name}: {}", version.label()))?;
            std::fs::remove_dir_all(dir)?;
            let tool = name.clone();
            self.record(tool, What::Restore, clone, size_bytes, cost);
        }
        std::fs::remove_file(&path)?;
        if let Some((_, sapwood)) = self.tools.iter().find(|(name, _)| name == TOOLS[0]) {
            let vault = sapwood.repository().to_owned();
            self.results.compared.push(restores::compare(
                self.context,
                &self.maker,
                clone,
                &vault,
                self.run,
            )?);
        }
        Ok(())
    }

    fn record(&mut self, tool: String, what: What, clone: &Clone<'_>, size_bytes: u64, cost: Cost) {
        eprintln!("{:4} {tool:22} {what:?} {} {:.2} s", self.backups, clone.disk, cost.durable_seconds());
        let disk = clone.disk.clone();
        self.results.steps.push(Step { run: self.run, tool, what, disk, size_bytes, cost });
    }
}
