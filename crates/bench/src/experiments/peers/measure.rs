//! The measuring itself: the steps of one run, and a rehearsal of them.

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context as _, Result};

use super::step::{Action, Measured, Step};
use crate::context::Context;
use crate::files::{self, Cold, Space};
use crate::images::generate::Content;
use crate::images::ImageSet;
use crate::peers::{self, Description, Tool, Version};

/// The tools, and the images they store.
pub struct Bench<'a> {
    context: &'a Context,
    images: &'a ImageSet,
    measured: Measured,
    sapwood: PathBuf,
    /// The tools that are installed.
    pub tools: Vec<Description>,
    /// Names of those that are not.
    pub missing: Vec<String>,
    /// How the cache was emptied before restores.
    pub cold: Option<Cold>,
    steps: Vec<Step>,
}

/// A tool, its name, and whether it stores each version whole.
type Named = (String, bool, Box<dyn Tool>);

impl<'a> Bench<'a> {
    /// Finds the tools called `names`; says which are missing.
    pub fn new(
        context: &'a Context,
        images: &'a ImageSet,
        measured: Measured,
        names: Vec<String>,
    ) -> Result<Self> {
        let mut sapwood = PathBuf::new();
        if names.iter().any(|name| name.starts_with("sapwood")) {
            sapwood = context.sapwood()?;
        }
        let home = context.space().join("tools");
        let (mut tools, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match peers::tool(&name, &home, &sapwood)? {
                Some(tool) => tools.push(tool.describe()?),
                None => {
                    eprintln!("{name} is not installed and was left out; --install installs it");
                    missing.push(name);
                }
            }
        }
        if tools.is_empty() {
            bail!("none of the tools is installed");
        }
        Ok(Self { context, images, measured, sapwood, tools, missing, cold: None, steps: Vec::new() })
    }

    /// New, empty repositories of all tools.
    fn create(&self) -> Result<Vec<Named>> {
        let home = files::fresh_dir(&self.context.space().join("tools"))?;
        let mut tools: Vec<Named> = Vec::new();
        for Description { name, .. } in &self.tools {
            let mut tool =
                peers::tool(name, &home, &self.sapwood)?.with_context(|| format!("{name} has gone"))?;
            tool.create()?;
            let whole = peers::YARDSTICKS.contains(&name.as_str());
            tools.push((name.clone(), whole, tool));
        }
        Ok(tools)
    }

    /// Every tool stores, restores and verifies a small image: what fails should
    /// fail now, not after an hour.
    pub fn rehearse(&self) -> Result<()> {
        const BYTES: u64 = 8 << 20;
        let path = self.context.space().join("rehearsal.raw");
        let file = fs::File::create(&path)?;
        file.set_len(2 * BYTES)?;
        Content::new(self.context.options.seed).write(&file, 0, BYTES, 0)?;
        let version = Version { disk: "rehearsal/vda", number: 0, path: &path };
        for (name, _, mut tool) in self.create()? {
            self.round_trip(tool.as_mut(), version)
                .with_context(|| format!("{name}: rehearsal with a small image"))?;
        }
        fs::remove_file(path)?;
        Ok(())
    }

    fn round_trip(&self, tool: &mut dyn Tool, version: Version<'_>) -> Result<()> {
        tool.backup(version)?;
        if self.measured.restore {
            let target = files::fresh_dir(&self.context.space().join("restore"))?;
            let (restored, _) = tool.restore(version, &target)?;
            files::require_equal(version.path, &restored)?;
            fs::remove_dir_all(target)?;
            tool.verify()?;
        }
        Ok(())
    }

    /// Goes through all versions with new repositories; returns the steps.
    pub fn one_run(&mut self, run: usize) -> Result<Vec<Step>> {
        let mut tools = self.create()?;
        let mut turn = run;
        for version in 0..self.images.versions_max() {
            for disk in 0..self.images.disks.len() {
                turn += 1;
                self.backups(run, turn, (disk, version), &mut tools)?;
            }
        }
        if self.measured.restore {
            for disk in 0..self.images.disks.len() {
                let newest = self.images.disks[disk].versions.len() - 1;
                turn += 1;
                self.restores(run, turn, (disk, newest), &mut tools)?;
                if newest > 0 {
                    turn += 1;
                    self.restores(run, turn, (disk, 0), &mut tools)?;
                }
            }
            self.verify(run, &mut tools)?;
        }
        if self.measured.later && self.images.versions_max() > 1 {
            self.pack(run, &mut tools)?;
        }
        drop(tools);
        fs::remove_dir_all(self.context.space().join("tools"))?;
        Ok(std::mem::take(&mut self.steps))
    }

    /// Every tool stores one version of one disk.
    fn backups(
        &mut self,
        run: usize,
        turn: usize,
        (disk, number): (usize, usize),
        tools: &mut [Named],
    ) -> Result<()> {
        let disk = &self.images.disks[disk];
        let Some(image) = disk.versions.get(number) else {
            return Ok(());
        };
        let ends = number == 0 || number + 1 == disk.versions.len();
        let version = Version { disk: &disk.name, number, path: &image.path };
        let count = tools.len();
        for i in 0..count {
            let (name, whole, tool) = &mut tools[(i + turn) % count];
            // What has no history takes the same time for every version.
            if *whole && !ends {
                continue;
            }
            self.context.require_free(Space::of(&image.path)?.allocated_bytes)?;
            files::make_warm(&image.path)?;
            let cost =
                tool.backup(version).with_context(|| format!("{name}: backup of {}", version.label()))?;
            let step = Step {
                run,
                tool: name.clone(),
                action: Action::Backup,
                disk: disk.name.clone(),
                version: number,
                size_bytes: image.size_bytes,
                data_bytes: None,
                cost,
                stored: Some(tool.stored()?),
            };
            self.record(step);
        }
        Ok(())
    }

    /// Every tool restores one version of one disk, to a place of its own.
    fn restores(
        &mut self,
        run: usize,
        turn: usize,
        (disk, number): (usize, usize),
        tools: &mut [Named],
    ) -> Result<()> {
        let disk = &self.images.disks[disk];
        let image = &disk.versions[number];
        let version = Version { disk: &disk.name, number, path: &image.path };
        let data_bytes = files::nonzero_bytes(&image.path)?;
        let count = tools.len();
        for i in 0..count {
            let (name, _, tool) = &mut tools[(i + turn) % count];
            // Some tools write the holes too.
            self.context.require_free(image.size_bytes)?;
            let target = files::fresh_dir(&self.context.space().join("restore"))?;
            self.cold = Some(self.context.make_cold(tool.repository())?);
            // The data is cold; loading the program from disk is not part of the restore.
            tool.describe()?;
            let (restored, cost) = tool
                .restore(version, &target)
                .with_context(|| format!("{name}: restore of {}", version.label()))?;
            files::require_equal(&image.path, &restored)
                .with_context(|| format!("{name} restored {} wrongly", version.label()))?;
            fs::remove_dir_all(&target)?;
            let step = Step {
                run,
                tool: name.clone(),
                action: Action::Restore,
                disk: disk.name.clone(),
                version: number,
                size_bytes: image.size_bytes,
                data_bytes: Some(data_bytes),
                cost,
                stored: None,
            };
            self.record(step);
        }
        Ok(())
    }

    fn verify(&mut self, run: usize, tools: &mut [Named]) -> Result<()> {
        for (name, _, tool) in tools {
            let cold = self.context.make_cold(tool.repository())?;
            tool.describe()?;
            let verified = tool.verify().with_context(|| format!("{name}: verify of everything"))?;
            let Some(verified) = verified else {
                continue;
            };
            self.cold = Some(cold);
            let step = Step {
                run,
                tool: name.clone(),
                action: Action::Verify,
                disk: String::new(),
                version: self.images.versions_max() - 1,
                size_bytes: 0,
                data_bytes: Some(verified.data_bytes),
                cost: verified.cost,
                stored: None,
            };
            self.record(step);
        }
        Ok(())
    }

    /// The tools that can pack everything again: the last step, so that no other is measured on what it made.
    fn pack(&mut self, run: usize, tools: &mut [Named]) -> Result<()> {
        for (name, _, tool) in tools {
            let packed = tool.pack().with_context(|| format!("{name}: packing everything again"))?;
            let Some(cost) = packed else { continue };
            let step = Step {
                run,
                tool: name.clone(),
                action: Action::Pack,
                disk: String::new(),
                version: self.images.versions_max() - 1,
                size_bytes: 0,
                data_bytes: None,
                cost,
                stored: Some(tool.stored()?),
            };
            self.record(step);
            tool.verify().with_context(|| format!("{name}: verify of what was packed again"))?;
        }
        Ok(())
    }

    fn record(&mut self, step: Step) {
        eprintln!(
            "run {} {:14} {:8} {} v{:02} {:8.2} s wall {:6.2} s sync {:8.2} s cpu {:6} MiB",
            step.run,
            step.tool,
            format!("{:?}", step.action).to_lowercase(),
            step.disk,
            step.version,
            step.cost.wall_seconds,
            step.cost.sync_seconds,
            step.cost.cpu_seconds(),
            step.cost.rss_bytes_max >> 20,
        );
        self.steps.push(step);
    }
}
