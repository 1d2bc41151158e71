//! Volumes that are filled while they are used: every block shows what it was made of until it is written.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

use common::{assert_whole, budget, content, dice, make, open, seed, sharing, BLOCK};
use export::{Block, Extent};
use parking_lot::Mutex;
use pool::{FillStep, Pool, PoolError, Result, Sharing};
use rand::rngs::StdRng;
use rand::RngExt;
use store::SimFs;

const BLOCKS: u64 = 4000;
/// More than a leaf, and no whole block at its end.
const SIZE: usize = 1100 * BLOCK + 512;
const SOURCE: &str = "vm/root@0123456789abcdef /srv/backup";

/// What a volume is filled from.
struct Elsewhere {
    data: Vec<u8>,
    damaged: Mutex<HashSet<usize>>,
    is_away: AtomicBool,
}

impl Elsewhere {
    fn new(dice: &mut StdRng) -> Arc<Self> {
        let mut data = vec![0; SIZE];
        for (n, block) in data.chunks_mut(BLOCK).enumerate() {
            // Holes in between.
            if n / 50 % 3 != 1 {
                content(dice, 300, block);
            }
        }
        Arc::new(Elsewhere { data, damaged: Mutex::default(), is_away: AtomicBool::new(false) })
    }

    fn blocks(&self) -> Vec<[u8; BLOCK]> {
        let mut padded = self.data.clone();
        padded.resize(SIZE.next_multiple_of(BLOCK), 0);
        padded.chunks_exact(BLOCK).map(|block| block.try_into().unwrap()).collect()
    }
}

impl export::BlockDevice for Elsewhere {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(io::Error::other("it is away"));
        }
        let range = offset as usize..offset as usize + buf.len();
        let damaged = self.damaged.lock();
        if let Some(n) = (range.start / BLOCK..range.end.div_ceil(BLOCK)).find(|n| damaged.contains(n)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("block {n} is damaged")));
        }
        buf.copy_from_slice(&self.data[range]);
        Ok(())
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let is_hole = |at: u64| at / BLOCK as u64 / 50 % 3 == 1;
            let mut end = at + 1;
            while end < SIZE as u64 && is_hole(end) == is_hole(at) {
                end = (end / BLOCK as u64 + 1) * BLOCK as u64;
            }
            let block = if is_hole(at) { Block::Hole } else { Block::Data };
            let range = at..end.min(SIZE as u64);
            at = range.end;
            if !each(Extent { range, block }) {
                break;
            }
        }
        Ok(())
    }
}

fn fill(pool: &Pool, name: &str) -> FillStep {
    let mut filling = pool.filling(name).unwrap();
    loop {
        match filling.step().unwrap() {
            FillStep::Going { .. } => {}
            ended => return ended,
        }
    }
}

fn read(pool: &Pool, name: &str) -> Vec<u8> {
    let mut data = vec![9; SIZE];
    pool.volume(name).unwrap().read_at(0, &mut data).unwrap();
    data
}

/// What a volume says to be a hole is zeros, and nothing is left out. Returns its bytes in holes.
fn holes(volume: &pool::Volume, model: &[u8], range: Range<u64>) -> u64 {
    let (mut at, mut holes) = (range.start, 0);
    let each = &mut |extent: Extent| {
        assert!(extent.range.start == at && extent.range.end > at, "{extent:?} after {at}");
        at = extent.range.end;
        if extent.block == Block::Hole {
            let data = &model[extent.range.start as usize..extent.range.end as usize];
            assert!(data.iter().all(|byte| *byte == 0), "{extent:?} is no hole");
            holes += data.len() as u64;
        }
        true
    };
    export::BlockDevice::extents(volume, range.clone(), each).unwrap();
    assert!(at >= range.end);
    holes
}

/// A write, a trim or a read at random.
fn act(volume: &pool::Volume, model: &mut [u8], base: usize, dice: &mut StdRng) -> Result<()> {
    let (offset, length) = if dice.random_bool(0.5) {
        (dice.random_range(0..model.len() / BLOCK) * BLOCK, dice.random_range(1..300usize) * BLOCK)
    } else {
        (dice.random_range(0..model.len() / 512) * 512, dice.random_range(1..20usize) * 512)
    };
    let range = offset..(offset + length).min(model.len());
    let at = (base + range.start) as u64;
    match dice.random_range(0..4) {
        0 => {
            volume.zero(at, range.len() as u64)?;
            model[range].fill(0);
        }
        1 | 2 => {
            let mut data = vec![0; range.len()];
            data.chunks_mut(BLOCK).for_each(|block| content(dice, 300, block));
            volume.write_at(at, &data)?;
            model[range].copy_from_slice(&data);
        }
        _ => {
            let mut found = vec![1; range.len()];
            volume.read_at(at, &mut found)?;
            assert!(found == model[range.clone()], "{range:?}");
        }
    }
    Ok(())
}

#[test]
fn what_was_written_wins_and_the_rest_arrives() {
    let seed = seed();
    for round in 0..budget("SAPWOOD_POOL_FILLS", 12) {
        let mut random = dice(seed * 1000 + round);
        let fs = SimFs::new(seed);
        make(&fs, BLOCKS, 64);
        let mut pool = open(&fs, BLOCKS).unwrap();
        let elsewhere = Elsewhere::new(&mut random);
        pool.create_filled("v", SIZE as u64, sharing(&mut random), SOURCE).unwrap();
        assert!(pool.snapshot("v", "s").unwrap_err().to_string().contains("still being filled"));
        assert!(pool.resize("v", 512).unwrap_err().to_string().contains("still being filled"));
        pool.set_origin("v", elsewhere.clone()).unwrap();
        let mut model = elsewhere.data.clone();
        let mut filling = pool.filling("v").unwrap();
        assert!(holes(&pool.volume("v").unwrap(), &model, 0..SIZE as u64) >= (300 * BLOCK) as u64);
        loop {
            let start = random.random_range(0..SIZE as u64);
            holes(&pool.volume("v").unwrap(), &model, start..random.random_range(start + 1..=SIZE as u64));
            for _ in 0..random.random_range(0..6) {
                act(&pool.volume("v").unwrap(), &mut model, 0, &mut random).unwrap();
            }
            if random.random_bool(0.1) {
                // Closed in between, and opened again.
                let before = pool.fills().unwrap();
                pool.close().unwrap();
                pool = open(&fs, BLOCKS).unwrap();
                assert_eq!(pool.fills().unwrap(), before);
                assert_eq!(before[0].source, SOURCE);
                pool.set_origin("v", elsewhere.clone()).unwrap();
                filling = pool.filling("v").unwrap();
            }
            match filling.step().unwrap() {
                FillStep::Going { .. } => {
                    assert!(pool.end_fill("v").is_err() || pool.fills().unwrap().is_empty())
                }
                FillStep::Arrived => break,
                other => panic!("{other:?}"),
            }
            if pool.fills().unwrap().is_empty() {
                break;
            }
        }
        assert!(read(&pool, "v") == model, "round {round}");
        assert_whole(&pool);
        if !pool.fills().unwrap().is_empty() {
            elsewhere.is_away.store(true, Ordering::SeqCst);
            pool.end_fill("v").unwrap();
        }
        for _ in 0..30 {
            act(&pool.volume("v").unwrap(), &mut model, 0, &mut random).unwrap();
        }
        pool.snapshot("v", "s").unwrap();
        for _ in 0..30 {
            act(&pool.volume("v").unwrap(), &mut model, 0, &mut random).unwrap();
        }
        assert!(read(&pool, "v") == model, "round {round}");
        assert_whole(&pool);
        pool.close().unwrap();
    }
}

#[test]
fn guests_write_while_it_arrives() {
    const REGIONS: usize = 4;
    let seed = seed();
    let mut random = dice(seed);
    let fs = SimFs::new(seed);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    let elsewhere = Elsewhere::new(&mut random);
    for round in 0..budget("SAPWOOD_POOL_FILLS", 12) {
        pool.create_filled("v", SIZE as u64, sharing(&mut random), SOURCE).unwrap();
        pool.set_origin("v", elsewhere.clone()).unwrap();
        let part = SIZE / REGIONS / 512 * 512;
        thread::scope(|scope| {
            for region in 0..REGIONS {
                let (pool, elsewhere) = (&pool, &elsewhere);
                scope.spawn(move || {
                    let mut random = dice(seed * 100 + round * 10 + region as u64);
                    let range = region * part..(region + 1) * part;
                    let mut model = elsewhere.data[range.clone()].to_vec();
                    let volume = pool.volume("v").unwrap();
                    for _ in 0..60 {
                        act(&volume, &mut model, range.start, &mut random).unwrap();
                    }
                    let mut found = vec![1; part];
                    volume.read_at(range.start as u64, &mut found).unwrap();
                    assert!(found == model);
                });
            }
            assert_eq!(fill(&pool, "v"), FillStep::Arrived);
            pool.end_fill("v").unwrap();
        });
        assert_whole(&pool);
        pool.delete("v").unwrap();
        pool.settle();
    }
}

/// One that is damaged stays so: everything else arrives around it, and a guest that writes it makes it whole.
#[test]
fn damage_elsewhere_is_an_error_of_its_blocks_only() {
    let fs = SimFs::new(1);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    let elsewhere = Elsewhere::new(&mut dice(seed()));
    let damaged = [3usize, 4, 700];
    elsewhere.damaged.lock().extend(damaged);
    pool.create_filled("v", SIZE as u64, Sharing::Inline, SOURCE).unwrap();
    let volume = pool.volume("v").unwrap();
    // It cannot be opened at first.
    pool.fail_origin("v", "nobody is there").unwrap();
    let mut block = [0; BLOCK];
    let error = volume.read_at(0, &mut block).unwrap_err().to_string();
    assert!(error.contains("v: the content of 4096 bytes at 0 has not arrived: nobody is there"), "{error}");
    pool.set_origin("v", elsewhere.clone()).unwrap();
    let mut model = elsewhere.data.clone();
    // A part of a block that cannot be read.
    assert!(matches!(volume.write_at(3 * BLOCK as u64 + 512, &[1; 512]), Err(PoolError::Absent { .. })));
    assert_eq!(fill(&pool, "v"), FillStep::Incomplete);
    for n in 0..SIZE / BLOCK {
        let read = volume.read_at((n * BLOCK) as u64, &mut block);
        assert_eq!(read.is_err(), damaged.contains(&n), "block {n}");
        assert!(read.is_err() || block == model[n * BLOCK..(n + 1) * BLOCK], "block {n}");
    }
    assert!(pool.end_fill("v").is_err());
    // What has arrived is here.
    elsewhere.is_away.store(true, Ordering::SeqCst);
    volume.read_at(5 * BLOCK as u64, &mut block).unwrap();
    assert!(block == model[5 * BLOCK..6 * BLOCK]);
    assert!(matches!(pool.filling("v").unwrap().step(), Err(PoolError::Absent { .. })), "it is away");
    elsewhere.is_away.store(false, Ordering::SeqCst);
    for n in damaged {
        volume.write_at((n * BLOCK) as u64, &[7; BLOCK]).unwrap();
        model[n * BLOCK..(n + 1) * BLOCK].fill(7);
    }
    assert_eq!(fill(&pool, "v"), FillStep::Arrived);
    pool.end_fill("v").unwrap();
    assert!(read(&pool, "v") == model);
    assert_whole(&pool);
}

#[test]
fn it_is_deleted_while_it_arrives() {
    let fs = SimFs::new(1);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    let elsewhere = Elsewhere::new(&mut dice(seed()));
    let empty = pool.stats().free_bytes;
    pool.create_filled("v", SIZE as u64, Sharing::Inline, SOURCE).unwrap();
    pool.set_origin("v", elsewhere.clone()).unwrap();
    let mut filling = pool.filling("v").unwrap();
    filling.step().unwrap();
    pool.delete("v").unwrap();
    pool.settle();
    assert_eq!(filling.step().unwrap(), FillStep::Gone);
    // Another one in its place is not touched.
    pool.create_filled("w", SIZE as u64, Sharing::Inline, SOURCE).unwrap();
    assert_eq!(filling.step().unwrap(), FillStep::Gone);
    assert_eq!(pool.fills().unwrap()[0].filled, 0);
    pool.delete("w").unwrap();
    pool.settle();
    pool.flush().unwrap();
    assert_whole(&pool);
    assert!(pool.fills().unwrap().is_empty());
    assert!(pool.stats().free_bytes + 8 * BLOCK as u64 >= empty);
}

/// A pool that is full while something arrives goes on when there is room.
#[test]
fn there_is_no_room_for_what_arrives() {
    let fs = SimFs::new(1);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    let mut random = dice(seed());
    let elsewhere = Elsewhere::new(&mut random);
    pool.create_volume("big", BLOCKS * BLOCK as u64, Sharing::Off).unwrap();
    let big = pool.volume("big").unwrap();
    let mut n = 0;
    while pool.stats().free_bytes > 100 * BLOCK as u64 {
        big.write_at(n * BLOCK as u64, &[(n % 200) as u8 + 1; BLOCK]).unwrap();
        n += 1;
    }
    pool.create_filled("v", SIZE as u64, Sharing::Off, SOURCE).unwrap();
    pool.set_origin("v", elsewhere.clone()).unwrap();
    let mut filling = pool.filling("v").unwrap();
    let failed = loop {
        if let Err(error) = filling.step() {
            break error;
        }
    };
    assert!(matches!(failed, PoolError::Full), "{failed}");
    assert!(read(&pool, "v") == elsewhere.data);
    big.zero(0, n * BLOCK as u64).unwrap();
    while filling.step().unwrap() != FillStep::Arrived {}
    pool.end_fill("v").unwrap();
    assert!(read(&pool, "v") == elsewhere.data);
    assert_whole(&pool);
}

#[test]
fn power_cuts_while_it_arrives() {
    let seed = seed();
    let mut random = dice(seed);
    let mut fs = SimFs::new(seed);
    make(&fs, BLOCKS, 64);
    let elsewhere = Elsewhere::new(&mut random);
    // Of each block: what it held at the last flush, and what was written since.
    let mut expected: Vec<Vec<[u8; BLOCK]>> = Vec::new();
    let (mut ends, mut filled_before) = (0, 0);
    {
        open(&fs, BLOCKS).unwrap().close().unwrap();
    }
    for stop in 0..budget("SAPWOOD_POOL_STOPS", 250) {
        fs = fs.crash();
        let pool = open(&fs, BLOCKS).unwrap();
        let fills = pool.fills().unwrap();
        if let Some(fill) = fills.first() {
            assert!(fill.filled >= filled_before || expected.is_empty(), "stop {stop}: it goes back");
            pool.set_origin("v", elsewhere.clone()).unwrap();
        }
        if pool.volumes().is_empty() {
            assert!(expected.is_empty(), "stop {stop}: it is lost");
            pool.create_filled("v", SIZE as u64, sharing(&mut random), SOURCE).unwrap();
            pool.set_origin("v", elsewhere.clone()).unwrap();
            expected = elsewhere.blocks().into_iter().map(|block| vec![block]).collect();
            filled_before = 0;
        }
        let found = read(&pool, "v");
        for (n, block) in found.chunks(BLOCK).enumerate() {
            let is_one = expected[n].iter().any(|b| b[..block.len()] == *block);
            assert!(is_one, "stop {stop}: block {n} is not what was written");
            expected[n] = vec![{
                let mut whole = [0; BLOCK];
                whole[..block.len()].copy_from_slice(block);
                whole
            }];
        }
        if stop % 5 == 0 {
            assert_whole(&pool);
        }
        if pool.fills().unwrap().is_empty() {
            ends += 1;
            expected.clear();
            pool.delete("v").unwrap();
            pool.settle();
            pool.flush().unwrap();
            continue;
        }
        fs.stop_after(random.random_range(1..400));
        let failed = work(&pool, &mut expected, &mut filled_before, &mut random);
        assert!(fs.is_stopped() || failed.is_ok(), "stop {stop}: {failed:?}");
        drop(pool);
    }
    println!("{ends} fills ended");
    assert!(ends > 3);
}

fn work(
    pool: &Arc<Pool>,
    expected: &mut [Vec<[u8; BLOCK]>],
    filled: &mut u64,
    dice: &mut StdRng,
) -> Result<()> {
    let volume = pool.volume("v")?;
    let mut filling = pool.filling("v")?;
    loop {
        match dice.random_range(0..10) {
            0..=3 => {
                if filling.step()? == FillStep::Arrived {
                    return pool.end_fill("v");
                }
            }
            4 => {
                let before = pool.fills()?[0].filled;
                pool.flush()?;
                *filled = before;
                expected.iter_mut().for_each(|b| drop(b.drain(..b.len() - 1)));
            }
            action => {
                let first = dice.random_range(0..SIZE / BLOCK);
                let count = dice.random_range(1..20).min(SIZE / BLOCK - first);
                let mut data = vec![0; count * BLOCK];
                if action > 5 {
                    data.chunks_mut(BLOCK).for_each(|block| content(dice, 200, block));
                }
                for (n, block) in data.chunks_exact(BLOCK).enumerate() {
                    expected[first + n].push(block.try_into().unwrap());
                }
                match action {
                    5 => volume.zero((first * BLOCK) as u64, data.len() as u64)?,
                    _ => volume.write_at((first * BLOCK) as u64, &data)?,
                }
            }
        }
    }
}
