//! `--limit`: no faster than allowed, and hardly slower.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random, Bench, USAGE};
use std::time::Instant;

const DISK_BYTES: usize = 60_000_000 / 4096 * 4096;

#[test]
fn a_limit_holds() {
    let bench = Bench::new("balanced");
    // Holes are free.
    let mut bytes = random(DISK_BYTES, 1);
    bytes.resize(4 * DISK_BYTES, 0);
    let disk = bench.file("disk", &bytes);
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.set_len(DISK_BYTES as u64).unwrap();
    file.set_len(4 * DISK_BYTES as u64).unwrap();
    let report = bench.json(&["backup", "vm/d", &disk, "--limit", "20M"]);
    let seconds = report["seconds"].as_f64().unwrap();
    let rate = DISK_BYTES as f64 / seconds;
    assert!(rate < 1.05 * 20e6, "{rate} bytes a second");
    // Other work on the machine may hold it up, but not for long.
    assert!(rate > 0.5 * 20e6, "{rate} bytes a second");
    for wrong in ["0", "fast", "1k"] {
        let refused = bench.run(&["backup", "vm/d", &disk, "--limit", wrong]);
        assert_eq!(refused.code(), Some(USAGE), "{refused}");
    }
}

#[test]
fn a_limit_holds_for_what_arrives() {
    let bench = Bench::new("balanced");
    let mut bytes = random(DISK_BYTES, 2);
    bytes.resize(2 * DISK_BYTES, 0);
    bench.backup("vm/d", &bench.file("disk", &bytes));
    let target = bench.arg("target");
    let start = Instant::now();
    bench.done(&["-q", "restore", "vm/d", &target, "--live", "--limit", "20M"]);
    let rate = DISK_BYTES as f64 / start.elapsed().as_secs_f64();
    assert!(rate < 1.05 * 20e6, "{rate} bytes a second");
    assert!(rate > 0.5 * 20e6, "{rate} bytes a second");
    assert!(std::fs::read(&target).unwrap() == bytes);
    let wrong = bench.run(&["restore", "vm/d", &target, "--force", "--limit", "20M"]);
    assert_eq!(wrong.code(), Some(USAGE), "{wrong}");
}
