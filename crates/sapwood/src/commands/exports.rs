//! Snapshots that are used without being restored.

pub mod mount;
pub mod nbd;
