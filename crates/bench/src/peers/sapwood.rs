//! Sapwood itself, called as a user calls it: the program, with `--json`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context as _, Result};
use serde_json::Value;

use super::tool::{command, Description, Role, Tool, Verified, Version};
use crate::files::Space;
use crate::run::{first_line, run, Cost, Finished};

/// A vault and how to call the program on it.
pub struct Vault {
    program: PathBuf,
    path: PathBuf,
    policy: String,
    codec: Option<String>,
}

/// What `backup` and `restore` cost and said.
pub struct DiskRun {
    /// What it cost.
    pub cost: Cost,
    /// The JSON object it printed.
    pub said: Value,
}

impl Vault {
    /// A vault at `path`, not made yet; `codec` as `backup --codec` takes it.
    pub fn new(program: &Path, path: PathBuf, policy: &str, codec: Option<String>) -> Self {
        Self { program: program.to_owned(), path, policy: policy.to_owned(), codec }
    }

    /// Makes the vault.
    pub fn init(&self) -> Result<()> {
        let mut init = self.command();
        init.args(["init", "--policy", &self.policy]);
        let parent = self.path.parent().context("the vault has no parent")?;
        run(&mut init, parent)?;
        Ok(())
    }

    /// Stores the image `source` as the newest snapshot of `disk`.
    pub fn backup(&self, disk: &str, source: &Path) -> Result<DiskRun> {
        let mut backup = self.command();
        backup.arg("backup").arg(disk).arg(source);
        if let Some(codec) = &self.codec {
            backup.args(["--codec", codec]);
        }
        Self::disk_run(run(&mut backup, &self.path)?)
    }

    /// Restores `snapshot` (`vm/disk@id`) to `target`, which must not exist.
    pub fn restore(&self, snapshot: &str, target: &Path) -> Result<DiskRun> {
        let mut restore = self.command();
        restore.arg("restore").arg(snapshot).arg(target).args(["--format", "raw"]);
        let directory = target.parent().context("the target has no parent")?;
        Self::disk_run(run(&mut restore, directory)?)
    }

    /// Reads back all stored data; fails if any is damaged.
    pub fn verify(&self) -> Result<Verified> {
        let mut verify = self.command();
        verify.args(["verify", "--data"]);
        let done = Self::disk_run(run(&mut verify, &self.path)?)?;
        if !done.said["damaged"].as_array().is_some_and(Vec::is_empty) {
            bail!("verify --data found damage: {}", done.said["damaged"]);
        }
        Ok(Verified { data_bytes: number(&done.said, "data_bytes")?, cost: done.cost })
    }

    /// Takes dead chunks out, and packs everything again at a high level.
    pub fn pack(&self) -> Result<Cost> {
        let mut compact = self.command();
        compact.args(["compact", "--threshold", "1", "--recompress", "9"]);
        Ok(run(&mut compact, &self.path)?.cost)
    }

    /// The space of the vault.
    pub fn stored(&self) -> Result<Space> {
        Ok(Space::of(&self.path)?)
    }

    fn command(&self) -> Command {
        let home = self.path.parent().unwrap_or(&self.path);
        let mut command = command(&self.program, home);
        command.arg("--store").arg(&self.path).arg("--json");
        command
    }

    fn disk_run(finished: Finished) -> Result<DiskRun> {
        Ok(DiskRun { said: finished.json()?, cost: finished.cost })
    }
}

/// The id of the snapshot that a backup says it made.
pub fn snapshot(backup: &DiskRun) -> Result<String> {
    match &backup.said["snapshot"] {
        Value::String(id) => Ok(id.clone()),
        Value::Number(id) => Ok(id.to_string()),
        _ => bail!("backup named no snapshot: {}", backup.said),
    }
}

/// The number called `name` in what the program printed.
fn number(said: &Value, name: &str) -> Result<u64> {
    said[name].as_u64().with_context(|| format!("no number {name} in {said}"))
}

/// Sapwood among the tools.
pub struct Sapwood {
    name: String,
    vault: Vault,
    snapshots: HashMap<String, String>,
}

impl Sapwood {
    /// The tool called `name`, storing into `vault`.
    pub fn new(name: &str, vault: Vault) -> Self {
        Self { name: name.to_owned(), vault, snapshots: HashMap::new() }
    }
}

impl Tool for Sapwood {
    fn describe(&self) -> Result<Description> {
        let codec = self.vault.codec.as_ref();
        let option = codec.map_or_else(String::new, |codec| format!(" --codec {codec}"));
        Ok(Description {
            name: self.name.clone(),
            role: Role::Subject,
            version: first_line(Command::new(&self.vault.program).arg("--version"))?,
            backup: format!("sapwood backup DISK FILE{option}"),
            restore: "sapwood restore DISK@SNAPSHOT TARGET".into(),
            note: format!("policy {}", self.vault.policy),
        })
    }

    fn create(&mut self) -> Result<()> {
        self.vault.init()
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let done = self.vault.backup(version.disk, version.path)?;
        self.snapshots.insert(version.label(), snapshot(&done)?);
        Ok(done.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let id = &self.snapshots[&version.label()];
        let target = dir.join("restored.raw");
        let name = format!("{}@{id}", version.disk);
        let cost = self.vault.restore(&name, &target)?.cost;
        Ok((target, cost))
    }

    fn repository(&self) -> &Path {
        &self.vault.path
    }

    fn pack(&mut self) -> Result<Option<Cost>> {
        Ok(Some(self.vault.pack()?))
    }

    fn verify(&mut self) -> Result<Option<Verified>> {
        Ok(Some(self.vault.verify()?))
    }
}
