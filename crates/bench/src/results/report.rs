//! Results for people and for programs: Markdown tables, bars to meet, JSON files.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// A table, printed as Markdown.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; the first is text, the others are figures.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends one row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.header.join(" | "))?;
        write!(f, "| ---")?;
        for _ in 1..self.header.len() {
            write!(f, " | ---:")?;
        }
        writeln!(f, " |")?;
        for row in &self.rows {
            writeln!(f, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

/// A measured figure and what it must reach.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is compared with what.
    pub what: String,
    /// The figure; none when a part of it was not measured.
    pub measured: Option<f64>,
    /// Lower limit.
    pub at_least: Option<f64>,
    /// Upper limit.
    pub at_most: Option<f64>,
    /// Whether the limit holds.
    pub met: Option<bool>,
}

impl Bar {
    /// A figure that must not fall below `limit`.
    pub fn at_least(what: impl Into<String>, measured: Option<f64>, limit: f64) -> Self {
        Self {
            what: what.into(),
            measured,
            at_least: Some(limit),
            at_most: None,
            met: measured.map(|value| value >= limit),
        }
    }

    /// A figure that has no limit of its own.
    pub fn shown(what: impl Into<String>, measured: Option<f64>) -> Self {
        Self { what: what.into(), measured, at_least: None, at_most: None, met: None }
    }

    /// A figure that must not rise above `limit`.
    pub fn at_most(what: impl Into<String>, measured: Option<f64>, limit: f64) -> Self {
        Self {
            what: what.into(),
            measured,
            at_least: None,
            at_most: Some(limit),
            met: measured.map(|value| value <= limit),
        }
    }
}

/// The bars as a table.
pub fn bars_table(bars: &[Bar]) -> Table {
    let mut table = Table::new(["figure", "measured", "bar", "met"]);
    for bar in bars {
        let limit = match (bar.at_least, bar.at_most) {
            (Some(limit), _) => format!(">= {limit}"),
            (_, Some(limit)) => format!("<= {limit}"),
            _ => String::new(),
        };
        table.row([
            bar.what.clone(),
            bar.measured.map_or_else(|| "-".into(), |v| format!("{v:.3}")),
            limit,
            match bar.met {
                Some(true) => "yes".into(),
                Some(false) => "NO".into(),
                None => "-".to_string(),
            },
        ]);
    }
    table
}

/// The median; none of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Millions of bytes a second.
pub fn mb_per_second(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

/// A figure that may be missing, with `digits` decimals.
pub fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"))
}

/// Writes `value` as the result file `path`.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn bars_hold_at_the_limit() {
        assert_eq!(Bar::at_least("a", Some(2.5), 2.5).met, Some(true));
        assert_eq!(Bar::at_most("b", Some(0.9), 0.8).met, Some(false));
        assert_eq!(Bar::at_most("c", None, 0.8).met, None);
    }
}
