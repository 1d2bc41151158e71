//! What the steps of the peers experiments come to: medians over the runs, the
//! ratios that must reach a bar, tables and figures.

use serde::Serialize;

use super::step::{Action, Measured, Measurement, Step};
use crate::context::Context;
use crate::peers::{Mode, Role};
use crate::results::plot::{draw as draw_figure, Figure, Labels};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};

/// A tool's medians. MB/s are of the disks' length, over wall time and sync.
#[derive(Clone, Debug, Serialize)]
pub struct ToolSummary {
    /// Name of the tool.
    pub tool: String,
    /// What it is in the comparison.
    pub role: Role,
    /// First version of all disks.
    pub first_mb_per_second: Option<f64>,
    /// All later versions.
    pub later_mb_per_second: Option<f64>,
    /// Newest version of all disks.
    pub restore_newest_mb_per_second: Option<f64>,
    /// First version of all disks.
    pub restore_oldest_mb_per_second: Option<f64>,
    /// Everything stored, in MB/s of data.
    pub verify_mb_per_second: Option<f64>,
    /// Allocated after the first version of all disks.
    pub stored_first_bytes: Option<f64>,
    /// Allocated after all versions.
    pub stored_all_bytes: Option<f64>,
    /// Allocated after everything was packed again, and the seconds that this took.
    pub packed_bytes: Option<f64>,
    /// See `packed_bytes`.
    pub packed_seconds: Option<f64>,
    /// Sum of the files' lengths after all versions.
    pub stored_all_apparent_bytes: Option<f64>,
    /// Processor time of storing the first versions.
    pub cpu_seconds_first: Option<f64>,
    /// Processor time of storing the later versions.
    pub cpu_seconds_later: Option<f64>,
    /// The largest peak of any step.
    pub rss_bytes_max: u64,
}

/// One disk's share of a tool's figures.
#[derive(Clone, Debug, Serialize)]
pub struct DiskSummary {
    /// Name of the disk.
    pub disk: String,
    /// Name of the tool; the rates are as in `ToolSummary`.
    pub tool: String,
    pub first_mb_per_second: Option<f64>,
    pub later_mb_per_second: Option<f64>,
    pub restore_newest_mb_per_second: Option<f64>,
    pub restore_oldest_mb_per_second: Option<f64>,
}

/// The figures that must reach a bar, under one rule about codecs.
#[derive(Clone, Debug, Serialize)]
pub struct ModeSummary {
    /// Name of the comparison.
    pub mode: &'static str,
    /// What is the same for all.
    pub what: &'static str,
    /// The tool measured.
    pub subject: &'static str,
    /// The tools it is measured against.
    pub peers: Vec<&'static str>,
    /// Every ratio is taken within a run; the median over the runs is given.
    pub bars: Vec<Bar>,
}

/// Everything the result says beside the steps.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Medians of each tool.
    pub tools: Vec<ToolSummary>,
    /// Medians of each disk and tool.
    pub disks: Vec<DiskSummary>,
    /// Bars of each comparison.
    pub modes: Vec<ModeSummary>,
    /// Tools that were left out.
    pub not_installed: Vec<String>,
}

/// Steps of one kind, and how to add them up.
#[derive(Clone, Copy)]
enum Part {
    First,
    Later,
    RestoreNewest,
    RestoreOldest,
    Verify,
}

impl Part {
    fn contains(self, step: &Step, newest: impl Fn(&str) -> usize) -> bool {
        match self {
            Self::First => step.action == Action::Backup && step.version == 0,
            Self::Later => step.action == Action::Backup && step.version > 0,
            Self::RestoreNewest => step.action == Action::Restore && step.version == newest(&step.disk),
            Self::RestoreOldest => {
                step.action == Action::Restore && step.version == 0 && newest(&step.disk) > 0
            }
            Self::Verify => step.action == Action::Verify,
        }
    }
}

/// The steps, asked in different ways.
struct Figures<'a> {
    steps: &'a [Step],
    runs: usize,
}

impl<'a> Figures<'a> {
    fn new(steps: &'a [Step]) -> Self {
        let runs = steps.iter().map(|step| step.run + 1).max().unwrap_or(0);
        Self { steps, runs }
    }

    fn newest(&self, disk: &str) -> usize {
        let versions = self.steps.iter().filter(|step| step.disk == disk);
        versions.map(|step| step.version).max().unwrap_or(0)
    }

    fn select<'b>(
        &'b self,
        run: usize,
        tool: &'b str,
        part: Part,
        disk: Option<&'b str>,
    ) -> impl Iterator<Item = &'a Step> + 'b {
        self.steps.iter().filter(move |step| {
            step.run == run
                && step.tool == tool
                && disk.is_none_or(|disk| step.disk == disk)
                && part.contains(step, |disk| self.newest(disk))
        })
    }

    /// Sums over the steps: bytes, then seconds. None without steps.
    fn rate(&self, steps: impl Iterator<Item = &'a Step>, bytes: impl Fn(&Step) -> u64) -> Option<f64> {
        let (bytes, seconds) = steps.fold((0, 0.0), |(sum, seconds), step| {
            (sum + bytes(step), seconds + step.cost.durable_seconds())
        });
        (seconds > 0.0).then(|| mb_per_second(bytes, seconds))
    }

    /// MB/s of the disks' length in one run.
    fn disk_rate(&self, run: usize, tool: &str, part: Part, disk: Option<&str>) -> Option<f64> {
        self.rate(self.select(run, tool, part, disk), |s| s.size_bytes)
    }

    /// MB/s of data, which is the part of the length that is not zero.
    fn data_rate(&self, run: usize, tool: &str, part: Part) -> Option<f64> {
        let steps = self.select(run, tool, part, None);
        self.rate(steps, |s| s.data_bytes.unwrap_or(0))
    }

    fn cpu(&self, run: usize, tool: &str, part: Part) -> Option<f64> {
        let steps = self.select(run, tool, part, None);
        steps.map(|step| step.cost.cpu_seconds()).reduce(|a, b| a + b)
    }

    /// Allocated bytes of the repository after version `version` of all disks.
    fn stored_after(&self, run: usize, tool: &str, version: usize) -> Option<&'a Step> {
        self.steps
            .iter()
            .rfind(|step| {
                step.run == run
                    && step.tool == tool
                    && step.action == Action::Backup
                    && step.version <= version
            })
            .filter(|step| step.stored.is_some())
    }

    fn allocated_after(&self, run: usize, tool: &str, version: usize) -> Option<f64> {
        let step = self.stored_after(run, tool, version)?;
        step.stored.map(|space| space.allocated_bytes as f64)
    }

    /// The step that packed everything again.
    fn packed(&self, run: usize, tool: &str) -> Option<&'a Step> {
        self.steps.iter().find(|s| s.run == run && s.tool == tool && s.action == Action::Pack)
    }

    fn packed_bytes(&self, run: usize, tool: &str) -> Option<f64> {
        self.packed(run, tool)?.stored.map(|space| space.allocated_bytes as f64)
    }

    fn over_runs(&self, each: impl Fn(usize) -> Option<f64>) -> Option<f64> {
        median((0..self.runs).filter_map(each))
    }
}

/// Medians, bars and notes of a measurement.
pub fn summarise(measurement: &Measurement, measured: Measured) -> Summary {
    let figures = Figures::new(&measurement.steps);
    let tools = measurement
        .tools
        .iter()
        .map(|tool| tool_summary(&figures, &tool.name, tool.role, measurement.newest))
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for step in &measurement.steps {
        if !step.disk.is_empty() && !names.contains(&step.disk.as_str()) {
            names.push(&step.disk);
        }
    }
    let mut disks = Vec::new();
    for disk in names {
        for tool in &measurement.tools {
            disks.push(disk_summary(&figures, disk, &tool.name));
        }
    }
    let modes = measurement
        .modes
        .iter()
        .map(|mode| mode_summary(&figures, mode, measurement.newest, measured))
        .collect();
    Summary { tools, disks, modes, not_installed: measurement.missing.clone() }
}

fn tool_summary(figures: &Figures<'_>, tool: &str, role: Role, newest: usize) -> ToolSummary {
    let rate = |part| figures.over_runs(|run| figures.disk_rate(run, tool, part, None));
    let cpu = |part| figures.over_runs(|run| figures.cpu(run, tool, part));
    // A yardstick keeps single versions: what it stores "after all" means nothing.
    let all = |value| if role == Role::Yardstick || newest == 0 { None } else { value };
    let of_tool = figures.steps.iter().filter(|step| step.tool == tool);
    ToolSummary {
        tool: tool.to_owned(),
        role,
        first_mb_per_second: rate(Part::First),
        later_mb_per_second: rate(Part::Later),
        restore_newest_mb_per_second: rate(Part::RestoreNewest),
        restore_oldest_mb_per_second: rate(Part::RestoreOldest),
        verify_mb_per_second: figures.over_runs(|run| figures.data_rate(run, tool, Part::Verify)),
        stored_first_bytes: figures.over_runs(|run| figures.allocated_after(run, tool, 0)),
        stored_all_bytes: all(figures.over_runs(|run| figures.allocated_after(run, tool, newest))),
        packed_bytes: all(figures.over_runs(|run| figures.packed_bytes(run, tool))),
        packed_seconds: all(figures.over_runs(|run| Some(figures.packed(run, tool)?.cost.wall_seconds))),
        stored_all_apparent_bytes: all(figures.over_runs(|run| {
            let step = figures.stored_after(run, tool, newest)?;
            step.stored.map(|space| space.apparent_bytes as f64)
        })),
        cpu_seconds_first: cpu(Part::First),
        cpu_seconds_later: cpu(Part::Later),
        rss_bytes_max: of_tool.map(|s| s.cost.rss_bytes_max).max().unwrap_or(0),
    }
}

fn disk_summary(figures: &Figures<'_>, disk: &str, tool: &str) -> DiskSummary {
    let rate = |part| figures.over_runs(|run| figures.disk_rate(run, tool, part, Some(disk)));
    DiskSummary {
        disk: disk.to_owned(),
        tool: tool.to_owned(),
        first_mb_per_second: rate(Part::First),
        later_mb_per_second: rate(Part::Later),
        restore_newest_mb_per_second: rate(Part::RestoreNewest),
        restore_oldest_mb_per_second: rate(Part::RestoreOldest),
    }
}

fn mode_summary(figures: &Figures<'_>, mode: &Mode, newest: usize, measured: Measured) -> ModeSummary {
    let subject = mode.subject;
    let to_fastest = |part| {
        figures.over_runs(|run| {
            let rates = mode.peers.iter().filter_map(|peer| figures.disk_rate(run, peer, part, None));
            let fastest = rates.reduce(f64::max)?;
            Some(figures.disk_rate(run, subject, part, None)? / fastest)
        })
    };
    let to_smallest = |version| {
        figures.over_runs(|run| {
            let sizes = mode.peers.iter().filter_map(|peer| figures.allocated_after(run, peer, version));
            let smallest = sizes.reduce(f64::min)?;
            Some(figures.allocated_after(run, subject, version)? / smallest)
        })
    };
    let mut bars = Vec::new();
    if measured.first {
        let first = "first backup, times the fastest peer";
        bars.push(Bar::at_least(first, to_fastest(Part::First), 3.0));
        let stored = "stored after the first version, times the smallest peer";
        bars.push(Bar::at_most(stored, to_smallest(0), 0.85));
    }
    if measured.later {
        let later = "later versions, times the fastest peer";
        bars.push(Bar::at_least(later, to_fastest(Part::Later), 3.0));
        let stored = "stored after all versions, times the smallest peer";
        bars.push(Bar::at_most(stored, to_smallest(newest), 0.65));
        let packed = figures.over_runs(|run| {
            let sizes = mode.peers.iter().filter_map(|peer| figures.allocated_after(run, peer, newest));
            Some(figures.packed_bytes(run, subject)? / sizes.reduce(f64::min)?)
        });
        let name = "the same after `compact --threshold 1 --recompress 9`";
        bars.push(Bar::at_most(name, packed, 0.65));
    }
    if measured.restore {
        let part = Part::RestoreNewest;
        let restore = "restore of the newest, times the fastest peer";
        bars.push(Bar::at_least(restore, to_fastest(part), 4.0));
        let to_copy = figures.over_runs(|run| {
            let copy = figures.disk_rate(run, "cp", part, None)?;
            Some(figures.disk_rate(run, subject, part, None)? / copy)
        });
        let copy = "restore of the newest, times cp --sparse=always";
        bars.push(Bar::at_least(copy, to_copy, 1.0));
        let to_restore = figures.over_runs(|run| {
            let restore = figures.data_rate(run, subject, part)?;
            Some(figures.data_rate(run, subject, Part::Verify)? / restore)
        });
        let verify = "verify --data, times restore of the newest (both MB/s of data)";
        bars.push(Bar::at_least(verify, to_restore, 1.0));
    }
    ModeSummary { mode: mode.name, what: mode.what, subject, peers: mode.peers.to_vec(), bars }
}

impl Summary {
    /// The tables.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Medians; MB/s of disk length until everything is synced (verify: MB/s of data), stored MB allocated.\n\n{}",
            self.tools_table()
        );
        if self.disks.iter().any(|row| row.disk != self.disks[0].disk) {
            text.push_str(&format!("\n{}", self.disks_table()));
        }
        for mode in &self.modes {
            text.push_str(&format!(
                "\n{} ({}): {} against {}\n\n{}",
                mode.mode,
                mode.what,
                mode.subject,
                mode.peers.join(", "),
                bars_table(&mode.bars)
            ));
        }
        if !self.not_installed.is_empty() {
            let names = self.not_installed.join(", ");
            text.push_str(&format!("\nNot installed, left out: {names}\n"));
        }
        text
    }

    fn tools_table(&self) -> Table {
        let mut table = Table::new([
            "tool",
            "first",
            "later",
            "restore newest",
            "oldest",
            "verify",
            "stored first",
            "stored all",
            "packed again",
            "seconds",
            "CPU s first",
            "CPU s later",
            "peak MiB",
        ]);
        let mb = |bytes: Option<f64>| figure(bytes.map(|b| b / 1e6), 1);
        for tool in &self.tools {
            table.row([
                tool.tool.clone(),
                figure(tool.first_mb_per_second, 0),
                figure(tool.later_mb_per_second, 0),
                figure(tool.restore_newest_mb_per_second, 0),
                figure(tool.restore_oldest_mb_per_second, 0),
                figure(tool.verify_mb_per_second, 0),
                mb(tool.stored_first_bytes),
                mb(tool.stored_all_bytes),
                mb(tool.packed_bytes),
                figure(tool.packed_seconds, 1),
                figure(tool.cpu_seconds_first, 1),
                figure(tool.cpu_seconds_later, 1),
                (tool.rss_bytes_max >> 20).to_string(),
            ]);
        }
        table
    }

    fn disks_table(&self) -> Table {
        let mut table = Table::new(["disk", "tool", "first", "later", "restore newest", "oldest"]);
        for row in &self.disks {
            table.row([
                row.disk.clone(),
                row.tool.clone(),
                figure(row.first_mb_per_second, 0),
                figure(row.later_mb_per_second, 0),
                figure(row.restore_newest_mb_per_second, 0),
                figure(row.restore_oldest_mb_per_second, 0),
            ]);
        }
        table
    }
}

/// A tool's name in a figure: `sapwood-zstd3` is "sapwood, zstd level 3".
fn label_of(tool: &str) -> String {
    match tool.split_once('-') {
        None => tool.to_owned(),
        Some((name, "fixed")) => format!("{name}, fixed chunks"),
        Some((name, how)) => match how.strip_prefix("zstd") {
            Some(level) if !level.is_empty() => format!("{name}, zstd level {level}"),
            _ => format!("{name}, {how}"),
        },
    }
}

/// Draws throughput as bars and stored bytes over the versions as lines.
pub fn draw(context: &Context, measurement: &Measurement, measured: Measured) -> anyhow::Result<()> {
    let figures = Figures::new(&measurement.steps);
    let mut parts: Vec<(&str, Part)> = Vec::new();
    if measured.first {
        parts.push(("first backup", Part::First));
    }
    if measured.later {
        parts.push(("later versions", Part::Later));
    }
    if measured.restore {
        parts.push(("restore newest", Part::RestoreNewest));
        parts.push(("restore oldest", Part::RestoreOldest));
    }
    let rates = |tool: &str| {
        let rate = |(_, part): &(_, Part)| figures.over_runs(|run| figures.disk_rate(run, tool, *part, None));
        parts.iter().map(rate).collect()
    };
    let names = || measurement.tools.iter().map(|tool| tool.name.clone());
    let throughput = Figure::Bars {
        groups: parts.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series: names().map(|name| (label_of(&name), rates(&name))).collect(),
    };
    let labels = Labels { title: "Throughput until everything is synced", x: "", y: "MB/s of disk length" };
    let name = format!("{}-throughput", context.experiment);
    draw_figure(context.out(), &name, &labels, &throughput)?;
    if measurement.newest == 0 || !measured.later {
        return Ok(());
    }
    let stored = |tool: &str| {
        let after = |version| {
            let bytes = figures.over_runs(|run| figures.allocated_after(run, tool, version))?;
            Some((version as f64 + 1.0, bytes / 1e6))
        };
        (0..=measurement.newest).filter_map(after).collect()
    };
    let of_history = measurement.tools.iter().filter(|tool| tool.role != Role::Yardstick);
    let series = of_history.map(|tool| (label_of(&tool.name), stored(&tool.name))).collect();
    let lines = Figure::Lines { series };
    let labels = Labels { title: "Stored after each version of all disks", x: "versions", y: "MB allocated" };
    let name = format!("{}-stored", context.experiment);
    draw_figure(context.out(), &name, &labels, &lines)
}

#[cfg(test)]
mod tests {
    use super::label_of;

    #[test]
    fn figures_name_tools_in_words() {
        for (tool, label) in [
            ("sapwood", "sapwood"),
            ("sapwood-zstd3", "sapwood, zstd level 3"),
            ("sapwood-lz4", "sapwood, lz4"),
            ("borg-fixed", "borg, fixed chunks"),
            ("sapwood-conventional", "sapwood, conventional"),
        ] {
            assert_eq!(label_of(tool), label);
        }
    }
}
