//! `vmc-t1` (table 1): the part of the duplicates that is removed, and the memory it takes, with and without the popular
//! set, without the search for similar segments, under the default policy, and with stateless routing.
//!
//! A perfect scheme keeps every distinct chunk of all snapshots of all disks once, with the same chunker; null chunks
//! count nowhere. Efficiency is the part of the bytes it removes that is removed: what a vault keeps are the chunks of
//! the disks' own that snapshots reference at the end, and the popular set.

use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;
use vault::{Policy, BALANCED, VM_CENTRIC};

use super::month::{live_through, Month};
use super::stream::{stream, Cut, Perfect, Routed};
use super::{build_set, cluster, copy_dir, Set, Usual, VmcOptions, DISKS_OF_MACHINE};
use crate::context::Context;
use crate::files::fresh_dir;
use crate::peers;
use crate::results::report::{bars_table, figure, Bar, Table};
use crate::run::Cost;
use crate::vaults::in_process::LocalVault;
use crate::workload::{Cluster, ClusterShape};

/// What routing reaches in the paper, and what it takes there per machine.
const EFFICIENCY: f64 = 0.9786;
const MEMORY_MB: f64 = 118.0;
/// Machines of the paper's cluster.
const PAPER_MACHINES: usize = 100;

/// Rows of the table.
const WITH_SET: &str = "vm-centric, set of 2 %";
const WITHOUT_SET: &str = "vm-centric, no set";
const NO_SIMILARITY: &str = "vm-centric, set of 2 %, same offset only";
const DEFAULT: &str = "balanced, set of 2 %";

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    setting: &'static str,
    efficiency: f64,
    month: Month,
    set: Option<Set>,
    /// A first and a later backup of one disk by a process of its own, where the program has the policy.
    processes: Vec<Cost>,
}

impl Row {
    fn memory_mb(&self) -> Option<f64> {
        self.processes.iter().map(|cost| cost.rss_bytes_max as f64 / 1e6).reduce(f64::max)
    }

    fn set_bytes(&self) -> u64 {
        self.set.map_or(0, |set| set.bytes)
    }
}

/// What is the same for all settings with one chunker.
#[derive(Debug, Serialize)]
struct Baseline {
    chunking: String,
    perfect: Perfect,
    routed: Vec<Routed>,
}

/// Runs the experiment. Sizes do not vary between runs: everything is stored once.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, Usual::CLUSTER)?;
    let machines = [(cluster.shape().disks / DISKS_OF_MACHINE).max(2), PAPER_MACHINES];
    let of = |policy: &Policy, machines: &[usize]| -> Result<Baseline> {
        let cut = Cut { chunking: policy.chunking, segment_bytes: policy.segment_bytes };
        let found = stream(&cluster, cut, machines)?;
        let baseline =
            Baseline { chunking: cut.chunking.to_string(), perfect: found.perfect, routed: found.routed };
        eprintln!("{}: {:?}", baseline.chunking, baseline.perfect);
        Ok(baseline)
    };
    let (centric, balanced) = (of(&VM_CENTRIC, &machines)?, of(&BALANCED, &[])?);
    let mut measuring = Measuring { context, cluster: &cluster, rows: Vec::new() };
    measuring.vm_centric(&centric.perfect)?;
    measuring.balanced(&balanced.perfect)?;
    let rows = measuring.rows;
    save(context, cluster.shape(), &rows, [&centric, &balanced])
}

struct Measuring<'a> {
    context: &'a Context,
    cluster: &'a Cluster,
    rows: Vec<Row>,
}

impl Measuring<'_> {
    /// The three settings of the paper's policy, each with a vault of its own that the set was built in, or none.
    fn vm_centric(&mut self, perfect: &Perfect) -> Result<()> {
        let with_set = self.context.space().join("with-set");
        let vault = LocalVault::create(&with_set, VM_CENTRIC, None)?;
        let set = build_set(self.context, &vault, self.cluster)?;
        drop(vault);
        let copy = self.context.space().join("no-similarity");
        copy_dir(&with_set, &copy)?;
        let no_similarity = Policy { similar_segments: 0, ..VM_CENTRIC };
        self.measure(WITH_SET, LocalVault::counting_on(&with_set, VM_CENTRIC)?, Some(set), perfect)?;
        self.measure(NO_SIMILARITY, LocalVault::counting_on(&copy, no_similarity)?, Some(set), perfect)?;
        let without = self.context.space().join("without-set");
        self.measure(WITHOUT_SET, LocalVault::counting(&without, VM_CENTRIC, None)?, None, perfect)
    }

    /// The default policy reads what it removes: its data is written.
    fn balanced(&mut self, perfect: &Perfect) -> Result<()> {
        let vault = LocalVault::create(&self.context.space().join("balanced"), BALANCED, None)?;
        let set = build_set(self.context, &vault, self.cluster)?;
        self.measure(DEFAULT, vault, Some(set), perfect)
    }

    fn measure(
        &mut self,
        setting: &'static str,
        vault: LocalVault,
        set: Option<Set>,
        perfect: &Perfect,
    ) -> Result<()> {
        let month = live_through(self.context, &vault, self.cluster)?;
        ensure!(month.logical_bytes == perfect.logical_bytes, "not what was cut: {month:?}");
        if setting != DEFAULT {
            ensure!(month.live_bytes == month.written_bytes, "not all is referenced: {month:?}");
        }
        let efficiency = perfect.efficiency(month.live_bytes + set.map_or(0, |set| set.bytes));
        eprintln!("{setting}: {:.2} %, {:.0} s", 100.0 * efficiency, month.seconds);
        let processes = match setting {
            // No policy of the program's.
            NO_SIMILARITY => Vec::new(),
            _ => self.processes(vault.dir())?,
        };
        self.rows.push(Row { setting, efficiency, month, set, processes });
        vault.remove()
    }

    /// Backs the last two days of the first disk up as a disk of another name, each by a process of its own.
    fn processes(&self, dir: &Path) -> Result<Vec<Cost>> {
        let days = self.cluster.shape().days;
        let vault = peers::Vault::new(&self.context.sapwood()?, dir.to_owned(), "", None);
        let home = fresh_dir(&self.context.space().join("measured"))?;
        let file = home.join("disk.raw");
        let mut costs = Vec::new();
        for day in self.cluster.days(0).skip(days - 1).take(2) {
            day.version.write_to(&file)?;
            costs.push(vault.backup("measured/vda", &file)?.cost);
        }
        std::fs::remove_dir_all(home)?;
        Ok(costs)
    }
}

fn save(context: &Context, shape: ClusterShape, rows: &[Row], baselines: [&Baseline; 2]) -> Result<()> {
    let [centric, _] = baselines;
    let bars = bars(rows, centric)?;
    let text = format!("{}\n{}\n{}", table(rows, centric), reductions(rows), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
        efficiency: &'static str,
        memory: &'static str,
        routing: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        rows: &'a [Row],
        baselines: [&'a Baseline; 2],
    }
    let parameters = Parameters {
        workload: shape,
        efficiency:
            "bytes removed / bytes that keeping every distinct chunk once removes; bytes before compression",
        memory:
            "peak resident memory of a first and a later backup of one disk, each a process, the set in place",
        routing:
            "simulated on the changed segments; index of 32 bytes a chunk, no filter and no cache counted",
    };
    context.save(1, parameters, Results { bars: &bars, rows, baselines }, &text)?;
    context.print(&text);
    Ok(())
}

fn table(rows: &[Row], centric: &Baseline) -> Table {
    let mut table =
        Table::new(["setting", "efficiency %", "kept MB", "set MB", "stored MB", "memory MB", "backups s"]);
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for row in rows {
        table.row([
            row.setting.to_owned(),
            format!("{:.2}", 100.0 * row.efficiency),
            mb(row.month.live_bytes + row.set_bytes()),
            mb(row.set_bytes()),
            mb(row.month.stored.total_bytes()),
            figure(row.memory_mb(), 1),
            format!("{:.0}", row.month.seconds),
        ]);
    }
    for routed in &centric.routed {
        table.row([
            format!("stateless routing, {} machines", routed.machines),
            format!("{:.2}", 100.0 * centric.perfect.efficiency(routed.kept_bytes)),
            mb(routed.kept_bytes),
            String::new(),
            String::new(),
            format!("{} of index", mb(routed.index_bytes_max)),
            String::new(),
        ]);
    }
    table.row(
        ["perfect".to_owned(), "100".to_owned(), mb(centric.perfect.distinct_bytes)]
            .into_iter()
            .chain(std::iter::repeat_n(String::new(), 4)),
    );
    table
}

/// What is left of the original after each step, as the end of section 5.1 has it.
fn reductions(rows: &[Row]) -> Table {
    let mut table = Table::new(["what is left of all snapshots", "%"]);
    let by_name = |name| rows.iter().find(|row: &&Row| row.setting == name);
    let mut row = |what: &str, part: Option<f64>| {
        table.row([what.to_owned(), figure(part.map(|part| 100.0 * part), 2)]);
    };
    let part = |r: &Row, bytes: u64| bytes as f64 / r.month.logical_bytes as f64;
    let (set, none) = (by_name(WITH_SET), by_name(WITHOUT_SET));
    row("segments that changed", none.map(|r| part(r, r.month.changed_bytes)));
    row("after local search in them", none.map(|r| part(r, r.month.live_bytes)));
    row("with the popular set", set.map(|r| part(r, r.month.live_bytes + r.set_bytes())));
    table
}

fn bars(rows: &[Row], centric: &Baseline) -> Result<Vec<Bar>> {
    let by_name = |name| rows.iter().find(|row| row.setting == name).context("a setting was left out");
    let (set, none) = (by_name(WITH_SET)?, by_name(WITHOUT_SET)?);
    let (no_similarity, default) = (by_name(NO_SIMILARITY)?, by_name(DEFAULT)?);
    let routed = |n: usize| centric.perfect.efficiency(centric.routed[n].kept_bytes);
    let raw = |row: &Row| Some(row.month.logical_bytes as f64 / (1e6 * row.memory_mb()?));
    Ok(vec![
        Bar::at_least(format!("{WITH_SET}: efficiency"), Some(set.efficiency), EFFICIENCY),
        Bar::at_most(format!("{WITH_SET}: memory of a backup, MB"), set.memory_mb(), MEMORY_MB),
        Bar::shown("what the set adds", Some(set.efficiency - none.efficiency)),
        Bar::shown("what similar segments add", Some(set.efficiency - no_similarity.efficiency)),
        Bar::shown(format!("{DEFAULT}: efficiency"), Some(default.efficiency)),
        Bar::shown(
            format!("{WITH_SET} - routing to {} machines", centric.routed[0].machines),
            Some(set.efficiency - routed(0)),
        ),
        Bar::shown(
            format!("{WITH_SET} - routing to {PAPER_MACHINES} machines"),
            Some(set.efficiency - routed(1)),
        ),
        Bar::shown("raw bytes for each byte of memory", raw(set)),
    ])
}
