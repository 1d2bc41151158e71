//! `revdedup-f6` (figure 6): the space of many disks' weekly versions, with whole segments only, with reverse
//! deduplication, and with conventional deduplication of several chunk sizes.
//!
//! Space is relative to the blocks that are not zero, over all versions, as in the paper. What no reverse pass removes
//! is counted and not written: it would be several times what is measured elsewhere.

use anyhow::Result;
use serde::Serialize;

use super::{require_room, students, RevdedupOptions, Setting};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::{LocalVault, Stored};
use crate::workload::{Students, StudentsShape};

/// The y axis of figures on space: what is saved differs little, what is stored much.
const STORED: &str = "% of what is not zero";

const SEGMENTS_MIB: [u32; 4] = [4, 8, 16, 32];
const CHUNKS_KIB: [u32; 6] = [4, 8, 16, 32, 64, 128];

/// A vault after a week.
#[derive(Debug, Serialize)]
struct Step {
    setting: String,
    /// From 1 on.
    week: usize,
    stored: Stored,
    /// Of all backups of the week.
    seconds: f64,
}

/// A vault after the last week, once garbage was collected.
#[derive(Debug, Serialize)]
struct Collected {
    setting: String,
    stored: Stored,
}

/// What the disks hold and change in a week.
#[derive(Debug, Serialize)]
struct Week {
    week: usize,
    /// Of this week's versions.
    nonzero_bytes: u64,
    changed_bytes: u64,
    changed_bytes_min: u64,
    changed_bytes_median: f64,
    changed_bytes_max: u64,
}

/// Runs the experiment. Sizes do not vary between runs: everything is stored once.
pub fn run(context: &Context, options: &RevdedupOptions) -> Result<()> {
    let (students, shape) = students(context)?;
    let weeks: Vec<Week> = (0..students.weeks()).map(|week| describe(&students, week)).collect();
    let segments = options.segments_mib(context, &SEGMENTS_MIB);
    let mut settings: Vec<Setting> = segments.iter().map(|&mib| Setting::reverse(mib)).collect();
    settings.extend(segments.iter().map(|&mib| Setting::as_published(mib)));
    settings.extend(segments.iter().map(|&mib| Setting::global_only(mib)));
    let chunks: Vec<u32> = if context.options.tiny { CHUNKS_KIB[..1].to_vec() } else { CHUNKS_KIB.to_vec() };
    for &kib in &chunks {
        settings.push(Setting::conventional(kib)?);
    }
    let settings = options.wanted(settings);
    let mut measured = Measured { segments, chunks, shape, weeks, steps: Vec::new(), collected: Vec::new() };
    for setting in &settings {
        measured.measure(context, &students, setting)?;
    }
    measured.draw(context)?;
    measured.save(context)
}

fn describe(students: &Students, week: usize) -> Week {
    let set = students.set(week);
    let changed = || set.iter().map(|version| version.changed_bytes);
    Week {
        week: week + 1,
        nonzero_bytes: set.iter().map(|version| version.nonzero_bytes).sum(),
        changed_bytes: changed().sum(),
        changed_bytes_min: changed().min().unwrap_or(0),
        changed_bytes_median: median(changed().map(|bytes| bytes as f64)).unwrap_or(0.0),
        changed_bytes_max: changed().max().unwrap_or(0),
    }
}

/// All that was measured.
struct Measured {
    segments: Vec<u32>,
    chunks: Vec<u32>,
    shape: StudentsShape,
    weeks: Vec<Week>,
    steps: Vec<Step>,
    collected: Vec<Collected>,
}

impl Measured {
    fn measure(&mut self, context: &Context, students: &Students, setting: &Setting) -> Result<()> {
        let vault = if setting.policy.reverse {
            setting.create_vault(context)?
        } else {
            let dir = context.space().join(setting.file_name());
            LocalVault::counting(&dir, setting.policy, setting.codec)?
        };
        let mut first = Vec::new();
        let mut last = Vec::new();
        for week in 0..students.weeks() {
            let mut seconds = 0.0;
            last.clear();
            for version in students.set(week) {
                check_interrupted()?;
                require_room(context, &version)?;
                let (snapshot, cost) = vault.backup(&version)?;
                seconds += cost.seconds;
                last.push((version, snapshot));
            }
            if week == 0 {
                first.clone_from(&last);
            }
            let stored = vault.stored()?;
            eprintln!(
                "{:20} week {:2}: {:.1} MB, {:.1} MB of it metadata, {seconds:.1} s",
                setting.name,
                week + 1,
                stored.total_bytes() as f64 / 1e6,
                stored.metadata_bytes as f64 / 1e6
            );
            self.steps.push(Step { setting: setting.name.clone(), week: week + 1, stored, seconds });
        }
        if setting.policy.reverse {
            vault.collect()?;
            self.collected.push(Collected { setting: setting.name.clone(), stored: vault.stored()? });
            for (version, snapshot) in first.iter().take(1).chain(last.last()) {
                vault.require_equal(version, snapshot)?;
            }
        }
        vault.remove()
    }

    fn nonzero_bytes(&self) -> u64 {
        self.weeks.iter().map(|week| week.nonzero_bytes).sum()
    }

    fn stored(&self, setting: &str, week: usize) -> Option<Stored> {
        self.steps.iter().find(|s| s.setting == setting && s.week == week).map(|s| s.stored)
    }

    fn stored_at_end(&self, setting: &str) -> Option<Stored> {
        self.stored(setting, self.weeks.len())
    }

    /// Per cent saved.
    fn saving(&self, bytes: u64) -> f64 {
        100.0 * (1.0 - bytes as f64 / self.nonzero_bytes().max(1) as f64)
    }

    fn saving_of(&self, setting: &str) -> Option<f64> {
        Some(self.saving(self.stored_at_end(setting)?.total_bytes()))
    }

    fn data_saving_of(&self, setting: &str) -> Option<f64> {
        Some(self.saving(self.stored_at_end(setting)?.data_bytes))
    }

    /// What a week added.
    fn added(&self, setting: &str, week: usize) -> Option<f64> {
        let before = self.stored(setting, week - 1)?.total_bytes() as f64;
        Some(self.stored(setting, week)?.total_bytes() as f64 - before)
    }

    fn bars(&self) -> Vec<Bar> {
        let finest = format!("conventional {} KiB", CHUNKS_KIB[0]);
        let mut bars = Vec::new();
        for mib in &self.segments {
            let name = format!("reverse {mib} MiB");
            let behind = |saving: &dyn Fn(&str) -> Option<f64>| Some(saving(&finest)? - saving(&name)?);
            bars.push(Bar::at_most(
                format!("{finest} saves more than {name}, percentage points"),
                behind(&|setting| self.saving_of(setting)),
                1.0,
            ));
            bars.push(Bar::shown("the same, data alone", behind(&|setting| self.data_saving_of(setting))));
            let collected = self.collected.iter().find(|c| c.setting == name);
            let freed = collected.zip(self.stored_at_end(&name)).map(|(after, before)| {
                1.0 - after.stored.total_bytes() as f64 / before.total_bytes().max(1) as f64
            });
            bars.push(Bar::shown(format!("{name}: part of the space that `gc` frees"), freed));
        }
        bars
    }

    fn text(&self, bars: &[Bar]) -> String {
        let mut savings =
            Table::new(["setting", "stored MB", "data MB", "metadata MB", "saving %", "data alone %"]);
        let settings = self.steps.iter().filter(|s| s.week == self.weeks.len());
        for Step { setting, stored, .. } in settings {
            savings.row([
                setting.clone(),
                format!("{:.1}", stored.total_bytes() as f64 / 1e6),
                format!("{:.1}", stored.data_bytes as f64 / 1e6),
                format!("{:.1}", stored.metadata_bytes as f64 / 1e6),
                format!("{:.2}", self.saving(stored.total_bytes())),
                format!("{:.2}", self.saving(stored.data_bytes)),
            ]);
        }
        let reverse: Vec<String> = self.segments.iter().map(|mib| format!("reverse {mib} MiB")).collect();
        let mut header = vec!["week".to_owned()];
        header.extend(["changed MB", "by disk: min", "median", "max"].map(String::from));
        header.extend(reverse.iter().map(|name| format!("{name}: MB more")));
        let mut weekly = Table::new(header);
        let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
        for week in self.weeks.iter().skip(1) {
            let mut row = vec![
                week.week.to_string(),
                mb(week.changed_bytes as f64),
                mb(week.changed_bytes_min as f64),
                mb(week.changed_bytes_median),
                mb(week.changed_bytes_max as f64),
            ];
            row.extend(reverse.iter().map(|name| self.added(name, week.week).map_or_else(|| "-".into(), mb)));
            weekly.row(row);
        }
        format!(
            "{} disks, {} weeks, seed {}: {:.1} MB that are not zero.\n\n{savings}\n{weekly}\n{}",
            self.shape.disks,
            self.shape.weeks,
            self.shape.seed,
            self.nonzero_bytes() as f64 / 1e6,
            bars_table(bars)
        )
    }

    fn draw(&self, context: &Context) -> Result<()> {
        let groups: Vec<String> = self.segments.iter().map(|mib| format!("{mib} MiB")).collect();
        let of = |kind: &str| {
            let values =
                self.segments.iter().map(|mib| left_of(self.saving_of(&format!("{kind} {mib} MiB"))));
            (kind.to_owned(), values.collect::<Vec<_>>())
        };
        let labels = Labels { title: "Stored, of all versions", x: "segment", y: STORED };
        let called = |label: &str, kind: &str| (label.to_owned(), of(kind).1);
        let series = vec![
            called("without reverse deduplication", "global only"),
            called("reverse, changed segments whole", "as published"),
            called("reverse, changed chunks only", "reverse"),
        ];
        draw(context.out(), "revdedup-f6a", &labels, &Figure::Bars { groups: groups.clone(), series })?;

        let line = |mib: &u32| {
            let name = format!("reverse {mib} MiB");
            let points = (2..=self.weeks.len())
                .filter_map(|week| Some((week as f64, self.added(&name, week)? / 1e6)))
                .collect();
            (name, points)
        };
        let mut series: Vec<(String, Vec<(f64, f64)>)> = self.segments.iter().map(line).collect();
        let changed = self.weeks.iter().skip(1);
        let changed = changed.map(|week| (week.week as f64, week.changed_bytes as f64 / 1e6));
        series.push(("changed".into(), changed.collect()));
        let labels = Labels { title: "Additional space", x: "week", y: "MB" };
        draw(context.out(), "revdedup-f6b", &labels, &Figure::Lines { series })?;

        let conventional = self.chunks.iter().map(|kib| format!("conventional {kib} KiB"));
        let reverse = self.segments.iter().map(|mib| format!("reverse {mib} MiB"));
        let names: Vec<String> = conventional.chain(reverse).collect();
        let series = vec![
            ("stored".to_owned(), names.iter().map(|name| left_of(self.saving_of(name))).collect()),
            ("data alone".to_owned(), names.iter().map(|name| left_of(self.data_saving_of(name))).collect()),
        ];
        let short = |name: &String| name.replace("conventional", "c").replace("reverse", "r");
        let groups = names.iter().map(short).collect();
        let x = "chunks of conventional (c), segments of reverse (r)";
        let labels = Labels { title: "Stored, of all versions", x, y: STORED };
        draw(context.out(), "revdedup-f6c", &labels, &Figure::Bars { groups, series })
    }

    fn save(&self, context: &Context) -> Result<()> {
        let bars = self.bars();
        let text = self.text(&bars);
        #[derive(Serialize)]
        struct Parameters {
            workload: StudentsShape,
            saving: &'static str,
            counted: &'static str,
        }
        #[derive(Serialize)]
        struct Results<'a> {
            bars: &'a [Bar],
            weeks: &'a [Week],
            steps: &'a [Step],
            collected: &'a [Collected],
        }
        let parameters = Parameters {
            workload: self.shape,
            saving: "1 - stored / bytes in non-zero blocks of all versions; nothing is compressed",
            counted: "the data of settings without a reverse pass is counted, not written",
        };
        let Self { weeks, steps, collected, .. } = self;
        let results = Results { bars: &bars, weeks, steps, collected };
        context.save(1, parameters, results, &text)?;
        context.print(&text);
        Ok(())
    }
}

/// What is stored where so much is saved, in per cent.
fn left_of(saving: Option<f64>) -> Option<f64> {
    saving.map(|saving| 100.0 - saving)
}
