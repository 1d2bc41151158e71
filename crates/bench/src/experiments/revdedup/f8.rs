//! `revdedup-f8` (figures 8 and 9): a disk stored every day, through real upgrades.
//!
//! Figure 8: the time of each backup and of the reverse pass in it. Beside it the rate at which the newest version is
//! restored, as the chain grows. Figure 9, in [`super::rebuild`]: what the rebuild threshold does.

use anyhow::Result;
use serde::Serialize;

use super::rebuild::{self, Threshold};
use super::restores::{self, Line, Order, Parameters, Read};
use super::{daily, names, require_room, RevdedupOptions, Setting};
use crate::context::Context;
use crate::layout::raw;
use crate::layout::seek_model::Service;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::{BackupCost, LocalVault, Modelled, Scatter, Stored};
use crate::workload::{Daily, Version};

const SEGMENTS_MIB: [u32; 4] = [4, 8, 16, 32];
const CHUNK_KIB: u32 = 128;
/// Thresholds at which `balanced` writes chunks again: bytes to fetch for one wanted.
/// The default is measured beside them.
const REWRITING: [Option<f64>; 4] = [None, Some(2.0), Some(1.25), Some(1.125)];
/// The newest version is restored on the first day and every so many days.
const RESTORE_EVERY_DAYS: usize = 8;
const HASH_BYTES: usize = 256 << 20;

/// One backup.
#[derive(Debug, Serialize)]
struct Backup {
    setting: String,
    /// From 1 on.
    day: usize,
    /// Whether the disk is a real version on this day.
    real: bool,
    nonzero_bytes: u64,
    changed_bytes: u64,
    #[serde(flatten)]
    cost: BackupCost,
}

/// The newest version restored.
#[derive(Debug, Serialize)]
struct Restore {
    setting: String,
    day: usize,
    #[serde(flatten)]
    read: Read,
    scatter: Scatter,
    /// A plain copy of the real version that the day's version is based on, just before.
    raw_copy_mb_per_second: f64,
    raw_model: Option<Service>,
}

/// A whole chain.
#[derive(Debug, Serialize)]
struct Chain {
    setting: String,
    /// The newest version read from a vault that has nothing else.
    model_alone: Option<Modelled>,
    stored: Stored,
    /// Seconds of verifying all versions from a warm cache: without data, and with every chunk.
    verify_seconds: f64,
    verify_data_seconds: f64,
}

/// Runs the experiment. The days are its repetitions.
pub fn run(context: &Context, options: &RevdedupOptions) -> Result<()> {
    let daily = daily(context)?;
    let mut settings: Vec<Setting> =
        options.segments_mib(context, &SEGMENTS_MIB).into_iter().map(Setting::reverse).collect();
    settings.push(Setting::balanced());
    settings.extend(REWRITING.map(Setting::rewriting));
    settings.push(Setting::conventional(CHUNK_KIB)?);
    let settings = options.wanted(settings);
    let first = daily.version(0);
    let mut measured = Measured {
        settings: names(&settings),
        days: daily.days(),
        hash_bytes_per_second: hash_rate(&first)?,
        backups: Vec::new(),
        restores: Vec::new(),
        chains: Vec::new(),
        thresholds: Vec::new(),
    };
    for setting in &settings {
        measured.measure(context, &daily, setting)?;
    }
    if options.wants_named("thresholds") {
        measured.thresholds = rebuild::measure(context, &daily)?;
    }
    measured.draw(context)?;
    if !measured.thresholds.is_empty() {
        rebuild::draw_thresholds(context, &measured.thresholds)?;
    }
    measured.save(context)
}

/// Bytes a second that all cores fingerprint, from memory.
fn hash_rate(version: &Version) -> Result<f64> {
    let mut bytes = vec![0; HASH_BYTES.min(version.size_bytes as usize)];
    version.read_at(0, &mut bytes)?;
    let mut seconds = Vec::new();
    for _ in 0..3 {
        seconds.push(raw::hash(&bytes)?);
    }
    Ok(bytes.len() as f64 / median(seconds).unwrap_or(f64::INFINITY))
}

/// All that was measured.
struct Measured {
    settings: Vec<String>,
    days: usize,
    hash_bytes_per_second: f64,
    backups: Vec<Backup>,
    restores: Vec<Restore>,
    chains: Vec<Chain>,
    thresholds: Vec<Threshold>,
}

impl Measured {
    fn measure(&mut self, context: &Context, daily: &Daily, setting: &Setting) -> Result<()> {
        let vault = setting.create_vault(context)?;
        let mut oldest = None;
        for day in 0..daily.days() {
            check_interrupted()?;
            let version = daily.version(day);
            require_room(context, &version)?;
            version.make_warm()?;
            let (snapshot, cost) = vault.backup(&version)?;
            self.backups.push(Backup {
                setting: setting.name.clone(),
                day: day + 1,
                real: daily.is_real(day),
                nonzero_bytes: version.nonzero_bytes,
                changed_bytes: version.changed_bytes,
                cost,
            });
            if day == 0 || (day + 1) % RESTORE_EVERY_DAYS == 0 || day + 1 == daily.days() {
                eprintln!(
                    "{:20} day {:2}: {:.2} s ({:.2} s of them the pass), {:.1} MB changed",
                    setting.name,
                    day + 1,
                    cost.seconds,
                    cost.reverse_seconds,
                    version.changed_bytes as f64 / 1e6
                );
                self.restore(context, &vault, setting, day, &version, &snapshot)?;
            }
            oldest.get_or_insert((version, snapshot));
        }
        if let Some((version, snapshot)) = oldest {
            vault.require_equal(&version, &snapshot)?;
        }
        let newest = daily.version(daily.days() - 1);
        context.require_free(newest.nonzero_bytes + (512 << 20))?;
        let alone = LocalVault::create(&context.space().join("alone"), setting.policy, setting.codec)?;
        let (snapshot, _) = alone.backup(&newest)?;
        let model_alone = alone.modelled(&newest.disk, &snapshot)?;
        alone.remove()?;
        self.chains.push(Chain {
            setting: setting.name.clone(),
            model_alone,
            stored: vault.stored()?,
            verify_seconds: vault.verify(false)?,
            verify_data_seconds: vault.verify(true)?,
        });
        vault.remove()
    }

    fn restore(
        &mut self,
        context: &Context,
        vault: &LocalVault,
        setting: &Setting,
        day: usize,
        version: &Version,
        snapshot: &str,
    ) -> Result<()> {
        let timed = restores::time(context, vault, version, snapshot)?;
        let model = vault.modelled(&version.disk, snapshot)?;
        let nonzero_bytes = version.nonzero_bytes;
        self.restores.push(Restore {
            setting: setting.name.clone(),
            day: day + 1,
            read: Read { nonzero_bytes, seconds: Some(timed.restore_seconds), model },
            scatter: vault.scatter(&version.disk, snapshot)?,
            raw_copy_mb_per_second: mb_per_second(nonzero_bytes, timed.copy_seconds),
            raw_model: raw::modelled(version.base())?,
        });
        Ok(())
    }

    fn of(&self, setting: &str) -> impl Iterator<Item = &Backup> + '_ {
        let setting = setting.to_owned();
        // The first backup has nothing to turn.
        self.backups.iter().filter(move |b| b.setting == setting && b.day > 1)
    }

    fn mean(&self, setting: &str, value: impl Fn(&Backup) -> f64) -> Option<f64> {
        let count = self.of(setting).count();
        (count > 0).then(|| self.of(setting).map(value).sum::<f64>() / count as f64)
    }

    /// The pass as a part of all of a backup's time.
    fn share(&self, setting: &str) -> Option<f64> {
        let pass = self.mean(setting, |b| b.cost.reverse_seconds)?;
        Some(pass / self.mean(setting, |b| b.cost.seconds)?)
    }

    /// As a part of the time without fingerprinting, which the paper leaves out.
    fn share_without_hash(&self, setting: &str) -> Option<f64> {
        let pass = self.mean(setting, |b| b.cost.reverse_seconds)?;
        let hash = self.mean(setting, |b| b.nonzero_bytes as f64 / self.hash_bytes_per_second)?;
        let rest = self.mean(setting, |b| b.cost.seconds)? - hash;
        (rest > pass).then_some(pass / rest)
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for name in self.settings.iter().filter(|name| !name.starts_with("conventional")) {
            bars.push(Bar::at_most(
                format!("{name}: reverse pass, part of backup time"),
                self.share(name),
                0.15,
            ));
            bars.push(Bar::shown(
                "the same without the time of fingerprinting alone",
                self.share_without_hash(name),
            ));
        }
        for name in &self.settings {
            let of = |r: &&Restore| r.setting == *name;
            let ratios = self.restores.iter().filter(of);
            let ratios = ratios.filter_map(|r| Some(r.read.rate()? / r.raw_copy_mb_per_second));
            let what = format!("{name}: newest restored, times a plain copy");
            bars.push(Bar::shown(what, median(ratios)));
            for (order, label) in Order::ALL {
                let last = self.restores.iter().rev().find(of);
                let times = last.and_then(|r| {
                    let raw = mb_per_second(r.read.nonzero_bytes, r.raw_model?.seconds);
                    Some(r.read.modelled_rate(order)? / raw)
                });
                bars.push(Bar::shown(
                    format!("the same on the last day on the modelled disk, {label}"),
                    times,
                ));
                let alone = self.chains.iter().find(|c| c.setting == *name).and_then(|c| c.model_alone);
                let times = last.and_then(|r| {
                    Some(order.of(alone.as_ref()?).seconds / order.of(r.read.model.as_ref()?).seconds)
                });
                bars.push(Bar::shown(
                    format!("on the last day, times the rate from a vault of its own, {label}"),
                    times,
                ));
            }
        }
        bars.extend(rebuild::bars(&self.thresholds));
        bars
    }

    fn text(&self, bars: &[Bar]) -> String {
        let mut times = Table::new([
            "setting",
            "backup s",
            "without pass s",
            "pass s",
            "pass median s",
            "pass max s",
            "new MB",
            "again MB",
            "stored MB",
            "verify s",
            "with data s",
        ]);
        for name in &self.settings {
            let pass = || self.of(name).map(|b| b.cost.reverse_seconds);
            let chain = self.chains.iter().find(|c| c.setting == *name);
            times.row([
                name.clone(),
                figure(self.mean(name, |b| b.cost.seconds), 3),
                figure(self.mean(name, |b| b.cost.seconds - b.cost.reverse_seconds), 3),
                figure(self.mean(name, |b| b.cost.reverse_seconds), 3),
                figure(median(pass()), 3),
                figure(pass().reduce(f64::max), 3),
                figure(self.mean(name, |b| b.cost.new_bytes as f64 / 1e6), 1),
                figure(self.mean(name, |b| b.cost.rewritten_bytes as f64 / 1e6), 1),
                figure(chain.map(|c| c.stored.total_bytes() as f64 / 1e6), 1),
                figure(chain.map(|c| c.verify_seconds), 2),
                figure(chain.map(|c| c.verify_data_seconds), 2),
            ]);
        }
        let own = ["day", "plain copy", "model: plain file"];
        let mut newest = Table::new(restores::headings(own, &self.settings));
        let mut days: Vec<usize> = self.restores.iter().map(|r| r.day).collect();
        days.sort_unstable();
        days.dedup();
        for day in days {
            let of_day = || self.restores.iter().filter(move |r| r.day == day);
            let raw = of_day().find_map(|r| Some(mb_per_second(r.read.nonzero_bytes, r.raw_model?.seconds)));
            let copies = median(of_day().map(|r| r.raw_copy_mb_per_second));
            let mut row = vec![day.to_string(), figure(copies, 0), figure(raw, 1)];
            for name in &self.settings {
                let restore = of_day().find(|r| r.setting == *name);
                let rate = restore.and_then(|r| r.read.rate());
                row.extend(restores::cells(rate, |order| restore?.read.modelled_rate(order)));
            }
            newest.row(row);
        }
        let mut scatter = Table::new(["setting", "day", "runs", "groups", "fetched / wanted"]);
        for r in self.restores.iter().filter(|r| r.day == 1 || r.day % 32 == 0 || r.day == self.days) {
            let s = &r.scatter;
            let fetched = figure(Some(s.fetched_per_wanted), 3);
            scatter.row([
                r.setting.clone(),
                r.day.to_string(),
                s.runs.to_string(),
                s.groups.to_string(),
                fetched,
            ]);
        }
        format!(
            "{} days; seconds are means from day 2 on. Fingerprinting alone: {:.0} MB/s.\n\n{times}\n\
             Restore of the newest version, MB/s of blocks that are not zero\n\n{newest}\n\
             How scattered it is\n\n{scatter}\n{}\n{}",
            self.days,
            self.hash_bytes_per_second / 1e6,
            rebuild::text(&self.thresholds),
            bars_table(bars)
        )
    }

    fn draw(&self, context: &Context) -> Result<()> {
        let groups = self.settings.clone();
        let bars_of = |title: &str, value: &dyn Fn(&Backup) -> f64| {
            (title.to_owned(), groups.iter().map(|name| self.mean(name, value)).collect::<Vec<_>>())
        };
        let series = vec![
            bars_of("backup without the pass", &|b| b.cost.seconds - b.cost.reverse_seconds),
            bars_of("reverse pass", &|b| b.cost.reverse_seconds),
        ];
        let labels = Labels { title: "Time of a version", x: "", y: "s" };
        draw(context.out(), "revdedup-f8a", &labels, &Figure::Bars { groups: groups.clone(), series })?;
        // As in the paper: the largest segments.
        if let Some(name) = self.settings.iter().rev().find(|name| name.starts_with("reverse")) {
            let line = |title: &str, value: fn(&Backup) -> f64| {
                let points = self.backups.iter().filter(|b| b.setting == *name);
                (title.to_owned(), points.map(|b| (b.day as f64, value(b))).collect::<Vec<_>>())
            };
            let series =
                vec![line("all", |b| b.cost.seconds), line("reverse pass", |b| b.cost.reverse_seconds)];
            let title = format!("Time of each version, {name}");
            let labels = Labels { title: &title, x: "day", y: "s" };
            draw(context.out(), "revdedup-f8b", &labels, &Figure::Lines { series })?;
        }
        let newest = |value: &dyn Fn(&Restore) -> Option<f64>| -> Vec<Line> {
            let line = |name: &String| {
                let of = self.restores.iter().filter(|r| r.setting == *name);
                (name.clone(), of.filter_map(|r| Some((r.day as f64, value(r)?))).collect())
            };
            self.settings.iter().map(line).collect()
        };
        let figure = ("revdedup-f8-newest", "Restore of the newest version", "day");
        let by_clock = newest(&|r| r.read.rate());
        restores::draw_rates(context, figure, by_clock, |order| newest(&|r| r.read.modelled_rate(order)))
    }

    fn save(&self, context: &Context) -> Result<()> {
        let bars = self.bars();
        let text = self.text(&bars);
        #[derive(Serialize)]
        struct Workload {
            days: usize,
        }
        #[derive(Serialize)]
        struct Results<'a> {
            bars: &'a [Bar],
            hash_bytes_per_second: f64,
            chains: &'a [Chain],
            backups: &'a [Backup],
            restores: &'a [Restore],
            thresholds: &'a [Threshold],
        }
        let parameters = Parameters::new(Workload { days: self.days }, "a real version");
        let Self { hash_bytes_per_second, chains, backups, restores, thresholds, .. } = self;
        let hash_bytes_per_second = *hash_bytes_per_second;
        let results = Results { bars: &bars, hash_bytes_per_second, chains, backups, restores, thresholds };
        context.save(1, parameters, results, &text)?;
        context.print(&text);
        Ok(())
    }
}
