//! Snapshots that are used without being restored, beside the plain image.

pub mod boot;
pub mod reads;
pub mod server;
