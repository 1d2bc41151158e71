//! The experiments of the VM-centric paper (2014, section 5), on a cluster of disks made of real images.
//!
//! Disks and days are those of [`crate::workload::Cluster`]; the first day of a disk is read whole, of later ones only
//! the segments that changed, as the paper's dirty bits have it. The popular set is built as it stands after a month of
//! work: the first day of every disk is stored, the set is built, and these snapshots are deleted.

pub mod f2;
pub mod f9;
mod machine;
mod marks;
mod month;
mod sharing;
mod stream;
pub mod t1;
pub mod t2;
pub mod t3;
pub mod t4;
pub mod t5;
pub mod t6;
pub mod t7;

use std::path::Path;

use anyhow::{ensure, Result};
use vault::{BackupReport, Since, POPULAR_FRACTION};

use crate::context::Context;
use crate::images::GeneratedShape;
use crate::run::check_interrupted;
use crate::vaults::in_process::LocalVault;
use crate::workload::{Cluster, ClusterShape, Day};

/// Machines have so many disks each (section 5).
const DISKS_OF_MACHINE: usize = 25;
/// Data of a disk in the paper.
const PAPER_DISK_BYTES: f64 = 40e9;

/// What the experiments on a cluster may be told.
#[derive(clap::Args, Clone, Debug)]
pub struct VmcOptions {
    /// MiB of data on a new disk [default: that of the experiment]
    #[arg(long, value_name = "MIB")]
    data: Option<u64>,
}

/// How large a workload is by default.
#[derive(Clone, Copy)]
struct Usual {
    disks: usize,
    days: usize,
    data_mib: u64,
}

impl Usual {
    /// Enough of them for popularity to show.
    const CLUSTER: Usual = Usual { disks: 100, days: 10, data_mib: 128 };
    /// With `--tiny`.
    const TINY: Usual = Usual { disks: 6, days: 3, data_mib: 8 };
}

/// The disks; `--disks`, `--versions` and `--data` say how many, for how long, and of what size.
fn cluster(context: &Context, options: &VmcOptions, usual: Usual) -> Result<Cluster> {
    let tiny = GeneratedShape { suites: 3, disks: 1, versions: 3, size_bytes: 24 << 20 };
    let images = context.whole_images("full", tiny)?;
    let usual = if context.options.tiny { Usual::TINY } else { usual };
    let shape = ClusterShape {
        disks: context.options.disks.unwrap_or(usual.disks).max(1),
        days: context.options.versions.unwrap_or(usual.days).max(1),
        data_bytes: options.data.unwrap_or(usual.data_mib) << 20,
        seed: context.options.seed,
    };
    let cluster = Cluster::new(&images.disks, context.space(), shape)?;
    eprintln!(
        "{} disks of {} MiB, {} days, {} packages, seed {}",
        shape.disks,
        shape.data_bytes >> 20,
        shape.days,
        cluster.packages(),
        shape.seed
    );
    Ok(cluster)
}

/// Backs the first `days` days of a disk up. Returns what each backup did.
fn back_up_disk(
    vault: &LocalVault,
    cluster: &Cluster,
    disk: usize,
    days: usize,
) -> Result<Vec<BackupReport>> {
    let mut reports: Vec<BackupReport> = Vec::new();
    for Day { version, changes } in cluster.days(disk).take(days) {
        check_interrupted()?;
        let newest = reports.last().map(|r| r.snapshot.id.to_string());
        let since = newest.map(|snapshot| Since { snapshot, changes });
        reports.push(vault.backup_since(&version, since)?);
    }
    Ok(reports)
}

/// The popular set of a vault.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Set {
    chunks: u64,
    /// Before compression.
    bytes: u64,
    stored_bytes: u64,
    /// Disks that the least popular chunk of it is on.
    least_disks: u32,
}

/// Builds the set of the disks' first days, and leaves nothing else in the vault.
fn build_set(context: &Context, vault: &LocalVault, cluster: &Cluster) -> Result<Set> {
    let disks = cluster.shape().disks;
    for disk in 0..disks {
        context.require_free(cluster.shape().data_bytes)?;
        back_up_disk(vault, cluster, disk, 1)?;
    }
    let report = vault.vault().popular_build(POPULAR_FRACTION, context.space())?;
    ensure!(report.damaged.is_empty(), "damaged: {:?}", report.damaged);
    for disk in 0..disks {
        check_interrupted()?;
        let deleted = vault.vault().delete(&Cluster::name(disk), &["latest"])?;
        ensure!(deleted.held_up.is_none() && deleted.waiting == 0, "not deleted: {deleted:?}");
    }
    let set = Set {
        chunks: report.chunks,
        bytes: report.bytes,
        stored_bytes: report.stored_bytes,
        least_disks: report.least_disks,
    };
    eprintln!(
        "popular set: {} chunks, {:.1} MB, each on {} disks or more",
        set.chunks,
        set.bytes as f64 / 1e6,
        set.least_disks
    );
    Ok(set)
}

/// Copies a directory of plain files.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
