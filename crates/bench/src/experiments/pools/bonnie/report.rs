//! What bonnie++ measured on two or more sides, as a table.

use anyhow::Result;
use serde::Serialize;

use super::{rates, TESTS};
use crate::context::Context;
use crate::results::report::{bars_table, figure, median, Bar, Table};

/// The paper's overhead is 15 % on average.
const OVERHEAD_MAX: f64 = 10.0;

/// One run on one side.
#[derive(Debug, Serialize)]
pub struct Measured {
    run: usize,
    side: &'static str,
    rates: Vec<Option<f64>>,
    /// Bytes that the side's disk takes when it is over.
    stored_bytes: u64,
    line: String,
}

impl Measured {
    /// From the line that bonnie++ printed.
    pub fn new(run: usize, side: &'static str, line: &str, stored_bytes: u64) -> Result<Self> {
        Ok(Self { run, side, rates: rates(line)?, stored_bytes, line: line.to_owned() })
    }
}

/// Prints and saves what was measured, of all `sides`, each beside that of them which is the `reference`; `title` says how.
pub fn report(
    context: &Context,
    bytes: u64,
    title: &str,
    (sides, reference): (&[&'static str], &'static str),
    measured: &[Measured],
) -> Result<()> {
    let compared = || sides.iter().copied().filter(|side| *side != reference);
    let headings = std::iter::once(String::new())
        .chain(sides.iter().map(|side| (*side).to_owned()))
        .chain(std::iter::once(String::new()))
        .chain(compared().map(|side| format!("{side}: overhead %")));
    let mut table = Table::new(headings);
    let of = |side: &'static str| measured.iter().filter(move |m| m.side == side);
    // Both of a run, then the median.
    let overhead = |side, n: usize| {
        let both = of(side).filter_map(|m| {
            let other = of(reference).find(|r| r.run == m.run)?;
            Some(100.0 * (1.0 - m.rates[n]? / other.rates[n]?))
        });
        median(both)
    };
    for (n, (name, _)) in TESTS.into_iter().enumerate() {
        let rate = |side: &&'static str| figure(median(of(side).filter_map(|m| m.rates[n])), 0);
        let unit = if name == "random seeks" { "a second" } else { "KB/s" };
        let row = std::iter::once(name.to_owned())
            .chain(sides.iter().map(rate))
            .chain(std::iter::once(unit.to_owned()))
            .chain(compared().map(|side| figure(overhead(side, n), 1)));
        table.row(row);
    }
    let average = |side| {
        let known: Vec<f64> = (0..TESTS.len()).filter_map(|n| overhead(side, n)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let bars: Vec<Bar> = compared()
        .map(|side| Bar::at_most(format!("{side}: overhead on average, %"), average(side), OVERHEAD_MAX))
        .collect();
    let stored = |side: &&'static str| {
        format!("{} MB in {side}", figure(median(of(side).map(|m| m.stored_bytes as f64 / 1e6)), 0))
    };
    let stored: Vec<String> = sides.iter().map(stored).collect();
    let text = format!(
        "{} MiB, medians of {} runs; {title}. Stored: {}.\n\n{table}\n{}",
        bytes >> 20,
        context.runs(),
        stored.join(", "),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    context.save(context.runs(), (bytes, title), Results { bars: &bars, measured }, &text)?;
    context.print(&text);
    Ok(())
}
