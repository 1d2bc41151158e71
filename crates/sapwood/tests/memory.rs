//! Memory is bounded whatever the size of the disk, and a sparse disk costs what is in it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random, Bench, Ended, Scattered, DONE};
use rustix::fs::{seek, SeekFrom};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::Duration;

const DISK_BYTES: u64 = 64 << 30;
const PIECES: u64 = 96;
const PIECE_BYTES: usize = 1 << 20;
/// What any command may take.
const MEMORY_BYTES: u64 = 256 << 20;

/// Runs a command; returns the processor time that it took.
fn measured(bench: &Bench, args: &[&str]) -> Duration {
    let ended: Ended = bench.run(args);
    let took = ended.cpu;
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    println!("{}: {} MiB, {took:.1?}", ended.what, ended.peak_bytes >> 20);
    assert!(ended.peak_bytes < MEMORY_BYTES, "{}: {} bytes of memory", ended.what, ended.peak_bytes);
    took
}

#[test]
fn a_large_sparse_disk() {
    for policy in ["balanced", "conventional"] {
        let bench = Bench::new(policy);
        let (sparse, dense) = (bench.arg("sparse"), bench.arg("dense"));
        let content = Scattered::create(sparse.as_ref(), DISK_BYTES, PIECES, PIECE_BYTES, 1);
        Scattered::create(dense.as_ref(), PIECES * (PIECE_BYTES as u64 + 512), PIECES, PIECE_BYTES, 1000);

        let target = bench.arg("target");
        let of_dense = measured(&bench, &["-q", "backup", "vm/dense", &dense])
            + measured(&bench, &["-q", "restore", "vm/dense", &target]);
        std::fs::remove_file(&target).unwrap();
        measured(&bench, &["-q", "restore", "vm/dense", "-"]);
        let of_sparse = measured(&bench, &["-q", "backup", "vm/sparse", &sparse])
            + measured(&bench, &["-q", "restore", "vm/sparse", &target]);
        println!("{policy}: sparse {of_sparse:.1?}, dense {of_dense:.1?}");
        assert!(of_sparse < of_dense * 4, "{of_sparse:?}, dense {of_dense:?}");
        compare(&content, &target);
        std::fs::remove_file(&target).unwrap();

        // The second snapshot has a parent to compare with.
        measured(&bench, &["-q", "backup", "vm/sparse", &sparse]);
        measured(&bench, &["-q", "verify", "--data"]);
        measured(&bench, &["-q", "delete", "vm/sparse@latest~1"]);
        measured(&bench, &["-q", "gc"]);
        measured(&bench, &["-q", "restore", "vm/sparse", &target]);
        compare(&content, &target);
    }
}

/// Each owner of a chunk that is read costs a descriptor: a disk with chunks of many owners could not be restored.
#[test]
fn a_disk_of_many_owners() {
    const OWNERS: usize = 60;
    let bench = Bench::new("conventional");
    let parts: Vec<Vec<u8>> = (0..OWNERS).map(|n| random(128 << 10, n as u64 + 1)).collect();
    for (n, part) in parts.iter().enumerate() {
        bench.done(&["-q", "backup", &format!("vm/owner-{n}"), &bench.file("part", part)]);
    }
    let whole = parts.concat();
    bench.done(&["-q", "backup", "vm/all", &bench.file("whole", &whole)]);
    assert_eq!(bench.json(&["stats", "vm/all"])["disks"][0]["owners"], OWNERS);
    let inner = bench.command(&["-q", "restore", "vm/all", "-"]);
    let mut command = Command::new("prlimit");
    command.args(["--nofile=40:1024"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == whole);
}

/// A restored file has the data that it must have, holes everywhere else.
fn compare(content: &Scattered, path: &str) {
    let file = File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), DISK_BYTES);
    let data = PIECES * PIECE_BYTES as u64;
    assert!(meta.blocks() * 512 < data * 3 / 2, "{} bytes on disk for {data}", meta.blocks() * 512);
    let (mut at, mut seen) = (0, 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(start)).unwrap();
        for from in (start..end).step_by(PIECE_BYTES) {
            let mut got = vec![0; PIECE_BYTES.min((end - from) as usize)];
            file.read_exact_at(&mut got, from).unwrap();
            assert!(got == content.expected(from, got.len()), "differs at {from}");
        }
        seen += content.at.iter().filter(|p| (start..end).contains(p)).count() as u64;
        at = end;
    }
    assert_eq!(seen, PIECES, "pieces are missing");
}
