//! What opening a pool reads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::common::{assert_whole, content, device, dice, make, open, seed, Watched, BLOCK};
use format::pool::{Geometry, PageHeader, PoolBlock, Superblock};
use pool::{Device, FsDevice, Options, Pool, PoolError, Sharing};
use rand::RngExt;
use store::SimFs;

const BLOCKS: u64 = 4000;
const JOURNAL: u32 = 1024;
const SIZE: usize = 1000 * BLOCK;

/// Opens the pool, and counts the blocks of the journal that this reads.
fn open_counted(fs: &SimFs) -> (Arc<Pool>, u64) {
    let read = Arc::new(AtomicU64::new(0));
    let geometry = Geometry::plan_with(BLOCKS, 256, JOURNAL).unwrap();
    let journal = geometry.journal_start().0..geometry.catalog_start().0;
    let device = {
        let read = Arc::clone(&read);
        Watched::new(fs, BLOCKS, move |blocks| {
            let end = blocks.end.min(journal.end);
            read.fetch_add(end.saturating_sub(blocks.start.max(journal.start)), Ordering::SeqCst);
        })
    };
    let pool = Pool::open(Box::new(device), Options { cache_bytes: 4 << 20, ..Options::default() }).unwrap();
    let read = read.load(Ordering::SeqCst);
    (pool, read)
}

fn data(seed: u64) -> Vec<u8> {
    let (mut dice, mut data) = (dice(seed), vec![0; SIZE]);
    data.chunks_mut(BLOCK).for_each(|block| content(&mut dice, 500, block));
    data
}

fn assert_content(pool: &Pool, wanted: &[u8]) {
    let mut found = vec![1; SIZE];
    pool.volume("a").unwrap().read_at(0, &mut found).unwrap();
    assert!(found == wanted);
}

/// Opening read the whole journal of each pool, to find batches behind its end, even if the pool had been closed.
#[test]
fn the_journal_of_a_closed_pool_is_not_read() {
    let mut fs = SimFs::new(1);
    make(&fs, BLOCKS, JOURNAL);
    let (mut pool, read) = open_counted(&fs);
    assert!(read <= 2, "{read} blocks of an empty journal were read");
    pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
    for round in 0..4 {
        let written = data(round);
        pool.volume("a").unwrap().write_at(0, &written).unwrap();
        let is_closed = round % 2 == 0;
        if is_closed {
            pool.close().unwrap();
        } else {
            pool.flush().unwrap();
        }
        drop(pool);
        fs = fs.restart();
        let opened = open_counted(&fs);
        pool = opened.0;
        if is_closed {
            assert!(opened.1 <= 2, "{} blocks of the journal were read", opened.1);
        } else {
            assert!(opened.1 >= u64::from(JOURNAL), "a later batch would have been missed");
        }
        assert_content(&pool, &written);
        assert_whole(&pool);
    }
}

/// The superblock of the last opening is damaged. The one before says that the pool was closed: it is not the last word.
#[test]
fn an_older_superblock_does_not_hide_what_was_written_later() {
    let fs = SimFs::new(2);
    make(&fs, BLOCKS, JOURNAL);
    let pool = open(&fs, BLOCKS).unwrap();
    pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
    pool.close().unwrap();
    drop(pool);
    let fs = fs.restart();
    let pool = open(&fs, BLOCKS).unwrap();
    pool.settle();
    let written = data(7);
    pool.volume("a").unwrap().write_at(0, &written).unwrap();
    pool.flush().unwrap();
    drop(pool);
    let fs = fs.restart();
    let device = device(&fs, BLOCKS);
    let superblocks = [0, 1].map(|n| {
        let mut block = [0; BLOCK];
        device.read_at(&mut block, n * BLOCK as u64).unwrap();
        format::pool::Superblock::decode(&block).unwrap()
    });
    let closed = superblocks.iter().position(|s| s.is_clean).unwrap();
    assert_eq!(superblocks[1 - closed].written, superblocks[closed].written + 1);
    device.write_at(&[0xff; BLOCK], ((1 - closed) * BLOCK) as u64).unwrap();
    let (pool, read) = open_counted(&fs);
    assert!(read >= u64::from(JOURNAL));
    assert_content(&pool, &written);
    assert_whole(&pool);
}

#[test]
fn pools_of_earlier_versions_are_refused() {
    let fs = SimFs::new(3);
    make(&fs, BLOCKS, JOURNAL);
    let golden = "../format/tests/golden/pool-superblock";
    for version in [1, 2] {
        let old = std::fs::read(format!("{golden}-{version}")).unwrap();
        (0..2).for_each(|n| device(&fs, BLOCKS).write_at(&old, n * BLOCK as u64).unwrap());
        match open(&fs, BLOCKS) {
            Err(PoolError::Refused(why)) => assert!(why.contains(&format!("version {version}")), "{why}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

/// Either copy of any page of the catalog may be damaged: the pool opens, has all that it had, and heals.
#[test]
fn one_copy_of_the_catalog_is_enough() {
    let mut dice = dice(seed());
    let geometry = Geometry::plan_with(BLOCKS, 256, JOURNAL).unwrap();
    let written = data(5);
    for round in 0..30 {
        let fs = SimFs::new(round);
        make(&fs, BLOCKS, JOURNAL);
        let pool = open(&fs, BLOCKS).unwrap();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            pool.create_volume(name, SIZE as u64, Sharing::Inline).unwrap();
        }
        pool.volume("a").unwrap().write_at(0, &written).unwrap();
        // Closed, or cut off with a journal to replay.
        let is_closed = round % 2 == 0;
        let ended = if is_closed { pool.close() } else { pool.flush() };
        ended.unwrap();
        drop(pool);
        let fs = fs.restart();
        let mut damaged = Vec::new();
        for page in 0..u64::from(geometry.catalog_blocks) {
            let page = PoolBlock(geometry.catalog_start().0 + page);
            if page == geometry.catalog_start() || dice.random_bool(0.1) {
                let copy = if dice.random() { page } else { geometry.catalog_twin(page).unwrap() };
                let mut bytes = [0; BLOCK];
                device(&fs, BLOCKS).read_at(&mut bytes, copy.offset()).unwrap();
                bytes[dice.random_range(0..BLOCK)] ^= 1 << dice.random_range(0..8);
                device(&fs, BLOCKS).write_at(&bytes, copy.offset()).unwrap();
                damaged.push(copy);
            }
        }
        device(&fs, BLOCKS).sync().unwrap();
        let pool = open(&fs, BLOCKS).unwrap_or_else(|e| panic!("{damaged:?}: {e}"));
        assert_content(&pool, &written);
        assert_eq!(pool.volumes().len(), 8);
        // First copies are written anew by themselves, second ones by a repair.
        let found = pool.check(false).unwrap().findings;
        let second = damaged.iter().filter(|copy| geometry.catalog_twin(**copy).is_none());
        assert!(found.len() <= second.count(), "{damaged:?}: {found:?}");
        assert!(pool.repair(false).unwrap().findings.iter().all(|finding| finding.is_mended));
        assert_whole(&pool);
        pool.close().unwrap();
        drop(pool);
        let fs = fs.restart();
        for copy in damaged {
            let mut bytes = [0; BLOCK];
            device(&fs, BLOCKS).read_at(&mut bytes, copy.offset()).unwrap();
            let id = superblock(&fs).pool;
            assert!(PageHeader::open(id, copy, &bytes).is_ok(), "{copy} is still damaged");
        }
        assert_content(&open(&fs, BLOCKS).unwrap(), &written);
    }
}

#[test]
fn a_pool_without_both_copies_says_which_page_that_is() {
    let fs = SimFs::new(4);
    make(&fs, BLOCKS, JOURNAL);
    open(&fs, BLOCKS).unwrap().close().unwrap();
    let fs = fs.restart();
    let geometry = Geometry::plan_with(BLOCKS, 256, JOURNAL).unwrap();
    let page = geometry.catalog_start();
    for copy in [page, geometry.catalog_twin(page).unwrap()] {
        device(&fs, BLOCKS).write_at(&[3; BLOCK], copy.offset()).unwrap();
    }
    let error = open(&fs, BLOCKS).err().unwrap().to_string();
    assert!(error.contains(&format!("block {page} (Catalog page)")), "{error}");
}

fn superblock(fs: &SimFs) -> Superblock {
    let mut block = [0; BLOCK];
    device(fs, BLOCKS).read_at(&mut block, 0).unwrap();
    Superblock::decode(&block).unwrap()
}

/// What experiments switch off makes it slower, and no different.
#[test]
fn a_pool_without_prefetching_or_its_journal_is_a_pool() {
    for (prefetch, journal) in [(false, true), (true, false), (false, false)] {
        let mut fs = SimFs::new(1);
        make(&fs, BLOCKS, JOURNAL);
        let open_so = |fs: &SimFs| {
            let options = Options { cache_bytes: 4 << 20, prefetch, journal, ..Options::default() };
            Pool::open(Box::new(device(fs, BLOCKS)), options).unwrap()
        };
        let pool = open_so(&fs);
        pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
        let mut wanted = data(seed());
        pool.volume("a").unwrap().write_at(0, &wanted).unwrap();
        pool.snapshot("a", "before").unwrap();
        let before = wanted.clone();
        for round in 0..20 {
            let at = round * 37 * BLOCK;
            let piece = data(round as u64)[..29 * BLOCK].to_vec();
            pool.volume("a").unwrap().write_at(at as u64, &piece).unwrap();
            wanted[at..at + piece.len()].copy_from_slice(&piece);
        }
        pool.volume("a").unwrap().flush().unwrap();
        assert_content(&pool, &wanted);
        assert_whole(&pool);
        pool.close().unwrap();
        drop(pool);
        fs = fs.process();
        for pool in [open_so(&fs), open(&fs, BLOCKS).unwrap()] {
            assert_content(&pool, &wanted);
            let mut found = vec![1; SIZE];
            pool.volume("a@before").unwrap().read_at(0, &mut found).unwrap();
            assert!(found == before);
            assert_whole(&pool);
            pool.close().unwrap();
        }
    }
}

/// A device whose syncs are counted, and which can lose data blocks that it says it has written, while the journal arrives:
/// what a power cut may leave of a flush that had not ended.
struct Losing {
    inner: FsDevice<SimFs>,
    /// Where data begins, in bytes.
    data: u64,
    loses: Arc<AtomicBool>,
    syncs: Arc<AtomicU64>,
}

impl Device for Losing {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if offset >= self.data && self.loses.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.inner.write_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.sync()
    }
}

/// Opens the pool on such a device. Returns the switch that lets it lose data, and the count of syncs.
fn open_losing(fs: &SimFs) -> (Arc<Pool>, Arc<AtomicBool>, Arc<AtomicU64>) {
    let geometry = Geometry::plan_with(BLOCKS, 256, JOURNAL).unwrap();
    let (loses, syncs) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let device = Losing {
        inner: device(fs, BLOCKS),
        data: geometry.groups_start().offset(),
        loses: Arc::clone(&loses),
        syncs: Arc::clone(&syncs),
    };
    let pool = Pool::open(Box::new(device), Options { cache_bytes: 4 << 20, ..Options::default() }).unwrap();
    (pool, loses, syncs)
}

/// A small flush syncs data and batch together: the batch alone does not count, and stays out even if the same data is
/// written again.
#[test]
fn a_batch_without_its_data_does_not_count() {
    for sharing in [Sharing::Inline, Sharing::Background, Sharing::Off] {
        let mut fs = SimFs::new(3);
        make(&fs, BLOCKS, JOURNAL);
        let (pool, loses, _) = open_losing(&fs);
        pool.create_volume("a", SIZE as u64, sharing).unwrap();
        let (old, new) = (data(1), data(2));
        let few = 20 * BLOCK;
        pool.volume("a").unwrap().write_at(0, &old).unwrap();
        pool.flush().unwrap();
        loses.store(true, Ordering::SeqCst);
        pool.volume("a").unwrap().write_at(0, &new[..few]).unwrap();
        pool.flush().unwrap();
        drop(pool);
        fs = fs.restart();
        let (pool, _, _) = open_losing(&fs);
        assert_content(&pool, &old);
        // The same content at the same places of the device, for other blocks of the volume; nothing of that is flushed.
        pool.volume("a").unwrap().write_at((SIZE - few) as u64, &new[..few]).unwrap();
        drop(pool);
        fs = fs.restart();
        let (pool, _, _) = open_losing(&fs);
        assert_content(&pool, &old);
        // With its data it does.
        pool.volume("a").unwrap().write_at(0, &new[..few]).unwrap();
        pool.flush().unwrap();
        drop(pool);
        fs = fs.restart();
        let (pool, _, _) = open_losing(&fs);
        assert_content(&pool, &[&new[..few], &old[few..]].concat());
        assert_whole(&pool);
    }
}

/// More data than is synced together is durable before its batch is written.
#[test]
fn much_data_is_synced_first() {
    let fs = SimFs::new(4);
    make(&fs, BLOCKS, JOURNAL);
    let (pool, _, syncs) = open_losing(&fs);
    pool.create_volume("a", SIZE as u64, Sharing::Inline).unwrap();
    pool.flush().unwrap();
    for (blocks, wanted) in [(1, 1), (100, 1), (256, 1), (257, 2), (600, 2), (3, 1)] {
        let mut content = vec![0; blocks * BLOCK];
        dice(blocks as u64).fill(&mut content[..]);
        pool.volume("a").unwrap().write_at(0, &content).unwrap();
        let before = syncs.load(Ordering::SeqCst);
        pool.flush().unwrap();
        assert_eq!(syncs.load(Ordering::SeqCst) - before, wanted, "{blocks} blocks");
    }
}
