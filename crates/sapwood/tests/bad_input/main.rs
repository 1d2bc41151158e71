//! Whatever is wrong with what the binary is given: one clear line on standard error, the right exit code, and nothing
//! lost or left over.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod arguments;
mod first_backups;
mod formats;
mod full;
mod output;
mod sources;
mod stops;
mod streams;
mod swapped;
mod targets;
mod vaults;

use common::{random, Bench};

/// A vault with a snapshot that whatever goes wrong must leave as it is.
struct Kept {
    bench: Bench,
    content: Vec<u8>,
    snapshot: String,
    objects: usize,
}

impl Kept {
    fn new() -> Self {
        Self::with(Bench::new("balanced"))
    }

    fn with(bench: Bench) -> Self {
        let content = random(1_500_001, 1);
        let source = bench.file("kept", &content);
        let snapshot = bench.backup("vm/kept", &source);
        let objects = bench.objects();
        Kept { bench, content, snapshot, objects }
    }

    /// Nothing was added, nothing was lost, nothing is damaged.
    fn check(&self) {
        assert_eq!(self.bench.objects(), self.objects, "{:?}", common::files_below(&self.bench.store));
        self.check_content();
    }

    fn check_content(&self) {
        self.bench.verify();
        assert!(self.bench.restored(&format!("vm/kept@{}", self.snapshot)) == self.content);
        assert_eq!(self.bench.snapshots("vm/kept"), std::slice::from_ref(&self.snapshot));
    }
}
