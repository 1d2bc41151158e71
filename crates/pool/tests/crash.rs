//! Power cuts: what was flushed is there, and no block ever shows what was never written to it.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{assert_whole, budget, content, dice, make, open, seed, sharing, BLOCK};
use pool::{Device, Pool, Result, Sharing};
use rand::rngs::StdRng;
use rand::RngExt;
use store::sim_fs::SimOp;
use store::SimFs;

const BLOCKS: u64 = 2200;
/// Room for all volumes and snapshots of the power cuts, if nothing is shared.
const CUT_BLOCKS: u64 = 7000;
const SIZE: usize = 900 * BLOCK;

/// What a block of a volume may hold: what it held at the last flush, or what was written since.
type Block = Vec<[u8; BLOCK]>;

/// What may be found after a power cut.
#[derive(Default)]
struct Expected {
    /// Of each volume and snapshot.
    blocks: BTreeMap<String, Vec<Block>>,
    /// Names that may be there or not: the call that made or deleted them did not return.
    uncertain: Vec<String>,
}

impl Expected {
    /// What was written is durable: only what is there now counts.
    fn flushed(&mut self) {
        for blocks in self.blocks.values_mut() {
            blocks.iter_mut().for_each(|b| drop(b.drain(..b.len() - 1)));
        }
    }

    fn wrote(&mut self, volume: &str, offset: usize, data: &[u8]) {
        let blocks = self.blocks.get_mut(volume).unwrap();
        let mut at = offset;
        while at < offset + data.len() {
            let (n, within) = (at / BLOCK, at % BLOCK);
            let length = (BLOCK - within).min(offset + data.len() - at);
            let mut now = *blocks[n].last().unwrap();
            now[within..within + length].copy_from_slice(&data[at - offset..at - offset + length]);
            blocks[n].push(now);
            at += length;
        }
    }

    /// The last state of a volume, which is all that its snapshot may show.
    fn now(&self, volume: &str) -> Vec<Block> {
        self.blocks[volume].iter().map(|b| vec![*b.last().unwrap()]).collect()
    }
}

/// Runs random operations until one fails, which it does when the power is cut.
fn work(pool: &Arc<Pool>, expected: &mut Expected, dice: &mut StdRng) -> Result<()> {
    let mut made = pool.volumes().len();
    loop {
        let volumes: Vec<String> = expected.blocks.keys().filter(|n| !n.contains('@')).cloned().collect();
        let volume = volumes[dice.random_range(0..volumes.len())].clone();
        match dice.random_range(0..60) {
            0 if expected.blocks.len() < 6 => {
                made += 1;
                let name = format!("s{made}");
                let full = format!("{volume}@{name}");
                if pool.volumes().iter().any(|v| v.name == full) {
                    continue;
                }
                expected.uncertain.push(full.clone());
                let now = expected.now(&volume);
                expected.blocks.insert(full.clone(), now);
                pool.snapshot(&volume, &name)?;
                expected.uncertain.clear();
                expected.flushed();
            }
            1 => {
                let Some(snapshot) = expected.blocks.keys().find(|n| n.contains('@')).cloned() else {
                    continue;
                };
                expected.uncertain.push(snapshot.clone());
                pool.delete(&snapshot)?;
                expected.uncertain.clear();
                expected.blocks.remove(&snapshot);
                expected.flushed();
            }
            2 => pool.share(&volume, sharing(dice))?,
            3..=5 => {
                let budget = if dice.random_bool(0.7) { 1 << 20 } else { dice.random_range(1..40) };
                pool.scan_step(budget)?;
            }
            6..=11 => {
                pool.flush()?;
                expected.flushed();
            }
            12..=17 => {
                let first = dice.random_range(0..SIZE / BLOCK);
                let count = dice.random_range(1..40).min(SIZE / BLOCK - first);
                expected.wrote(&volume, first * BLOCK, &vec![0; count * BLOCK]);
                pool.volume(&volume)?.zero((first * BLOCK) as u64, (count * BLOCK) as u64)?;
            }
            _ => {
                let sector = dice.random_range(0..SIZE / 512);
                let (offset, length) = if dice.random_bool(0.7) {
                    (sector / 8 * BLOCK, dice.random_range(1..20usize) * BLOCK)
                } else {
                    (sector * 512, dice.random_range(1..20usize) * 512)
                };
                let mut data = vec![0; length.min(SIZE - offset)];
                data.chunks_mut(BLOCK).for_each(|block| content(dice, 200, block));
                expected.wrote(&volume, offset, &data);
                pool.volume(&volume)?.write_at(offset as u64, &data)?;
            }
        }
    }
}

/// Compares a pool with what may be there, and goes on from what is.
fn compare(pool: &Arc<Pool>, expected: &mut Expected) {
    let names: Vec<String> = pool.volumes().into_iter().map(|v| v.name).collect();
    for name in &names {
        assert!(expected.blocks.contains_key(name), "{name} was deleted, and is back");
    }
    for name in expected.blocks.keys().cloned().collect::<Vec<_>>() {
        if !names.contains(&name) {
            assert!(expected.uncertain.contains(&name), "{name} is lost");
            expected.blocks.remove(&name);
            continue;
        }
        let mut data = vec![0; SIZE];
        pool.volume(&name).unwrap().read_at(0, &mut data).unwrap();
        let blocks = expected.blocks.get_mut(&name).unwrap();
        for (n, found) in data.chunks_exact(BLOCK).enumerate() {
            assert!(blocks[n].iter().any(|b| b[..] == *found), "{name}: block {n} is not what was written");
            blocks[n] = vec![found.try_into().unwrap()];
        }
    }
    expected.uncertain.clear();
}

#[test]
fn power_cuts() {
    let seed = seed();
    let mut random = dice(seed);
    let mut fs = SimFs::new(seed);
    make(&fs, CUT_BLOCKS, 64);
    let mut expected = Expected::default();
    {
        let pool = open(&fs, CUT_BLOCKS).unwrap();
        for name in ["a", "b"] {
            pool.create_volume(name, SIZE as u64, Sharing::Inline).unwrap();
            expected.blocks.insert(name.into(), vec![vec![[0; BLOCK]]; SIZE / BLOCK]);
        }
    }
    let mut shared = 0;
    for stop in 0..budget("SAPWOOD_POOL_STOPS", 250) {
        fs = fs.crash();
        let pool = loop {
            // Recovery may be cut as well.
            if random.random_bool(0.2) {
                fs.stop_after(random.random_range(1..40));
            }
            match open(&fs, CUT_BLOCKS) {
                Ok(pool) if !fs.is_stopped() => {
                    fs.stop_after(1 << 60);
                    break pool;
                }
                opened => {
                    assert!(fs.is_stopped(), "stop {stop}: {:?}", opened.err());
                    fs = fs.crash();
                }
            }
        };
        compare(&pool, &mut expected);
        if stop % 5 == 0 {
            assert_whole(&pool);
        }
        fs.stop_after(random.random_range(1..500));
        let failed = work(&pool, &mut expected, &mut random);
        assert!(fs.is_stopped(), "stop {stop}: {failed:?}");
        shared += pool.stats().scans.shared_blocks;
        // Killed, not closed.
        drop(pool);
    }
    println!("{shared} blocks were shared in the background");
    assert!(shared > 0);
}

/// Writers at once.
const WRITERS: usize = 6;
/// What each of them has for itself, of one volume.
const PART: usize = 150;

/// Writes and flushes one part of a volume, until the power is cut.
fn write_part(pool: &Pool, blocks: &mut [Block], first: usize, seed: u64) -> Result<()> {
    let mut dice = dice(seed);
    let volume = pool.volume("v")?;
    loop {
        let at = dice.random_range(0..PART);
        let count = dice.random_range(1..16).min(PART - at);
        let offset = ((first + at) * BLOCK) as u64;
        match dice.random_range(0..10) {
            0 | 1 => {
                pool.flush()?;
                blocks.iter_mut().for_each(|b| drop(b.drain(..b.len() - 1)));
            }
            2 => {
                blocks[at..at + count].iter_mut().for_each(|block| block.push([0; BLOCK]));
                volume.zero(offset, (count * BLOCK) as u64)?;
            }
            _ => {
                let mut data = vec![0; count * BLOCK];
                // Few kinds: writers meet at the same content all the time.
                data.chunks_mut(BLOCK).for_each(|block| content(&mut dice, 60, block));
                for (block, new) in blocks[at..].iter_mut().zip(data.chunks_exact(BLOCK)) {
                    block.push(new.try_into().unwrap());
                }
                volume.write_at(offset, &data)?;
            }
        }
    }
}

/// Scans, changes modes, makes and deletes snapshots, until the power is cut.
fn disturb(pool: &Arc<Pool>, seed: u64) -> Result<()> {
    let mut dice = dice(seed);
    loop {
        match dice.random_range(0..12) {
            0 => pool.share("v", sharing(&mut dice))?,
            1 if pool.volumes().len() < 3 => {
                let name = format!("s{}", dice.random_range(0..1_000_000));
                pool.snapshot("v", &name)?;
            }
            2 => {
                let snapshot = pool.volumes().into_iter().find(|v| v.is_snapshot);
                snapshot.map_or(Ok(()), |snapshot| pool.delete(&snapshot.name))?;
            }
            _ => drop(pool.scan_step(dice.random_range(1..300))?),
        }
    }
}

#[test]
fn power_cuts_with_many_writers() {
    let seed = seed();
    let mut random = dice(seed);
    let mut fs = SimFs::new(seed);
    make(&fs, CUT_BLOCKS, 64);
    let size = WRITERS * PART;
    {
        let pool = open(&fs, CUT_BLOCKS).unwrap();
        pool.create_volume("v", (size * BLOCK) as u64, Sharing::Inline).unwrap();
    }
    let mut blocks: Vec<Block> = vec![vec![[0; BLOCK]]; size];
    for stop in 0..budget("SAPWOOD_POOL_STOPS", 250) / 2 {
        fs = fs.crash();
        let pool = open(&fs, CUT_BLOCKS).unwrap();
        let mut found = vec![0; size * BLOCK];
        pool.volume("v").unwrap().read_at(0, &mut found).unwrap();
        for (n, found) in found.chunks_exact(BLOCK).enumerate() {
            assert!(
                blocks[n].iter().any(|b| b[..] == *found),
                "stop {stop}: block {n} is not what was written"
            );
            blocks[n] = vec![found.try_into().unwrap()];
        }
        if stop % 5 == 0 {
            assert_whole(&pool);
        }
        fs.stop_after(random.random_range(1..800));
        let seeds: Vec<u64> = (0..=WRITERS).map(|_| random.random()).collect();
        std::thread::scope(|scope| {
            let pool = &pool;
            for (n, part) in blocks.chunks_mut(PART).enumerate() {
                let seed = seeds[n];
                scope.spawn(move || write_part(pool, part, n * PART, seed));
            }
            scope.spawn(|| disturb(pool, seeds[WRITERS]));
        });
        assert!(fs.is_stopped(), "stop {stop}: writers ended before");
        drop(pool);
    }
}

#[test]
fn flipped_bits_are_found() {
    let fs = SimFs::new(3);
    make(&fs, BLOCKS, 64);
    let mut random = dice(seed());
    let pool = open(&fs, BLOCKS).unwrap();
    pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
    let mut data = vec![0; SIZE];
    data.chunks_mut(BLOCK).for_each(|block| content(&mut random, 300, block));
    pool.volume("a").unwrap().write_at(0, &data).unwrap();
    pool.close().unwrap();
    drop(pool);
    let fs = fs.restart();
    let device = common::device(&fs, BLOCKS);
    let mut whole = vec![0; BLOCKS as usize * BLOCK];
    device.read_at(&mut whole, 0).unwrap();
    let (mut refused, mut found, mut unread) = (0, 0, 0);
    for _ in 0..budget("SAPWOOD_POOL_FLIPS", 120) {
        let at = random.random_range(0..BLOCKS * BLOCK as u64);
        let bit = 1u8 << random.random_range(0..8);
        device.write_at(&whole, 0).unwrap();
        device.write_at(&[whole[at as usize] ^ bit], at).unwrap();
        match open(&fs, BLOCKS) {
            Err(_) => refused += 1,
            Ok(pool) => {
                pool.settle();
                let mut now = vec![0; BLOCK];
                let volume = pool.volume("a").unwrap();
                for (n, block) in data.chunks_exact(BLOCK).enumerate() {
                    // Damage is an error of its block, and never wrong data.
                    if volume.read_at((n * BLOCK) as u64, &mut now).is_ok() {
                        assert!(now == block, "bit {bit} of byte {at}: block {n} is wrong");
                    }
                }
                match pool.check(true) {
                    Ok(report) if report.findings.is_empty() => unread += 1,
                    _ => found += 1,
                }
            }
        }
    }
    println!("{refused} refused, {found} found, {unread} in what nothing uses");
    assert!(found > 5);
}

/// The file system below a pool's file runs full: the write fails, and the pool goes on.
#[test]
fn the_file_system_below_is_full() {
    let fs = SimFs::new(5);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
    let volume = pool.volume("a").unwrap();
    volume.write_at(0, &[1; BLOCK]).unwrap();
    pool.flush().unwrap();
    fs.fail_next(SimOp::Write, rustix::io::Errno::NOSPC.raw_os_error());
    let failed = volume.write_at(BLOCK as u64, &[2; BLOCK]).unwrap_err();
    assert!(failed.to_string().contains("writing block"), "{failed}");
    volume.write_at(2 * BLOCK as u64, &[3; BLOCK]).unwrap();
    pool.flush().unwrap();
    let mut data = vec![9; 3 * BLOCK];
    volume.read_at(0, &mut data).unwrap();
    assert!(data == [[1; BLOCK], [0; BLOCK], [3; BLOCK]].concat());
    assert_whole(&pool);
}
