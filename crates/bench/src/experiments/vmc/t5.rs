//! `vmc-t5` (table 5): time and memory of deleting the oldest snapshot of every disk: mark and sweep over all disks, the
//! same in groups, mark and sweep disk by disk, and deletion as the vault does it.
//!
//! The first three are done here, over the recipes of a real vault, and must find exactly what the vault's deletion lets
//! go. What each of them reads to find it is then put into the paper's cluster: disks of 40 GB, whose metadata is in
//! proportion; machines that read at 50 MB/s, or 25 where there are a hundred. Over all disks, every machine reads its
//! part of all metadata once for the table of every machine. As in the paper, what gives the space back is another step:
//! chunk tables and data that deletion reads are for that, and are told apart.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;
use store::LocalStore;
use vault::{Policy, Vault, VM_CENTRIC, VM_CENTRIC_BLOOM};

use super::marks::{self, Grouped, Swept, GROUP_SNAPSHOTS};
use super::month::live_through;
use super::{build_set, cluster, Usual, VmcOptions, DISKS_OF_MACHINE, PAPER_DISK_BYTES};
use crate::context::Context;
use crate::results::report::{bars_table, median, Bar, Table};
use crate::run::{check_interrupted, run as run_program};
use crate::vaults::in_process::LocalVault;
use crate::vaults::metered_store::{BytesRead, Meter, MeteredStore};
use crate::workload::{Cluster, ClusterShape};

/// The disks of one machine.
const USUAL: Usual = Usual { disks: DISKS_OF_MACHINE, days: 10, data_mib: 128 };
/// Machines, and the bytes a second that each of them reads when all do (section 5.3).
const CLUSTERS: [(f64, f64); 2] = [(50.0, 50e6), (100.0, 25e6)];
/// The ways in which a vault deletes: what they are called, and the policy that chooses them.
const DELETIONS: [(&str, Policy); 2] = [(EXACT, VM_CENTRIC), (BLOOM, VM_CENTRIC_BLOOM)];
const EXACT: &str = "VC, exact summaries";
const BLOOM: &str = "VC, filters";

/// What a table of references is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Scope {
    /// All disks of a machine, against the snapshots of all machines.
    AllDisks,
    /// One disk after the other.
    OneDisk,
}

/// A way of deleting the oldest snapshot of every disk.
#[derive(Debug, Serialize)]
struct Method {
    name: &'static str,
    scope: Scope,
    /// Of all disks, one after the other.
    seconds: f64,
    read: BytesRead,
    /// Bytes of marks that were kept, and read.
    kept_bytes_read: u64,
    /// Tables of references; of deletion, all of the process.
    memory_bytes: u64,
    /// Chunks found to be needed no more.
    dead_chunks: u64,
}

impl Method {
    /// Bytes read to find the chunks that are dead.
    fn finding_bytes(&self) -> u64 {
        self.read.other + self.kept_bytes_read
    }

    /// Hours that it takes to read so many bytes of all disks here, in the paper's cluster.
    fn hours(&self, bytes: u64, disks: usize, scale: f64, (machines, rate): (f64, f64)) -> f64 {
        let of_machine = bytes as f64 / disks as f64 * scale * DISKS_OF_MACHINE as f64;
        let rounds = if self.scope == Scope::AllDisks { machines } else { 1.0 };
        rounds * of_machine / rate / 3600.0
    }

    /// Megabytes of a table in the paper's cluster; a process has no such.
    fn table_mb(&self, disks: usize, scale: f64) -> f64 {
        let disks = if self.scope == Scope::AllDisks { disks as f64 / DISKS_OF_MACHINE as f64 } else { 1.0 };
        self.memory_bytes as f64 / 1e6 / disks * scale
    }
}

/// Runs the experiment: marking is measured as often as `--runs` says, deletion once, for then it is done.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, USUAL)?;
    let mut measured =
        Measured { shape: cluster.shape(), scale: 1.0, methods: Vec::new(), leaked: Vec::new() };
    for (no, (name, policy)) in DELETIONS.into_iter().enumerate() {
        let dir = context.space().join(format!("vault{no}"));
        let local = LocalVault::create(&dir, policy, None)?;
        build_set(context, &local, &cluster)?;
        let month = live_through(context, &local, &cluster)?;
        let disk_bytes = month.logical_bytes / (cluster.shape().disks * cluster.shape().days) as u64;
        measured.scale = PAPER_DISK_BYTES / disk_bytes as f64;
        drop(local);
        let store = MeteredStore::new(LocalStore::open(&dir)?);
        let opened = Opened { meter: store.meter(), vault: Vault::open(Arc::new(store))? };
        if no == 0 {
            measured.mark_and_sweep(context, &opened)?;
        }
        measured.delete(context, &opened, name, &dir)?;
        drop(opened);
        std::fs::remove_dir_all(dir)?;
    }
    measured.save(context)
}

/// A vault of which it is known what is read.
struct Opened {
    vault: Vault,
    meter: Meter,
}

impl Opened {
    /// Chunks of the disks' own that are not known to be dead.
    fn live_chunks(&self, disks: usize) -> Result<u64> {
        let mut live = 0;
        for no in 0..disks {
            let containers = self.vault.disk_chunks(&Cluster::name(no))?.containers()?;
            live += containers.iter().map(|c| u64::from(c.chunks - c.dead_chunks)).sum::<u64>();
        }
        Ok(live)
    }
}

struct Measured {
    shape: ClusterShape,
    /// A disk of the paper has so many times the data.
    scale: f64,
    methods: Vec<Method>,
    /// By deletion: chunks that marking finds and deletion does not.
    leaked: Vec<(&'static str, i64)>,
}

impl Measured {
    fn mark_and_sweep(&mut self, context: &Context, opened: &Opened) -> Result<()> {
        let (disks, vault) = (self.shape.disks, &opened.vault);
        let kept = context.space().join("marks");
        let grouped = Grouped::create(vault, disks, &kept)?;
        let per_disk = || -> Result<Swept> {
            let mut all = Swept::default();
            for no in 0..disks {
                let Swept { dead_chunks, memory_bytes, .. } = marks::of_disk(vault, no)?;
                all.dead_chunks += dead_chunks;
                all.memory_bytes = all.memory_bytes.max(memory_bytes);
            }
            Ok(all)
        };
        self.measure(context, opened, "mark and sweep", Scope::AllDisks, || marks::of_all(vault, disks))?;
        let in_groups = || grouped.of_all(vault, disks);
        self.measure(context, opened, "grouped mark and sweep", Scope::AllDisks, in_groups)?;
        self.measure(context, opened, "VC, mark and sweep", Scope::OneDisk, per_disk)?;
        std::fs::remove_dir_all(kept)?;
        let found: Vec<u64> = self.methods.iter().map(|method| method.dead_chunks).collect();
        ensure!(found.windows(2).all(|w| w[0] == w[1]), "not the same chunks are dead: {found:?}");
        Ok(())
    }

    fn measure(
        &mut self,
        context: &Context,
        opened: &Opened,
        name: &'static str,
        scope: Scope,
        method: impl Fn() -> Result<Swept>,
    ) -> Result<()> {
        let mut seconds = Vec::new();
        let mut last = (Swept::default(), BytesRead::default());
        for _ in 0..context.runs() {
            check_interrupted()?;
            opened.meter.take();
            let start = Instant::now();
            let swept = method()?;
            seconds.push(start.elapsed().as_secs_f64());
            last = (swept, opened.meter.take());
        }
        let (Swept { dead_chunks, memory_bytes, kept_bytes_read }, read) = last;
        let seconds = median(seconds).unwrap_or(0.0);
        self.methods.push(Method { name, scope, seconds, read, kept_bytes_read, memory_bytes, dead_chunks });
        eprintln!("{:?}", self.methods.last());
        Ok(())
    }

    /// Deletes the oldest snapshot of every disk, and then the next one by processes, for their memory.
    fn delete(
        &mut self,
        context: &Context,
        opened: &Opened,
        name: &'static str,
        dir: &std::path::Path,
    ) -> Result<()> {
        let Opened { vault, meter } = opened;
        let before = opened.live_chunks(self.shape.disks)?;
        let doomed = (0..self.shape.disks).map(|no| oldest(vault, no)).collect::<Result<Vec<_>>>()?;
        meter.take();
        let start = Instant::now();
        for (no, id) in doomed.iter().enumerate() {
            check_interrupted()?;
            let report = vault.delete(&Cluster::name(no), &[id])?;
            ensure!(report.held_up.is_none() && report.waiting == 0, "not deleted: {report:?}");
        }
        let seconds = start.elapsed().as_secs_f64();
        let read = meter.take();
        let dead_chunks = before - opened.live_chunks(self.shape.disks)?;
        let mut memory_bytes = 0;
        for no in 0..self.shape.disks {
            if self.shape.days < 3 {
                break;
            }
            let snapshot = format!("{}@{}", Cluster::name(no), oldest(vault, no)?);
            let mut command = Command::new(context.sapwood()?);
            command.arg("--store").arg(dir).args(["--quiet", "delete", &snapshot]);
            memory_bytes = memory_bytes.max(run_program(&mut command, dir)?.cost.rss_bytes_max);
        }
        let marked = self.methods.first().context("nothing was marked")?.dead_chunks;
        self.leaked.push((name, marked as i64 - dead_chunks as i64));
        let scope = Scope::OneDisk;
        self.methods.push(Method {
            name,
            scope,
            seconds,
            read,
            kept_bytes_read: 0,
            memory_bytes,
            dead_chunks,
        });
        eprintln!("{:?}", self.methods.last());
        Ok(())
    }

    fn is_deletion(&self, method: &Method) -> bool {
        DELETIONS.iter().any(|(name, _)| *name == method.name)
    }

    fn measured_table(&self) -> Table {
        let header = [
            "method",
            "s",
            "read KB a disk",
            "of it kept marks",
            "tables KB",
            "data KB",
            "memory MB",
            "dead chunks",
        ];
        let mut table = Table::new(header);
        let of_disk = |bytes: u64| format!("{:.1}", bytes as f64 / 1e3 / self.shape.disks as f64);
        for m in &self.methods {
            let process = if self.is_deletion(m) { " (process)" } else { "" };
            table.row([
                m.name.to_owned(),
                format!("{:.3}", m.seconds),
                of_disk(m.finding_bytes()),
                of_disk(m.kept_bytes_read),
                of_disk(m.read.tables),
                of_disk(m.read.data),
                format!("{:.3}{process}", m.memory_bytes as f64 / 1e6),
                m.dead_chunks.to_string(),
            ]);
        }
        table
    }

    fn simulated_table(&self) -> Table {
        let header = [
            "in the paper's cluster",
            "h, p = 50",
            "h, p = 100",
            "h with space given back, p = 100",
            "table MB",
        ];
        let mut table = Table::new(header);
        for m in &self.methods {
            let hours = |bytes, of| format!("{:.4}", m.hours(bytes, self.shape.disks, self.scale, of));
            let [fifty, hundred] = CLUSTERS.map(|of| hours(m.finding_bytes(), of));
            let all = if self.is_deletion(m) {
                hours(m.finding_bytes() + m.read.tables + m.read.data, CLUSTERS[1])
            } else {
                String::new()
            };
            let memory = if self.is_deletion(m) {
                String::new()
            } else {
                format!("{:.1}", m.table_mb(self.shape.disks, self.scale))
            };
            table.row([m.name.to_owned(), fifty, hundred, all, memory]);
        }
        table
    }

    fn bars(&self) -> Vec<Bar> {
        let hours = |name: &str| {
            let method = self.methods.iter().find(|m| m.name == name);
            method.map(|m| m.hours(m.finding_bytes(), self.shape.disks, self.scale, CLUSTERS[1]))
        };
        let ratio = |a: &str, b: &str| hours(a).zip(hours(b)).map(|(a, b)| a / b);
        let mut bars = vec![
            Bar::shown(
                "grouped / mark and sweep (published 0.517)",
                ratio("grouped mark and sweep", "mark and sweep"),
            ),
            Bar::shown(
                "VC, mark and sweep / mark and sweep (published 0.0097)",
                ratio("VC, mark and sweep", "mark and sweep"),
            ),
        ];
        for (name, leaked) in &self.leaked {
            let (what, leaked) = (format!("{name}: chunks that are dead and stay"), Some(*leaked as f64));
            bars.push(match *name {
                EXACT => Bar::at_most(what, leaked, 0.0),
                _ => Bar::shown(what, leaked),
            });
            bars.push(Bar::at_most(
                format!("{name} / mark and sweep, p = 100"),
                ratio(name, "mark and sweep"),
                1.0,
            ));
            let own = ratio(name, "VC, mark and sweep");
            bars.push(Bar::at_most(
                format!("{name} / VC, mark and sweep (filters, published: 0.017)"),
                own,
                1.0,
            ));
        }
        bars.push(Bar::at_most("exact summaries / filters, p = 100", ratio(EXACT, BLOOM), 1.0));
        let seconds = |name: &str| self.methods.iter().find(|m| m.name == name).map(|m| m.seconds);
        let measured = seconds(EXACT).zip(seconds(BLOOM)).map(|(a, b)| a / b);
        bars.push(Bar::at_most("exact summaries / filters, measured", measured, 1.0));
        bars
    }

    fn save(&self, context: &Context) -> Result<()> {
        let bars = self.bars();
        let text = format!("{}\n{}\n{}", self.measured_table(), self.simulated_table(), bars_table(&bars));
        #[derive(Serialize)]
        struct Parameters {
            workload: ClusterShape,
            group_snapshots: usize,
            scale: f64,
            time: &'static str,
            simulation: &'static str,
        }
        #[derive(Serialize)]
        struct Results<'a> {
            bars: &'a [Bar],
            methods: &'a [Method],
        }
        let parameters = Parameters {
            workload: self.shape,
            group_snapshots: GROUP_SNAPSHOTS,
            scale: self.scale,
            time: "of all disks, one after the other, from a warm cache; deletion with compaction",
            simulation: "bytes read to find the dead chunks of a disk x scale x 25 disks a machine (x machines where a table is of all disks) / rate",
        };
        context.save(context.runs(), parameters, Results { bars: &bars, methods: &self.methods }, &text)?;
        context.print(&text);
        Ok(())
    }
}

/// The oldest snapshot of a disk.
fn oldest(vault: &Vault, disk: usize) -> Result<String> {
    let listing = vault.snapshots(Some(&Cluster::name(disk)))?;
    let first = listing.snapshots.first().context("a disk has no snapshots")?;
    Ok(first.entry.id.to_string())
}
