//! One file an experiment.

pub mod exports;
pub mod fleet;
pub mod hash_only;
pub mod index;
pub mod lin;
pub mod mounts;
pub mod peers;
pub mod pools;
pub mod requests;
pub mod revdedup;
pub mod sparse_huge;
pub mod stages;
pub mod unchanged;
pub mod vmc;
