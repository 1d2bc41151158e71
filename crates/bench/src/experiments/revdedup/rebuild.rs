//! Figure 9: the rebuild threshold between punching (1) and writing containers again (0).
//!
//! Each threshold has a vault on a small ext4 file system of its own, so that `e2freefrag` sees the free space that
//! this vault has torn, or, where none can be mounted, a vault beside the others, of which the pieces of the files
//! count instead. The time is that of the whole reverse pass: the search in it does not depend on the threshold.

use anyhow::Result;
use serde::Serialize;
use vault::Policy;

use super::Setting;
use crate::context::Context;
use crate::layout::free_extents::{fragments, SizeClass, SmallFileSystem};
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{figure, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::{LocalVault, Stored};
use crate::workload::Daily;

const THRESHOLDS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
const SEGMENT_MIB: u32 = 32;
/// Days stored with each threshold.
const DAYS_MAX: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Pieces {
    /// Free extents, by `e2freefrag`.
    Free,
    /// Extents of the vault's data, by FIEMAP.
    OfFiles,
}

/// What one threshold leads to.
#[derive(Debug, Serialize)]
pub(super) struct Threshold {
    rebuild_at: f64,
    days: usize,
    pass_seconds: Vec<f64>,
    compacted: u64,
    stored: Stored,
    pieces: Option<Pieces>,
    classes: Vec<SizeClass>,
}

impl Threshold {
    fn pass_mean(&self) -> Option<f64> {
        let count = self.pass_seconds.len();
        (count > 0).then(|| self.pass_seconds.iter().sum::<f64>() / count as f64)
    }

    /// Pieces smaller than `below_bytes`, in per cent of what is stored.
    fn cumulative(&self, below_bytes: u64) -> f64 {
        let small = self.classes.iter().filter(|c| c.below_bytes <= below_bytes);
        let bytes: u64 = small.map(|c| c.bytes).sum();
        100.0 * bytes as f64 / self.stored.data_bytes.max(1) as f64
    }

    /// Pieces smaller than a segment.
    fn small(&self) -> Option<f64> {
        self.pieces.map(|_| self.cumulative(u64::from(SEGMENT_MIB) << 20))
    }
}

/// Stores the chain with every threshold.
pub(super) fn measure(context: &Context, daily: &Daily) -> Result<Vec<Threshold>> {
    let days = daily.days().min(DAYS_MAX);
    let bytes = if context.options.tiny { 256 << 20 } else { 4 << 30 };
    let mut thresholds = Vec::new();
    let tiny = |t: &f64| !context.options.tiny || [0.0, 0.2, 1.0].contains(t);
    for rebuild_at in THRESHOLDS.into_iter().filter(tiny) {
        context.require_free(bytes)?;
        let small = SmallFileSystem::mount(context.space(), bytes)?;
        let home = small.as_ref().map_or(context.space(), SmallFileSystem::dir);
        let setting = Setting::reverse(SEGMENT_MIB);
        let policy = Policy { rebuild_at, ..setting.policy };
        let vault = LocalVault::create(&home.join("rebuild"), policy, setting.codec)?;
        let (mut pass_seconds, mut compacted) = (Vec::new(), 0);
        for day in 0..days {
            check_interrupted()?;
            let (_, cost) = vault.backup(&daily.version(day))?;
            compacted += cost.compacted;
            if day > 0 {
                pass_seconds.push(cost.reverse_seconds);
            }
        }
        let stored = vault.stored()?;
        let (pieces, classes) = match small {
            Some(small) => {
                drop(vault);
                (Some(Pieces::Free), small.free_extents()?)
            }
            None => {
                let classes = fragments(vault.dir())?;
                vault.remove()?;
                (classes.is_some().then_some(Pieces::OfFiles), classes.unwrap_or_default())
            }
        };
        let threshold = Threshold { rebuild_at, days, pass_seconds, compacted, stored, pieces, classes };
        eprintln!(
            "rebuild at {rebuild_at:.1}: pass {} s on average, {compacted} containers written again, {} % small",
            figure(threshold.pass_mean(), 3),
            figure(threshold.small(), 1)
        );
        thresholds.push(threshold);
    }
    Ok(thresholds)
}

pub(super) fn bars(thresholds: &[Threshold]) -> Vec<Bar> {
    let at = |wanted: f64| thresholds.iter().find(|t| t.rebuild_at == wanted).and_then(Threshold::pass_mean);
    let ends = [at(0.0), at(1.0)];
    let middle = [0.2, 0.4, 0.6, 0.8].iter().filter_map(|t| at(*t)).reduce(f64::min);
    let times = |end: Option<f64>| Some(middle? / end?);
    vec![
        Bar::at_most("rebuild threshold: pass at the best one, times that at 0", times(ends[0]), 1.0),
        Bar::at_most("rebuild threshold: pass at the best one, times that at 1", times(ends[1]), 1.0),
    ]
}

pub(super) fn text(thresholds: &[Threshold]) -> String {
    let mut table = Table::new([
        "rebuild at",
        "pass s",
        "median s",
        "written again",
        "stored MB",
        "small pieces, % of stored",
    ]);
    for t in thresholds {
        table.row([
            format!("{:.1}", t.rebuild_at),
            figure(t.pass_mean(), 3),
            figure(median(t.pass_seconds.iter().copied()), 3),
            t.compacted.to_string(),
            format!("{:.1}", t.stored.total_bytes() as f64 / 1e6),
            figure(t.small(), 1),
        ]);
    }
    let pieces = match thresholds.first().and_then(|t| t.pieces) {
        Some(Pieces::Free) => "free extents of an ext4 file system of its own, by e2freefrag",
        Some(Pieces::OfFiles) => "extents of the vault's files, by FIEMAP: no file system could be mounted",
        None => "not known: neither a mount nor FIEMAP is possible here",
    };
    let days = thresholds.first().map_or(0, |t| t.days);
    format!("Rebuild threshold, {SEGMENT_MIB} MiB segments, {days} days. Pieces: {pieces}.\n\n{table}")
}

pub(super) fn draw_thresholds(context: &Context, thresholds: &[Threshold]) -> Result<()> {
    let points = thresholds.iter().filter_map(|t| Some((t.rebuild_at, t.pass_mean()?)));
    let series = vec![("reverse pass".to_owned(), points.collect())];
    let labels = Labels { title: "Time of the reverse pass", x: "rebuild threshold", y: "s" };
    draw(context.out(), "revdedup-f9a", &labels, &Figure::Lines { series })?;
    let groups = thresholds.iter().map(|t| format!("{:.1}", t.rebuild_at)).collect();
    let small = thresholds.iter().map(Threshold::small);
    let series = vec![(format!("smaller than {SEGMENT_MIB} MiB"), small.collect())];
    let labels = Labels { title: "Free pieces", x: "rebuild threshold", y: "% of what is stored" };
    draw(context.out(), "revdedup-f9b", &labels, &Figure::Bars { groups, series })
}
