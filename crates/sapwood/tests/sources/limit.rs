//! `--limit`: never faster than allowed, and holes are free.

use crate::common::{random, Bench, USAGE};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const DATA_BYTES: usize = 40_000_000 / 4096 * 4096;
/// Data, and a hole that would take longer than any run of the binary may (`common::Child`), if it were counted.
const DISK_BYTES: u64 = 32 << 30;
const BYTES_PER_SECOND: f64 = 20e6;
/// The limit holds from the time when the work began, but for what could be saved up: a tenth of a second.
const SECONDS_LEAST: f64 = DATA_BYTES as f64 / BYTES_PER_SECOND - 0.1;

/// A disk with a long hole behind its data.
fn disk(bench: &Bench, data: &[u8]) -> String {
    let disk = bench.file("disk", data);
    File::options().write(true).open(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    disk
}

/// Runs a command, which must take as long as the limit says.
fn takes_its_time(bench: &Bench, args: &[&str]) {
    let start = Instant::now();
    bench.done(args);
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds >= SECONDS_LEAST, "{args:?}: {seconds} s for {DATA_BYTES} bytes");
}

#[test]
fn a_limit_holds() {
    let bench = Bench::new("balanced");
    let disk = disk(&bench, &random(DATA_BYTES, 1));
    takes_its_time(&bench, &["-q", "backup", "vm/d", &disk, "--limit", "20M"]);
    for wrong in ["0", "fast", "1k"] {
        let refused = bench.run(&["backup", "vm/d", &disk, "--limit", wrong]);
        assert_eq!(refused.code(), Some(USAGE), "{refused}");
    }
}

#[test]
fn a_limit_holds_for_what_arrives() {
    let bench = Bench::new("balanced");
    let data = random(DATA_BYTES, 2);
    bench.backup("vm/d", &disk(&bench, &data));
    let target = bench.arg("target");
    takes_its_time(&bench, &["-q", "restore", "vm/d", &target, "--live", "--limit", "20M"]);
    let file = File::open(&target).unwrap();
    let mut arrived = vec![1; DATA_BYTES + (1 << 20)];
    file.read_exact_at(&mut arrived, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), DISK_BYTES);
    assert!(arrived[..DATA_BYTES] == data && arrived[DATA_BYTES..].iter().all(|b| *b == 0));
    let wrong = bench.run(&["restore", "vm/d", &target, "--force", "--limit", "20M"]);
    assert_eq!(wrong.code(), Some(USAGE), "{wrong}");
}
