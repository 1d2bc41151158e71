//! A step that is measured, and its figures.

use serde::Serialize;

use crate::files::Space;
use crate::peers::{Description, Mode};
use crate::run::Cost;

/// What an experiment reports.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The first version.
    pub first: bool,
    /// Later versions.
    pub later: bool,
    /// Restores.
    pub restore: bool,
}

impl Measured {
    /// `peers-backup`
    pub const FIRST: Self = Self::new(true, false, false);
    /// `peers-incremental`
    pub const LATER: Self = Self::new(true, true, false);
    /// `peers-restore`; the versions between are stored too, for they are what
    /// makes restoring the newest hard.
    pub const RESTORE: Self = Self::new(false, false, true);
    /// `peers`
    pub const ALL: Self = Self::new(true, true, true);

    const fn new(first: bool, later: bool, restore: bool) -> Self {
        Self { first, later, restore }
    }

    pub fn stores_all_versions(self) -> bool {
        self.later || self.restore
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Stored a version.
    Backup,
    /// Restored a version.
    Restore,
    /// Read back and checked everything stored.
    Verify,
    /// Packed everything stored again, as well as it can.
    Pack,
}

/// One measured step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Number of the run, from 0.
    pub run: usize,
    /// Name of the tool.
    pub tool: String,
    /// What it did.
    pub action: Action,
    /// The disk; empty when it was all of them.
    pub disk: String,
    /// Number of the version, from 0.
    pub version: usize,
    /// Length of the disk.
    pub size_bytes: u64,
    /// Bytes of disk data handled, where they were counted: blocks that are not zero.
    pub data_bytes: Option<u64>,
    /// What it cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// The repository after a backup, or after it was packed again.
    pub stored: Option<Space>,
}

/// All that was measured.
pub struct Measurement {
    /// The comparisons.
    pub modes: Vec<Mode>,
    /// The tools that took part.
    pub tools: Vec<Description>,
    /// Names of those that are not installed.
    pub missing: Vec<String>,
    /// Every step of every run.
    pub steps: Vec<Step>,
    /// Number of the newest version.
    pub newest: usize,
}
