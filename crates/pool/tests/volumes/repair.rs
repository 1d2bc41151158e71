//! A pool whose counts, fingerprint stores and summaries were damaged is whole again, and has the content that it had.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::pool::{
    BatchNo, BlockGroupNo, CatalogIndex, FingerprintEntry, Geometry, MapRoot, PageHeader, PageKind,
    PoolBlock, PoolId, SummaryEntry, Superblock,
};
use pool::{Device, FsDevice, Options, Pool, Sharing};
use rand::rngs::StdRng;
use rand::RngExt;
use store::SimFs;

use crate::common::{assert_whole, budget, content, device, dice, make, open, seed, BLOCK};

const BLOCKS: u64 = 4000;
const VOLUME_BLOCKS: usize = 700;

/// What each volume and snapshot holds.
type Contents = BTreeMap<String, Vec<u8>>;

/// A closed pool with volumes of both ways of sharing, a snapshot and a clone.
fn filled(dice: &mut StdRng) -> (SimFs, Contents) {
    let fs = SimFs::new(7);
    make(&fs, BLOCKS, 64);
    let pool = open(&fs, BLOCKS).unwrap();
    let mut contents = Contents::new();
    for (name, sharing) in [("inline", Sharing::Inline), ("later", Sharing::Background)] {
        pool.create_volume(name, (VOLUME_BLOCKS * BLOCK) as u64, sharing).unwrap();
        contents.insert(name.into(), vec![0; VOLUME_BLOCKS * BLOCK]);
        write(&pool, name, &mut contents, dice, 40);
    }
    for name in ["inline", "later"] {
        pool.snapshot(name, "s").unwrap();
        contents.insert(format!("{name}@s"), contents[name].clone());
    }
    pool.clone_snapshot("later@s", "clone").unwrap();
    contents.insert("clone".into(), contents["later"].clone());
    for name in ["inline", "later", "clone"] {
        write(&pool, name, &mut contents, dice, 8);
    }
    assert_whole(&pool);
    pool.close().unwrap();
    (fs.restart(), contents)
}

/// Writes blocks here and there.
fn write(pool: &Pool, name: &str, contents: &mut Contents, dice: &mut StdRng, pieces: usize) {
    let volume = pool.volume(name).unwrap();
    let model = contents.get_mut(name).unwrap();
    for _ in 0..pieces {
        let blocks = dice.random_range(1..20);
        let at = dice.random_range(0..=VOLUME_BLOCKS - blocks) * BLOCK;
        let piece = &mut model[at..at + blocks * BLOCK];
        piece.chunks_mut(BLOCK).for_each(|block| content(dice, 300, block));
        volume.write_at(at as u64, piece).unwrap();
    }
}

/// All of them have what they had.
#[track_caller]
fn assert_contents(pool: &Pool, contents: &Contents) {
    for (name, wanted) in contents {
        let mut found = vec![0; wanted.len()];
        pool.volume(name).unwrap().read_at(0, &mut found).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found == *wanted, "{name} has another content");
    }
}

/// The device, seen from outside.
struct Outside {
    device: FsDevice<SimFs>,
    pool: PoolId,
    geometry: Geometry,
}

impl Outside {
    fn of(fs: &SimFs) -> Self {
        let device = device(fs, BLOCKS);
        let mut block = [0; BLOCK];
        device.read_at(&mut block, 0).unwrap();
        let superblock = Superblock::decode(&block).unwrap();
        Outside { device, pool: superblock.pool, geometry: superblock.geometry }
    }

    fn read(&self, block: PoolBlock) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        self.device.read_at(&mut bytes, block.offset()).unwrap();
        bytes
    }

    fn put(&self, block: PoolBlock, bytes: &[u8; BLOCK]) {
        self.device.write_at(bytes, block.offset()).unwrap();
    }

    fn flip(&self, block: PoolBlock, dice: &mut StdRng) {
        let mut bytes = self.read(block);
        bytes[dice.random_range(0..BLOCK)] ^= 1 << dice.random_range(0..8);
        self.put(block, &bytes);
    }

    /// Changes bytes of a page whose checksum is right again.
    fn forge(&self, block: PoolBlock, offset: usize, new: &[u8]) {
        let mut bytes = self.read(block);
        bytes[offset..offset + new.len()].copy_from_slice(new);
        PageHeader::seal(self.pool, block, BatchNo::NONE, &mut bytes);
        self.put(block, &bytes);
    }

    fn kind(&self, block: PoolBlock) -> Option<PageKind> {
        PageHeader::open(self.pool, block, &self.read(block)).ok().map(|header| header.kind)
    }

    /// Blocks that are map nodes, or were.
    fn map_nodes(&self) -> Vec<PoolBlock> {
        let blocks = (self.geometry.groups_start().0..BLOCKS).map(PoolBlock);
        blocks.filter(|block| self.kind(*block) == Some(PageKind::Map)).collect()
    }

    /// A group whose fingerprint store was initialised.
    fn group(&self, dice: &mut StdRng) -> BlockGroupNo {
        loop {
            let group = BlockGroupNo(dice.random_range(0..self.geometry.groups));
            if self.kind(self.geometry.fingerprints_start(group)) == Some(PageKind::Fingerprints) {
                return group;
            }
        }
    }

    /// Damages something that can be made anew.
    fn damage(&self, dice: &mut StdRng) -> String {
        let group = self.group(dice);
        let page = self.geometry.fingerprints_start(group).0
            + dice.random_range(0..u64::from(self.geometry.fingerprint_pages()));
        let summary = self.geometry.summary_slot(group);
        match dice.random_range(0..7) {
            0 => self.flip(PoolBlock(page), dice),
            1 => self.put(PoolBlock(page), &[0; BLOCK]),
            2 => self.forge_entries(group, dice),
            3 => {
                let free = dice.random_range(0..=self.geometry.data_blocks());
                let (in_use, has_unshared) = (dice.random(), dice.random());
                let entry = SummaryEntry { free, in_use, has_unshared, changed: dice.random_range(0..3) };
                self.forge(summary.page, summary.offset, &entry.encode());
            }
            4 => self.flip(summary.page, dice),
            5 => self.forge_mapped(dice),
            _ => {
                let first = self.geometry.fingerprints_start(group).0;
                let pages = first..first + u64::from(self.geometry.fingerprint_pages());
                pages.for_each(|page| self.put(PoolBlock(page), &[7; BLOCK]));
            }
        }
        self.device.sync().unwrap();
        format!("{group:?}")
    }

    fn forge_entries(&self, group: BlockGroupNo, dice: &mut StdRng) {
        for _ in 0..dice.random_range(1..30) {
            let block = self.geometry.data_block(group, dice.random_range(0..self.geometry.data_blocks()));
            let slot = self.geometry.fingerprint_slot(block).unwrap();
            let mut old = [0; 4];
            old.copy_from_slice(&self.read(slot.page)[slot.offset..slot.offset + 4]);
            let old = FingerprintEntry::decode(old);
            let new = match dice.random_range(0..4) {
                0 => FingerprintEntry { count: 0, ..old },
                1 => FingerprintEntry { count: old.count + 1, ..old },
                2 => FingerprintEntry { count: old.count.saturating_sub(1), ..old },
                _ => FingerprintEntry { is_node: !old.is_node, has_fingerprint: false, ..old },
            };
            self.forge(slot.page, slot.offset, &new.encode());
        }
    }

    fn forge_mapped(&self, dice: &mut StdRng) {
        let slot = self.geometry.catalog_slot(CatalogIndex(dice.random_range(0..5)));
        let mapped = MapRoot::encode_mapped(Some(dice.random_range(0..1000)));
        self.forge(slot.page, slot.offset + MapRoot::MAPPED_AT, &mapped);
    }
}

fn open_for_repair(fs: &SimFs) -> pool::Result<Arc<Pool>> {
    Pool::open(Box::new(device(fs, BLOCKS)), Options { for_repair: true, ..Options::default() })
}

/// Repairs, and looks at the result as others would find it.
fn repair(fs: &SimFs, what: &str) -> SimFs {
    let pool = open_for_repair(fs).unwrap();
    let report = pool.repair(true).unwrap();
    let left: Vec<_> = report.findings.iter().filter(|f| !f.is_mended).collect();
    assert!(left.is_empty() && report.more == 0, "{what}: {left:#?}");
    assert!(pool.check(true).unwrap().findings.is_empty(), "{what}");
    pool.close().unwrap();
    fs.restart()
}

#[test]
fn what_follows_from_the_maps_is_made_anew() {
    let mut dice = dice(seed());
    let mut found = 0;
    for round in 0..budget("SAPWOOD_POOL_REPAIRS", 40) {
        let (fs, mut contents) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let what: Vec<_> = (0..dice.random_range(1..5)).map(|_| outside.damage(&mut dice)).collect();
        let what = format!("round {round}: {what:?}");
        drop(outside);
        found += u64::from(open_for_repair(&fs).unwrap().check(true).unwrap().findings.len() as u64 > 0);
        let fs = repair(&fs.restart(), &what);
        let pool = open(&fs, BLOCKS).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_whole(&pool);
        assert_contents(&pool, &contents);
        // It is a pool like any other: space is free, and equal blocks are found.
        for name in ["inline", "later", "clone"] {
            write(&pool, name, &mut contents, &mut dice, 10);
        }
        assert_whole(&pool);
        assert_contents(&pool, &contents);
    }
    assert!(found > 20, "only {found} rounds have damaged anything");
}

/// What a check finds that may be made while others use the pool.
fn scrub(pool: &Pool, data: bool) -> Vec<String> {
    let report = pool.scrub(data, &|_| true).unwrap().unwrap();
    assert_eq!(report.more, 0);
    report.findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn a_scrub_finds_what_cannot_be_read() {
    let mut dice = dice(seed());
    let (fs, _) = filled(&mut dice);
    let pool = open(&fs.restart(), BLOCKS).unwrap();
    let report = pool.scrub(true, &|_| true).unwrap().unwrap();
    assert_eq!((report.findings.len(), report.used_blocks), (0, pool.check(false).unwrap().used_blocks));
    // Each block once, though snapshots and clones name it as well; and it ends when that is wanted.
    let bytes = std::cell::Cell::new(0);
    pool.scrub(true, &|read| {
        bytes.set(read);
        true
    })
    .unwrap();
    assert_eq!(bytes.get(), pool.check(false).unwrap().stored_blocks * BLOCK as u64);
    assert_eq!(pool.scrub(true, &|read| read == 0).unwrap(), None);
    drop(pool);
    let (mut nodes, mut stores) = (0, 0);
    for round in 0..40 {
        let (fs, _) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let is_node = round % 2 == 0;
        let block = if is_node {
            let nodes = outside.map_nodes();
            nodes[dice.random_range(0..nodes.len())]
        } else {
            let pages = u64::from(outside.geometry.fingerprint_pages());
            PoolBlock(
                outside.geometry.fingerprints_start(outside.group(&mut dice)).0 + dice.random_range(0..pages),
            )
        };
        outside.flip(block, &mut dice);
        outside.device.sync().unwrap();
        let pool = open(&fs.restart(), BLOCKS).unwrap();
        let (found, offline) = (scrub(&pool, false), pool.check(false).unwrap().findings);
        // Some nodes are no longer used.
        assert_eq!(found.is_empty(), offline.is_empty(), "block {block}: {found:?}, {offline:?}");
        assert!(found.iter().all(|what| what.contains("damaged")), "{found:?}");
        *(if is_node { &mut nodes } else { &mut stores }) += usize::from(!found.is_empty());
    }
    assert!(nodes > 3 && stores > 10, "{nodes} and {stores}");
}

/// Also of blocks that have no fingerprint yet: a check that reads all blocks compares them with the map.
#[test]
fn damaged_content_is_found_and_stays() {
    let mut dice = dice(seed());
    let (mut fingerprinted, mut unshared) = (0, 0);
    for _ in 0..40 {
        let (fs, contents) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let (group, index) = (outside.group(&mut dice), dice.random_range(0..outside.geometry.data_blocks()));
        let block = outside.geometry.data_block(group, index);
        let slot = outside.geometry.fingerprint_slot(block).unwrap();
        let mut entry = [0; 4];
        entry.copy_from_slice(&outside.read(slot.page)[slot.offset..slot.offset + 4]);
        let entry = FingerprintEntry::decode(entry);
        if entry.count == 0 || entry.is_node {
            continue;
        }
        outside.flip(block, &mut dice);
        outside.device.sync().unwrap();
        let pool = open_for_repair(&fs.restart()).unwrap();
        assert!(!scrub(&pool, true).is_empty(), "block {block}, {entry:?}");
        assert_eq!(scrub(&pool, false), [""; 0]);
        for report in [pool.check(true).unwrap(), pool.repair(true).unwrap(), pool.check(true).unwrap()] {
            assert!(report.findings.iter().any(|f| !f.is_mended), "block {block}, {entry:?}");
        }
        for (name, wanted) in &contents {
            let (volume, mut found) = (pool.volume(name).unwrap(), [0; BLOCK]);
            for (n, wanted) in wanted.chunks(BLOCK).enumerate() {
                assert!(volume.read_at((n * BLOCK) as u64, &mut found).is_err() || found == wanted);
            }
        }
        if entry.has_fingerprint {
            fingerprinted += 1
        } else {
            unshared += 1
        }
    }
    assert!(fingerprinted > 2 && unshared > 2, "{fingerprinted} and {unshared}");
}

/// A repair is itself safe from power cuts: another one completes it.
#[test]
fn a_repair_can_be_cut_off() {
    let mut dice = dice(seed());
    let (mut cut, mut round) = (0, 0);
    while cut < budget("SAPWOOD_POOL_REPAIR_CUTS", 25) {
        round += 1;
        let (fs, contents) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let what: Vec<_> = (0..4).map(|_| outside.damage(&mut dice)).collect();
        drop(outside);
        let fs = fs.restart();
        fs.stop_after(dice.random_range(1..60));
        let done = open_for_repair(&fs).and_then(|pool| {
            let done = pool.repair(true).map(drop);
            done.and(pool.close())
        });
        cut += u64::from(done.is_err());
        let fs = fs.crash();
        let fs = repair(&fs, &format!("round {round}: {what:?}"));
        let pool = open(&fs, BLOCKS).unwrap();
        assert_whole(&pool);
        assert_contents(&pool, &contents);
    }
}

/// What cannot be read any more can be deleted: a repair frees what only it named.
#[test]
fn an_unreadable_volume_can_be_deleted() {
    let mut dice = dice(seed());
    let mut deleted = 0;
    for round in 0..budget("SAPWOOD_POOL_REPAIRS", 20) {
        let (fs, mut contents) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let nodes = outside.map_nodes();
        outside.flip(nodes[dice.random_range(0..nodes.len())], &mut dice);
        outside.device.sync().unwrap();
        let pool = open(&fs.restart(), BLOCKS).unwrap();
        let mut buf = vec![0; VOLUME_BLOCKS * BLOCK];
        contents.retain(|name, _| pool.volume(name).unwrap().read_at(0, &mut buf).is_ok());
        for name in ["clone", "inline@s", "inline", "later@s", "later"] {
            let snapshot = format!("{name}@s");
            if !contents.contains_key(name) && !contents.contains_key(&snapshot) {
                deleted += 1;
                pool.delete(name).unwrap_or_else(|e| panic!("round {round}: {name}: {e}"));
            } else if !contents.contains_key(name) {
                // A snapshot of it can be read, and goes with it.
                contents.remove(&snapshot);
                pool.delete(&snapshot).unwrap();
                pool.delete(name).unwrap();
            }
        }
        pool.close().unwrap();
        let fs = repair(&fs.restart(), &format!("round {round}"));
        let pool = open(&fs, BLOCKS).unwrap();
        assert_whole(&pool);
        assert_contents(&pool, &contents);
    }
    assert!(deleted > 5, "only {deleted} were deleted");
}

/// While a map cannot be read it may name any block: what counts say is in use stays, also where no other map names it.
#[test]
fn nothing_is_freed_that_an_unreadable_map_may_name() {
    let mut dice = dice(seed());
    for round in 0..budget("SAPWOOD_POOL_REPAIRS", 20) {
        let (fs, contents) = filled(&mut dice);
        let outside = Outside::of(&fs);
        let nodes = outside.map_nodes();
        let node = nodes[dice.random_range(0..nodes.len())];
        let whole = outside.read(node);
        outside.flip(node, &mut dice);
        let pool = open_for_repair(&fs.restart()).unwrap();
        let report = pool.repair(true).unwrap();
        pool.close().unwrap();
        let fs = fs.restart();
        if report.findings.is_empty() {
            // It is no node any more, but was one.
            continue;
        }
        // Others write until nothing is free, and take all blocks that count as such.
        let pool = open(&fs, BLOCKS).unwrap();
        pool.create_volume("filler", 64 << 20, Sharing::Off).unwrap();
        let volume = pool.volume("filler").unwrap();
        let mut block = [0; BLOCK];
        for n in 0..(64 << 20) / BLOCK as u64 {
            dice.fill(&mut block[..]);
            if volume.write_at(n * BLOCK as u64, &block).is_err() {
                break;
            }
        }
        drop(volume);
        pool.close().unwrap();
        let fs = fs.restart();
        Outside::of(&fs).put(node, &whole);
        let pool = open(&fs, BLOCKS).unwrap();
        assert_contents(&pool, &contents);
        let wrong = pool.check(true).unwrap().findings;
        assert!(wrong.is_empty(), "round {round}: {wrong:#?}");
    }
}
