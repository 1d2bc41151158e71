//! A machine that was backed up: its disks and its definition.

use super::report::DiskReport;
use crate::args::Backup;
use crate::live::Definition;
use anyhow::{Context as _, Result};
use serde_json::{json, Value};
use std::time::Instant;
use vault::{BackupOptions, Progress, Vault};

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

/// Keeps a machine's definition.
pub(super) fn define(
    a: &Backup,
    vault: &Vault,
    definition: Definition,
    options: &BackupOptions,
    progress: &Progress,
) -> Result<DiskReport> {
    let start = Instant::now();
    let disk = format!("{}/{}", a.disk, Definition::DISK);
    let report = vault
        .backup(&disk, Box::new(definition.source()), options, progress)
        .with_context(|| format!("{disk}, after all disks of the machine were backed up"))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(DiskReport { disk, report, source_format: "text", consistency: None, seconds })
}
