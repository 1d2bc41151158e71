//! Many writers at once: each sees what it wrote, and counts stay right.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

use crate::common::{assert_whole, budget, content, dice, scan, seed, sharing, BLOCK};
use format::pool::Geometry;
use pool::{FileDevice, Options, Pool, Sharing};
use rand::RngExt;

const REGION: usize = 200 * BLOCK;

/// Writes, trims and reads one region of a volume, and compares it with an array.
fn work(pool: &Pool, volume: &str, region: usize, seed: u64, steps: u64) {
    let mut dice = dice(seed);
    let volume = pool.volume(volume).unwrap();
    let start = region * REGION;
    let mut model = vec![0; REGION];
    volume.zero(start as u64, REGION as u64).unwrap();
    for _ in 0..steps {
        let sector = dice.random_range(0..REGION / 512);
        let length = (dice.random_range(1..200usize) * 512).min(REGION - sector * 512);
        let range = sector * 512..sector * 512 + length;
        let offset = (start + range.start) as u64;
        match dice.random_range(0..10) {
            0..=5 => {
                let mut data = vec![0; length];
                // Few kinds of content: writers meet at the same fingerprints all the time.
                data.chunks_mut(BLOCK).for_each(|block| content(&mut dice, 40, block));
                volume.write_at(offset, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            6 => {
                volume.zero(offset, length as u64).unwrap();
                model[range].fill(0);
            }
            7 if dice.random_bool(0.3) => volume.flush().unwrap(),
            _ => {
                let mut found = vec![1; length];
                volume.read_at(offset, &mut found).unwrap();
                assert!(found == model[range.clone()], "region {region}, {range:?}");
            }
        }
    }
    let mut found = vec![1; REGION];
    volume.read_at(start as u64, &mut found).unwrap();
    assert!(found == model);
}

/// Makes and deletes snapshots and clones, and lets a volume grow, while others write; what a snapshot shows does not change.
fn disturb(pool: &Arc<Pool>, has_ended: &AtomicBool) {
    let mut n = 0;
    while !has_ended.load(Ordering::SeqCst) {
        let (snapshot, clone) = (format!("s{n}"), format!("c{n}"));
        let full = format!("a@{snapshot}");
        pool.snapshot("a", &snapshot).unwrap();
        let size = 4 * REGION;
        let (mut first, mut second) = (vec![0; size], vec![1; size]);
        pool.volume(&full).unwrap().read_at(0, &mut first).unwrap();
        pool.clone_snapshot(&full, &clone).unwrap();
        pool.volume(&clone).unwrap().write_at(0, &[9; BLOCK]).unwrap();
        pool.volume(&full).unwrap().read_at(0, &mut second).unwrap();
        assert!(first == second, "{full} changed");
        pool.delete(&clone).unwrap();
        pool.delete(&full).unwrap();
        // Up to 1 PiB: the map gets two levels more.
        pool.resize("b", (4 * REGION as u64) << n.min(27)).unwrap();
        n += 1;
    }
}

/// Shares in the background, and changes the modes of volumes.
fn share(pool: &Pool, has_ended: &AtomicBool, seed: u64) {
    let mut dice = dice(seed);
    while !has_ended.load(Ordering::SeqCst) {
        if dice.random_bool(0.05) {
            pool.share(["a", "b"][dice.random_range(0..2)], sharing(&mut dice)).unwrap();
        }
        pool.scan_step(dice.random_range(1..200)).unwrap();
    }
}

/// Reads all of the pool again and again: nothing is wrong with it. Returns how often.
fn scrub(pool: &Pool, has_ended: &AtomicBool) -> u64 {
    let mut times = 0;
    while !has_ended.load(Ordering::SeqCst) || times == 0 {
        let report = pool.scrub(true, &|_| true).unwrap().unwrap();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        times += 1;
    }
    times
}

#[test]
fn writers_readers_and_snapshots_at_once() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let device = FileDevice::create(&path, 10_000 * BLOCK as u64).unwrap();
    Pool::create_with(&device, Geometry::plan_with(10_000, 256, 128).unwrap()).unwrap();
    drop(device);
    let options = Options { cache_bytes: 4 << 20, ..Options::default() };
    let pool = Pool::open(Box::new(FileDevice::open(&path).unwrap()), options).unwrap();
    for volume in ["a", "b"] {
        pool.create_volume(volume, (4 * REGION) as u64, Sharing::Inline).unwrap();
    }
    let has_ended = AtomicBool::new(false);
    let steps = budget("SAPWOOD_POOL_STEPS", 400);
    thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(&pool, &has_ended));
        let sharer = scope.spawn(|| share(&pool, &has_ended, seed));
        let scrubber = scope.spawn(|| scrub(&pool, &has_ended));
        let workers: Vec<_> = (0..8usize)
            .map(|n| {
                let pool = &pool;
                scope.spawn(move || work(pool, ["a", "b"][n % 2], n / 2, seed * 100 + n as u64, steps))
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        has_ended.store(true, Ordering::SeqCst);
        disturber.join().unwrap();
        sharer.join().unwrap();
        assert!(scrubber.join().unwrap() > 0);
        outcomes.into_iter().for_each(|o| o.unwrap());
    });
    assert_whole(&pool);
    // What is left is shared as soon as nobody writes.
    for volume in ["a", "b"] {
        pool.share(volume, Sharing::Background).unwrap();
    }
    // The first scan goes on where the sharer stopped: of the groups before, it sees nothing.
    for _ in 0..3 {
        scan(&pool);
    }
    assert_eq!(pool.usage().unwrap().unshared_bytes, 0);
    let scans = pool.stats().scans;
    println!("{scans:?}");
    assert!(scans.hashed_blocks > 0, "nothing was looked at in the background");
    assert_whole(&pool);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(Box::new(FileDevice::open(&path).unwrap()), options).unwrap();
    assert_whole(&pool);
}

/// Sectors of one block are written by different threads: none loses what another wrote.
#[test]
fn sectors_of_one_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let device = FileDevice::create(&path, 4000 * BLOCK as u64).unwrap();
    Pool::create_with(&device, Geometry::plan_with(4000, 256, 128).unwrap()).unwrap();
    drop(device);
    let pool = Pool::open(Box::new(FileDevice::open(&path).unwrap()), Options::default()).unwrap();
    pool.create_volume("a", 4 * BLOCK as u64, Sharing::Inline).unwrap();
    let volume = pool.volume("a").unwrap();
    let rounds = budget("SAPWOOD_POOL_STEPS", 400);
    thread::scope(|scope| {
        for sector in 0..8u64 {
            let volume = &volume;
            scope.spawn(move || {
                let at = |round: u64| (round % 4) * BLOCK as u64 + sector * 512;
                let mut last = [[0; 512]; 4];
                for round in 0..rounds {
                    let mut found = [0; 512];
                    volume.read_at(at(round), &mut found).unwrap();
                    assert!(found == last[round as usize % 4], "sector {sector}, round {round}");
                    let new = [(round * 8 + sector) as u8; 512];
                    volume.write_at(at(round), &new).unwrap();
                    last[round as usize % 4] = new;
                }
            });
        }
    });
    assert_whole(&pool);
}
