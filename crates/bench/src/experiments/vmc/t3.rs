//! `vmc-t3` (table 3): where the time of a dirty segment goes.
//!
//! The paper counts reading and writing with the metadata, the network, and looking fingerprints up. There is no network
//! here; cutting, fingerprinting and compressing, which the paper does not tell apart, stand by themselves. Times are
//! those that a stage works, all its threads together: the stages work at once, so a backup takes less.

use anyhow::{ensure, Result};
use serde::Serialize;
use vault::{Scan, StageSeconds, VM_CENTRIC};

use super::{back_up_disk, build_set, cluster, Usual, VmcOptions, DISKS_OF_MACHINE};
use crate::context::Context;
use crate::results::report::{bars_table, Bar, Table};
use crate::vaults::in_process::LocalVault;
use crate::workload::ClusterShape;

/// The disks of one machine.
const USUAL: Usual = Usual { disks: DISKS_OF_MACHINE, days: 10, data_mib: 128 };

/// Milliseconds for each dirty segment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Breakdown {
    read: f64,
    cut_and_fingerprint: f64,
    look_up: f64,
    place: f64,
    compress: f64,
    write: f64,
    make_durable: f64,
}

impl Breakdown {
    fn of(stages: &StageSeconds, segments: f64) -> Self {
        let each = |seconds: f64| seconds * 1e3 / segments;
        Breakdown {
            read: each(stages.read),
            cut_and_fingerprint: each(stages.analyse),
            look_up: each(stages.look_up),
            place: each(stages.place),
            compress: each(stages.pack),
            write: each(stages.write),
            make_durable: each(stages.sync),
        }
    }

    fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("read the source", self.read),
            ("cut and fingerprint", self.cut_and_fingerprint),
            ("look up", self.look_up),
            ("place, with the recipe", self.place),
            ("compress", self.compress),
            ("write", self.write),
            ("make durable and commit", self.make_durable),
        ]
    }

    fn total(&self) -> f64 {
        self.parts().iter().map(|(_, ms)| ms).sum()
    }
}

/// Runs the experiment once: the backups of a month are many runs.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, USUAL)?;
    let shape = cluster.shape();
    let vault = LocalVault::create(&context.space().join("vault"), VM_CENTRIC, None)?;
    build_set(context, &vault, &cluster)?;
    let (mut all, mut segments) = (StageSeconds::default(), 0.0);
    for disk in 0..shape.disks {
        context.require_free(2 * shape.data_bytes)?;
        for report in back_up_disk(&vault, &cluster, disk, shape.days)?.iter().skip(1) {
            let Scan::Changed { bytes } = report.scan else { continue };
            segments += bytes as f64 / f64::from(VM_CENTRIC.segment_bytes);
            let s = report.stages;
            all = StageSeconds {
                read: all.read + s.read,
                analyse: all.analyse + s.analyse,
                look_up: all.look_up + s.look_up,
                place: all.place + s.place,
                pack: all.pack + s.pack,
                write: all.write + s.write,
                sync: all.sync + s.sync,
            };
        }
    }
    ensure!(segments > 0.0, "no segment was dirty: give more days (--versions)");
    let breakdown = Breakdown::of(&all, segments);
    vault.remove()?;
    save(context, shape, segments, breakdown)
}

fn save(context: &Context, workload: ClusterShape, segments: f64, breakdown: Breakdown) -> Result<()> {
    let total = breakdown.total();
    let mut table = Table::new(["stage", "ms a segment of 2 MiB", "part"]);
    for (name, ms) in breakdown.parts() {
        table.row([name.to_owned(), format!("{ms:.2}"), format!("{:.1} %", 100.0 * ms / total)]);
    }
    table.row(["all".to_owned(), format!("{total:.2}"), String::new()]);
    let bars = [Bar::at_most(
        "looking up, of all (published: 0.065, binning 0.18)",
        Some(breakdown.look_up / total),
        0.05,
    )];
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        segments: f64,
        ms_of_segment: Breakdown,
    }
    let results = Results { bars: &bars, segments, ms_of_segment: breakdown };
    context.save(1, Parameters { workload }, results, &text)?;
    context.print(&text);
    Ok(())
}
