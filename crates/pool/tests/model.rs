//! A pool behaves like plain arrays, whatever is done with it.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{assert_whole, budget, content, dice, make, open, seed, sharing, BLOCK};
use pool::{Pool, PoolError};
use rand::rngs::StdRng;
use rand::RngExt;
use store::SimFs;

const BLOCKS: u64 = 3000;

/// What every volume and snapshot holds.
#[derive(Default)]
struct Model {
    volumes: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<String, Vec<u8>>,
    made: u32,
}

impl Model {
    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}{}", self.made)
    }
}

fn pick(dice: &mut StdRng, names: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let mut names = names;
    let count = names.len();
    (count > 0).then(|| names.nth(dice.random_range(0..count)).unwrap())
}

fn range(dice: &mut StdRng, size: usize) -> std::ops::Range<usize> {
    let sector = 512;
    let start = dice.random_range(0..size / sector) * sector;
    let longest = if dice.random_bool(0.1) { size } else { 16 * BLOCK };
    let length = dice.random_range(1..=longest / sector) * sector;
    // Whole blocks as often as not.
    let align = if dice.random_bool(0.5) { BLOCK } else { sector };
    let start = start / align * align;
    start..(start + length.next_multiple_of(align)).min(size)
}

/// One random operation. Full pools are part of the game: what failed must have changed nothing.
fn step(pool: &Arc<Pool>, model: &mut Model, dice: &mut StdRng) {
    match dice.random_range(0..100) {
        0..=2 if model.volumes.len() < 6 => {
            let (name, size) = (model.name("v"), dice.random_range(1..6000usize) * 512);
            pool.create_volume(&name, size as u64, sharing(dice)).unwrap();
            model.volumes.insert(name, vec![0; size]);
        }
        3..=5 if model.snapshots.len() < 8 => {
            let Some(volume) = pick(dice, model.volumes.keys().cloned()) else { return };
            let name = model.name("s");
            pool.snapshot(&volume, &name).unwrap();
            model.snapshots.insert(format!("{volume}@{name}"), model.volumes[&volume].clone());
        }
        6..=7 if model.volumes.len() < 6 => {
            let Some(snapshot) = pick(dice, model.snapshots.keys().cloned()) else { return };
            let name = model.name("c");
            pool.clone_snapshot(&snapshot, &name).unwrap();
            model.volumes.insert(name, model.snapshots[&snapshot].clone());
        }
        8..=10 => {
            let Some(snapshot) = pick(dice, model.snapshots.keys().cloned()) else { return };
            pool.delete(&snapshot).unwrap();
            model.snapshots.remove(&snapshot);
        }
        11 => {
            let Some(volume) = pick(dice, model.volumes.keys().cloned()) else { return };
            let has_snapshots = model.snapshots.keys().any(|s| s.starts_with(&format!("{volume}@")));
            match pool.delete(&volume) {
                Ok(()) => drop(model.volumes.remove(&volume)),
                Err(PoolError::Refused(_)) if has_snapshots => {}
                Err(error) => panic!("{error}"),
            }
        }
        12..=13 => {
            let Some(volume) = pick(dice, model.volumes.keys().cloned()) else { return };
            let size = dice.random_range(1..6000usize) * 512;
            match pool.resize(&volume, size as u64) {
                Ok(()) => model.volumes.get_mut(&volume).unwrap().resize(size, 0),
                // Shrinking may have to copy what snapshots share.
                Err(PoolError::Full) => *model.volumes.get_mut(&volume).unwrap() = read(pool, &volume),
                Err(error) => panic!("{error}"),
            }
        }
        14..=25 => {
            let Some(name) = pick(dice, model.volumes.keys().cloned()) else { return };
            let data = model.volumes.get_mut(&name).unwrap();
            let range = range(dice, data.len());
            match pool.volume(&name).unwrap().zero(range.start as u64, range.len() as u64) {
                Ok(()) => data[range].fill(0),
                Err(PoolError::Full) => *data = read(pool, &name),
                Err(error) => panic!("{error}"),
            }
        }
        26 => pool.flush().unwrap(),
        27 => {
            let Some(before) = pick(dice, model.snapshots.keys().cloned()) else { return };
            let Some(after) = pick(dice, model.snapshots.keys().cloned()) else { return };
            compare(pool, (&before, &model.snapshots[&before]), (&after, &model.snapshots[&after]));
        }
        28..=29 => {
            let Some(name) = pick(dice, model.volumes.keys().cloned()) else { return };
            let sharing = sharing(dice);
            pool.share(&name, sharing).unwrap();
            let of_it = |v: &pool::VolumeInfo| {
                v.name == name || v.is_snapshot && v.name.starts_with(&format!("{name}@"))
            };
            assert!(pool.volumes().iter().filter(|v| of_it(v)).all(|v| v.sharing == sharing), "{name}");
        }
        30..=33 => {
            // A whole scan, or a part of one.
            let budget = if dice.random_bool(0.5) { 1 << 20 } else { dice.random_range(1..40) };
            pool.scan_step(budget).unwrap();
        }
        34..=45 => {
            let all = model.volumes.iter().chain(&model.snapshots);
            let Some(name) = pick(dice, all.map(|(n, _)| n.clone()).collect::<Vec<_>>().into_iter()) else {
                return;
            };
            let wanted = model.volumes.get(&name).or_else(|| model.snapshots.get(&name)).unwrap();
            let range = range(dice, wanted.len());
            let mut found = vec![1; range.len()];
            pool.volume(&name).unwrap().read_at(range.start as u64, &mut found).unwrap();
            assert!(found == wanted[range.clone()], "{name} {range:?}");
        }
        _ => {
            let Some(name) = pick(dice, model.volumes.keys().cloned()) else { return };
            let data = model.volumes.get_mut(&name).unwrap();
            let range = range(dice, data.len());
            let mut new = vec![0; range.len()];
            new.chunks_mut(BLOCK).for_each(|block| content(dice, 400, block));
            match pool.volume(&name).unwrap().write_at(range.start as u64, &new) {
                Ok(()) => data[range].copy_from_slice(&new),
                // A write of several pieces may have written some of them.
                Err(PoolError::Full) => {
                    let now = read(pool, &name);
                    for at in 0..data.len() {
                        let is_old = now[at] == data[at];
                        let is_new = range.contains(&at) && now[at] == new[at - range.start];
                        assert!(is_old || is_new, "{name}: byte {at}");
                    }
                    *data = now;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// What changed between two snapshots is in the ranges that are told, and nothing else if nothing did.
fn compare(pool: &Arc<Pool>, before: (&str, &[u8]), after: (&str, &[u8])) {
    let key = pool.snapshot_facts(before.0).unwrap().key;
    let told = pool.changed(after.0, &key).unwrap();
    assert!(told.is_none() || before.1.len() == after.1.len());
    assert!(before.0 != after.0 || told == Some(Vec::new()));
    let Some(told) = told else { return };
    assert!(told.is_sorted_by_key(|r| r.start) && told.iter().all(|r| r.end <= after.1.len() as u64));
    let mut rest = after.1.to_vec();
    for range in told {
        let range = range.start as usize..range.end as usize;
        rest[range.clone()].copy_from_slice(&before.1[range]);
    }
    assert!(rest == before.1, "from {} to {} more has changed", before.0, after.0);
}

fn read(pool: &Arc<Pool>, name: &str) -> Vec<u8> {
    let volume = pool.volume(name).unwrap();
    let mut data = vec![1; volume.size() as usize];
    volume.read_at(0, &mut data).unwrap();
    data
}

fn assert_equal(pool: &Arc<Pool>, model: &Model) {
    let names: Vec<_> = pool.volumes().into_iter().map(|v| v.name).collect();
    let mut wanted: Vec<_> = model.volumes.keys().chain(model.snapshots.keys()).cloned().collect();
    wanted.sort();
    assert_eq!(names, wanted);
    for (name, data) in model.volumes.iter().chain(&model.snapshots) {
        assert!(&read(pool, name) == data, "{name}");
    }
}

#[test]
fn it_behaves_like_arrays() {
    let seed = seed();
    let mut shared = 0;
    for round in 0..budget("SAPWOOD_POOL_ROUNDS", 6) {
        let mut dice = dice(seed * 1000 + round);
        let fs = SimFs::new(round);
        make(&fs, BLOCKS, 64);
        let mut model = Model::default();
        let mut pool = open(&fs, BLOCKS).unwrap();
        for n in 0..budget("SAPWOOD_POOL_STEPS", 1500) {
            step(&pool, &mut model, &mut dice);
            if n % 250 == 249 {
                assert_whole(&pool);
                assert_equal(&pool, &model);
            }
            if n % 400 == 399 {
                // Closed, or left as it is: both open again.
                let is_closed = dice.random_bool(0.5);
                shared += pool.stats().scans.shared_blocks;
                pool.settle();
                let fingerprints = pool.stats().filter_entries;
                if is_closed {
                    pool.close().unwrap();
                } else {
                    pool.flush().unwrap();
                }
                drop(pool);
                let fs = fs.restart();
                pool = open(&fs, BLOCKS).unwrap();
                assert_whole(&pool);
                assert_equal(&pool, &model);
                // From its checkpoint or from the stores, the filter has what it had; but for entries of blocks that were freed
                // while it was loaded the last time, which lead to nothing.
                let entries = pool.stats().filter_entries;
                assert!(
                    (entries..entries + 64).contains(&fingerprints),
                    "{entries} of {fingerprints} entries"
                );
            }
        }
        shared += pool.stats().scans.shared_blocks;
        pool.close().unwrap();
    }
    println!("{shared} blocks were shared in the background");
    assert!(shared > 0);
}
