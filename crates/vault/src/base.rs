//! What every wing uses: errors, policies, progress, threads, and the names of disks and snapshots.

pub(crate) mod calendar;
pub(crate) mod disk_name;
pub(crate) mod error;
pub(crate) mod gate;
pub(crate) mod lru;
pub(crate) mod memory;
pub(crate) mod policy;
pub(crate) mod progress;
pub(crate) mod random;
pub(crate) mod retention;
pub(crate) mod sample;
pub(crate) mod snapshot_spec;
pub(crate) mod stages;
pub(crate) mod threads;
