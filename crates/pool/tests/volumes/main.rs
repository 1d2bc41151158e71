//! Volumes of a pool: opened, written by many, shared, and on other disks.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod disks;
mod opening;
mod repair;
mod sharing;
mod threads;
