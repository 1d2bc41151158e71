//! When blocks of equal content are shared: volumes of all modes, which change while they are used.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::common::{assert_whole, device, make, open, scan, Watched, BLOCK};
use format::pool::Geometry;
use pool::{Device, Options, Pool, PoolError, Scanning, Sharing};
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
    assert!(matches!(pool.share("none", Sharing::Off), Err(PoolError::NotFound(_))));
    assert_whole(&pool);
}

/// Different blocks of all volumes and snapshots: what has to be stored if all is shared.
fn distinct(pool: &Pool) -> usize {
    let all: Vec<Vec<u8>> = pool.volumes().iter().map(|v| read(pool, &v.name)).collect();
    let blocks = all.iter().flat_map(|data| data.chunks(BLOCK));
    blocks.filter(|block| block.iter().any(|byte| *byte != 0)).collect::<HashSet<_>>().len()
}

#[test]
fn cold_blocks_are_shared_in_the_background() {
    let (fs, pool) = fresh(2);
    let data = blocks(1);
    for (name, sharing) in [("a", Sharing::Inline), ("b", Sharing::Background), ("c", Sharing::Background)] {
        pool.create_volume(name, SIZE, sharing).unwrap();
        pool.volume(name).unwrap().write_at(0, &data).unwrap();
    }
    pool.flush().unwrap();
    assert_eq!(stored(&pool), (3 * COUNT, 2 * COUNT));
    let free = pool.stats().free_bytes;
    // The first scan sees that they are there. The second one sees that they have not been written since.
    scan(&pool);
    assert_eq!((pool.stats().scans.hashed_blocks, stored(&pool)), (0, (3 * COUNT, 2 * COUNT)));
    scan(&pool);
    let scans = pool.stats().scans;
    assert_eq!((scans.hashed_blocks, scans.shared_blocks), (2 * COUNT as u64, 2 * COUNT as u64));
    assert_eq!(stored(&pool), (COUNT, 0));
    ["a", "b", "c"].iter().for_each(|name| assert!(read(&pool, name) == data, "{name}"));
    assert_whole(&pool);
    // The next scan finds that nothing is left, and those behind it look at nothing.
    scan(&pool);
    assert_eq!(scan(&pool), 0);
    let (_fs, pool) = reopened(fs, pool);
    assert_eq!(scan(&pool), 0);
    assert_eq!(pool.stats().free_bytes, free + 2 * SIZE);
}

#[test]
fn what_is_written_again_and_again_is_not_hashed() {
    let (_fs, pool) = fresh(3);
    pool.create_volume("a", SIZE, Sharing::Background).unwrap();
    let volume = pool.volume("a").unwrap();
    volume.write_at(0, &blocks(1)).unwrap();
    let half = COUNT / 2 * BLOCK;
    for round in 2..6 {
        scan(&pool);
        volume.write_at(0, &blocks(round)[..half]).unwrap();
    }
    assert_eq!(pool.stats().scans.hashed_blocks as usize, COUNT / 2);
    scan(&pool);
    assert_eq!(pool.stats().scans.hashed_blocks as usize, COUNT / 2);
    scan(&pool);
    assert_eq!(pool.stats().scans.hashed_blocks as usize, COUNT);
    assert_eq!(stored(&pool), (COUNT, 0));
    assert_whole(&pool);
}

/// The dirty set is what has no fingerprint: it is found again, after a kill as well.
#[test]
fn what_was_not_looked_at_is_found_after_opening() {
    for is_closed in [true, false] {
        let (fs, pool) = fresh(4);
        let data = blocks(1);
        for name in ["a", "b"] {
            pool.create_volume(name, SIZE, Sharing::Background).unwrap();
            pool.volume(name).unwrap().write_at(0, &data).unwrap();
        }
        scan(&pool);
        let (_fs, pool) = if is_closed {
            reopened(fs, pool)
        } else {
            pool.flush().unwrap();
            drop(pool);
            let fs = fs.crash();
            let pool = open(&fs, BLOCKS).unwrap();
            (fs, pool)
        };
        assert_eq!(stored(&pool), (2 * COUNT, 2 * COUNT));
        scan(&pool);
        assert_eq!(stored(&pool), (2 * COUNT, 2 * COUNT));
        scan(&pool);
        assert_eq!(stored(&pool), (COUNT, 0));
        assert_whole(&pool);
    }
}

/// Leaves that volumes, snapshots and clones have in common are changed where they are, and none is copied.
#[test]
fn snapshots_and_clones_keep_their_content() {
    let (_fs, pool) = fresh(5);
    pool.create_volume("a", SIZE, Sharing::Background).unwrap();
    pool.create_volume("b", SIZE, Sharing::Background).unwrap();
    let volume = pool.volume("a").unwrap();
    volume.write_at(0, &blocks(1)).unwrap();
    pool.volume("b").unwrap().write_at(0, &blocks(1)).unwrap();
    pool.snapshot("a", "x").unwrap();
    // Half of the leaves is copied, with what is not written over.
    volume.write_at(0, &blocks(2)[..100 * BLOCK]).unwrap();
    pool.snapshot("a", "y").unwrap();
    pool.clone_snapshot("a@x", "c").unwrap();
    pool.volume("c").unwrap().write_at(50 * BLOCK as u64, &blocks(1)[..100 * BLOCK]).unwrap();
    volume.write_at(0, &blocks(1)[..20 * BLOCK]).unwrap();
    let before: Vec<_> = pool.volumes().into_iter().map(|v| (read(&pool, &v.name), v.name)).collect();
    let nodes = |pool: &Pool| pool.check(true).unwrap().used_blocks as usize - stored(pool).0;
    let nodes_before = nodes(&pool);
    scan(&pool);
    scan(&pool);
    assert_eq!(stored(&pool), (distinct(&pool), 0));
    assert_eq!(nodes(&pool), nodes_before);
    for (data, name) in before {
        assert!(read(&pool, &name) == data, "{name}");
    }
    assert_whole(&pool);
}

/// What a volume wrote that is gone is found in its clone.
#[test]
fn a_clone_outlives_what_wrote_its_blocks() {
    for sharing in [Sharing::Background, Sharing::Off] {
        let (_fs, pool) = fresh(6);
        pool.create_volume("other", SIZE, Sharing::Inline).unwrap();
        pool.volume("other").unwrap().write_at(0, &blocks(1)).unwrap();
        pool.create_volume("a", SIZE, Sharing::Background).unwrap();
        pool.volume("a").unwrap().write_at(0, &blocks(1)).unwrap();
        pool.snapshot("a", "x").unwrap();
        pool.clone_snapshot("a@x", "clone").unwrap();
        pool.share("clone", sharing).unwrap();
        pool.delete("a@x").unwrap();
        pool.delete("a").unwrap();
        pool.settle();
        scan(&pool);
        scan(&pool);
        let wanted = if sharing == Sharing::Off { (2 * COUNT, COUNT) } else { (COUNT, 0) };
        assert_eq!(stored(&pool), wanted);
        assert!(read(&pool, "clone") == blocks(1));
        assert_whole(&pool);
    }
}

#[test]
fn off_is_left_alone_until_the_mode_changes() {
    let (_fs, pool) = fresh(7);
    for name in ["a", "b"] {
        pool.create_volume(name, SIZE, Sharing::Off).unwrap();
        pool.volume(name).unwrap().write_at(0, &blocks(1)).unwrap();
    }
    scan(&pool);
    // Nothing is read again that was found to be off.
    assert_eq!((scan(&pool), scan(&pool)), (0, 0));
    assert_eq!((pool.stats().scans.hashed_blocks, stored(&pool)), (0, (2 * COUNT, 2 * COUNT)));
    // Inline shares what is written from now on; what is there is shared in the background.
    pool.share("b", Sharing::Inline).unwrap();
    scan(&pool);
    scan(&pool);
    assert_eq!(pool.stats().scans.hashed_blocks as usize, COUNT);
    assert_eq!(stored(&pool), (2 * COUNT, COUNT));
    pool.share("a", Sharing::Background).unwrap();
    scan(&pool);
    scan(&pool);
    assert_eq!(stored(&pool), (COUNT, 0));
    assert_whole(&pool);
}

/// Something happens to blocks between the moment at which they are looked up and that at which they are hashed.
#[test]
fn a_write_during_a_scan_is_not_lost() {
    type Disturb = fn(&Arc<Pool>);
    let disturbances: [(&str, Disturb); 5] = [
        ("a write", |pool| pool.volume("b").unwrap().write_at(0, &blocks(3)).unwrap()),
        ("zeros", |pool| pool.volume("b").unwrap().zero(BLOCK as u64, 300 * BLOCK as u64).unwrap()),
        ("parts", |pool| pool.volume("b").unwrap().write_at(700, &[7; 3 * BLOCK]).unwrap()),
        ("a snapshot and a write", |pool| {
            pool.snapshot("b", "x").unwrap();
            pool.volume("b").unwrap().write_at(0, &blocks(3)[..300 * BLOCK]).unwrap();
        }),
        ("a deletion", |pool| {
            pool.delete("b").unwrap();
            pool.settle();
            pool.create_volume("b", SIZE, Sharing::Background).unwrap();
            pool.volume("b").unwrap().write_at(0, &blocks(4)).unwrap();
            pool.flush().unwrap();
        }),
    ];
    for (what, disturb) in disturbances {
        let fs = SimFs::new(8);
        make(&fs, BLOCKS, 64);
        let shared = Arc::new((OnceLock::<Weak<Pool>>::new(), AtomicBool::new(false)));
        let groups = Geometry::plan_with(BLOCKS, 256, 64).unwrap();
        let device = {
            let shared = Arc::clone(&shared);
            Watched::new(&fs, BLOCKS, move |blocks| {
                let is_data = groups.locate(format::pool::PoolBlock(blocks.start)).is_some();
                if is_data && shared.1.swap(false, Ordering::SeqCst) {
                    disturb(&shared.0.get().unwrap().upgrade().unwrap());
                }
            })
        };
        let pool = Pool::open(Box::new(device), Options::default()).unwrap();
        pool.settle();
        shared.0.set(Arc::downgrade(&pool)).unwrap();
        for (name, sharing) in [("a", Sharing::Inline), ("b", Sharing::Background)] {
            pool.create_volume(name, SIZE, sharing).unwrap();
            pool.volume(name).unwrap().write_at(0, &blocks(1)).unwrap();
        }
        scan(&pool);
        shared.1.store(true, Ordering::SeqCst);
        scan(&pool);
        assert!(!shared.1.load(Ordering::SeqCst), "{what}: nothing was read");
        let mut wanted = blocks(1);
        match what {
            "a write" => wanted = blocks(3),
            "zeros" => wanted[BLOCK..301 * BLOCK].fill(0),
            "parts" => wanted[700..700 + 3 * BLOCK].fill(7),
            "a snapshot and a write" => {
                wanted[..300 * BLOCK].copy_from_slice(&blocks(3)[..300 * BLOCK]);
                assert!(read(&pool, "b@x") == blocks(1), "the snapshot after {what}");
            }
            _ => wanted = blocks(4),
        }
        assert!(read(&pool, "b") == wanted, "{what}");
        assert!(read(&pool, "a") == blocks(1), "{what}");
        assert_whole(&pool);
        scan(&pool);
        scan(&pool);
        assert_eq!(stored(&pool), (distinct(&pool), 0), "{what}");
        assert!(read(&pool, "b") == wanted, "{what}");
        assert_whole(&pool);
    }
}

#[test]
fn sharing_makes_room_in_a_full_pool() {
    let (_fs, pool) = fresh(9);
    let mut written = 0;
    for n in 0.. {
        let name = format!("v{n}");
        pool.create_volume(&name, SIZE, Sharing::Background).unwrap();
        match pool.volume(&name).unwrap().write_at(0, &blocks(1)) {
            Ok(()) => written += 1,
            Err(PoolError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(written > 3);
    scan(&pool);
    scan(&pool);
    assert_eq!(stored(&pool), (COUNT, 0));
    pool.create_volume("more", SIZE, Sharing::Off).unwrap();
    pool.volume("more").unwrap().write_at(0, &blocks(2)).unwrap();
    assert!(read(&pool, "v0") == blocks(1) && read(&pool, "more") == blocks(2));
    assert_whole(&pool);
}

/// A block that is damaged gets no fingerprint: it would look like what was written.
#[test]
fn damage_is_not_given_a_fingerprint() {
    let (fs, pool) = fresh(10);
    pool.create_volume("a", SIZE, Sharing::Background).unwrap();
    pool.volume("a").unwrap().write_at(0, &blocks(1)).unwrap();
    let (fs, pool) = reopened(fs, pool);
    let wanted = blocks(1);
    let (mut block, device) = ([0; BLOCK], device(&fs, BLOCKS));
    let damaged = (0..BLOCKS).find(|n| {
        device.read_at(&mut block, n * BLOCK as u64).unwrap();
        block[..] == wanted[7 * BLOCK..8 * BLOCK]
    });
    device.write_at(&[9], damaged.unwrap() * BLOCK as u64 + 5).unwrap();
    scan(&pool);
    scan(&pool);
    assert_eq!(stored(&pool), (COUNT, 1));
    let mut found = [0; BLOCK];
    assert!(matches!(
        pool.volume("a").unwrap().read_at(7 * BLOCK as u64, &mut found),
        Err(PoolError::Damaged { .. })
    ));
    pool.volume("a").unwrap().read_at(8 * BLOCK as u64, &mut found).unwrap();
    assert!(found == wanted[8 * BLOCK..9 * BLOCK]);
}

/// The pool's own thread, at its rate.
#[test]
fn a_thread_shares_meanwhile() {
    let fs = SimFs::new(11);
    make(&fs, BLOCKS, 64);
    let scanning = Scanning { bytes_per_second: 1 << 30, pause: Duration::from_millis(1) };
    let options = Options { scanning: Some(scanning), ..Options::default() };
    let pool = Pool::open(Box::new(device(&fs, BLOCKS)), options).unwrap();
    assert_eq!(pool.stats().scanning, Some(scanning));
    for name in ["a", "b"] {
        pool.create_volume(name, SIZE, Sharing::Background).unwrap();
        pool.volume(name).unwrap().write_at(0, &blocks(1)).unwrap();
    }
    while stored(&pool) != (COUNT, 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(pool.stats().scans.scans >= 2);
    assert!(read(&pool, "a") == blocks(1) && read(&pool, "b") == blocks(1));
    pool.close().unwrap();
}

/// Blocks that were written before the filter was loaded got fingerprints although others had them, and were never shared.
#[test]
fn what_is_written_before_the_filter_is_there_is_shared_later() {
    // Equal blocks may be found without the filter, in what was read or written last.
    assert!((7..27).any(written_before_the_filter_is_there), "the filter was there too early, each time");
}

/// Returns whether enough was written before the filter was there.
fn written_before_the_filter_is_there(seed: u64) -> bool {
    let fs = SimFs::new(seed);
    make(&fs, BLOCKS, 64);
    let data = blocks(7);
    {
        let pool = open(&fs, BLOCKS).unwrap();
        for name in ["a", "b"] {
            pool.create_volume(name, SIZE, Sharing::Inline).unwrap();
        }
        pool.volume("a").unwrap().write_at(0, &data).unwrap();
        pool.flush().unwrap();
        assert_eq!(pool.usage().unwrap().unshared_bytes, 0);
    }
    let fs = fs.restart();
    let may_load = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&may_load);
    let device = Watched::new(&fs, BLOCKS, move |_| {
        while std::thread::current().name() == Some("pool-filter") && !wait.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let pool = Pool::open(Box::new(device), Options { cache_bytes: 4 << 20, ..Options::default() }).unwrap();
    let volume = pool.volume("b").unwrap();
    volume.write_at(0, &data).unwrap();
    // The same twice in one write, and in two.
    volume.write_at(0, &[[9; BLOCK], [9; BLOCK]].concat()).unwrap();
    volume.write_at(2 * BLOCK as u64, &[9; BLOCK]).unwrap();
    may_load.store(true, Ordering::SeqCst);
    pool.settle();
    if stored(&pool).1 < 3 {
        return false;
    }
    for _ in 0..3 {
        scan(&pool);
    }
    assert_eq!(stored(&pool), (COUNT + 1, 0));
    volume.write_at(3 * BLOCK as u64, &[9; BLOCK]).unwrap();
    assert_eq!(stored(&pool), (COUNT + 1, 0));
    assert_whole(&pool);
    true
}
