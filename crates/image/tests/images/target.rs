//! Targets: what they hold when they are finished, and what is left when they are not.

#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::common::*;
use image::{create_target, ImageError, PipeTarget, SourceOptions, Target, TargetFormat, TargetOptions};
use rand::seq::SliceRandom;
use rand::RngExt;
use tempfile::tempdir;

/// The ranges of `disk` in pieces of `block` bytes that are not zero.
fn data_ranges(disk: &[u8], block: usize) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (n, bytes) in disk.chunks(block).enumerate() {
        let start = (n * block) as u64;
        let end = start + bytes.len() as u64;
        if bytes.iter().all(|b| *b == 0) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// Writes `disk` in pieces, shuffled, from four threads.
fn write_shuffled(target: &dyn Target, disk: &[u8], ranges: &[Range<u64>], seed: u64) {
    let mut rng = rng(seed);
    let mut pieces = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let end = (at + rng.random_range(1..200_000)).min(range.end);
            pieces.push(at as usize..end as usize);
            at = end;
        }
    }
    pieces.shuffle(&mut rng);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pieces = &pieces;
            scope.spawn(move || {
                for piece in pieces.iter().skip(thread).step_by(4) {
                    target.write_at(piece.start as u64, &disk[piece.clone()]).unwrap();
                }
            });
        }
    });
}

fn make(path: &Path, disk: &[u8], ranges: &[Range<u64>], format: TargetFormat) {
    let options = TargetOptions { size: disk.len() as u64, format, data: ranges, ..TargetOptions::default() };
    let target = create_target(path, &options).unwrap();
    assert!(!target.in_order());
    write_shuffled(&*target, disk, ranges, disk.len() as u64);
    assert!(!path.exists());
    target.finish().unwrap();
}

/// The names in `dir`.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn raw_files() {
    for size in [0, 1, 4097, 9_000_001] {
        let dir = tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        let disk = random_disk(&mut rng(size as u64), size);
        make(&path, &disk, &data_ranges(&disk, 4096), TargetFormat::Raw);
        assert_same(&fs::read(&path).unwrap(), &disk, "raw");
        assert_eq!(names(dir.path()), ["disk.raw"]);
    }
}

#[test]
fn raw_files_stay_sparse_and_reserve_their_data() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    let data = [1 << 30..(1 << 30) + (1 << 20), 3 << 30..(3 << 30) + 4096];
    let options = TargetOptions { size: 1 << 40, data: &data, ..TargetOptions::default() };
    let target = create_target(&path, &options).unwrap();
    let partial = fs::metadata(dir.path().join("disk.raw.sapwood-partial")).unwrap();
    assert_eq!(partial.len(), 1 << 40);
    assert!(partial.blocks() * 512 >= (1 << 20) + 4096);
    target.write_at(1 << 30, &[7; 1 << 20]).unwrap();
    target.finish().unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.blocks() * 512 < 2 << 20, "{}", meta.blocks());
}

#[test]
fn qcow2_files() {
    let sizes = [0, 1, 512, 65536, 65537, 9_000_001, 600 << 20];
    for (seed, size) in sizes.into_iter().enumerate() {
        for block in [4096, 65536] {
            let dir = tempdir().unwrap();
            let (path, shown) = text(&dir, "disk.qcow2");
            let disk = if size > 100 << 20 {
                // Over two L2 tables, with little in it.
                let mut disk = vec![0; size];
                let some = random_disk(&mut rng(9), 3 << 20);
                disk[100 << 20..103 << 20].copy_from_slice(&some);
                disk[(511 << 20) + 500_000..(514 << 20) + 500_000].copy_from_slice(&some);
                disk
            } else {
                random_disk(&mut rng(seed as u64), size)
            };
            let ranges = data_ranges(&disk, block);
            make(&path, &disk, &ranges, TargetFormat::Qcow2);
            let report = qemu_img(&format!("check {shown}"));
            assert!(report.contains("No errors were found"), "{report}");
            let mut whole = disk;
            whole.resize(size.next_multiple_of(512), 0);
            assert_same(&qemu_content(&path), &whole, "by QEMU");
            let mut source = open(&path).unwrap();
            assert_same(&read_data(&mut *source, READ_BYTES).unwrap(), &whole, "by us");
        }
    }
}

#[test]
fn a_large_qcow2_disk_counts_its_clusters_right() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    // More than one refcount block's 32768 clusters, reserved and not written.
    let data = [0..1 << 20, 5 << 40..(5 << 40) + (3 << 30), (63 << 40) + 5..(63 << 40) + 6];
    let options = TargetOptions {
        size: 64 << 40,
        format: TargetFormat::Qcow2,
        data: &data,
        ..TargetOptions::default()
    };
    let target = create_target(&path, &options).unwrap();
    target.write_at((63 << 40) + 5, &[9]).unwrap();
    target.finish().unwrap();
    let report = qemu_img(&format!("check {shown}"));
    assert!(report.contains("No errors were found"), "{report}");
    let mut source = open(&path).unwrap();
    let mut buf = [1; 16];
    source.read_at(63 << 40, &mut buf).unwrap();
    assert_eq!(buf, [0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn writes_outside_are_refused() {
    let dir = tempdir().unwrap();
    let data = [0..1000, 200_000..200_001];
    for (name, format) in [("raw", TargetFormat::Raw), ("qcow2", TargetFormat::Qcow2)] {
        let options = TargetOptions { size: 300_000, format, data: &data, ..TargetOptions::default() };
        let target = create_target(&dir.path().join(name), &options).unwrap();
        assert!(target.write_at(299_999, &[1; 2]).is_err());
        assert!(target.write_at(u64::MAX, &[1; 2]).is_err());
        // A qcow2 file has no place for what was not announced.
        assert_eq!(target.write_at(131_070, &[1; 2]).is_err(), format == TargetFormat::Qcow2);
    }
    for data in [&[5..10, 0..5][..], &[0..400_000], &[0..10, 5..20], &[Range { start: 7, end: 3 }]] {
        let options = TargetOptions { size: 300_000, data, ..TargetOptions::default() };
        assert!(create_target(&dir.path().join("new"), &options).is_err());
    }
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn a_target_dropped_unfinished_leaves_nothing() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    fs::write(&path, "old").unwrap();
    let options = TargetOptions { size: 10_000, overwrite: true, ..TargetOptions::default() };
    let target = create_target(&path, &options).unwrap();
    target.write_at(0, &[1; 100]).unwrap();
    assert_eq!(names(dir.path()), ["disk", "disk.sapwood-partial"]);
    drop(target);
    assert_eq!(names(dir.path()), ["disk"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn an_existing_file_is_replaced_only_when_asked_and_only_at_the_end() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = create_target(&path, &TargetOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("exists already"), "{refused}");
    assert_eq!(names(dir.path()), ["disk"]);
    let options = TargetOptions { size: 3, overwrite: true, ..TargetOptions::default() };
    let target = create_target(&path, &options).unwrap();
    target.write_at(0, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    target.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(dir.path()), ["disk"]);
}

#[test]
fn a_file_that_appears_meanwhile_is_kept() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    let target = create_target(&path, &TargetOptions { size: 3, ..TargetOptions::default() }).unwrap();
    fs::write(&path, "theirs").unwrap();
    let error = target.finish().unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["disk"]);
}

#[test]
fn links_are_kept_and_lead_to_the_new_file() {
    let dir = tempdir().unwrap();
    let (real, link, lost) = (dir.path().join("real"), dir.path().join("link"), dir.path().join("lost"));
    fs::write(&real, "old").unwrap();
    symlink("real", &link).unwrap();
    symlink("nowhere", &lost).unwrap();
    let options = TargetOptions { size: 3, overwrite: true, ..TargetOptions::default() };
    let target = create_target(&link, &options).unwrap();
    target.write_at(0, b"new").unwrap();
    target.finish().unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), b"new");
    let error = create_target(&lost, &options).err().unwrap().to_string();
    assert!(error.contains("symbolic link to nothing"), "{error}");
}

#[test]
fn two_writers_of_one_name_do_not_mix_and_a_dead_ones_file_is_no_hindrance() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    fs::write(dir.path().join("disk.sapwood-partial"), "left by a dead writer").unwrap();
    let options = TargetOptions { size: 3, ..TargetOptions::default() };
    let first = create_target(&path, &options).unwrap();
    let error = create_target(&path, &options).err().unwrap().to_string();
    assert!(error.contains("disk.sapwood-partial: is in use by "), "{error}");
    first.write_at(0, b"one").unwrap();
    first.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
}

#[test]
fn a_file_that_comes_to_the_name_meanwhile_is_not_taken_from_who_has_it_open() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    let options = TargetOptions { size: 3, overwrite: true, ..TargetOptions::default() };
    for was_there in [false, true] {
        for allow_in_use in [false, true] {
            let _ = fs::remove_file(&path);
            if was_there {
                fs::write(&path, b"before").unwrap();
            }
            let target = create_target(&path, &TargetOptions { allow_in_use, ..options }).unwrap();
            target.write_at(0, b"new").unwrap();
            let other = dir.path().join("other");
            fs::write(&other, b"another").unwrap();
            fs::rename(&other, &path).unwrap();
            let user = image::open(&path, &SourceOptions::default()).unwrap();
            let finished = target.finish();
            if allow_in_use {
                finished.unwrap()
            } else {
                assert!(matches!(finished, Err(ImageError::InUse { .. })), "{finished:?}")
            }
            drop(user);
            let found = fs::read(&path).unwrap();
            assert_eq!(found, if allow_in_use { &b"new"[..] } else { b"another" });
            assert_eq!(names(dir.path()), ["disk"]);
        }
    }
}

#[test]
fn what_is_no_place_for_a_disk_is_refused() {
    let dir = tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    run("mkfifo", &[&fifo]);
    let options = TargetOptions { size: 3, overwrite: true, ..TargetOptions::default() };
    for (path, why) in [
        (dir.path(), "is a directory"),
        (&fifo, "neither a file nor a block device"),
        (Path::new("/dev/null"), "neither a file nor a block device"),
        (&dir.path().join("missing/disk"), "No such file"),
        (Path::new("/"), "is a directory"),
        (Path::new(""), "is not a file name"),
    ] {
        let error = create_target(path, &options).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_full_file_system_is_told_before_anything_is_written() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    for format in [TargetFormat::Raw, TargetFormat::Qcow2] {
        let data = [0..1 << 43];
        let options = TargetOptions { size: 1 << 43, format, data: &data, ..TargetOptions::default() };
        let error = create_target(&path, &options).err().unwrap();
        assert!(matches!(error, ImageError::Full { .. }), "{error}");
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }
}

#[test]
fn a_pipe_is_written_in_order_with_zeros_between() {
    let mut out = Vec::new();
    let target = Box::new(PipeTarget::new(&mut out, "test", 3_000_010));
    assert!(target.in_order());
    target.write_at(5, b"abc").unwrap();
    assert!(target.write_at(7, b"x").is_err());
    assert!(target.write_at(3_000_009, b"xy").is_err());
    target.write_at(2_500_000, b"def").unwrap();
    target.finish().unwrap();
    let mut wanted = vec![0; 3_000_010];
    wanted[5..8].copy_from_slice(b"abc");
    wanted[2_500_000..2_500_003].copy_from_slice(b"def");
    assert_same(&out, &wanted, "pipe");
}

#[test]
fn a_pipe_that_failed_stays_failed() {
    let target = Box::new(PipeTarget::new(fs::File::open("/dev/null").unwrap(), "test", 100));
    assert!(target.write_at(0, b"abc").is_err());
    assert!(target.write_at(3, b"abc").unwrap_err().to_string().contains("earlier write failed"));
    assert!(target.finish().is_err());
}

#[test]
fn a_device_holds_the_disk_and_zeros_and_keeps_what_is_behind() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("backing");
    let device_bytes = 8 << 20;
    fs::write(&file, vec![0xaa; device_bytes]).unwrap();
    let Some(device) = LoopDevice::attach(&file) else {
        return;
    };
    let path = Path::new(&device.0);
    let disk = random_disk(&mut rng(31), (5 << 20) + 700);
    let ranges = data_ranges(&disk, 1000);
    let options = TargetOptions { size: disk.len() as u64, data: &ranges, ..TargetOptions::default() };
    let error = create_target(path, &options).err().unwrap().to_string();
    assert!(error.contains("content would be lost"), "{error}");
    let options = TargetOptions { overwrite: true, ..options };
    let large = TargetOptions { size: device_bytes as u64 + 1, ..options };
    let error = create_target(path, &large).err().unwrap().to_string();
    assert!(error.contains("the device has 8388608 bytes, and the disk has 8388609"), "{error}");
    let qcow2 = TargetOptions { format: TargetFormat::Qcow2, ..options };
    assert!(create_target(path, &qcow2).is_err());

    let target = create_target(path, &options).unwrap();
    let error = create_target(path, &options).err().unwrap().to_string();
    assert!(error.contains("is in use"), "{error}");
    write_shuffled(&*target, &disk, &ranges, 32);
    target.finish().unwrap();
    let content = fs::read(path).unwrap();
    assert_same(&content[..disk.len()], &disk, "device");
    assert!(content[disk.len()..].iter().all(|b| *b == 0xaa));
}
