//! Pools: their commands, disks and files.
#![allow(clippy::unwrap_used)]

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod disks;
mod files;
mod machines;
