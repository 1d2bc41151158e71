//! `index`: the hooks of large vaults. A backup of new data looks up each of its hooks; how many requests that takes, how
//! much memory, and whether what a petabyte's index holds is found. Then the same by the clock, with an index in a
//! directory, and the joining of its runs.
//!
//! Runs of hooks are computed, in the vault's format and as its levels are: six of each size, and eight times as long from
//! level to level, since eight are joined; with that of a backup, seven are the most there can be. They lead to containers that exist. Those of the largest vaults are
//! computed where they are read, and stand nowhere.

mod local;
mod options;
mod searched;
mod world;

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, Bar, Table};
use local::Local;
pub use options::IndexOptions;
use searched::Searched;

/// What no command may take.
const PEAK_MIB_MAX: f64 = 256.0;

/// What a backup reads of short runs and holds, at most (`docs/flows/share.md`).
const WHOLE_MIB: f64 = 16.0;

/// Runs the experiment.
pub fn run(context: &Context, options: &IndexOptions) -> Result<()> {
    let tiny = context.options.tiny;
    let or = |given: &[f64], usual: &[f64]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
    let computed = or(&options.computed_tb, if tiny { &[0.1, 1.0] } else { &[1.0, 10.0, 100.0, 1000.0] });
    let in_directory = or(&options.local_tb, if tiny { &[0.01] } else { &[1.0, 10.0] });
    let mut searched = Vec::new();
    for terabytes in std::iter::once(0.0).chain(computed) {
        searched.push(searched::search(context, options, terabytes)?);
    }
    let mut local = Vec::new();
    for terabytes in std::iter::once(0.0).chain(in_directory) {
        local.push(local::measure(context, options, terabytes)?);
    }
    let text = summary(&searched, &local);
    draw_figures(context, &searched)?;
    #[derive(Serialize)]
    struct Parameters {
        data_bytes: usize,
        runs_of_a_size: u64,
        owners: usize,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        searched: &'a [Searched],
        local: &'a [Local],
    }
    let parameters = Parameters {
        data_bytes: options.data_bytes(tiny),
        runs_of_a_size: options.runs_of_a_size,
        owners: options.owners,
    };
    context.save(1, parameters, Results { searched: &searched, local: &local }, &text)?;
    context.print(&text);
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn summary(searched: &[Searched], local: &[Local]) -> String {
    let mut computed = Table::new([
        "vault TB",
        "hooks",
        "runs",
        "index MB",
        "reads of a lookup",
        "KB of a lookup",
        "reads to open it",
        "footers MiB",
        "of a clone found",
    ]);
    let none = &searched[0];
    for vault in &searched[1..] {
        computed.row([
            vault.terabytes.to_string(),
            vault.hooks.to_string(),
            vault.runs.to_string(),
            figure(Some(vault.index_bytes as f64 / 1e6), 0),
            figure(Some(vault.reads_of_a_lookup(none)), 1),
            figure(Some(vault.bytes_of_a_lookup(none) / 1e3), 1),
            vault.opening.all().to_string(),
            figure(Some(mib(vault.footer_bytes as u64)), 1),
            format!("{:.2} %", 100.0 * vault.found),
        ]);
    }
    let mut by_clock = Table::new([
        "vault TB",
        "index MB",
        "backup of new data s",
        "its peak MiB",
        "joining s",
        "MB joined",
        "its peak MiB",
    ]);
    for vault in local {
        let joining = vault.joining.as_ref();
        by_clock.row([
            vault.terabytes.to_string(),
            figure(Some(vault.index_bytes as f64 / 1e6), 0),
            figure(Some(vault.backup.wall_seconds), 2),
            (vault.backup.rss_bytes_max >> 20).to_string(),
            figure(joining.map(|j| j.cost.wall_seconds), 2),
            figure(joining.map(|j| j.bytes as f64 / 1e6), 0),
            figure(joining.map(|j| (j.cost.rss_bytes_max >> 20) as f64), 0),
        ]);
    }
    let largest = searched.last().filter(|s| s.terabytes > 0.0);
    let peaks = local.iter().flat_map(|l| [Some(l.backup), l.joining.as_ref().map(|j| j.cost)]);
    let peak = peaks.flatten().map(|cost| mib(cost.rss_bytes_max)).reduce(f64::max);
    let bars = [
        Bar::at_most(
            "memory of the index of the largest vault, its footers and short runs, MiB",
            largest.map(|s| mib(s.footer_bytes as u64) + WHOLE_MIB),
            PEAK_MIB_MAX,
        ),
        Bar::at_most("peak of a backup, and of joining, in a directory, MiB", peak, PEAK_MIB_MAX),
        Bar::at_least("part of a clone found through the largest index", largest.map(|s| s.found), 0.99),
    ];
    format!("{computed}\n{by_clock}\n{}", bars_table(&bars))
}

fn draw_figures(context: &Context, searched: &[Searched]) -> Result<()> {
    let none = &searched[0];
    let lines = |name: &str, value: &dyn Fn(&Searched) -> f64| {
        let points = searched[1..].iter().map(|s| (s.terabytes, value(s).max(0.01))).collect();
        (name.to_owned(), points)
    };
    let series = vec![
        lines("length of the index in the store, MiB", &|s| mib(s.index_bytes)),
        lines("memory of a backup for it at most, MiB", &|s| mib(s.footer_bytes as u64) + WHOLE_MIB),
        lines("reads for each fingerprint that is looked up", &|s| s.reads_of_a_lookup(none)),
    ];
    let title = "Finding chunks of other disks in large vaults";
    let labels = Labels { title, x: "TB of data in the vault", y: "MiB, reads" };
    draw(context.out(), "index", &labels, &Figure::LogLines { series })
}
