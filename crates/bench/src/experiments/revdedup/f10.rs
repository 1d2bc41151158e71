//! `revdedup-f10` (figure 10): the time that tracing references takes when each version of a long chain is read.
//!
//! Planning a restore traces all references, and reads what a restore of any version reads of recipe and tables; it is
//! timed alone, from a cold cache, and then the whole restore, which contains it. What is restored is forgotten, so that no slow target makes the share look small.

use anyhow::Result;
use serde::Serialize;

use super::{daily, require_room, RevdedupOptions, Setting};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;
use crate::workload::Daily;

const SEGMENT_MIB: u32 = 32;
/// How often the oldest version is read.
const OLDEST_READS: usize = 5;

/// One version read.
#[derive(Debug, Serialize)]
struct Step {
    setting: String,
    /// From 1, the oldest, on.
    day: usize,
    plan_seconds: f64,
    /// Right after it, with all that it reads in the page cache.
    plan_warm_seconds: f64,
    read_seconds: f64,
}

/// A figure of a step.
type Value = fn(&Step) -> f64;

impl Step {
    fn share(&self) -> f64 {
        self.plan_seconds / self.read_seconds
    }
}

/// Runs the experiment.
pub fn run(context: &Context, options: &RevdedupOptions) -> Result<()> {
    let daily = daily(context)?;
    let mut settings: Vec<Setting> =
        options.segments_mib(context, &[SEGMENT_MIB]).into_iter().map(Setting::reverse).collect();
    settings.push(Setting::balanced());
    let settings = options.wanted(settings);
    let mut steps = Vec::new();
    for setting in &settings {
        measure(context, &daily, setting, &mut steps)?;
    }
    report(context, daily.days(), &settings, &steps)
}

fn measure(context: &Context, daily: &Daily, setting: &Setting, steps: &mut Vec<Step>) -> Result<()> {
    let vault = setting.create_vault(context)?;
    let mut snapshots = Vec::new();
    for day in 0..daily.days() {
        check_interrupted()?;
        let version = daily.version(day);
        require_room(context, &version)?;
        snapshots.push(vault.backup(&version)?.0);
    }
    let disk = daily.version(0).disk;
    for (day, snapshot) in snapshots.iter().enumerate() {
        let times = if day == 0 { OLDEST_READS } else { 1 };
        for _ in 0..times {
            check_interrupted()?;
            context.make_cold(vault.dir())?;
            let plan_seconds = vault.plan_seconds(&disk, snapshot)?;
            let plan_warm_seconds = vault.plan_seconds(&disk, snapshot)?;
            context.make_cold(vault.dir())?;
            let read_seconds = vault.read(&disk, snapshot)?;
            let (setting, day) = (setting.name.clone(), day + 1);
            steps.push(Step { setting, day, plan_seconds, plan_warm_seconds, read_seconds });
        }
        if day % 16 == 0 {
            if let Some(step) = steps.last() {
                eprintln!(
                    "{:16} day {:2}: {:.3} s of {:.3} s",
                    setting.name,
                    day + 1,
                    step.plan_seconds,
                    step.read_seconds
                );
            }
        }
    }
    for day in [0, daily.days() / 2] {
        vault.require_equal(&daily.version(day), &snapshots[day])?;
    }
    vault.remove()
}

fn report(context: &Context, days: usize, settings: &[Setting], steps: &[Step]) -> Result<()> {
    let of = |setting: &Setting, day: Option<usize>, value: Value| {
        let steps = steps.iter().filter(|s| s.setting == setting.name && day.is_none_or(|day| s.day == day));
        median(steps.map(value))
    };
    let mut bars = Vec::new();
    let mut table = Table::new(["setting", "version", "tracing s", "warm s", "reading s", "share"]);
    for setting in settings {
        let oldest = of(setting, Some(1), Step::share);
        bars.push(Bar::at_most(
            format!("{}: tracing of the oldest version, part of reading it", setting.name),
            oldest,
            0.05,
        ));
        bars.push(Bar::shown("the same, median of all versions", of(setting, None, Step::share)));
        // The newest version has no references to trace: its planning reads tables and recipe all the same.
        let plans: [(&str, Value); 2] = [("cold", |s| s.plan_seconds), ("warm", |s| s.plan_warm_seconds)];
        for (cache, plan) in plans {
            let oldest = of(setting, Some(1), plan);
            let more = oldest.zip(of(setting, Some(days), plan)).map(|(oldest, newest)| oldest - newest);
            let reading = of(setting, Some(1), |s| s.read_seconds);
            bars.push(Bar::shown(
                format!("the oldest less planning of the newest version, which traces nothing, {cache}"),
                more.zip(reading).map(|(more, reading)| more / reading),
            ));
        }
        let shown =
            [("oldest", Some(1)), ("middle", Some(days.div_ceil(2))), ("newest", Some(days)), ("all", None)];
        for (label, day) in shown {
            table.row([
                setting.name.clone(),
                label.to_owned(),
                figure(of(setting, day, |s| s.plan_seconds), 4),
                figure(of(setting, day, |s| s.plan_warm_seconds), 4),
                figure(of(setting, day, |s| s.read_seconds), 3),
                figure(of(setting, day, Step::share), 4),
            ]);
        }
        let line = |title: &str, value: Value| {
            let points = (1..=days).filter_map(|day| Some((day as f64, of(setting, Some(day), value)?)));
            (title.to_owned(), points.collect::<Vec<_>>())
        };
        let series = vec![
            line("reading", |s| s.read_seconds),
            line("tracing in it", |s| s.plan_seconds),
            line("tracing, warm", |s| s.plan_warm_seconds),
        ];
        let title = format!("Reading each version, {}", setting.name);
        let labels = Labels { title: &title, x: "version", y: "s" };
        let file = format!("revdedup-f10-{}", setting.file_name());
        draw(context.out(), &file, &labels, &Figure::Lines { series })?;
    }
    let text = format!("{days} versions; medians.\n\n{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        days: usize,
        oldest_reads: usize,
        tracing: &'static str,
        reading: &'static str,
    }
    let parameters = Parameters {
        days,
        oldest_reads: OLDEST_READS,
        tracing: "planning the whole restore, from a cold cache",
        reading: "restore that forgets what it read, from a cold cache, planning contained",
    };
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    context.save(1, parameters, Results { bars: &bars, steps }, &text)?;
    context.print(&text);
    Ok(())
}
