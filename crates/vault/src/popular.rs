//! The popular set: the chunks that most disks have, the only ones that they share (VM-centric 3.1).
//!
//! `popular build` counts in how many disks each chunk occurs ([`census`]), copies the most frequent ones to containers of
//! their own ([`build`]), and publishes an index of them ([`index`]). Backups look there for what is new to their disk.
//! A new set is appended: chunks of an old one stay as long as a snapshot references them, and `gc` removes the others.
//!
//! The containers stand in the folder of the shared set, whose claims, sweeps and verification are theirs as well, and
//! carry `popular` in their names: a store may keep more replicas of them (VM-centric 3.1, r_c).

mod build;
mod census;
mod index;
mod spill;

pub(crate) use build::GROUP_BYTES as POPULAR_GROUP_BYTES;
pub(crate) use census::Census;
pub(crate) use index::{newest_set, published, published_chunks, PopularIndex};

use crate::error::{Result, VaultError};
use crate::vault::Vault;
use std::path::Path;

/// Share of the unique chunks that the paper puts into the set.
pub const POPULAR_FRACTION: f64 = 0.02;

/// Chunks that occur in the same number of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PopularClass {
    /// Disks that each of them occurs in.
    pub disks: u32,
    /// How many chunks.
    pub chunks: u64,
    /// Their bytes, each chunk once.
    pub bytes: u64,
}

/// How popular the chunks of a vault are.
#[derive(Clone, Debug, Default)]
pub struct PopularStatus {
    /// Disks that were counted.
    pub disks: u64,
    /// By the number of disks, most popular first.
    pub classes: Vec<PopularClass>,
    /// Chunks in the set that is there.
    pub set_chunks: u64,
    /// What could not be counted because of damage.
    pub damaged: Vec<String>,
}

impl PopularStatus {
    /// Unique chunks.
    pub fn chunks(&self) -> u64 {
        self.classes.iter().map(|c| c.chunks).sum()
    }

    /// Bytes of duplicates between disks: those that a perfect scheme would not store.
    pub fn duplicate_bytes(&self) -> u64 {
        self.classes.iter().map(|c| c.bytes * u64::from(c.disks - 1)).sum()
    }

    /// What of [`Self::duplicate_bytes`] falls on the most popular `fraction` of the unique chunks, and their bytes.
    /// Within a class all chunks count alike.
    pub fn of_top(&self, fraction: f64) -> (u64, u64) {
        let mut left = (self.chunks() as f64 * fraction).ceil() as u64;
        let (mut duplicates, mut bytes) = (0.0, 0.0);
        for c in self.classes.iter().filter(|c| c.disks > 1) {
            let taken = c.chunks.min(left);
            left -= taken;
            let part = taken as f64 / c.chunks as f64 * c.bytes as f64;
            duplicates += part * f64::from(c.disks - 1);
            bytes += part;
        }
        (duplicates as u64, bytes as u64)
    }
}

/// What building a set did.
#[derive(Clone, Debug, Default)]
pub struct PopularReport {
    /// Chunks in the set.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, chunks that an older set had already.
    pub kept_chunks: u64,
    /// Disks that the least popular of them occurs in.
    pub least_disks: u32,
    /// Bytes that the new containers take.
    pub stored_bytes: u64,
    /// What is damaged and was left out.
    pub damaged: Vec<String>,
}

impl Vault {
    /// Counts in how many disks each chunk occurs. `scratch` is a directory for what does not fit into memory: about 40
    /// bytes for each chunk of each disk.
    pub fn popular_status(&self, scratch: &Path) -> Result<PopularStatus> {
        let census = Census::take(self, scratch)?;
        let classes = census.classes()?;
        let set = published(&self.shared())?;
        let set_chunks = set.map_or(0, |s| s.len() as u64);
        Ok(PopularStatus { disks: census.disks.len() as u64, classes, set_chunks, damaged: census.damaged })
    }

    /// Builds a set of the most popular `fraction` of the unique chunks, of those that at least two disks have. Takes about
    /// 100 bytes of memory for each of them.
    pub fn popular_build(&self, fraction: f64, scratch: &Path) -> Result<PopularReport> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(VaultError::Usage(format!("a fraction of {fraction}: give a part of the chunks")));
        }
        build::build(self, fraction, scratch)
    }
}
