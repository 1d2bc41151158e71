//! Snapshots as they are made, read, compared, copied and told of.
#![allow(clippy::unwrap_used)]

#[path = "../between/mod.rs"]
mod between;
mod changed;
#[path = "../common/mod.rs"]
mod common;
mod copy;
mod diff;
mod open_snapshot;
mod reports;
mod retain;
mod roundtrip;
