//! `paulo-6.2` (Paulo 2009, table 6.2): bonnie++ in a mounted pool, and in ext4 on a loop device.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::experiments::pools::PoolsOptions;
use crate::files;
use crate::mounted::{self, DiskOptions, Kind, Mounted};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::is_installed;

/// Tests, and where bonnie++ prints their rates.
const TESTS: [(&str, usize); 6] = [
    ("putc", 9),
    ("write blocks", 11),
    ("rewrite", 13),
    ("getc", 15),
    ("read blocks", 17),
    ("random seeks", 19),
];
/// The paper's own tests are of this size.
const CHUNK_BYTES: u64 = 8192;

/// One run on one side: of each test its rate, in KB a second and seeks a second. None: too fast to be measured.
#[derive(Debug, Serialize)]
struct Measured {
    run: usize,
    side: Kind,
    rates: Vec<Option<f64>>,
    /// Allocated bytes of the file system's file when it was over.
    stored_bytes: u64,
    line: String,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions) -> Result<()> {
    ensure!(is_installed("bonnie++"), "bonnie++ is not installed: it is in the package bonnie++");
    let bytes = options.bytes(context, 4096, 16);
    context.require_free(3 * bytes)?;
    let mut measured = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("mounts"))?;
        for kind in mounted::comparable(run)? {
            let mut side = Mounted::create(context, kind, &home, bytes, DiskOptions::default())?;
            side.make_cold(context, 2 * bytes + (1 << 30))?;
            measured.push(measure(context, run, &mut side, bytes)?);
        }
        fs::remove_dir_all(&home)?;
    }
    report(context, bytes, &measured)
}

fn measure(context: &Context, run: usize, side: &mut Mounted, bytes: u64) -> Result<Measured> {
    let mut command = Command::new("bonnie++");
    command.arg("-d").arg(side.place());
    command.args(["-s", &format!("{}:{CHUNK_BYTES}", bytes >> 20), "-n", "0", "-m", "x", "-q"]);
    // Single characters need not be many. Its own check of the size against the memory is turned off.
    command.args(["-r", "0", if context.options.tiny { "-f1" } else { "-f64" }]);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start bonnie++")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bonnie++: {}: {}", output.status, said.trim());
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let fields: Vec<&str> = line.split(',').collect();
    ensure!(fields.len() > 20, "bonnie++ prints another format: {line}");
    // Plus signs stand for less than half a second.
    let rates = TESTS.iter().map(|(_, field)| fields[*field].parse().ok()).collect();
    side.unmount()?;
    Ok(Measured { run, side: side.kind, rates, stored_bytes: side.stored_bytes()?, line })
}

fn report(context: &Context, bytes: u64, measured: &[Measured]) -> Result<()> {
    let mut table = Table::new(["", "pool", "ext4", "", "overhead %"]);
    let mut overheads = Vec::new();
    for (n, (name, _)) in TESTS.into_iter().enumerate() {
        let rates = |side: Kind| measured.iter().filter(move |m| m.side == side).map(move |m| m.rates[n]);
        let both = rates(Kind::Pool).zip(rates(Kind::Ext4)).filter_map(|(pool, ext4)| pool.zip(ext4));
        // Both of a run, then the median.
        let overhead = median(both.map(|(pool, ext4)| 100.0 * (1.0 - pool / ext4)));
        overheads.extend(overhead);
        let shown = |side| figure(median(rates(side).flatten()), 0);
        let unit = if name == "random seeks" { "a second" } else { "KB/s" };
        table.row([name.to_owned(), shown(Kind::Pool), shown(Kind::Ext4), unit.into(), figure(overhead, 1)]);
    }
    let average = (!overheads.is_empty()).then(|| overheads.iter().sum::<f64>() / overheads.len() as f64);
    let stored = |side: Kind| {
        median(measured.iter().filter(move |m| m.side == side).map(|m| m.stored_bytes as f64 / 1e6))
    };
    let bars = [Bar::at_most("overhead on average, %", average, 10.0)];
    let text = format!(
        "{} MiB, medians of {} runs. Stored: {} MB in the pool, {} MB in ext4.\n\n{table}\n{}",
        bytes >> 20,
        context.runs(),
        figure(stored(Kind::Pool), 0),
        figure(stored(Kind::Ext4), 0),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    context.save(context.runs(), bytes, Results { bars: &bars, measured }, &text)?;
    context.print(&text);
    Ok(())
}
