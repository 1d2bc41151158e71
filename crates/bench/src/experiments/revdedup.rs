//! The experiments of RevDedup (2013, section 4), on workloads made of real images.
//!
//! All of them call the vault's library in this process. Nothing is compressed but by `balanced`, which is measured as
//! users get it, so that deduplication alone is seen. Time is wall time, fingerprinting included, which the paper
//! leaves out. Restores are timed from a cold cache on the disk of this machine, and their reads, at the places where
//! the file system put the data, on a model of the disk of the paper ([`crate::layout::seek_model`]).

pub mod f10;
pub mod f6;
pub mod f7;
pub mod f8;
mod rebuild;
mod restores;
pub mod t1;

use anyhow::{Context as _, Result};
use vault::{CodecChoice, Policy, Rewrite, BALANCED, CONVENTIONAL, REVERSE};

use crate::context::Context;
use crate::images::{GeneratedShape, Image};
use crate::vaults::in_process::LocalVault;
use crate::workload::{Daily, Students, StudentsShape, Version};

/// What the experiments of RevDedup may be told.
#[derive(clap::Args, Clone, Debug)]
pub struct RevdedupOptions {
    /// Segment sizes of policy reverse in MiB [default: those of the figure; with --tiny the first of them]
    #[arg(long, value_delimiter = ',', value_name = "MIB")]
    segments: Vec<u32>,
    /// Only the settings whose names contain one of these, such as "balanced" [default: all of the figure]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    settings: Vec<String>,
}

impl RevdedupOptions {
    /// Those of the figure's settings that are measured.
    fn wanted(&self, mut settings: Vec<Setting>) -> Vec<Setting> {
        settings.retain(|setting| self.wants_named(&setting.name));
        settings
    }

    /// Whether what has this name is measured.
    fn wants_named(&self, name: &str) -> bool {
        self.settings.is_empty() || self.settings.iter().any(|part| name.contains(part.as_str()))
    }

    fn segments_mib(&self, context: &Context, usual: &[u32]) -> Vec<u32> {
        match (self.segments.is_empty(), context.options.tiny) {
            (false, _) => self.segments.clone(),
            (true, false) => usual.to_vec(),
            (true, true) => usual[..1].to_vec(),
        }
    }
}

/// A policy with the numbers of one curve.
#[derive(Clone, Debug)]
struct Setting {
    name: String,
    policy: Policy,
    /// In place of the policy's.
    codec: Option<CodecChoice>,
}

impl Setting {
    /// Reverse deduplication with one segment a container, as in the paper.
    fn reverse(segment_mib: u32) -> Self {
        let bytes = segment_mib << 20;
        let policy = Policy { segment_bytes: bytes, group_bytes: bytes, container_bytes: bytes, ..REVERSE };
        Self { name: format!("reverse {segment_mib} MiB"), policy, codec: None }
    }

    /// Whole segments only.
    fn global_only(segment_mib: u32) -> Self {
        let published = Self::as_published(segment_mib);
        let name = format!("global only {segment_mib} MiB");
        Self { name, policy: Policy { reverse: false, ..published.policy }, codec: None }
    }

    /// Reverse deduplication that writes every changed segment whole.
    fn as_published(segment_mib: u32) -> Self {
        let reverse = Self::reverse(segment_mib);
        let rewrite_at = Rewrite::Whole { keep_shared: None };
        let name = format!("as published {segment_mib} MiB");
        Self { name, policy: Policy { rewrite_at, ..reverse.policy }, codec: None }
    }

    /// Inline deduplication of fixed chunks.
    fn conventional(chunk_kib: u32) -> Result<Self> {
        let policy = Policy { chunking: format!("{chunk_kib}k").parse()?, ..CONVENTIONAL };
        let name = format!("conventional {chunk_kib} KiB");
        Ok(Self { name, policy, codec: Some(CodecChoice::Raw) })
    }

    /// The default, compressed as it is by default.
    fn balanced() -> Self {
        Self { name: "balanced (default)".into(), policy: BALANCED, codec: None }
    }

    /// The default with another threshold of writing again; `None` for never.
    fn rewriting(read_ratio: Option<f64>) -> Self {
        let (name, rewrite_at) = match read_ratio {
            None => ("balanced, without rewriting".into(), Rewrite::Never),
            Some(read_ratio) => {
                (format!("balanced, rewriting at {read_ratio}"), Rewrite::Fragmented { read_ratio })
            }
        };
        Self { name, policy: Policy { rewrite_at, ..BALANCED }, codec: None }
    }

    /// A new vault, in a directory named after the setting.
    fn create_vault(&self, context: &Context) -> Result<LocalVault> {
        LocalVault::create(&context.space().join(self.file_name()), self.policy, self.codec)
    }

    /// As the name of a directory.
    fn file_name(&self) -> String {
        self.name.replace([',', '(', ')'], "").replace(' ', "-")
    }
}

/// Disks cloned of the set's first disk; `--disks` and `--versions` say how many and for how many weeks.
fn students(context: &Context) -> Result<(Students, StudentsShape)> {
    let tiny = GeneratedShape { suites: 3, disks: 1, versions: 1, size_bytes: 24 << 20 };
    let images = context.whole_images("full", tiny)?;
    let (disks, weeks) = if context.options.tiny { (2, 3) } else { (12, 12) };
    let shape = StudentsShape {
        disks: context.options.disks.unwrap_or(disks).max(1),
        weeks: context.options.versions.unwrap_or(weeks).max(1),
        seed: context.options.seed,
    };
    let (base, others) = images.disks.split_first().context("the set has no disks")?;
    let newest = others.iter().filter(|disk| disk.versions.len() > 1).filter_map(|disk| disk.versions.last());
    let pools: Vec<&Image> = others.iter().map(|disk| &disk.versions[0]).chain(newest).collect();
    let students = Students::new(&base.versions[0], &pools, shape)?;
    eprintln!("{} disks, {} weeks, seed {}", students.disks(), students.weeks(), shape.seed);
    Ok((students, shape))
}

/// Refuses to go on where there is no room for a backup of a version.
fn require_room(context: &Context, version: &Version) -> Result<()> {
    context.require_free(version.changed_bytes + (512 << 20))
}

fn names(settings: &[Setting]) -> Vec<String> {
    settings.iter().map(|setting| setting.name.clone()).collect()
}

/// Days in the long chain.
fn chain_days(context: &Context) -> usize {
    if context.options.tiny {
        6
    } else {
        96
    }
}

/// The chain of the set's first disk; `--versions` says how many of its days.
fn daily(context: &Context) -> Result<Daily> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 3, size_bytes: 24 << 20 };
    let images = context.whole_images("full", tiny)?;
    let days = chain_days(context);
    let daily = Daily::new(&images.disks[0], days, context.options.versions.unwrap_or(days))?;
    eprintln!("{}: {} days", images.disks[0].name, daily.days());
    Ok(daily)
}
