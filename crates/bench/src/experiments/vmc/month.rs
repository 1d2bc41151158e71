//! A vault through all days of a cluster: what it keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use anyhow::{ensure, Result};
use serde::Serialize;
use vault::ContainerId;

use super::back_up_disk;
use crate::context::Context;
use crate::vaults::in_process::{LocalVault, Stored};
use crate::workload::Cluster;

/// A vault after all days.
#[derive(Clone, Debug, Serialize)]
pub struct Month {
    /// Bytes that are not null, in all snapshots.
    pub logical_bytes: u64,
    /// The same of segments that are not as in the snapshot before.
    pub changed_bytes: u64,
    /// Bytes that the backups wrote, before compression.
    pub written_bytes: u64,
    /// Bytes of chunks of the disks' own that snapshots reference at the end, before compression.
    pub live_bytes: u64,
    /// What the vault takes, the popular set with it.
    pub stored: Stored,
    /// Of all backups.
    pub seconds: f64,
}

/// Stores all days of all disks, one disk after the other.
pub fn live_through(context: &Context, vault: &LocalVault, cluster: &Cluster) -> Result<Month> {
    let shape = cluster.shape();
    let start = Instant::now();
    let (mut logical_bytes, mut changed_bytes, mut written_bytes, mut live_bytes) = (0, 0, 0, 0);
    for disk in 0..shape.disks {
        context.require_free(2 * shape.data_bytes)?;
        for report in back_up_disk(vault, cluster, disk, shape.days)? {
            logical_bytes += report.snapshot.data_bytes;
            changed_bytes += report.snapshot.changed_bytes;
            written_bytes += report.snapshot.new_bytes + report.rewritten_bytes;
        }
        if (disk + 1) % 25 == 0 {
            eprintln!("{} disks, {:.0} s", disk + 1, start.elapsed().as_secs_f64());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    for disk in 0..shape.disks {
        live_bytes += own_bytes(vault, &Cluster::name(disk))?;
    }
    Ok(Month { logical_bytes, changed_bytes, written_bytes, live_bytes, stored: vault.stored()?, seconds })
}

/// Bytes of the chunks of a disk's own that its snapshots reference, each chunk once, before compression.
fn own_bytes(vault: &LocalVault, disk: &str) -> Result<u64> {
    let disk = vault.vault().disk_chunks(disk)?;
    let mut referenced: BTreeMap<ContainerId, BTreeSet<u32>> = BTreeMap::new();
    for snapshot in disk.snapshots() {
        disk.each_run(snapshot, &mut |container, chunks: Range<u32>| {
            if container.is_own() {
                referenced.entry(container).or_default().extend(chunks);
            }
        })?;
    }
    let mut bytes = 0;
    for (container, chunks) in referenced {
        let chunks: Vec<u32> = chunks.into_iter().collect();
        for run in chunks.chunk_by(|a, b| a + 1 == *b) {
            bytes += disk.bytes(container, run[0]..run[run.len() - 1] + 1)?;
        }
    }
    ensure!(bytes > 0, "a disk has nothing of its own");
    Ok(bytes)
}
