//! Memory is bounded whatever the size of the disk, and a sparse disk costs what is in it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random, Bench, Child, Ended, Scattered, DONE};
use rustix::fs::{seek, SeekFrom};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{ChildStdout, Command};
use std::time::Duration;

const DISK_BYTES: u64 = 64 << 30;
const PIECES: u64 = 96;
const PIECE_BYTES: usize = 1 << 20;
/// What any command may take.
const MEMORY_BYTES: u64 = 256 << 20;

/// Runs a command; returns the processor time that it took.
fn measured(bench: &Bench, args: &[&str]) -> Duration {
    let ended = bench.run(args);
    check_peak(&ended);
    ended.cpu
}

/// A command has done its work, and has not taken too much memory for it.
fn check_peak(ended: &Ended) {
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    println!("{}: {} MiB, {:.1?}", ended.what, ended.peak_bytes >> 20, ended.cpu);
    assert!(ended.peak_bytes < MEMORY_BYTES, "{}: {} bytes of memory", ended.what, ended.peak_bytes);
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

/// A file system with one file, `/big`; `first` is another one that lies before it.
fn with_a_big_file(bench: &Bench, name: &str, first: usize) -> String {
    const MIB: usize = 1 << 20;
    let from = bench.path("from");
    std::fs::create_dir_all(&from).unwrap();
    std::fs::write(from.join("a"), random(first, 1)).unwrap();
    let big = File::create(from.join("big")).unwrap();
    for n in 0..320 {
        big.write_all_at(&random(MIB, n + 1000), n * MIB as u64).unwrap();
    }
    let image = bench.arg(name);
    File::create(&image).and_then(|f| f.set_len(400 << 20)).unwrap();
    let mut make = Command::new("/usr/sbin/mke2fs");
    let made = make.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&from).arg(&image).status();
    assert!(made.unwrap().success());
    image
}

/// The caches of `files`, `diff`, `nbd`, `mount` and live restores had no limit that fits into this one: 256 MiB for each
/// disk, or a quarter of what the machine had.
#[test]
fn what_reads_snapshots_at_random() {
    let bench = Bench::new("balanced");
    for first in [1000, 500_000] {
        // The big file is in other places of the second one: its content is compared.
        let image = with_a_big_file(&bench, "image", first);
        bench.done(&["-q", "backup", "vm/vda", &image]);
    }
    let (files, target, place) = (bench.arg("files"), bench.arg("target"), bench.arg("place"));
    std::fs::create_dir(&place).unwrap();
    measured(&bench, &["-q", "files", "vm/vda", "get", "/big", "--to", &files]);
    // What this process holds would count as the next command's.
    let tar = ["-q", "files", "vm/vda", "tar"];
    let discard = |out: &mut ChildStdout| {
        std::io::copy(out, &mut std::io::sink()).unwrap();
        Vec::new()
    };
    check_peak(&Child::start_with_reader(bench.command(&tar), "tar", discard).wait());
    let diff = bench.run(&["diff", "vm/vda@latest~1", "vm/vda"]);
    check_peak(&diff);
    let said = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert!(said.contains("disk:/a") && !said.contains("M disk:/big"), "{said}");
    let read = "qemu-img convert -f raw -O raw \"$NBD_URI\" converted";
    let dir = bench.dir.path().to_str().unwrap();
    measured(&bench, &["-q", "nbd", "vm/vda", "--", "sh", "-c", &format!("cd {dir} && {read}")]);
    if common::mounted::can_mount() {
        let read = format!("cat {place}/vm/vda/latest.raw > {dir}/mounted");
        measured(&bench, &["-q", "mount", &place, "--", "sh", "-c", &read]);
    }
    measured(&bench, &["-q", "restore", "--live", "vm/vda", &target]);
    let expected = std::fs::read(bench.path("image")).unwrap();
    for whole in ["converted", "mounted", "target"].map(|name| bench.path(name)) {
        assert!(!whole.exists() || std::fs::read(&whole).unwrap() == expected, "{}", whole.display());
    }
    assert!(bench.path("converted").exists() && bench.path("target").exists());
    assert!(
        std::fs::read(bench.path("files/big")).unwrap() == std::fs::read(bench.path("from/big")).unwrap()
    );
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
