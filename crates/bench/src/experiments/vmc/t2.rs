//! `vmc-t2` (table 2): what tasks take that together read no faster than a limit.
//!
//! The later versions of a machine's disks are read whole, by one task after the other or by several at once, each with
//! its part of the limit.

use anyhow::Result;
use serde::Serialize;

use super::machine::{Machine, Round, TASKS};
use super::{cluster, Set, Usual, VmcOptions};
use crate::context::Context;
use crate::results::report::{bars_table, mb_per_second, Bar, Table};
use crate::workload::ClusterShape;

/// Of all tasks together.
const LIMIT_BYTES_PER_SECOND: usize = 50_000_000;
/// The rate may be off by this part.
const OFF_MAX: f64 = 0.05;
/// Part of a core that a task may take.
const CPU_MAX: f64 = 0.1;
/// Divisible by all numbers of tasks, and with data for a minute.
const USUAL: Usual = Usual { disks: 12, days: TASKS.len() + 1, data_mib: 256 };

/// Runs the experiment; the sleep between reads makes it as long as it is, so it is measured once.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, USUAL)?;
    let mut machine = Machine::create(context, &cluster)?;
    let mut rounds = Vec::new();
    for tasks in TASKS {
        machine.next_day()?;
        let limit = (LIMIT_BYTES_PER_SECOND / tasks).to_string();
        rounds.push(machine.back_up(tasks, |_| vec!["--limit".into(), limit.clone()])?);
        eprintln!("{tasks} tasks: {:.1} s", rounds.last().map_or(0.0, |r| r.seconds));
    }
    save(context, cluster.shape(), machine.set, &rounds)
}

/// MB/s that all tasks read together while they are at work.
fn read_rate(round: &Round) -> f64 {
    round.tasks as f64 * mb_per_second(round.sum(|b| b.read_bytes), round.busy_seconds())
}

fn save(context: &Context, shape: ClusterShape, set: Set, rounds: &[Round]) -> Result<()> {
    let header = [
        "tasks",
        "s",
        "read MB/s",
        "new MB/s",
        "stored MB/s",
        "CPU % of a core a task",
        "all",
        "peak MB a task",
        "all at most",
    ];
    let mut table = Table::new(header);
    let mut bars = Vec::new();
    for round in rounds {
        let (tasks, busy) = (round.tasks as f64, round.busy_seconds());
        let rate = |of| tasks * mb_per_second(round.sum(of), busy);
        let peak = round.rss_bytes_max() as f64 / 1e6;
        table.row([
            round.tasks.to_string(),
            format!("{:.1}", round.seconds),
            format!("{:.2}", read_rate(round)),
            format!("{:.2}", rate(|b| b.new_bytes)),
            format!("{:.2}", rate(|b| b.stored_bytes)),
            format!("{:.1}", 100.0 * round.cpu_of_task()),
            format!("{:.1}", 100.0 * tasks * round.cpu_of_task()),
            format!("{peak:.1}"),
            format!("{:.1}", tasks * peak),
        ]);
        let off = (read_rate(round) * 1e6 / LIMIT_BYTES_PER_SECOND as f64 - 1.0).abs();
        bars.push(Bar::at_most(format!("{tasks} tasks: the limit is off by"), Some(off), OFF_MAX));
        let cpu = Some(round.cpu_of_task());
        bars.push(Bar::at_most(format!("{tasks} tasks: cores that a task takes"), cpu, CPU_MAX));
    }
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
        set: Set,
        limit_bytes_per_second: usize,
        source_cache: &'static str,
        rates: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        rounds: &'a [Round],
    }
    let parameters = Parameters {
        workload: shape,
        set,
        limit_bytes_per_second: LIMIT_BYTES_PER_SECOND,
        source_cache: "warm",
        rates: "tasks x bytes / seconds in which tasks were at work, start and commit among them",
    };
    context.save(1, parameters, Results { bars: &bars, rounds }, &text)?;
    context.print(&text);
    Ok(())
}
