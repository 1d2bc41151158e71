//! What a fleet's steps come to: rates, what is stored, bars, and the curve of stored bytes.

use anyhow::Result;

use super::restores::Compared;
use super::results::{Results, What, ALL, TOOLS};
use crate::context::Context;
use crate::peers;
use crate::results::plot::{draw as draw_figure, Figure, Labels};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};

/// The tables.
pub fn text(results: &Results) -> String {
    format!("{}\n{}\n{}", tools_table(results), restores_table(results), bars_table(&bars(results)))
}

/// Names of the tools, in the order in which they were measured.
fn tools(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for step in &results.steps {
        if !names.contains(&step.tool.as_str()) {
            names.push(&step.tool);
        }
    }
    names.sort_by_key(|name| TOOLS.iter().position(|t| t == name));
    names
}

fn tools_table(results: &Results) -> Table {
    let mut headings: Vec<String> =
        ["tool", "first of a template", "a further clone", "first upgrade", "second upgrade", "restore"]
            .map(str::to_owned)
            .into();
    headings.extend(["clones", "first upgrade", "second upgrade"].map(|round| format!("stored MB: {round}")));
    let mut table = Table::new(headings);
    for tool in tools(results) {
        let mut cells = vec![tool.to_owned()];
        cells.extend(ALL.iter().map(|what| figure(rate(results, tool, &[*what]), 0)));
        let stored = |backups: &usize| figure(stored(results, tool, *backups).map(|bytes| bytes / 1e6), 0);
        cells.extend(results.rounds.iter().map(stored));
        table.row(cells);
    }
    table
}

fn restores_table(results: &Results) -> Table {
    let mut table =
        Table::new(["newest version restored, times a vault of its own", "by clock", "by seek model"]);
    for compared in &results.compared {
        let cells = [compared.by_clock(), compared.by_model()].map(|ratio| figure(ratio, 3));
        table.row([vec![compared.disk().to_owned()], cells.to_vec()].concat());
    }
    table
}

fn bars(results: &Results) -> Vec<Bar> {
    let all = |tool: &str| stored(results, tool, *results.rounds.last()?);
    let to = |tool: &str| Some(all(TOOLS[0])? / all(tool)?);
    let clone = rate(results, TOOLS[0], &[What::FurtherClone]);
    let later = rate(results, TOOLS[0], &[What::FirstUpgrade, What::SecondUpgrade]);
    let worst =
        |ratio: fn(&Compared) -> Option<f64>| results.compared.iter().filter_map(ratio).reduce(f64::max);
    let middle = |ratio: fn(&Compared) -> Option<f64>| median(results.compared.iter().filter_map(ratio));
    let restored = "seconds of the newest restore, times a vault of its own";
    vec![
        Bar::at_most("stored, times `conventional`", to(peers::CONVENTIONAL), 1.10),
        Bar::at_most("stored, times restic", to("restic"), 0.6),
        Bar::at_least(
            "rate of the first backup of a clone, times that of a later version",
            clone.zip(later).map(|(clone, later)| clone / later),
            0.8,
        ),
        Bar::at_most(format!("{restored}, median of the clones"), middle(Compared::by_clock), 1.05),
        Bar::at_most(format!("{restored}, slowest clone"), worst(Compared::by_clock), 1.05),
        Bar::at_most(format!("{restored}, slowest clone, seek model"), worst(Compared::by_model), 1.05),
    ]
}

/// The median rate of steps, in MB/s of the disks' length.
fn rate(results: &Results, tool: &str, what: &[What]) -> Option<f64> {
    let of = results.steps.iter().filter(|s| s.tool == tool && what.contains(&s.what));
    median(of.map(|s| mb_per_second(s.size_bytes, s.cost.durable_seconds())))
}

/// The median of what a tool stores after so many backups.
fn stored(results: &Results, tool: &str, backups: usize) -> Option<f64> {
    let of = results.stored.iter().filter(|s| s.tool == tool && s.backups == backups);
    median(of.map(|s| s.bytes as f64))
}

/// Draws what is stored over the backups, a line for each tool.
pub fn draw(context: &Context, results: &Results) -> Result<()> {
    let mut points: Vec<usize> = results.stored.iter().map(|s| s.backups).collect();
    points.sort_unstable();
    points.dedup();
    let line = |tool: &str| {
        let at = |backups: &usize| Some((*backups as f64, stored(results, tool, *backups)? / 1e6));
        (tool.replace("sapwood-", "sapwood, policy "), points.iter().filter_map(at).collect())
    };
    let series = tools(results).into_iter().map(line).collect();
    let (clones, upgraded) = (results.rounds[0], results.rounds[1]);
    let x = format!(
        "backups: 1 to {clones} are clones, {} to {upgraded} their first upgrade, then the second",
        clones + 1
    );
    let labels = Labels { title: "Stored as clones are added, then upgraded", x: &x, y: "MB allocated" };
    draw_figure(context.out(), "fleet-stored", &labels, &Figure::Lines { series })
}
