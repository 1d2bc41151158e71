//! A machine that was backed up: its disks and its definition.

use super::report::DiskReport;
use crate::args::Backup;
use crate::live::Definition;
use crate::tags::{DISKS_TAG, INSTANT_TAG};
use anyhow::{Context as _, Result};
use serde_json::{json, Value};
use std::time::Instant;
use vault::{BackupOptions, Progress, SnapId, Vault};

/// What came of its backup.
pub struct Machine {
    pub disks: Vec<DiskReport>,
    /// Where all disks were meant.
    pub definition: Option<DiskReport>,
}

impl Machine {
    /// As the object that `--json` prints of a machine.
    pub fn json(&self, machine: &str) -> Value {
        let disks: Vec<Value> = self.disks.iter().map(DiskReport::json).collect();
        json!({ "machine": machine, "disks": disks, "definition": self.definition.as_ref().map(DiskReport::json) })
    }

    /// A line for each disk; `quiet`, only what is not as it should be.
    pub fn print(&self, quiet: bool) {
        self.disks.iter().chain(&self.definition).for_each(|d| d.print(quiet));
    }
}

/// What tells the snapshots of one backup of a machine from those of others, even of the same second: its first snapshot.
pub(super) fn instant_tag(first: SnapId) -> (String, String) {
    (INSTANT_TAG.to_owned(), first.to_string())
}

/// Keeps a machine's definition, and which disks it had: a restore must not lack one.
pub(super) fn define(
    a: &Backup,
    vault: &Vault,
    definition: Definition,
    disks: &[&str],
    options: &BackupOptions,
    progress: &Progress,
) -> Result<DiskReport> {
    let start = Instant::now();
    let mut options = options.clone();
    options.tags.push((DISKS_TAG.to_owned(), disks.join(",")));
    let disk = format!("{}/{}", a.disk, Definition::DISK);
    let report = vault
        .backup(&disk, Box::new(definition.source()), &options, progress)
        .with_context(|| format!("{disk}, after all disks of the machine were backed up"))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(DiskReport { disk, report, source_format: "text", consistency: None, seconds })
}
