//! What the requests come to: tables, bars, and figures.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{AtOnce, LocalRun, Measured, Shape, Step, What, ALL};
use crate::context::Context;
use crate::results::plot::{draw as draw_figure, Figure, Labels};
use crate::results::report::{bars_table, figure, Bar, Table};

/// What no command may take.
const PEAK_BYTES_MAX: u64 = 256 << 20;

impl Measured<'_> {
    /// The tables and the bars.
    pub fn text(&self) -> Result<String> {
        let tables =
            format!("{}\n{}\n{}", self.by_object()?, table_of(self.at_once), local_table(self.local));
        Ok(format!("{}\n{}\n{tables}", self.operations()?, bars_table(&self.bars())))
    }

    fn find(&self, what: What, shape: Shape, delay: u64) -> Option<&Step> {
        self.steps.iter().find(|s| s.what == what && s.shape == shape && s.delay_ms == delay)
    }

    fn requests(&self, what: What, shape: Shape) -> Option<f64> {
        Some(self.find(what, shape, 0)?.requests.all() as f64)
    }

    fn operations(&self) -> Result<Table> {
        let mut headings: Vec<String> = [
            "operation",
            "disks",
            "snapshots",
            "backups",
            "requests, median",
            "mean",
            "reads",
            "lists",
            "puts",
            "swaps",
            "deletes",
        ]
        .map(str::to_owned)
        .into();
        headings.extend(["KB read", "KB written", "s in memory"].map(str::to_owned));
        headings.extend(self.delays.iter().map(|ms| format!("s at {ms} ms")));
        let mut table = Table::new(headings);
        for what in ALL {
            for shape in self.shapes {
                let Some(step) = self.find(what, shape, 0) else { continue };
                let r = step.requests;
                let mut row = vec![what.name()?];
                row.extend([shape.disks, shape.snapshots, shape.backups].map(|n| n.to_string()));
                row.push(r.all().to_string());
                row.push(figure(Some(step.mean_requests), 1));
                row.extend([r.reads, r.lists, r.puts, r.swaps, r.deletes].map(|n| n.to_string()));
                row.extend([r.read_bytes, r.written_bytes].map(|bytes| figure(Some(bytes as f64 / 1e3), 0)));
                row.push(figure(Some(step.seconds), 3));
                let seconds = |ms: &u64| figure(self.find(what, shape, *ms).map(|s| s.seconds), 2);
                row.extend(self.delays.iter().map(seconds));
                table.row(row);
            }
        }
        Ok(table)
    }

    /// The requests of the operations that have a bar, by kind of object, in each of the vaults.
    fn by_object(&self) -> Result<Table> {
        let mut headings = vec!["operation".to_owned(), "what is asked".to_owned()];
        headings.extend(self.shapes.map(Shape::name));
        let mut table = Table::new(headings);
        for what in [What::IncrementalBackup, What::DeleteFromTheMiddle] {
            let steps = self.shapes.map(|shape| self.find(what, shape, 0));
            let objects: BTreeSet<_> = steps.iter().flatten().flat_map(|s| s.by_object.keys()).collect();
            for object in objects {
                let mut row = vec![what.name()?, object.clone()];
                let asked =
                    |s: &Option<&Step>| s.and_then(|s| s.by_object.get(object)).map_or(0, |n| *n).to_string();
                row.extend(steps.iter().map(asked));
                table.row(row);
            }
        }
        Ok(table)
    }

    fn bars(&self) -> Vec<Bar> {
        let [few, disks, snapshots, old] = self.shapes;
        let mut bars = Vec::new();
        for (what, name) in
            [(What::IncrementalBackup, "an incremental backup"), (What::DeleteFromTheMiddle, "a deletion")]
        {
            let many_and_few = [
                ((disks, "disks"), (few, "few")),
                ((snapshots, "snapshots"), (few, "few of a new disk")),
                ((snapshots, "snapshots"), (old, "few of a disk as old")),
            ];
            for ((many, kind), (few, said)) in many_and_few {
                let text = format!("requests of {name} with many {kind}, times those with {said}");
                let mean = |shape| Some(self.find(what, shape, 0)?.mean_requests);
                bars.push(Bar::at_most(
                    format!("{text}, means"),
                    mean(many).zip(mean(few)).map(|(many, few)| many / few),
                    1.10,
                ));
                let medians = self.requests(what, many).zip(self.requests(what, few));
                bars.push(Bar::shown(format!("{text}, medians"), medians.map(|(many, few)| many / few)));
            }
        }
        let at_20 = self.find(What::IncrementalBackup, disks, 20).map(|s| s.seconds);
        bars.push(Bar::at_most("seconds of an incremental backup at 20 ms, many disks", at_20, 10.0));
        for command in ["snapshots DISK", "stats"] {
            let run = self.local.iter().find(|run| run.command == command && run.shape.disks == disks.disks);
            let text = format!("seconds of `{command}`, many disks, local store");
            bars.push(Bar::at_most(text, run.map(|run| run.seconds), 2.0));
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let peak = self.local.iter().map(|run| run.peak_bytes).max();
        bars.push(Bar::at_most("peak memory of any command, MiB", peak.map(mib), mib(PEAK_BYTES_MAX)));
        bars
    }

    /// Draws the requests of operations on one disk in each vault, and their time on slower stores.
    pub fn draw(&self, context: &Context) -> Result<()> {
        let operations: Vec<What> = ALL.into_iter().filter(|what| !what.is_of_all()).collect();
        let groups: Vec<String> = operations.iter().map(|what| what.label().to_owned()).collect();
        let [_, disks, ..] = self.shapes;
        let of_shape = |shape: &Shape| {
            (shape.name(), operations.iter().map(|what| self.requests(*what, *shape)).collect())
        };
        let requests =
            Figure::LogBars { groups: groups.clone(), series: self.shapes.iter().map(of_shape).collect() };
        let title = "Requests to the store of one operation on one disk";
        draw_figure(context.out(), "requests", &Labels { title, x: "", y: "requests" }, &requests)?;
        let of_delay = |ms: &u64| {
            let seconds = |what: &What| Some(self.find(*what, disks, *ms)?.seconds);
            (format!("{ms} ms a request"), operations.iter().map(seconds).collect())
        };
        let times = Figure::LogBars { groups, series: self.delays.iter().map(of_delay).collect() };
        let title = format!("Time of one operation in a vault of {} disks", disks.disks);
        let labels = Labels { title: &title, x: "", y: "seconds" };
        draw_figure(context.out(), "requests-seconds", &labels, &times)
    }
}

fn table_of(at_once: &[AtOnce]) -> Table {
    let headings = ["first backups of clones at once", "ms", "seconds", "requests of each", "swaps of each"];
    let mut table = Table::new(headings);
    for run in at_once {
        let each = |n: u64| figure(Some(n as f64 / run.backups as f64), 1);
        table.row(vec![
            run.backups.to_string(),
            run.delay_ms.to_string(),
            figure(Some(run.seconds), 2),
            each(run.requests.all()),
            each(run.requests.swaps),
        ]);
    }
    table
}

fn local_table(runs: &[LocalRun]) -> Table {
    let mut table = Table::new(["`sapwood`, local store", "disks", "snapshots", "seconds", "peak MiB"]);
    for run in runs {
        table.row([
            run.command.clone(),
            run.shape.disks.to_string(),
            run.shape.snapshots.to_string(),
            figure(Some(run.seconds), 2),
            figure((run.peak_bytes > 0).then_some((run.peak_bytes >> 20) as f64), 0),
        ]);
    }
    table
}
