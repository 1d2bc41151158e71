//! Who may read and write a vault, and who waits for whom.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod locked;
mod modes;
mod one_host;
