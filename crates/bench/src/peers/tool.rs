//! A tool that stores versions of disks, as the experiments use it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde::Serialize;

use crate::files::Space;
use crate::run::Cost;

/// What a tool is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// What the project makes.
    Subject,
    /// A deduplicating backup tool that people use.
    Peer,
    /// A copy or a compressor without deduplication: it knows one version only.
    Yardstick,
}

/// Who a tool is and how it was called.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name in tables, with the setting that differs.
    pub name: String,
    /// What it is in the comparison.
    pub role: Role,
    /// What it says its version is.
    pub version: String,
    /// How it makes a backup.
    pub backup: String,
    /// How it restores.
    pub restore: String,
    /// What must be known to judge its figures.
    pub note: String,
}

/// One version of one disk.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The disk's name, `vm/disk`.
    pub disk: &'a str,
    /// Number of the version, from 0.
    pub number: usize,
    /// The raw image, an absolute path.
    pub path: &'a Path,
}

impl Version<'_> {
    /// A name that is a valid file name.
    pub fn label(&self) -> String {
        format!("{}-v{:02}", self.disk.replace('/', "-"), self.number)
    }
}

/// What reading back everything stored gave.
#[derive(Clone, Copy, Debug)]
pub struct Verified {
    /// Bytes of disk data checked.
    pub data_bytes: u64,
    /// What it cost.
    pub cost: Cost,
}

/// A tool with one repository.
pub trait Tool {
    /// Who it is.
    fn describe(&self) -> Result<Description>;

    /// Makes the repository.
    fn create(&mut self) -> Result<()>;

    /// Stores a version.
    fn backup(&mut self, version: Version<'_>) -> Result<Cost>;

    /// Restores a version into the empty directory `dir`; returns where it is.
    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)>;

    /// Where the repository is.
    fn repository(&self) -> &Path;

    /// Reads back and checks everything stored, for tools measured in that.
    fn verify(&mut self) -> Result<Option<Verified>> {
        Ok(None)
    }

    /// Packs everything stored again, as well as the tool can when there is time, for those that can.
    fn pack(&mut self) -> Result<Option<Cost>> {
        Ok(None)
    }

    /// The space of the repository.
    fn stored(&self) -> Result<Space> {
        Ok(Space::of(self.repository())?)
    }
}

/// A command that keeps its caches and settings under `home`, never the user's.
pub(super) fn command(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", home).env("LC_ALL", "C.UTF-8");
    for variable in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env_remove(variable);
    }
    command
}
