//! What an operator does every day.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod copy;
mod guide;
mod jobs;
mod repair;
mod retain;
mod snapshots;
