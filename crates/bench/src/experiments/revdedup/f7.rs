//! `revdedup-f7` (figure 7): backup and restore of many disks' weekly versions.
//!
//! (a) is the rate at which the disks of a week are stored, beside the rate at which this file system takes plain
//! files. (b) is the rate at which a week is restored right after it was stored, (c) that of all weeks at the end.
//! Two of the disks are restored: the middle one, and the last, which rewrites most of its data in the last week.

use std::fs;

use anyhow::Result;
use serde::Serialize;

use super::restores::{self, Line, Order, Parameters, Read};
use super::{names, require_room, students, RevdedupOptions, Setting};
use crate::context::Context;
use crate::layout::raw;
use crate::layout::seek_model::Service;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::LocalVault;
use crate::workload::{Students, StudentsShape, Version};

const SEGMENTS_MIB: [u32; 3] = [4, 8, 32];
const CHUNK_KIB: u32 = 128;
/// Weeks restored by the clock, from 1 on; the model takes all.
const TIMED_WEEKS: [usize; 5] = [1, 2, 4, 8, 12];
/// Written plainly beside each week.
const RAW_BYTES: usize = 256 << 20;

/// A week's backups.
#[derive(Debug, Serialize)]
struct Backup {
    setting: String,
    week: usize,
    /// Lengths of the disks.
    size_bytes: u64,
    nonzero_bytes: u64,
    seconds: f64,
    reverse_seconds: f64,
    raw_write_mb_per_second: f64,
}

impl Backup {
    fn rate(&self) -> f64 {
        mb_per_second(self.nonzero_bytes, self.seconds)
    }

    fn times_raw(&self) -> f64 {
        self.rate() / self.raw_write_mb_per_second
    }

    /// By the disks' length, null blocks counted, as in the paper.
    fn length_times_raw(&self) -> f64 {
        mb_per_second(self.size_bytes, self.seconds) / self.raw_write_mb_per_second
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    /// Figure 7b.
    RightAfter,
    /// Figure 7c.
    AtTheEnd,
}

/// One version restored.
#[derive(Debug, Serialize)]
struct Restore {
    setting: String,
    when: When,
    week: usize,
    disk: String,
    #[serde(flatten)]
    read: Read,
    /// A plain copy of the base image, just before.
    raw_copy_mb_per_second: Option<f64>,
}

/// Runs the experiment. The weeks are its repetitions.
pub fn run(context: &Context, options: &RevdedupOptions) -> Result<()> {
    let (students, shape) = students(context)?;
    let mut settings: Vec<Setting> =
        options.segments_mib(context, &SEGMENTS_MIB).into_iter().map(Setting::reverse).collect();
    settings.push(Setting::conventional(CHUNK_KIB)?);
    settings.push(Setting::balanced());
    let settings = options.wanted(settings);
    let base = students.version(0, 0);
    let raw_model = raw::modelled(base.base())?;
    let mut measured = Measured {
        shape,
        settings: names(&settings),
        base_bytes: base.nonzero_bytes,
        raw_model,
        backups: Vec::new(),
        restores: Vec::new(),
    };
    for setting in &settings {
        measured.measure(context, &students, setting)?;
    }
    measured.draw(context)?;
    measured.save(context)
}

/// All that was measured.
struct Measured {
    shape: StudentsShape,
    settings: Vec<String>,
    base_bytes: u64,
    /// Reading the base image.
    raw_model: Option<Service>,
    backups: Vec<Backup>,
    restores: Vec<Restore>,
}

/// A stored version.
struct Snapshot {
    version: Version,
    id: String,
}

impl Measured {
    fn measure(&mut self, context: &Context, students: &Students, setting: &Setting) -> Result<()> {
        let vault = setting.create_vault(context)?;
        let mut sampled = [students.disks() / 2, students.disks() - 1].to_vec();
        sampled.dedup();
        let mut snapshots: Vec<Vec<Snapshot>> = Vec::new();
        for week in 0..students.weeks() {
            let mut of_week = self.back_up(context, students, week, &vault, setting)?;
            of_week = of_week
                .into_iter()
                .enumerate()
                .filter_map(|(i, snapshot)| sampled.contains(&i).then_some(snapshot))
                .collect();
            self.restore(context, &vault, setting, When::RightAfter, week, &of_week)?;
            snapshots.push(of_week);
        }
        for (week, of_week) in snapshots.iter().enumerate() {
            self.restore(context, &vault, setting, When::AtTheEnd, week, of_week)?;
        }
        for snapshot in snapshots.iter().take(1).chain(snapshots.last()).flatten() {
            vault.require_equal(&snapshot.version, &snapshot.id)?;
        }
        vault.remove()
    }

    /// Stores all disks of a week, from warm sources.
    fn back_up(
        &mut self,
        context: &Context,
        students: &Students,
        week: usize,
        vault: &LocalVault,
        setting: &Setting,
    ) -> Result<Vec<Snapshot>> {
        let set = students.set(week);
        set[0].make_warm()?;
        let mut backup = Backup {
            setting: setting.name.clone(),
            week: week + 1,
            size_bytes: set.iter().map(|version| version.size_bytes).sum(),
            nonzero_bytes: set.iter().map(|version| version.nonzero_bytes).sum(),
            seconds: 0.0,
            reverse_seconds: 0.0,
            raw_write_mb_per_second: raw_write_rate(context, &set[0])?,
        };
        let mut snapshots = Vec::new();
        for version in set {
            check_interrupted()?;
            require_room(context, &version)?;
            version.make_changes_warm()?;
            let (id, cost) = vault.backup(&version)?;
            backup.seconds += cost.seconds;
            backup.reverse_seconds += cost.reverse_seconds;
            snapshots.push(Snapshot { version, id });
        }
        eprintln!(
            "{:20} week {:2}: {:.2} s ({:.2} s of them the pass), {:.0} MB/s, plain {:.0} MB/s",
            setting.name,
            week + 1,
            backup.seconds,
            backup.reverse_seconds,
            backup.rate(),
            backup.raw_write_mb_per_second
        );
        self.backups.push(backup);
        Ok(snapshots)
    }

    fn restore(
        &mut self,
        context: &Context,
        vault: &LocalVault,
        setting: &Setting,
        when: When,
        week: usize,
        snapshots: &[Snapshot],
    ) -> Result<()> {
        let timed = TIMED_WEEKS.contains(&(week + 1)) || week + 1 == self.shape.weeks;
        for Snapshot { version, id } in snapshots {
            check_interrupted()?;
            let (mut seconds, mut raw_copy_mb_per_second) = (None, None);
            if timed {
                let timed = restores::time(context, vault, version, id)?;
                raw_copy_mb_per_second = Some(mb_per_second(self.base_bytes, timed.copy_seconds));
                seconds = Some(timed.restore_seconds);
            }
            let model = vault.modelled(&version.disk, id)?;
            let read = Read { nonzero_bytes: version.nonzero_bytes, seconds, model };
            eprintln!(
                "{:20} week {:2} {when:?} {}: {} MB/s, plain copy {}, modelled {} as planned, {} by address",
                setting.name,
                week + 1,
                version.disk,
                figure(read.rate(), 0),
                figure(raw_copy_mb_per_second, 0),
                figure(read.modelled_rate(Order::AsPlanned), 1),
                figure(read.modelled_rate(Order::ByAddress), 1)
            );
            let (setting, disk) = (setting.name.clone(), version.disk.clone());
            self.restores.push(Restore { setting, when, week: week + 1, disk, read, raw_copy_mb_per_second });
        }
        Ok(())
    }

    /// The median of a figure over the disks restored in a week.
    fn of_week(
        &self,
        (setting, when, week): (&str, When, usize),
        value: impl Fn(&Restore) -> Option<f64>,
    ) -> Option<f64> {
        let of = self.restores.iter().filter(|r| r.setting == setting && r.when == when && r.week == week);
        median(of.filter_map(value))
    }

    fn modelled(&self, key: (&str, When, usize), order: Order) -> Option<f64> {
        self.of_week(key, |restore| restore.read.modelled_rate(order))
    }

    /// The base image, read on the modelled disk.
    fn raw_modelled(&self) -> Option<f64> {
        self.raw_model.map(|service| mb_per_second(self.base_bytes, service.seconds))
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for name in &self.settings {
            let later = || self.backups.iter().filter(|b| b.setting == *name && b.week > 1);
            let times = median(later().map(Backup::times_raw));
            let what = format!("{name}: backup from week 2 on, times plain writing");
            if name.starts_with("reverse") {
                bars.push(Bar::at_least(what, times, 3.0));
            } else {
                bars.push(Bar::shown(what, times));
            }
            bars.push(Bar::shown(
                "the same by the disks' length, as the paper counts",
                median(later().map(Backup::length_times_raw)),
            ));
        }
        for name in &self.settings {
            let of = |r: &&Restore| r.setting == *name && r.when == When::RightAfter;
            let ratios = self.restores.iter().filter(of);
            let ratios = ratios.filter_map(|r| Some(r.read.rate()? / r.raw_copy_mb_per_second?));
            let what = format!("{name}: newest restored, times a plain copy");
            let times = median(ratios);
            if name.starts_with("reverse") {
                bars.push(Bar::at_least(what, times, 0.95));
            } else {
                bars.push(Bar::shown(what, times));
            }
            for (order, label) in Order::ALL {
                let last = self.modelled((name, When::RightAfter, self.shape.weeks), order);
                let times = last.zip(self.raw_modelled()).map(|(rate, raw)| rate / raw);
                bars.push(Bar::shown(
                    format!("the same in the last week on the modelled disk, {label}"),
                    times,
                ));
            }
        }
        for name in self.settings.iter().filter(|name| !name.starts_with("balanced")) {
            let (first, last) = (1, self.shape.weeks);
            let (from, to, what) = if name.starts_with("reverse") {
                (last, first, "oldest, times newest")
            } else {
                (first, last, "newest, times oldest")
            };
            let end = When::AtTheEnd;
            for (order, label) in Order::ALL {
                let ratio =
                    self.modelled((name, end, to), order).zip(self.modelled((name, end, from), order));
                let what = format!("{name}: {what} on the modelled disk, {label}");
                bars.push(Bar::at_most(what, ratio.map(|(to, from)| to / from), 1.0));
            }
            let rate = |week| self.of_week((name, end, week), |r| r.read.rate());
            let ratio = rate(to).zip(rate(from)).map(|(to, from)| to / from);
            bars.push(Bar::shown("the same on the disk of this machine", ratio));
        }
        bars
    }

    fn text(&self, bars: &[Bar]) -> String {
        let mut header = vec!["week".to_owned(), "plain writing".to_owned()];
        header.extend(self.settings.iter().cloned());
        let mut stored = Table::new(header);
        for week in 1..=self.shape.weeks {
            let plain = self.backups.iter().filter(|b| b.week == week).map(|b| b.raw_write_mb_per_second);
            let mut row = vec![week.to_string(), figure(median(plain), 0)];
            for name in &self.settings {
                let of = self.backups.iter().find(|b| b.setting == *name && b.week == week);
                row.push(figure(of.map(Backup::rate), 0));
            }
            stored.row(row);
        }
        let mut text = format!(
            "{} disks, {} weeks, seed {}. MB/s of blocks that are not zero.\n\nBackup (a)\n\n{stored}\n",
            self.shape.disks, self.shape.weeks, self.shape.seed
        );
        for (when, title) in
            [(When::RightAfter, "Restore right after (b)"), (When::AtTheEnd, "Restore at the end (c)")]
        {
            let mut table = Table::new(restores::headings(["week", "plain copy"], &self.settings));
            for week in 1..=self.shape.weeks {
                let copies = self.restores.iter().filter(|r| r.when == when && r.week == week);
                let mut row = vec![
                    week.to_string(),
                    figure(median(copies.filter_map(|r| r.raw_copy_mb_per_second)), 0),
                ];
                for name in &self.settings {
                    let key = (name.as_str(), when, week);
                    let rate = self.of_week(key, |r| r.read.rate());
                    row.extend(restores::cells(rate, |order| self.modelled(key, order)));
                }
                table.row(row);
            }
            text.push_str(&format!("{title}\n\n{table}\n"));
        }
        let raw = figure(self.raw_modelled(), 1);
        text.push_str(&format!("The base image as a plain file on the modelled disk: {raw} MB/s.\n\n"));
        text.push_str(&bars_table(bars).to_string());
        text
    }

    fn draw(&self, context: &Context) -> Result<()> {
        let weeks = 1..=self.shape.weeks;
        let line = |name: &str, value: &dyn Fn(usize) -> Option<f64>| -> Line {
            let points = weeks.clone().filter_map(|week| Some((week as f64, value(week)?)));
            (name.to_owned(), points.collect())
        };
        let rate = |name: &str, week| {
            self.backups.iter().find(|b| b.setting == name && b.week == week).map(Backup::rate)
        };
        let plain = |week| {
            let of = self.backups.iter().filter(|b| b.week == week);
            median(of.map(|b| b.raw_write_mb_per_second))
        };
        let mut series: Vec<_> = self
            .settings
            .iter()
            .map(|name| line(name, &|week| rate(name, week).filter(|_| week > 1)))
            .collect();
        series.push(line("plain writing", &plain));
        let labels = Labels { title: "Backup", x: "week", y: "MB/s" };
        draw(context.out(), "revdedup-f7a", &labels, &Figure::Lines { series })?;
        for (when, letter, title) in
            [(When::RightAfter, 'b', "Restore right after"), (When::AtTheEnd, 'c', "Restore at the end")]
        {
            let copy = |week| {
                let of = self.restores.iter().filter(|r| r.when == when && r.week == week);
                median(of.filter_map(|r| r.raw_copy_mb_per_second))
            };
            let timed = |name: &str, week| self.of_week((name, when, week), |r| r.read.rate());
            let mut series: Vec<_> =
                self.settings.iter().map(|name| line(name, &|week| timed(name, week))).collect();
            series.push(line("plain copy", &copy));
            let modelled = |order| {
                let rate = |name: &str, week| self.modelled((name, when, week), order);
                let mut series: Vec<_> =
                    self.settings.iter().map(|name| line(name, &|week| rate(name, week))).collect();
                series.push(line("plain file", &|_| self.raw_modelled()));
                series
            };
            let file = format!("revdedup-f7{letter}");
            restores::draw_rates(context, (&file, title, "week"), series, modelled)?;
        }
        Ok(())
    }

    fn save(&self, context: &Context) -> Result<()> {
        let bars = self.bars();
        let text = self.text(&bars);
        #[derive(Serialize)]
        struct Workload {
            workload: StudentsShape,
        }
        #[derive(Serialize)]
        struct Results<'a> {
            bars: &'a [Bar],
            raw_model: Option<Service>,
            backups: &'a [Backup],
            restores: &'a [Restore],
        }
        let parameters = Parameters::new(Workload { workload: self.shape }, "the base image");
        let Self { raw_model, backups, restores, .. } = self;
        let results = Results { bars: &bars, raw_model: *raw_model, backups, restores };
        context.save(1, parameters, results, &text)?;
        context.print(&text);
        Ok(())
    }
}

/// MB/s at which a plain file is written and synced.
fn raw_write_rate(context: &Context, version: &Version) -> Result<f64> {
    let mut bytes = vec![0; RAW_BYTES.min(version.size_bytes as usize)];
    version.read_at(0, &mut bytes)?;
    let path = context.space().join("plain");
    let seconds = raw::write(&path, &bytes)?;
    fs::remove_file(path)?;
    Ok(mb_per_second(bytes.len() as u64, seconds))
}
