//! What is measured of a fleet.

use serde::Serialize;

use super::restores::Compared;
use crate::peers;
use crate::run::Cost;

/// The tools that are compared, Sapwood first.
pub const TOOLS: [&str; 4] = ["sapwood", peers::CONVENTIONAL, "restic", "borg"];

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    FirstOfTemplate,
    FurtherClone,
    FirstUpgrade,
    SecondUpgrade,
    Restore,
}

use What::*;

/// All of them.
pub const ALL: [What; 5] = [FirstOfTemplate, FurtherClone, FirstUpgrade, SecondUpgrade, Restore];

/// One backup or restore.
#[derive(Debug, Serialize)]
pub struct Step {
    pub run: usize,
    pub tool: String,
    pub what: What,
    pub disk: String,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// What a tool stores after so many backups.
#[derive(Debug, Serialize)]
pub struct Stored {
    pub run: usize,
    pub tool: String,
    pub backups: usize,
    pub bytes: u64,
}

/// What was measured.
#[derive(Default, Serialize)]
pub struct Results {
    /// Backups after which each round ends: clones, then upgrades.
    pub rounds: Vec<usize>,
    pub steps: Vec<Step>,
    pub stored: Vec<Stored>,
    pub compared: Vec<Compared>,
}
