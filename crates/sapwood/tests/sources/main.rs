//! What is backed up, and how much of it is read.
#![allow(clippy::unwrap_used)]

mod changed;
#[path = "../common/mod.rs"]
mod common;
mod images;
mod limit;
mod nbd;
