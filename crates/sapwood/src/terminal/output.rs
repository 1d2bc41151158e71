//! Formats output for people: sizes, rates, tables.

use super::escape::escaped;
use super::streams::{self, outln, Out};
use anyhow::Result;
use serde_json::Value;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::SpooledTempFile;

/// What is printed at once, and what waits in memory.
const PIECE_BYTES: usize = 1 << 20;
const SPOOLED_BYTES: usize = 16 << 20;

/// Whether the object of `--json` was printed.
static JSON_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints the one JSON object of `--json`.
pub fn print_json(value: &Value) {
    JSON_PRINTED.store(true, Ordering::Relaxed);
    streams::out(&format!("{value}\n"));
}

/// The object of `--json` as text that is made piece by piece. It waits in a file where it is too long for memory, so that
/// either all of it is printed or none.
pub struct JsonText(SpooledTempFile);

impl JsonText {
    /// Nothing yet.
    pub fn new() -> Self {
        JsonText(SpooledTempFile::new(SPOOLED_BYTES))
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: &str) -> Result<()> {
        self.0.write_all(piece.as_bytes()).map_err(|e| wrong(&e))
    }

    /// Prints all of it.
    pub fn print(mut self) -> Result<()> {
        self.push("\n")?;
        self.0.rewind().map_err(|e| wrong(&e))?;
        JSON_PRINTED.store(true, Ordering::Relaxed);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let len = self.0.read(&mut piece).map_err(|e| wrong(&e))?;
            // The end of the program tells of standard output that cannot be written.
            if len == 0 || Out.write_all(&piece[..len]).is_err() {
                return Ok(());
            }
        }
    }
}

fn wrong(e: &io::Error) -> anyhow::Error {
    let dir = std::env::temp_dir();
    anyhow::anyhow!(
        "{}: cannot keep what is to be printed: {e}; TMPDIR names another directory",
        dir.display()
    )
}

/// Whether the object of `--json` was printed.
pub fn is_json_printed() -> bool {
    JSON_PRINTED.load(Ordering::Relaxed)
}

/// `1.25 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 100.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// `512 MiB/s`.
pub fn rate(bytes: u64, seconds: f64) -> String {
    format!("{}/s", size((bytes as f64 / seconds.max(1e-9)) as u64))
}

/// `1 disk`, `2 disks`: a number of things that an s makes many.
pub fn counted(n: impl TryInto<u64>, what: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `12.3 %`.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 })
}

/// A duration in words: `5 min`, `3 h`, `2 d`.
pub fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..60 => format!("{s} s"),
        s @ 60..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// Characters in a line of the terminal that standard output is; `None` where it is none.
fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok())??;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Columns under headings; a heading that starts with `>` is aligned right.
pub fn table(headings: &[&str], rows: &[Vec<String>]) {
    // They may be hundreds of thousands: what is printed of them is not kept.
    let escaped_row = |r: &Vec<String>| r.iter().map(|c| escaped(c.as_bytes())).collect::<Vec<String>>();
    let names: Vec<&str> = headings.iter().map(|h| h.trim_start_matches('>')).collect();
    let width = |c: usize| {
        let cells = rows.iter().map(|r| escaped(r[c].as_bytes()).chars().count());
        cells.chain([names[c].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    // What is last is cut off at the edge of a terminal, if it is text.
    let most =
        headings.last().filter(|h| !h.starts_with('>')).and_then(|_| terminal_width()).unwrap_or(usize::MAX);
    let line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (c, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            let cell =
                if headings[c].starts_with('>') { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            text.push_str(&cell);
            text.push_str("  ");
        }
        let text = text.trim_end();
        if text.chars().count() > most {
            outln!("{}…", text.chars().take(most.saturating_sub(1)).collect::<String>());
        } else {
            outln!("{text}");
        }
    };
    line(names.clone());
    for r in rows {
        line(escaped_row(r).iter().map(String::as_str).collect());
    }
}
