//! `mzip` and `mtar`.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod manners;
mod mtar;
mod mzip;

use common::Bench;

/// The names in the directory of the test that begin like this.
fn names(bench: &Bench, prefix: &str) -> Vec<String> {
    let all = std::fs::read_dir(bench.dir.path()).unwrap();
    let mut names: Vec<String> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n.starts_with(prefix));
    names.sort();
    names
}
