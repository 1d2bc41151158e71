//! Arriving disks against a plain copy: while they arrive, killed, cut off from power, without room.
#![allow(clippy::unwrap_used)]

mod recognized;

use super::id::{BootId, MapId};
use super::identity::{Attachment, TargetId};
use super::layout::{BITS_AT, BLOCK_BYTES};
use super::saved::SavedMap;
use super::{ArrivingDisk, ArrivingOptions, ArrivingPaths, NewMap};
use crate::disk::{Base, Layer};
use crate::error::{ImageError, Result};
use crate::file::random_file::RandomFile;
use crate::file::recorder::Recorder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const OF: &[u8] = b"0123/web01/vda@abc";

/// What byte `at` of the base is: every third piece of 40 KiB is a hole.
fn base_byte(at: u64) -> u8 {
    match at / 40960 % 3 {
        2 => 0,
        _ => (at / 512).wrapping_mul(37).wrapping_add(at) as u8 | 1,
    }
}

/// A base that can be told to be gone.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicBool>);

impl Base for Counting {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("gone"));
        }
        (offset..).zip(buf).for_each(|(at, b)| *b = base_byte(at));
        Ok(())
    }
}

const FILE: (TargetId, Attachment) =
    (TargetId::File { inode: 12, born: 34 }, Attachment { device: 56, sequence: 0 });

fn options(size: u64) -> ArrivingOptions<'static> {
    ArrivingOptions { size, of: OF, holds: true, overwrite: false }
}

fn device() -> (TargetId, Attachment) {
    (TargetId::Device { facts: "serial=1\nsize=99\n".into() }, Attachment { device: 7, sequence: 3 })
}

fn create(target: &Recorder, map: &Recorder, size: u64) -> ArrivingDisk {
    create_on(FILE, target, map, size, Box::new(Counting::default()))
}

fn create_on(
    known: (TargetId, Attachment),
    target: &Recorder,
    map: &Recorder,
    size: u64,
    base: Box<dyn Base>,
) -> ArrivingDisk {
    target.set_len(size).unwrap();
    let is_file = matches!(known.0, TargetId::File { .. });
    let new = NewMap {
        file: Arc::new(map.clone()),
        name: "map".into(),
        id: MapId([9; 16]),
        known,
        boot: BootId::of_test(1),
    };
    ArrivingDisk::begin("target", Box::new(target.clone()), is_file, new, &options(size), base).unwrap()
}

fn reopen(target: Recorder, map: Recorder, size: u64, boot: u8) -> ArrivingDisk {
    reopen_on(FILE, target, map, size, boot).unwrap()
}

fn reopen_on(
    known: (TargetId, Attachment),
    target: Recorder,
    map: Recorder,
    size: u64,
    boot: u8,
) -> Result<ArrivingDisk> {
    let saved = SavedMap::read(Arc::new(map), "map")?;
    saved.check_is_of(OF, size)?;
    let base = Box::new(Counting::default());
    ArrivingDisk::resume_with("target", Box::new(target), known, saved, BootId::of_test(boot), base)
}

fn random_range(rng: &mut StdRng, size: u64) -> Range<u64> {
    let len = match rng.random_range(0..3) {
        0 => rng.random_range(1..1000),
        1 => BLOCK_BYTES * rng.random_range(1..10),
        _ => rng.random_range(1..200_000),
    };
    let align = [1, 512, BLOCK_BYTES, 65536][rng.random_range(0..4)];
    let start = rng.random_range(0..size) / align * align;
    start..(start + len).min(size)
}

/// A step of a guest, or of the disk's arrival.
fn step(disk: &ArrivingDisk, plain: &mut [u8], rng: &mut StdRng) {
    let range = random_range(rng, plain.len() as u64);
    let at = range.start as usize..range.end as usize;
    match rng.random_range(0..10) {
        0..4 => {
            let n: u8 = rng.random();
            plain[at.clone()].iter_mut().enumerate().for_each(|(k, b)| *b = n.wrapping_add(k as u8) | 1);
            disk.write_at(range.start, &plain[at]).unwrap();
        }
        4 => {
            disk.zero(range).unwrap();
            plain[at].fill(0);
        }
        5..9 => disk.fetch(range).unwrap(),
        _ => {
            let hole = (range.start / 122_880 * 122_880 + 81920)..(range.start / 122_880 * 122_880 + 122_880);
            disk.fetch_zeros(hole.start.min(disk.size())..hole.end.min(disk.size())).unwrap();
        }
    }
}

/// All of it; and what it says to be zeros is.
fn whole(disk: &ArrivingDisk) -> Vec<u8> {
    let mut all = vec![0; disk.size() as usize];
    disk.read_at(0, &mut all).unwrap();
    let mut at = 0;
    disk.layers(0..disk.size(), &mut |range, layer| {
        assert!(range.start == at && range.end > at, "{range:?} after {at}");
        at = range.end;
        let of_range = &all[range.start as usize..range.end as usize];
        match layer {
            Layer::Base => {
                assert!((range.start..).zip(of_range).all(|(n, b)| *b == base_byte(n)), "{range:?}")
            }
            Layer::Zeros => assert!(of_range.iter().all(|b| *b == 0), "{range:?}"),
            Layer::Data => {}
        }
        true
    })
    .unwrap();
    assert_eq!(at, disk.size());
    all
}

/// On a file with holes, of which the file system tells.
#[test]
fn holes_are_told_before_and_after_they_have_arrived() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.part"), map: dir.path().join("disk.map") };
    let size = 3 * 40960 * 100;
    let disk = ArrivingDisk::open(&paths, &options(size), Box::new(Counting::default())).unwrap();
    let zeros = |disk: &ArrivingDisk| {
        let mut zeros = 0;
        disk.layers(0..size, &mut |range, layer| {
            zeros += if layer == Layer::Zeros { range.end - range.start } else { 0 };
            true
        })
        .unwrap();
        zeros
    };
    assert_eq!(zeros(&disk), 0, "the base's are told by the base");
    for at in (0..size).step_by(40960) {
        match base_byte(at) {
            0 => disk.fetch_zeros(at..at + 40960).unwrap(),
            _ => disk.fetch(at..at + 40960).unwrap(),
        }
    }
    let found = whole(&disk);
    assert!((0..).zip(&found).all(|(n, b)| *b == base_byte(n)));
    // All but the last hole, in which the mark is.
    assert!(zeros(&disk) >= 99 * 40960, "{} of {}", zeros(&disk), 100 * 40960);
}

#[test]
fn it_reads_as_a_plain_copy_from_the_first_moment() {
    for (seed, size) in [(1, 3 << 20), (2, (2 << 20) + 1234), (3, 512)] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (target, map) = (Recorder::new(), Recorder::new());
        let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
        let mut disk = create(&target, &map, size);
        for n in 0..300 {
            step(&disk, &mut plain, &mut rng);
            let range = random_range(&mut rng, size);
            let mut part = vec![0; (range.end - range.start) as usize];
            disk.read_at(range.start, &mut part).unwrap();
            assert!(part == plain[range.start as usize..range.end as usize], "size {size}, step {n}");
            if n % 40 == 39 {
                // Killed: nothing was flushed, and the system runs on.
                disk = reopen(target.clone(), map.clone(), size, 1);
                assert!(whole(&disk) == plain, "size {size}, killed after step {n}");
            }
        }
        disk.fetch(0..size).unwrap();
        assert_eq!(disk.arrived_bytes(), size);
        disk.complete().unwrap();
        assert!(target.bytes() == plain, "the target is not the disk");
    }
}

#[test]
fn the_base_is_not_needed_once_all_is_there() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 1 << 20);
    let base = Counting::default();
    let disk = create_on(FILE, &target, &map, size, Box::new(base.clone()));
    disk.fetch(0..size / 2).unwrap();
    base.0.store(true, Ordering::Relaxed);
    let mut buf = vec![0; 4096];
    disk.read_at(0, &mut buf).unwrap();
    assert!(disk.read_at(size - 4096, &mut buf).is_err());
    // A whole block can be written without it, a part of one cannot.
    disk.write_at(size - 4096, &buf).unwrap();
    disk.read_at(size - 4096, &mut buf).unwrap();
    assert!(disk.write_at(size - 8192, &[1]).is_err());
}

#[test]
fn a_device_gets_its_zeros() {
    let size = 300 * BLOCK_BYTES;
    let target = Recorder::holding(vec![0xaa; size as usize]);
    let disk = create_on(device(), &target, &Recorder::new(), size, base(size));
    let plain: Vec<u8> = (0..size).map(base_byte).collect();
    assert!(whole(&disk) == plain);
    for at in (0..size).step_by(40960) {
        let range = at..(at + 40960).min(size);
        match base_byte(at) {
            0 => disk.fetch_zeros(range).unwrap(),
            _ => disk.fetch(range).unwrap(),
        }
    }
    assert_eq!(disk.arrived_bytes(), size);
    disk.complete().unwrap();
    assert!(target.bytes() == plain);
}

/// Cut off from power, each sector holds what the last flush left or something later; and the disk still arrives whole.
#[test]
fn a_power_cut_loses_nothing_that_was_flushed() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let size = 100 * BLOCK_BYTES + 512;
    for _ in 0..6 {
        let target = Recorder::new();
        let map = target.another();
        let disk = create(&target, &map, size);
        let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
        let made = target.operations();
        // After each step: how many operations were done before it, how many after, and the disk after it.
        let mut states = vec![(made, made, plain.clone())];
        let mut flushes = vec![(made, 0)];
        for _ in 0..80 {
            let before = target.operations();
            step(&disk, &mut plain, &mut rng);
            states.push((before, target.operations(), plain.clone()));
            if rng.random_bool(0.2) {
                disk.flush().unwrap();
                flushes.push((target.operations(), states.len() - 1));
            }
        }
        // All of it arrives; the guest goes on writing.
        disk.fetch(0..size).unwrap();
        disk.complete().unwrap();
        flushes.push((target.operations(), states.len() - 1));
        for _ in 0..5 {
            let before = target.operations();
            step(&disk, &mut plain, &mut rng);
            states.push((before, target.operations(), plain.clone()));
        }
        let total = target.operations();
        for _ in 0..60 {
            let cut = rng.random_range(made..=total);
            let [t, m]: [Vec<u8>; 2] = target.after_cut(cut, &mut rng).try_into().unwrap();
            let left = Recorder::holding(t);
            let disk = reopen(left.clone(), Recorder::holding(m), size, 2);
            let found = whole(&disk);
            let flushed = flushes.iter().rev().find(|f| f.0 <= cut).unwrap().1;
            let may: Vec<&Vec<u8>> = states[flushed..].iter().filter(|s| s.0 <= cut).map(|s| &s.2).collect();
            for (n, sector) in found.chunks(512).enumerate() {
                let at = n * 512..n * 512 + sector.len();
                assert!(may.iter().any(|m| m[at.clone()] == *sector), "cut at {cut} of {total}, sector {n}");
            }
            disk.fetch(0..size).unwrap();
            disk.complete().unwrap();
            assert!(left.bytes() == found, "what was read is not what arrived");
        }
    }
}

#[test]
fn many_write_while_it_arrives() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 4 << 20);
    let disk = create(&target, &map, size);
    let threads = 3u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let disk = &disk;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread);
                let count = size / 1024 / threads;
                let mut last = vec![None; count as usize];
                // Pieces of a quarter of a block: three threads share most blocks.
                for n in 1..4000u32 {
                    let mine = rng.random_range(0..count);
                    let at = (mine * threads + thread) * 1024;
                    let mut found = vec![0; 1024];
                    disk.read_at(at, &mut found).unwrap();
                    let wanted = match last[mine as usize] {
                        Some(n) => vec![n as u8 | 1; 1024],
                        None => (at..at + 1024).map(base_byte).collect(),
                    };
                    assert!(found == wanted, "thread {thread}, step {n}, offset {at}");
                    disk.write_at(at, &[n as u8 | 1; 1024]).unwrap();
                    last[mine as usize] = Some(n);
                }
            });
        }
        scope.spawn(|| (0..4).for_each(|n| disk.fetch(n << 20..(n + 1) << 20).unwrap()));
        scope.spawn(|| (0..30).for_each(|_| disk.flush().unwrap()));
    });
    assert_eq!(disk.arrived_bytes(), size);
    disk.complete().unwrap();
    assert!(target.bytes() == whole(&disk));
}

#[test]
fn without_room_the_writer_is_told_and_goes_on_later() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 1 << 20);
    let disk = create(&target, &map, size);
    target.set_room(Some(size / 2));
    let e = disk.write_at(size - 4096, &[1; 4096]).unwrap_err();
    assert!(
        matches!(&e, ImageError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{e}"
    );
    assert!(disk.fetch(0..size).is_err());
    target.set_room(None);
    disk.write_at(size - 4096, &[1; 4096]).unwrap();
    disk.fetch(0..size).unwrap();
    disk.complete().unwrap();
    let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
    plain[size as usize - 4096..].fill(1);
    assert!(target.bytes() == plain);
}

/// A write failed in the midst for want of room, in a hole of the base; or its writer was killed before the block counted
/// as arrived. The block went on reading as zeros, until its zeros arrived: they were taken to be there in a file that
/// had been new, and from then on the block read as what the write had left.
#[test]
fn what_a_failed_write_has_left_is_never_seen() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 1 << 20);
    let hole = 81920..122_880;
    let disk = create(&target, &map, size);
    target.set_room(Some(hole.start + 8000));
    disk.write_at(hole.start, &[7; 16384]).unwrap_err();
    target.set_room(None);
    let mut found = [1; 16384];
    disk.read_at(hole.start, &mut found).unwrap();
    assert!(found == [0; 16384]);
    disk.fetch_zeros(hole.clone()).unwrap();
    disk.read_at(hole.start, &mut found).unwrap();
    assert!(found == [0; 16384], "no room");

    let (target, map) = (Recorder::new(), Recorder::new());
    drop(create(&target, &map, size));
    target.write_at(hole.start, &[7; 5000]).unwrap();
    let disk = reopen(target.clone(), map, size, 1);
    disk.fetch_zeros(hole.clone()).unwrap();
    disk.read_at(hole.start, &mut found).unwrap();
    assert!(found == [0; 16384], "killed");
}

/// The map's file had no room for a bit. In memory it was set all the same: a second write of the block succeeded without
/// a word to the map, and was gone when the program was killed, flushed or not.
#[test]
fn bits_that_the_map_had_no_room_for_are_not_forgotten() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 4 << 20);
    let disk = create(&target, &map, size);
    map.set_room(Some(BITS_AT));
    for at in [0, 2 << 20] {
        disk.write_at(at, &[1; 4096]).unwrap_err();
        disk.write_at(at, &[1; 4096]).unwrap_err();
    }
    map.set_room(None);
    disk.write_at(0, &[2; 4096]).unwrap();
    disk.flush().unwrap();
    let disk = reopen(target.clone(), map.clone(), size, 1);
    let mut found = [0; 4096];
    disk.read_at(0, &mut found).unwrap();
    assert!(found == [2; 4096]);
}

/// All of a megabyte was read anew where a block of it was missing, so that damage in what a guest had long overwritten
/// kept its neighbours from arriving.
#[test]
fn what_has_arrived_is_not_read_again() {
    let (target, map, size) = (Recorder::new(), Recorder::new(), 1 << 20);
    struct Damaged;
    impl Base for Damaged {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            if offset < 8192 && offset + buf.len() as u64 > 4096 {
                Err(io::Error::other("damaged"))
            } else {
                Counting::default().read_at(offset, buf)
            }
        }
    }
    let disk = create_on(FILE, &target, &map, size, Box::new(Damaged));
    assert!(disk.fetch(0..size).is_err());
    disk.write_at(4096, &[1; 4096]).unwrap();
    disk.fetch(0..size).unwrap();
    assert_eq!(disk.arrived_bytes(), size);
}

fn base(_: u64) -> Box<dyn Base> {
    Box::new(Counting::default())
}

#[test]
fn files_are_taken_up_again_by_the_same_restore_only() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.raw"), map: dir.path().join("map") };
    let size = 10 << 20;
    let open = |of: &'static [u8], size| -> Result<ArrivingDisk> {
        ArrivingDisk::open(&paths, &ArrivingOptions { of, ..options(size) }, base(size))
    };
    let disk = open(OF, size).unwrap();
    disk.write_at(5000, b"kept").unwrap();
    let second = open(OF, size).err().unwrap();
    assert!(second.to_string().contains("in use"), "{second}");
    drop(disk);
    for (of, size) in [(&b"another"[..], size), (OF, size + 512)] {
        let e = open(of, size).err().unwrap();
        assert!(matches!(e, ImageError::Refused { .. }), "{e}");
    }
    let disk = open(OF, size).unwrap();
    let mut found = [0; 4];
    disk.read_at(5000, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    drop(disk);
    let good = std::fs::read(&paths.map).unwrap();
    for at in [0, 8, 12, 16, 30, 44, 60, 4095] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(&paths.map, bad).unwrap();
        let e = open(OF, size).err().unwrap();
        assert!(matches!(e, ImageError::Corrupt { .. } | ImageError::Refused { .. }), "byte {at}: {e}");
    }
    std::fs::write(&paths.map, &good[..100]).unwrap();
    assert!(open(OF, size).is_err());
}

/// Killed while the files were made: before the map had its length, or before its header. It could not be begun again.
#[test]
fn half_made_files_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.raw"), map: dir.path().join("map") };
    let size = 10 << 20;
    for (map_bytes, target_bytes) in
        [(0, None), (0, Some(0)), (0, Some(size)), (4096 * 4, Some(size)), (4096 * 4, None)]
    {
        std::fs::File::create(&paths.map).unwrap().set_len(map_bytes).unwrap();
        if let Some(bytes) = target_bytes {
            std::fs::File::create(&paths.target).unwrap().set_len(bytes).unwrap();
        }
        let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
        disk.write_at(5000, b"kept").unwrap();
        drop(disk);
        let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
        let mut found = [0; 4];
        disk.read_at(5000, &mut found).unwrap();
        assert_eq!(&found, b"kept");
        drop(disk);
        std::fs::remove_file(&paths.map).unwrap();
        std::fs::remove_file(&paths.target).unwrap();
    }
    std::fs::File::create(&paths.target).unwrap().set_len(3).unwrap();
    ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
}

/// Without its map (another one was named, say) a target was taken for one in which nothing had arrived, and removed
/// with all that the guest had written. A file that was no map at all was removed where there was no target.
#[test]
fn nothing_is_removed_that_may_be_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.raw"), map: dir.path().join("map") };
    let elsewhere = ArrivingPaths { map: dir.path().join("elsewhere"), ..paths.clone() };
    let size = 10 << 20;
    let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
    disk.write_at(5000, b"kept").unwrap();
    drop(disk);
    let e = ArrivingDisk::open(&elsewhere, &options(size), base(size)).err().unwrap();
    assert!(e.to_string().contains("--map"), "{e}");
    assert!(!elsewhere.map.exists());
    let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
    let mut found = [0; 4];
    disk.read_at(5000, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    assert!(!ArrivingDisk::has_arrived(&elsewhere.map).unwrap());
    assert!(ArrivingDisk::has_arrived(&paths.map).unwrap_err().to_string().contains("in use"));
    disk.fetch(0..size).unwrap();
    disk.complete().unwrap();
    drop(disk);
    assert!(ArrivingDisk::has_arrived(&paths.map).unwrap());

    // A device may only not be there yet: its map says what the guest has written.
    let away = dir.path().join("away");
    std::fs::rename(&paths.target, &away).unwrap();
    let e = ArrivingDisk::open(&paths, &options(size), base(size)).err().unwrap();
    assert!(matches!(e, ImageError::Refused { .. }) && e.to_string().contains("begin anew"), "{e}");
    assert!(paths.map.exists() && !paths.target.exists());

    for content in [&b"precious"[..], &[0; 5000], &[7; 4 * 4096]] {
        std::fs::write(&paths.map, content).unwrap();
        let e = ArrivingDisk::open(&paths, &options(size), base(size)).err().unwrap();
        assert!(matches!(e, ImageError::Corrupt { .. } | ImageError::Shrunk { .. }), "{e}");
        assert_eq!(std::fs::read(&paths.map).unwrap(), content);
        assert!(!paths.target.exists());
    }
}

/// What is known of the parts of a disk of two pebibytes took 545 MB.
#[test]
fn a_disk_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("target"), map: dir.path().join("map") };
    let e = ArrivingDisk::open(&paths, &options(1 << 51), base(4096)).err().unwrap();
    assert!(matches!(e, ImageError::Refused { .. }) && e.to_string().contains("64 TiB"), "{e}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}

/// A map went with any target that had its name, however short.
#[test]
fn a_target_that_the_map_does_not_speak_of_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.raw"), map: dir.path().join("map") };
    drop(ArrivingDisk::open(&paths, &options(1 << 20), base(0)).unwrap());
    std::fs::write(&paths.target, "another").unwrap();
    let e = ArrivingDisk::open(&paths, &options(1 << 20), base(0)).err().unwrap();
    assert!(e.to_string().contains("has 7 bytes"), "{e}");
}

/// A system that could not write what it had in its cache may have forgotten it.
#[test]
fn after_an_error_only_durable_bits_count() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ArrivingPaths { target: dir.path().join("disk.raw"), map: dir.path().join("map") };
    let size = 1 << 20;
    let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
    disk.write_at(0, &[1; 4096]).unwrap();
    disk.flush().unwrap();
    disk.write_at(8192, &[2; 4096]).unwrap();
    drop(disk);
    let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
    assert!(disk.holds() && disk.has(&(0..4096)) && disk.has(&(8192..12288)), "killed: nothing is lost");
    drop(disk.broke("sync", io::Error::other("no")));
    assert!(disk.write_at(0, &[3; 10]).is_err());
    drop(disk);
    let disk = ArrivingDisk::open(&paths, &options(size), base(size)).unwrap();
    assert!(disk.has(&(0..4096)) && !disk.has(&(8192..12288)));
}
