//! When blocks of equal content are shared: volumes of all modes, which change while they are used.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{assert_whole, make, open, BLOCK};
use pool::{Pool, PoolError, Sharing};
use store::SimFs;

const BLOCKS: u64 = 4000;
const COUNT: usize = 600;
const SIZE: u64 = (COUNT * BLOCK) as u64;

/// Different blocks, the same ones for a seed.
fn blocks(seed: u64) -> Vec<u8> {
    let word = |n: u64| (seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..COUNT as u64).flat_map(|n| word(n + 1).repeat(BLOCK / 8)).collect()
}

fn read(pool: &Pool, name: &str) -> Vec<u8> {
    let mut data = vec![1; SIZE as usize];
    pool.volume(name).unwrap().read_at(0, &mut data).unwrap();
    data
}

fn mode(pool: &Pool, name: &str) -> Sharing {
    pool.volumes().into_iter().find(|v| v.name == name).unwrap().sharing
}

/// Blocks that are stored, and those of them without a fingerprint.
fn stored(pool: &Pool) -> (usize, usize) {
    let usage = pool.usage().unwrap();
    (usage.stored_bytes as usize / BLOCK, usage.unshared_bytes as usize / BLOCK)
}

fn fresh(seed: u64) -> (SimFs, Arc<Pool>) {
    let fs = SimFs::new(seed);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    pool.settle();
    (fs, pool)
}

/// Closes a pool and opens it again.
fn reopened(fs: SimFs, pool: Arc<Pool>) -> (SimFs, Arc<Pool>) {
    pool.settle();
    pool.close().unwrap();
    drop(pool);
    let fs = fs.restart();
    let pool = open(&fs, BLOCKS).unwrap();
    pool.settle();
    (fs, pool)
}

#[test]
fn the_mode_changes_while_a_volume_is_used_and_is_kept() {
    let (fs, pool) = fresh(1);
    for (name, sharing) in [("a", Sharing::Inline), ("b", Sharing::Background), ("c", Sharing::Off)] {
        pool.create_volume(name, SIZE, sharing).unwrap();
        assert_eq!(mode(&pool, name), sharing);
    }
    let data = blocks(1);
    pool.volume("a").unwrap().write_at(0, &data).unwrap();
    assert_eq!(stored(&pool), (COUNT, 0));
    // Neither hashes what is written: nothing is looked up, nothing comes into the filter.
    let hashed = pool.stats().filter_entries;
    for (n, name) in [(1, "b"), (2, "c")] {
        pool.volume(name).unwrap().write_at(0, &data).unwrap();
        assert_eq!(stored(&pool), ((1 + n) * COUNT, n * COUNT));
    }
    assert_eq!(pool.stats().filter_entries, hashed);
    // Volumes stay open while their modes change.
    let (b, c) = (pool.volume("b").unwrap(), pool.volume("c").unwrap());
    pool.snapshot("c", "before").unwrap();
    pool.share("b", Sharing::Inline).unwrap();
    pool.share("c", Sharing::Background).unwrap();
    assert_eq!((b.sharing(), c.sharing()), (Sharing::Inline, Sharing::Background));
    b.write_at(0, &data).unwrap();
    assert_eq!(stored(&pool), (2 * COUNT, COUNT));
    drop((b, c));
    let (_fs, pool) = reopened(fs, pool);
    for (name, sharing) in [
        ("a", Sharing::Inline),
        ("b", Sharing::Inline),
        ("c", Sharing::Background),
        ("c@before", Sharing::Background),
    ] {
        assert_eq!(mode(&pool, name), sharing, "{name}");
        assert!(read(&pool, name) == data, "{name}");
    }
    // A clone begins in the mode of its snapshot.
    pool.clone_snapshot("c@before", "d").unwrap();
    assert_eq!(pool.volume("d").unwrap().sharing(), Sharing::Background);
    assert!(matches!(pool.share("c@before", Sharing::Off), Err(PoolError::Refused(_))));
    assert!(matches!(pool.share("none", Sharing::Off), Err(PoolError::Refused(_))));
    assert_whole(&pool);
}
