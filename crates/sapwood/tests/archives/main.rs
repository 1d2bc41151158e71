//! `mzip` and `mtar`.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod mtar;
mod mzip;
