//! Overlays against a plain copy of the disk: reopened, killed, cut off from power, without room, and by QEMU's tools.
#![allow(clippy::unwrap_used)]

use super::layout::{BLOCK_BYTES, CLUSTER_BYTES};
use super::{BackingName, Layer, Overlay};
use crate::disk::Base;
use crate::error::ImageError;
use crate::file::recorder::Recorder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// What byte `at` of the base is.
fn base_byte(at: u64) -> u8 {
    (at / 512).wrapping_mul(37).wrapping_add(at) as u8 | 1
}

struct Counting;

impl Base for Counting {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (offset..).zip(buf).for_each(|(at, b)| *b = base_byte(at));
        Ok(())
    }
}

fn base(_: u64, _: Option<&BackingName>) -> crate::error::Result<Box<dyn Base>> {
    Ok(Box::new(Counting))
}

fn backing() -> BackingName {
    BackingName { name: b"sapwood:0123/web01/vda@abc".to_vec(), format: Some("raw".into()) }
}

/// What a block holds: the number of the write, or nothing but what the base has.
fn fill(n: u64, buf: &mut [u8]) {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for b in buf {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *b = (x >> 56) as u8;
    }
}

fn random_range(rng: &mut StdRng, size: u64) -> Range<u64> {
    let len = match rng.random_range(0..4) {
        0 => rng.random_range(1..1000),
        1 => BLOCK_BYTES * rng.random_range(1..4),
        2 => rng.random_range(1..3 * CLUSTER_BYTES),
        _ => CLUSTER_BYTES * rng.random_range(1..3),
    };
    let align = [1, 512, BLOCK_BYTES, CLUSTER_BYTES][rng.random_range(0..4)];
    let start = rng.random_range(0..size) / align * align;
    start..(start + len).min(size)
}

fn whole(overlay: &Overlay) -> Vec<u8> {
    let mut all = vec![0; overlay.size() as usize];
    overlay.read_at(0, &mut all).unwrap();
    all
}

/// Writes and zeros at random, into the overlay and the plain copy.
fn change(overlay: &Overlay, plain: &mut [u8], rng: &mut StdRng) {
    let range = random_range(rng, plain.len() as u64);
    let at = range.start as usize..range.end as usize;
    if rng.random_bool(0.3) {
        overlay.zero(range).unwrap();
        plain[at].fill(0);
    } else {
        fill(rng.random(), &mut plain[at.clone()]);
        overlay.write_at(range.start, &plain[at]).unwrap();
    }
}

#[test]
fn an_overlay_holds_what_a_plain_copy_holds() {
    let dir = tempfile::tempdir().unwrap();
    // A disk that ends within a block, and one that has more than one L2 table (1 GiB each), sparsely.
    for (n, size) in
        [7 * CLUSTER_BYTES + 5 * 512, CLUSTER_BYTES, 512, 3 * CLUSTER_BYTES].into_iter().enumerate()
    {
        let path = dir.path().join(format!("{n}.qcow2"));
        let mut rng = StdRng::seed_from_u64(n as u64);
        let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
        let mut overlay = Overlay::create(&path, size, &backing(), Box::new(Counting)).unwrap();
        for step in 0..400 {
            change(&overlay, &mut plain, &mut rng);
            let range = random_range(&mut rng, size);
            let mut part = vec![0; (range.end - range.start) as usize];
            overlay.read_at(range.start, &mut part).unwrap();
            assert!(part == plain[range.start as usize..range.end as usize], "size {size}, step {step}");
            if rng.random_bool(0.05) {
                overlay.flush().unwrap();
            }
            if step % 50 == 49 {
                overlay.close().unwrap();
                assert!(overlay.write_at(0, &[1]).is_err(), "it is closed");
                drop(overlay);
                overlay = Overlay::open(&path, |s, name| {
                    assert_eq!((s, name), (size, Some(&backing())));
                    base(s, name)
                })
                .unwrap();
                assert!(whole(&overlay) == plain, "size {size}, after step {step}");
            }
        }
        let mut end = 0;
        overlay
            .layers(0..size, &mut |range, layer| {
                assert_eq!(range.start, end);
                end = range.end;
                for at in range {
                    match layer {
                        Layer::Base => assert_eq!(plain[at as usize], base_byte(at)),
                        Layer::Zeros => assert_eq!(plain[at as usize], 0),
                        Layer::Data => {}
                    }
                }
                true
            })
            .unwrap();
        assert_eq!(end, size);
    }
}

#[test]
fn a_large_disk_is_written_here_and_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.qcow2");
    let size = 5 << 40;
    let overlay = Overlay::create(&path, size, &backing(), Box::new(Counting)).unwrap();
    // More tables than are kept in memory.
    let places: Vec<u64> = (0..500).map(|n| ((n * 7919 % 5000) << 30) + (n << 13)).collect();
    for at in &places {
        overlay.write_at(*at, &at.to_be_bytes()).unwrap();
    }
    let check = |overlay: &Overlay| {
        for at in &places {
            let mut found = [0; 16];
            overlay.read_at(*at, &mut found).unwrap();
            assert_eq!(found[..8], at.to_be_bytes());
            assert_eq!(found[8], base_byte(at + 8));
        }
    };
    check(&overlay);
    overlay.close().unwrap();
    drop(overlay);
    assert!(path.metadata().unwrap().len() < 200 << 20);
    check(&Overlay::open(&path, base).unwrap());
}

#[test]
fn qemu_reads_it_and_finds_nothing_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let (path, below) = (dir.path().join("o.qcow2"), dir.path().join("below.raw"));
    let size = 9 * CLUSTER_BYTES + 512;
    let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
    std::fs::write(&below, &plain).unwrap();
    let name = BackingName { name: b"below.raw".to_vec(), format: Some("raw".into()) };
    let overlay = Overlay::create(&path, size, &name, Box::new(Counting)).unwrap();
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..100 {
        change(&overlay, &mut plain, &mut rng);
    }
    overlay.flush().unwrap();
    let qemu = |args: &[&str]| {
        let done = Command::new("qemu-img").args(args).output().expect("qemu-img, of the package qemu-utils");
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "qemu-img {args:?}: {said}");
    };
    let same_for_qemu = |plain: &[u8]| {
        let (path, all) = (path.to_str().unwrap(), dir.path().join("all.raw"));
        qemu(&["convert", "-O", "raw", path, all.to_str().unwrap()]);
        assert!(std::fs::read(&all).unwrap() == *plain);
    };
    // As a kill leaves it: dirty, and refcounts that are too low.
    let killed = dir.path().join("killed.qcow2");
    std::fs::copy(&path, &killed).unwrap();
    qemu(&["check", "-r", "all", killed.to_str().unwrap()]);
    qemu(&["check", killed.to_str().unwrap()]);
    overlay.close().unwrap();
    drop(overlay);
    qemu(&["check", path.to_str().unwrap()]);
    same_for_qemu(&plain);
    // QEMU writes it, and it is taken up again.
    let done = Command::new("qemu-io")
        .args(["-c", "write -P 0x5a 100k 60k", "-c", "write -z 300k 200k"])
        .arg(&path)
        .output()
        .expect("qemu-io, of the package qemu-utils");
    assert!(done.status.success());
    plain[100 << 10..160 << 10].fill(0x5a);
    plain[300 << 10..500 << 10].fill(0);
    let overlay = Overlay::open(&path, base).unwrap();
    assert!(whole(&overlay) == plain);
    for _ in 0..50 {
        change(&overlay, &mut plain, &mut rng);
    }
    overlay.close().unwrap();
    drop(overlay);
    qemu(&["check", path.to_str().unwrap()]);
    same_for_qemu(&plain);
}

/// The header had the size as it was, and QEMU leaves out what is behind the last whole sector.
#[test]
fn qemu_reads_a_disk_of_an_odd_size_to_its_last_byte() {
    let dir = tempfile::tempdir().unwrap();
    for size in [1, 511, 700_001, CLUSTER_BYTES + 1, 2 * CLUSTER_BYTES - 1] {
        let (path, below) = (dir.path().join(format!("{size}.qcow2")), dir.path().join("below.raw"));
        let whole_sectors = size.next_multiple_of(512);
        let mut plain: Vec<u8> = (0..whole_sectors).map(base_byte).collect();
        std::fs::write(&below, &plain).unwrap();
        let name = BackingName { name: b"below.raw".to_vec(), format: Some("raw".into()) };
        let overlay = Overlay::create(&path, size, &name, Box::new(Counting)).unwrap();
        assert_eq!(overlay.size(), whole_sectors);
        assert!(whole(&overlay) == plain);
        overlay.write_at(size - 1, b"z").unwrap();
        plain[size as usize - 1] = b'z';
        overlay.close().unwrap();
        drop(overlay);
        let all = dir.path().join("all.raw");
        let args = ["convert", "-O", "raw", path.to_str().unwrap(), all.to_str().unwrap()];
        assert!(Command::new("qemu-img").args(args).status().unwrap().success());
        assert!(std::fs::read(&all).unwrap() == plain, "{size} bytes");
        assert!(whole(&Overlay::open(&path, base).unwrap()) == plain);
    }
}

#[test]
fn two_programs_do_not_write_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("o.qcow2");
    let overlay = Overlay::create(&path, 1 << 20, &backing(), Box::new(Counting)).unwrap();
    let second = Overlay::open(&path, base).err().unwrap();
    assert!(matches!(second, ImageError::InUse { .. }), "{second}");
    let again = Overlay::create(&path, 1 << 20, &backing(), Box::new(Counting)).err().unwrap();
    assert!(again.to_string().contains("exists already"), "{again}");
    drop(overlay);
    // A program that another test is just starting still has the file, until it is another program.
    let opened = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Overlay::open(&path, base).is_ok()
    });
    assert!(opened);
}

/// Its maker was killed before there was a header: what was left could neither be opened nor made anew.
#[test]
fn an_overlay_has_its_name_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, making) = (dir.path().join("o.qcow2"), dir.path().join("o.qcow2.sapwood-new"));
    std::fs::write(&making, [0; 5000]).unwrap();
    let make = || Overlay::create(&path, 1 << 20, &backing(), Box::new(Counting));
    make().unwrap().write_at(0, b"x").unwrap();
    assert!(path.exists() && !making.exists());
    assert!(make().err().unwrap().to_string().contains("exists already"));
    let too_long = BackingName { name: vec![b'x'; 5000], format: None };
    std::fs::remove_file(&path).unwrap();
    assert!(Overlay::create(&path, 1 << 20, &too_long, Box::new(Counting)).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_scratch_overlay_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let overlay = Overlay::scratch(dir.path(), 10 << 20, Box::new(Counting)).unwrap();
    overlay.write_at(5 << 20, &[7; 8192]).unwrap();
    assert_eq!(whole(&overlay)[5 << 20], 7);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn many_write_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("o.qcow2");
    let size = 64 * CLUSTER_BYTES;
    let overlay = Overlay::create(&path, size, &backing(), Box::new(Counting)).unwrap();
    // Each thread has every fourth block, so that clusters are shared; one flushes all the time.
    let threads = 4u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let overlay = &overlay;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread);
                let mut last = vec![None; (size / BLOCK_BYTES / threads) as usize];
                for n in 1..3000u64 {
                    let mine = rng.random_range(0..last.len());
                    let at = (mine as u64 * threads + thread) * BLOCK_BYTES;
                    let mut found = vec![0; BLOCK_BYTES as usize];
                    overlay.read_at(at, &mut found).unwrap();
                    let mut wanted: Vec<u8> = (at..at + BLOCK_BYTES).map(base_byte).collect();
                    match last[mine] {
                        Some(0) => wanted.fill(0),
                        Some(n) => fill(n, &mut wanted),
                        None => {}
                    }
                    assert!(found == wanted, "thread {thread}, step {n}, offset {at}");
                    if rng.random_bool(0.2) {
                        overlay.zero(at..at + BLOCK_BYTES).unwrap();
                        last[mine] = Some(0);
                    } else {
                        fill(n, &mut found);
                        overlay.write_at(at, &found).unwrap();
                        last[mine] = Some(n);
                    }
                }
            });
        }
        scope.spawn(|| (0..50).for_each(|_| overlay.flush().unwrap()));
    });
    let before = whole(&overlay);
    overlay.close().unwrap();
    drop(overlay);
    assert!(whole(&Overlay::open(&path, base).unwrap()) == before);
}

/// Blocks are written whole. After a cut each holds what the last flush left, or something written to it later.
#[test]
fn a_power_cut_loses_nothing_that_was_flushed() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let size = 6 * CLUSTER_BYTES;
    let blocks = (size / BLOCK_BYTES) as usize;
    for _ in 0..6 {
        let recorder = Recorder::new();
        let overlay =
            Overlay::create_in(Box::new(recorder.clone()), "o", size, Some(&backing()), Box::new(Counting))
                .unwrap();
        // Of each block: every write (0 is zeros, `None` the base), and how many operations were done before and after.
        let mut history: Vec<Vec<(Option<u64>, usize)>> = vec![vec![(None, 0)]; blocks];
        let mut flushes: Vec<(usize, Vec<usize>)> = Vec::new();
        let made = recorder.operations();
        for n in 1..150u64 {
            let first = rng.random_range(0..blocks);
            let count = rng.random_range(1..40).min(blocks - first);
            let at = first as u64 * BLOCK_BYTES;
            let zeros = rng.random_bool(0.4);
            for block in &mut history[first..first + count] {
                block.push((Some(if zeros { 0 } else { n }), recorder.operations()));
            }
            if zeros {
                overlay.zero(at..at + count as u64 * BLOCK_BYTES).unwrap();
            } else {
                let mut data = vec![0; count * BLOCK_BYTES as usize];
                data.chunks_mut(BLOCK_BYTES as usize).for_each(|b| fill(n, b));
                overlay.write_at(at, &data).unwrap();
            }
            if rng.random_bool(0.15) {
                let lens = history.iter().map(Vec::len).collect();
                overlay.flush().unwrap();
                flushes.push((recorder.operations(), lens));
            }
        }
        overlay.close().unwrap();
        let total = recorder.operations();
        for _ in 0..80 {
            let cut = rng.random_range(made..=total);
            let left = Recorder::holding(recorder.after_cut(cut, &mut rng).remove(0));
            let overlay =
                Overlay::open_in(Box::new(left), "o", base).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let flushed = flushes.iter().rev().find(|f| f.0 <= cut).map(|f| &f.1);
            for (block, writes) in history.iter().enumerate() {
                let mut found = vec![0; BLOCK_BYTES as usize];
                let at = block as u64 * BLOCK_BYTES;
                overlay.read_at(at, &mut found).unwrap();
                let from = flushed.map_or(0, |lens| lens[block] - 1);
                let may: Vec<Vec<u8>> = writes[from..]
                    .iter()
                    .filter(|(_, when)| *when <= cut)
                    .map(|(what, _)| {
                        let mut wanted: Vec<u8> = (at..at + BLOCK_BYTES).map(base_byte).collect();
                        match what {
                            Some(0) => wanted.fill(0),
                            Some(n) => fill(*n, &mut wanted),
                            None => {}
                        }
                        wanted
                    })
                    .collect();
                // Sectors are torn apart, blocks too: every sector is one of those.
                for (s, sector) in found.chunks(512).enumerate() {
                    let is_one = may.iter().any(|m| m[s * 512..(s + 1) * 512] == *sector);
                    assert!(is_one, "cut at {cut} of {total}, block {block}, sector {s}");
                }
            }
            // And it can be written again.
            overlay.write_at(0, &[9; 100]).unwrap();
            overlay.close().unwrap();
        }
    }
}

#[test]
fn without_room_nothing_is_lost() {
    let recorder = Recorder::new();
    let size = 40 * CLUSTER_BYTES;
    let overlay =
        Overlay::create_in(Box::new(recorder.clone()), "o", size, None, Box::new(Counting)).unwrap();
    recorder.set_room(Some(20 * CLUSTER_BYTES));
    let mut written = 0;
    let full = loop {
        match overlay.write_at(written, &[7; CLUSTER_BYTES as usize]) {
            Ok(()) => written += CLUSTER_BYTES,
            Err(e) => break e,
        }
    };
    assert!(
        matches!(&full, ImageError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{full}"
    );
    assert!(written > 10 * CLUSTER_BYTES);
    overlay.flush().unwrap();
    assert!(overlay.write_at(written, &[7; 4096]).is_err());
    recorder.set_room(None);
    overlay.write_at(written, &[7; CLUSTER_BYTES as usize]).unwrap();
    let all = whole(&overlay);
    let end = (written + CLUSTER_BYTES) as usize;
    assert!(all[..end].iter().all(|b| *b == 7));
    assert_eq!(all[end], base_byte(end as u64));
    overlay.close().unwrap();
    let again = Recorder::holding(recorder.bytes());
    assert!(whole(&Overlay::open_in(Box::new(again), "o", base).unwrap()) == all);
}

/// A damaged file gives one error or other data, and never a panic.
#[test]
fn damage_never_panics() {
    let recorder = Recorder::new();
    let size = 20 * CLUSTER_BYTES;
    let overlay =
        Overlay::create_in(Box::new(recorder.clone()), "o", size, Some(&backing()), Box::new(Counting))
            .unwrap();
    let mut rng = StdRng::seed_from_u64(11);
    let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
    (0..40).for_each(|_| change(&overlay, &mut plain, &mut rng));
    overlay.close().unwrap();
    let good = recorder.bytes();
    let mut refused = 0;
    for _ in 0..1500 {
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..4) {
            // Mostly header and tables, which stand in the first clusters.
            let at = match rng.random_range(0..3) {
                0 => rng.random_range(0..200),
                1 => CLUSTER_BYTES as usize + rng.random_range(0..16),
                _ => rng.random_range(0..bytes.len().min(6 << 17)),
            };
            bytes[at] = rng.random();
        }
        if rng.random_bool(0.2) {
            bytes.truncate(rng.random_range(0..good.len()));
        }
        match Overlay::open_in(Box::new(Recorder::holding(bytes)), "o", base) {
            Err(_) => refused += 1,
            Ok(overlay) => {
                let mut buf = vec![0; CLUSTER_BYTES as usize];
                let end = overlay.size().min(size);
                let mut at = 0;
                while at + (buf.len() as u64) < end {
                    let _ = overlay.read_at(at, &mut buf);
                    at += CLUSTER_BYTES;
                }
                let _ = overlay.write_at(end / 2, &[1; 100]);
                let _ = overlay.flush();
            }
        }
    }
    assert!(refused > 100, "only {refused} of 1500 were refused");
}

#[test]
fn overlays_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("o.qcow2");
    for options in ["cluster_size=64k", "cluster_size=128k", "extended_l2=on,cluster_size=64k"] {
        let _ = std::fs::remove_file(&path);
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-o", options])
            .arg(&path)
            .arg("1M")
            .status()
            .expect("qemu-img, of the package qemu-utils");
        assert!(made.success());
        let e = Overlay::open(&path, base).err().unwrap();
        assert!(matches!(e, ImageError::Unsupported { .. }), "{options}: {e}");
    }
    std::fs::write(&path, b"no overlay").unwrap();
    assert!(matches!(Overlay::open(&path, base).err().unwrap(), ImageError::Corrupt { .. }));
    assert!(Overlay::open(Path::new("/nonexistent/o"), base).is_err());
}
