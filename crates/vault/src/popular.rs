//! The popular set: copies of the most common chunks. Under `vm-centric` they are the only chunks that disks share
//! (VM-centric 3.1).
//!
//! `popular build` counts in how many disks each chunk occurs ([`census`]), copies the most common ones to popular
//! containers ([`build`]), and publishes an index of them ([`crate::lookup::popular`]). Backups search it for chunks
//! that are new to their disk. A new set does not replace the containers of an old one: their chunks stay as long as a
//! snapshot references them, and `gc` removes the others.
//!
//! The set owns its containers as a disk does, so claims, sweeps and verification apply to them. They are in the folder
//! `popular/`, so a store can keep more replicas of them (VM-centric 3.1, r_c).

pub(crate) mod build;
pub(crate) mod census;
pub(crate) mod damage;
pub(crate) mod report;
pub(crate) mod sorter;
pub(crate) mod spill;

use crate::base::error::{Result, VaultError};
use crate::lookup::popular::published;
use crate::manifest::vault::Vault;
use crate::popular::report::{PopularReport, PopularStatus};
use census::Census;
use std::path::Path;

/// Share of the unique chunks that the paper puts into the set.
pub const POPULAR_FRACTION: f64 = 0.02;

impl Vault {
    /// Counts in how many disks each chunk occurs. `scratch` is a directory for what does not fit into memory: about 40
    /// bytes for each chunk of each disk.
    pub fn popular_status(&self, scratch: &Path) -> Result<PopularStatus> {
        let census = Census::take(self, scratch)?;
        let classes = census.classes()?;
        let set = published(&self.popular())?;
        let set_chunks = set.map_or(0, |s| s.len() as u64);
        let (disks, damaged) = census.into_disks();
        let (disks, damaged) = (disks.len() as u64, damaged.into_lines());
        Ok(PopularStatus { disks, classes, set_chunks, damaged })
    }

    /// Builds a set of the most popular `fraction` of the unique chunks, of those that at least two disks have. `scratch`: see
    /// [`Vault::popular_status`]; it takes about 60 bytes more for each of them.
    pub fn popular_build(&self, fraction: f64, scratch: &Path) -> Result<PopularReport> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(VaultError::Usage(format!("a fraction of {fraction}: give a part of the chunks")));
        }
        build::build(self, fraction, scratch)
    }
}
