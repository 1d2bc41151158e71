//! The newest version of a clone restored from the vault of the whole fleet, beside a vault that has only this clone.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::clones::{Clone, Maker};
use crate::context::Context;
use crate::files;
use crate::peers::{snapshot, Vault};
use crate::results::report::median;
use crate::vaults::in_process::{LocalVault, Modelled};

/// Restores from each of the two vaults, in turns.
const RESTORES: usize = 3;

/// The two vaults compared for one clone.
#[derive(Debug, Serialize)]
pub struct Compared {
    run: usize,
    disk: String,
    fleet: Side,
    alone: Side,
}

/// Restores from one of the vaults.
#[derive(Debug, Serialize)]
struct Side {
    seconds: Vec<f64>,
    /// On the modelled disk; none where the file system does not tell where its files lie.
    model: Option<Modelled>,
}

impl Compared {
    /// Seconds from the fleet's vault, times those from the clone's own.
    pub fn by_clock(&self) -> Option<f64> {
        let seconds = |side: &Side| median(side.seconds.iter().copied());
        Some(seconds(&self.fleet)? / seconds(&self.alone)?)
    }

    /// The same by the seek model, reads as planned.
    pub fn by_model(&self) -> Option<f64> {
        let seconds = |side: &Side| Some(side.model.as_ref()?.as_planned.seconds);
        Some(seconds(&self.fleet)? / seconds(&self.alone)?)
    }

    /// The clone's name.
    pub fn disk(&self) -> &str {
        &self.disk
    }
}

/// Stores all versions of a clone in a vault of its own, and restores the newest from there and from the fleet's vault.
pub fn compare(
    context: &Context,
    maker: &Maker<'_>,
    clone: &Clone<'_>,
    fleet: &Path,
    run: usize,
) -> Result<Compared> {
    let own = files::fresh_dir(&maker.home.join("alone"))?;
    let program = context.sapwood()?;
    let alone = Vault::new(&program, own.join("repository"), "balanced", None);
    alone.init()?;
    let mut newest = String::new();
    for number in (0..=clone.newest()).filter(|n| *n == 0 || clone.is_upgraded) {
        let (path, _) = maker.make(clone, number)?;
        newest = snapshot(&alone.backup(&clone.disk, &path)?)?;
        std::fs::remove_file(path)?;
    }
    let of_fleet = Vault::new(&program, fleet.to_owned(), "balanced", None);
    let target = own.join("restored.raw");
    let time = |vault: &Vault, dir: &Path, snapshot: &str| -> Result<f64> {
        context.make_cold(dir)?;
        let cost = vault.restore(&format!("{}@{snapshot}", clone.disk), &target)?.cost;
        std::fs::remove_file(&target)?;
        Ok(cost.durable_seconds())
    };
    let (mut in_fleet, mut in_own) = (Vec::new(), Vec::new());
    for _ in 0..RESTORES {
        in_fleet.push(time(&of_fleet, fleet, "latest")?);
        in_own.push(time(&alone, &own.join("repository"), &newest)?);
    }
    let model = |dir: &Path| LocalVault::open(dir)?.modelled(&clone.disk, "latest");
    let compared = Compared {
        run,
        disk: clone.disk.clone(),
        fleet: Side { seconds: in_fleet, model: model(fleet)? },
        alone: Side { seconds: in_own, model: model(&own.join("repository"))? },
    };
    std::fs::remove_dir_all(own)?;
    Ok(compared)
}
