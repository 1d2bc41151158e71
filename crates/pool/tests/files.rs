//! The file system: what POSIX says of names and content, random operations against a plain model, and power cuts.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use common::{assert_whole, budget, content, dice, make, open, seed, BLOCK};
use export::files::{Allocate, Change, Files, New, Rename, SetAttribute, Stat};
use export::NodeId;
use pool::{FileSystem, Pool};
use rand::rngs::StdRng;
use rand::RngExt;
use rustix::io::Errno;
use store::SimFs;

const BLOCKS: u64 = 8000;
/// The longest file of the model, in blocks.
const FILE_BLOCKS: usize = 24;
/// Where files outgrow their first volume.
const BORDER: usize = (2 << 20) - 5 * BLOCK;
const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;

fn new(mode: u32) -> New<'static> {
    New { mode, user: 7, group: 8, device: 0, target: b"" }
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn system(fs: &SimFs) -> (Arc<Pool>, FileSystem) {
    let pool = open(fs, BLOCKS).unwrap();
    let system = FileSystem::open(Arc::clone(&pool), 1, 2).unwrap();
    (pool, system)
}

fn fresh(number: u64) -> (SimFs, Arc<Pool>, FileSystem) {
    let fs = SimFs::new(number);
    make(&fs, BLOCKS, 256);
    let (pool, system) = system(&fs);
    (fs, pool, system)
}

fn read_all(files: &dyn Files, id: NodeId) -> Vec<u8> {
    let mut data = vec![0; files.stat(id).unwrap().size as usize + 100];
    let bytes = files.read(id, 0, &mut data).unwrap();
    data.truncate(bytes);
    data
}

fn names(files: &dyn Files, id: NodeId) -> Vec<String> {
    files.list(id).unwrap().0.into_iter().map(|n| n.name.into_string().unwrap()).collect()
}

#[test]
fn names_follow_posix() {
    let (_fs, pool, files) = fresh(1);
    let root = NodeId::ROOT;
    let made = files.make(root, name("a"), &new(FILE)).unwrap();
    assert_eq!((made.mode, made.links, made.user, made.group), (FILE, 1, 7, 8));
    assert_eq!(errno(files.make(root, name("a"), &new(FILE))), Errno::EXIST.raw_os_error());
    assert_eq!(errno(files.lookup(root, name("b"))), Errno::NOENT.raw_os_error());
    assert_eq!(errno(files.lookup(root, name(&"n".repeat(256)))), Errno::NAMETOOLONG.raw_os_error());
    let directory = files.make(root, name("d"), &new(DIRECTORY)).unwrap();
    assert_eq!((directory.links, files.stat(root).unwrap().links), (2, 3));
    let below = files.make(directory.id, name("e"), &new(DIRECTORY)).unwrap();
    assert_eq!(files.stat(directory.id).unwrap().links, 3);
    assert_eq!(errno(files.remove_directory(root, name("d"))), Errno::NOTEMPTY.raw_os_error());
    assert_eq!(errno(files.unlink(root, name("d"))), Errno::ISDIR.raw_os_error());
    assert_eq!(errno(files.remove_directory(root, name("a"))), Errno::NOTDIR.raw_os_error());
    // A directory does not go below itself.
    let into = (below.id, name("d"));
    assert_eq!(errno(files.rename((root, name("d")), into, Rename::Replace)), Errno::INVAL.raw_os_error());
    let both = ((root, name("a")), (root, name("d")));
    assert_eq!(errno(files.rename(both.0, both.1, Rename::Replace)), Errno::ISDIR.raw_os_error());
    assert_eq!(errno(files.rename(both.1, both.0, Rename::Replace)), Errno::NOTDIR.raw_os_error());
    assert_eq!(errno(files.rename(both.0, both.1, Rename::Keep)), Errno::EXIST.raw_os_error());
    files.rename(both.0, both.1, Rename::Exchange).unwrap();
    assert_eq!(files.lookup(root, name("a")).unwrap().id, directory.id);
    assert_eq!(files.lookup(root, name("d")).unwrap().id, made.id);
    files.rename(both.1, both.0, Rename::Exchange).unwrap();
    // Across directories: parents and links follow.
    files.rename((directory.id, name("e")), (root, name("e")), Rename::Replace).unwrap();
    assert_eq!((files.stat(directory.id).unwrap().links, files.stat(root).unwrap().links), (2, 4));
    assert_eq!(files.list(below.id).unwrap().1, root);
    // An empty directory can be replaced by another.
    files.rename((root, name("e")), (root, name("d")), Rename::Replace).unwrap();
    assert_eq!(files.stat(root).unwrap().links, 3);
    assert_eq!(errno(files.make(directory.id, name("x"), &new(FILE))), Errno::NOENT.raw_os_error());
    // Hard links.
    files.link(made.id, below.id, name("second")).unwrap();
    assert_eq!(files.stat(made.id).unwrap().links, 2);
    assert_eq!(errno(files.link(below.id, root, name("no"))), Errno::PERM.raw_os_error());
    // Renaming one of two names of a node to the other changes nothing.
    files.rename((root, name("a")), (below.id, name("second")), Rename::Replace).unwrap();
    assert_eq!(names(&files, root), ["a", "d"]);
    files.write(made.id, 0, b"kept").unwrap();
    files.unlink(root, name("a")).unwrap();
    assert_eq!(read_all(&files, made.id), b"kept");
    let link = New { target: b"d/second", ..new(0o120_777) };
    let link = files.make(root, name("l"), &link).unwrap();
    assert_eq!((files.target(link.id).unwrap(), link.size), (b"d/second".to_vec(), 8));
    // A set-group-id directory gives its group, and its bit to directories.
    files.change(below.id, &Change { mode: Some(0o2755), group: Some(99), ..Change::default() }).unwrap();
    let made = files.make(below.id, name("in"), &new(DIRECTORY)).unwrap();
    assert_eq!((made.group, made.mode & 0o7777), (99, 0o2755));
    files.sync().unwrap();
    assert_whole(&pool);
}

#[test]
fn a_file_without_a_name_stays_until_it_is_forgotten() {
    let (fs, pool, files) = fresh(2);
    let free = pool.stats().free_bytes;
    let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
    let data: Vec<u8> = (0..200 * BLOCK).map(|n| (n / 7 % 251) as u8 ^ (n / BLOCK) as u8).collect();
    files.write(made.id, 0, &data).unwrap();
    files.unlink(NodeId::ROOT, name("a")).unwrap();
    files.sync().unwrap();
    assert_eq!((read_all(&files, made.id) == data, files.stat(made.id).unwrap().links), (true, 0));
    files.forget(made.id, 1);
    files.sync().unwrap();
    pool.settle();
    assert!(pool.stats().free_bytes + 20 * BLOCK as u64 >= free, "{} of {free}", pool.stats().free_bytes);
    // Killed while somebody had it open: it goes when the file system is opened again.
    let made = files.make(NodeId::ROOT, name("b"), &new(FILE)).unwrap();
    files.write(made.id, 0, &data).unwrap();
    files.unlink(NodeId::ROOT, name("b")).unwrap();
    files.sync().unwrap();
    drop((files, pool));
    let fs = fs.crash();
    let (pool, files) = system(&fs);
    assert!(names(&files, NodeId::ROOT).is_empty());
    pool.settle();
    assert!(pool.stats().free_bytes + 40 * BLOCK as u64 >= free, "{} of {free}", pool.stats().free_bytes);
    assert_whole(&pool);
}

#[test]
fn attributes_and_copies() {
    let (_fs, pool, files) = fresh(3);
    let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
    let user = name("user.colour");
    assert_eq!(errno(files.attribute(made.id, user)), Errno::NODATA.raw_os_error());
    assert_eq!(
        errno(files.set_attribute(made.id, user, b"", SetAttribute::Replace)),
        Errno::NODATA.raw_os_error()
    );
    files.set_attribute(made.id, user, b"green", SetAttribute::Create).unwrap();
    assert_eq!(
        errno(files.set_attribute(made.id, user, b"", SetAttribute::Create)),
        Errno::EXIST.raw_os_error()
    );
    assert_eq!(files.attribute(made.id, user).unwrap(), b"green");
    assert_eq!(files.attributes(made.id).unwrap(), b"user.colour\0");
    files.remove_attribute(made.id, user).unwrap();
    assert_eq!(errno(files.remove_attribute(made.id, user)), Errno::NODATA.raw_os_error());
    // A copy of a whole file takes no space, and is a file of its own.
    let data: Vec<u8> = (0..300 * BLOCK + 5).map(|n| (n / 3 % 253) as u8 ^ (n / BLOCK) as u8).collect();
    files.write(made.id, 0, &data).unwrap();
    files.sync().unwrap();
    let free = pool.stats().free_bytes;
    let copy = files.make(NodeId::ROOT, name("copy"), &new(FILE)).unwrap();
    assert_eq!(files.copy((made.id, 0), (copy.id, 0), 1 << 30).unwrap(), data.len() as u64);
    files.write(copy.id, 0, b"changed").unwrap();
    files.sync().unwrap();
    assert!(free - pool.stats().free_bytes < 30 * BLOCK as u64);
    assert!(read_all(&files, made.id) == data);
    assert!(read_all(&files, copy.id)[7..] == data[7..]);
    assert_eq!(errno(files.copy((made.id, 5), (copy.id, 5), 10)), Errno::XDEV.raw_os_error());
    assert_whole(&pool);
}

/// Names can be removed in a full pool, and then there is room again.
#[test]
fn a_full_pool_can_be_emptied() {
    let (fs, pool, files) = fresh(4);
    let mut dice = dice(seed());
    let mut made = Vec::new();
    let full = 'full: loop {
        let label = format!("f{}", made.len());
        let file = match files.make(NodeId::ROOT, name(&label), &new(FILE)) {
            Ok(file) => file,
            Err(error) => break error,
        };
        made.push((label, file.id));
        for n in 0..64 {
            let mut block = [0; BLOCK];
            content(&mut dice, u64::MAX - 1, &mut block);
            if let Err(error) = files.write(file.id, n * BLOCK as u64, &block) {
                break 'full error;
            }
        }
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{full}");
    files.sync().unwrap();
    for (label, id) in &made[..made.len() / 2] {
        files.unlink(NodeId::ROOT, name(label)).unwrap();
        files.forget(*id, 1);
    }
    files.sync().unwrap();
    pool.settle();
    files.write(made[made.len() - 1].1, 0, &[5; 8 * BLOCK]).unwrap();
    files.sync().unwrap();
    assert_whole(&pool);
    drop((files, pool));
    let (_pool, files) = system(&fs.crash());
    assert_eq!(names(&files, NodeId::ROOT).len(), made.len() - made.len() / 2);
}

/// A file may be far longer than its volume: nothing was written there.
#[test]
fn a_file_that_is_longer_than_its_volume() {
    let (fs, pool, files) = fresh(7);
    let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
    let size = |bytes| Change { size: Some(bytes), ..Change::default() };
    files.write(made.id, 0, b"begin").unwrap();
    files.change(made.id, &size(5 << 30)).unwrap();
    let mut data = [1; 8];
    assert_eq!(files.read(made.id, 3 << 20, &mut data).unwrap(), 8);
    assert_eq!(data, [0; 8]);
    assert_eq!(errno(files.seek(made.id, 8192, false)), Errno::NXIO.raw_os_error());
    files.write(made.id, 3 << 20, b"middle").unwrap();
    files.write(made.id, (5 << 30) - 3, b"end").unwrap();
    assert_eq!(files.seek(made.id, 4 << 20, false).unwrap(), (5 << 30) - 4096);
    files.change(made.id, &size(4 << 30)).unwrap();
    files.change(made.id, &size((3 << 20) + 4)).unwrap();
    let all = read_all(&files, made.id);
    assert_eq!((&all[..5], &all[3 << 20..]), (&b"begin"[..], &b"midd"[..]));
    // Shortened, but still longer than its volume, and killed before the space was given back.
    let other = files.make(NodeId::ROOT, name("b"), &new(FILE)).unwrap();
    files.write(other.id, 0, b"begin").unwrap();
    files.change(other.id, &size(1 << 30)).unwrap();
    files.sync().unwrap();
    files.change(other.id, &size(1 << 29)).unwrap();
    drop((files, pool));
    let (pool, files) = system(&fs.crash());
    let found = files.lookup(NodeId::ROOT, name("b")).unwrap();
    assert_eq!(found.size, 1 << 29);
    assert_whole(&pool);
}

/// Whoever fills a pool with names can remove them, also after a crash.
#[test]
fn a_pool_full_of_names_can_be_emptied() {
    let (fs, pool, files) = fresh(8);
    let filler = files.make(NodeId::ROOT, name("filler"), &new(FILE)).unwrap();
    let mut dice = dice(seed());
    let full = (0..).find_map(|n| {
        let mut block = [0; BLOCK];
        content(&mut dice, u64::MAX - 1, &mut block);
        files.write(filler.id, n * BLOCK as u64, &block).err()
    });
    assert_eq!(full.unwrap().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let mut made = 0;
    let full = loop {
        let label = format!("{made:0>200}");
        match files.make(NodeId::ROOT, name(&label), &new(FILE)) {
            Ok(stat) => files.forget(stat.id, 1),
            Err(error) => break error,
        }
        made += 1;
        if made % 50 == 0 {
            files.sync().unwrap();
        }
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{full}");
    let value = vec![7; 60_000];
    let refused = files.set_attribute(filler.id, name("user.large"), &value, SetAttribute::Any);
    assert_eq!(errno(refused), Errno::NOSPC.raw_os_error());
    files.sync().unwrap();
    drop((files, pool));
    let fs = fs.crash();
    let (pool, files) = system(&fs);
    assert_eq!(names(&files, NodeId::ROOT).len(), made + 1);
    for n in 0..made {
        files.unlink(NodeId::ROOT, name(&format!("{n:0>200}"))).unwrap();
        if n % 50 == 0 {
            files.sync().unwrap();
        }
    }
    files.unlink(NodeId::ROOT, name("filler")).unwrap();
    // At once: what was removed makes room.
    let again = files.make(NodeId::ROOT, name("again"), &new(FILE)).unwrap();
    files.write(again.id, 0, &[3; 20 * BLOCK]).unwrap();
    files.sync().unwrap();
    assert_whole(&pool);
}

/// Each removed file left a thread that had ended, with its stack: after some thousands there was no memory for another one,
/// and the pool's process ended.
#[test]
fn removed_files_leave_no_threads() {
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let (_fs, pool, files) = fresh(31);
    let round = |round: usize| {
        for n in 0..20 {
            let made = files.make(NodeId::ROOT, name(&format!("f{n}")), &new(FILE)).unwrap();
            files.write(made.id, 0, &[round as u8 + 1; 100]).unwrap();
            files.unlink(NodeId::ROOT, name(&format!("f{n}"))).unwrap();
            files.forget(made.id, 1);
        }
        files.sync().unwrap();
    };
    (0..5).for_each(round);
    let before = maps();
    (5..60).for_each(round);
    let after = maps();
    assert!(after < before + 1000, "{before} ranges of memory before 1,100 files, {after} behind them");
    pool.settle();
    assert_whole(&pool);
}

/// The number of files has a bound, which is "no space", and a removed file makes room at once.
#[test]
fn a_full_catalog_is_no_space() {
    let (_fs, pool, files) = fresh(9);
    let mut made = Vec::new();
    let full = loop {
        let label = format!("f{}", made.len());
        let stat = files.make(NodeId::ROOT, name(&label), &new(FILE)).unwrap();
        if let Err(error) = files.write(stat.id, 0, b"x") {
            break error;
        }
        made.push(stat.id);
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{full}");
    assert_eq!(files.space().unwrap().free_files, 0);
    files.unlink(NodeId::ROOT, name("f0")).unwrap();
    files.forget(made[0], 1);
    let last = files.lookup(NodeId::ROOT, name(&format!("f{}", made.len()))).unwrap();
    files.write(last.id, 0, b"y").unwrap();
    files.sync().unwrap();
    assert_whole(&pool);
}

/// Many threads make one file longer, as the kernel does that writes its cache out in any order.
#[test]
fn many_make_one_file_longer_at_once() {
    const PIECE: usize = 5 * BLOCK + 17;
    const PIECES: usize = 240;
    let (_fs, pool, files) = fresh(10);
    let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
    let byte = |n: usize| (n % 250 + 1) as u8;
    for round in 0..3 {
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if n >= PIECES {
                        break;
                    }
                    // Pairs the wrong way round, and each fourth a little later.
                    let n = n ^ 1;
                    if n % 4 == 0 {
                        std::thread::yield_now();
                    }
                    files.write_back(made.id, (n * PIECE) as u64, &[byte(n); PIECE]).unwrap();
                });
            }
            scope.spawn(|| {
                // Meanwhile each byte is what is written there, or nothing yet.
                while next.load(std::sync::atomic::Ordering::SeqCst) < PIECES {
                    for (at, found) in read_all(&files, made.id).into_iter().enumerate() {
                        assert!(found == 0 || found == byte(at / PIECE), "byte {at} is {found}");
                    }
                }
            });
        });
        let all = read_all(&files, made.id);
        assert_eq!(all.len(), PIECES * PIECE);
        assert!(all.chunks(PIECE).enumerate().all(|(n, piece)| piece.iter().all(|b| *b == byte(n))));
        // Whole, a part, or from where it is longer than it was written.
        let size = [0, 3 * PIECE as u64, 5][round];
        files.change(made.id, &Change { size: Some(size), ..Change::default() }).unwrap();
        let longer = Change { size: Some(size + 100_000), ..Change::default() };
        files.change(made.id, &longer).unwrap();
        assert!(read_all(&files, made.id)[size as usize..].iter().all(|b| *b == 0));
        files.change(made.id, &Change { size: Some(0), ..Change::default() }).unwrap();
    }
    assert_whole(&pool);
}

/// What was written of a write that failed for want of space does not come back when the file becomes longer.
#[test]
fn a_failed_write_behind_the_end_leaves_nothing() {
    let (_fs, pool, files) = fresh(11);
    let mut dice = dice(seed());
    let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
    files.write(made.id, 0, b"begin").unwrap();
    let filler = files.make(NodeId::ROOT, name("filler"), &new(FILE)).unwrap();
    let mut block = [0; BLOCK];
    let mut at = 0;
    let mut fill = |dice: &mut StdRng| {
        content(dice, u64::MAX - 1, &mut block);
        at += BLOCK as u64;
        files.write(filler.id, at, &block)
    };
    while fill(&mut dice).is_ok() {}
    // Some blocks are free again, but by far not all that the write needs.
    let punched = 10 * BLOCK as u64..40 * BLOCK as u64;
    files.allocate(filler.id, punched, Allocate::Punch).unwrap();
    files.sync().unwrap();
    let mut data = vec![0; 900 * BLOCK];
    data.chunks_mut(BLOCK).for_each(|block| content(&mut dice, u64::MAX - 1, block));
    for _ in 0..3 {
        let start = dice.random_range(5..BLOCK as u64);
        assert_eq!(errno(files.write(made.id, start, &data)), Errno::NOSPC.raw_os_error());
        let size = Change { size: Some(2_000 * BLOCK as u64), ..Change::default() };
        let longer = files.change(made.id, &size).unwrap();
        assert_eq!(longer.size, 2_000 * BLOCK as u64);
        let all = read_all(&files, made.id);
        assert!(all[..5] == *b"begin" && all[5..].iter().all(|b| *b == 0));
        files.change(made.id, &Change { size: Some(5), ..Change::default() }).unwrap();
    }
    files.unlink(NodeId::ROOT, name("filler")).unwrap();
    files.forget(filler.id, 1);
    files.sync().unwrap();
    assert_whole(&pool);
}

/// A file that is made empty loses its content when that is durable, not before.
#[test]
fn an_emptied_file_is_whole_or_empty_after_a_crash() {
    for is_synced in [false, true] {
        let (fs, pool, files) = fresh(12);
        let free = pool.stats().free_bytes;
        let made = files.make(NodeId::ROOT, name("a"), &new(FILE)).unwrap();
        let data: Vec<u8> = (0..300 * BLOCK).map(|n| (n / 7 % 251) as u8 ^ (n / BLOCK) as u8).collect();
        files.write(made.id, 0, &data).unwrap();
        files.sync().unwrap();
        files.change(made.id, &Change { size: Some(0), ..Change::default() }).unwrap();
        files.write(made.id, 0, b"new").unwrap();
        if is_synced {
            files.sync().unwrap();
        }
        // Content becomes durable by itself now and then.
        pool.flush().unwrap();
        drop((files, pool));
        let (pool, files) = system(&fs.crash());
        let found = files.lookup(NodeId::ROOT, name("a")).unwrap();
        let expected = if is_synced { b"new".to_vec() } else { data };
        assert!(read_all(&files, found.id) == expected, "synced: {is_synced}");
        files.unlink(NodeId::ROOT, name("a")).unwrap();
        files.forget(found.id, 1);
        files.sync().unwrap();
        pool.settle();
        assert!(pool.stats().free_bytes + 20 * BLOCK as u64 >= free);
        assert_whole(&pool);
    }
}

/// A file of the model: its length, and of each block all that it has held since it was last durable.
#[derive(Clone, Default)]
struct Model {
    size: usize,
    blocks: Vec<Vec<[u8; BLOCK]>>,
    /// Whether it surely has a volume: something was written, and not all of it was taken away since.
    has_content: bool,
}

impl Model {
    fn now(&self) -> Vec<u8> {
        let mut data: Vec<u8> = self.blocks.iter().flat_map(|b| *b.last().unwrap()).collect();
        data.resize(self.size, 0);
        data
    }

    /// Changes content, and notes each block's new state.
    fn set(&mut self, start: usize, data: &[u8]) {
        let mut at = start;
        while at < start + data.len() {
            let (n, within) = (at / BLOCK, at % BLOCK);
            let length = (BLOCK - within).min(start + data.len() - at);
            while self.blocks.len() <= n {
                self.blocks.push(vec![[0; BLOCK]]);
            }
            let mut now = *self.blocks[n].last().unwrap();
            now[within..within + length].copy_from_slice(&data[at - start..at - start + length]);
            self.blocks[n].push(now);
            at += length;
        }
    }

    fn resize(&mut self, size: usize) {
        // What is behind the end is zeros as soon as the file ends there.
        let end = self.blocks.len() * BLOCK;
        if size < end {
            self.set(size, &vec![0; end - size]);
        }
        self.size = size;
        self.has_content &= size > 0;
    }
}

/// Everything at one moment: of each name which file it leads to.
#[derive(Clone, Default)]
struct World {
    names: BTreeMap<(bool, String), u64>,
    sizes: BTreeMap<u64, usize>,
}

/// What was done since the last sync, and before.
#[derive(Default)]
struct Oracle {
    now: World,
    durable: World,
    /// Syncs that were begun, and what may have been one: these worlds may be found as well.
    pending: Vec<World>,
    files: BTreeMap<u64, Model>,
}

impl Oracle {
    fn world(&self) -> World {
        let sizes = self.files.iter().map(|(id, file)| (*id, file.size)).collect();
        World { names: self.now.names.clone(), sizes }
    }

    fn begin_sync(&mut self) {
        self.pending.push(self.world());
    }

    fn end_sync(&mut self) {
        self.durable = self.pending.pop().unwrap();
        self.pending.clear();
        for file in self.files.values_mut() {
            file.blocks.iter_mut().for_each(|b| drop(b.drain(..b.len() - 1)));
        }
        let named: Vec<u64> = self.now.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
    }
}

/// One random operation. An error is returned when the power was cut, or the pool is full.
fn step(files: &dyn Files, sub: NodeId, oracle: &mut Oracle, dice: &mut StdRng) -> io::Result<()> {
    let place = |in_sub: bool| if in_sub { sub } else { NodeId::ROOT };
    let random_name = |dice: &mut StdRng| (dice.random_bool(0.4), format!("n{}", dice.random_range(0..7)));
    let (in_sub, label) = random_name(dice);
    let id = oracle.now.names.get(&(in_sub, label.clone())).copied();
    let base = if dice.random_bool(0.1) { BORDER } else { 0 };
    match (dice.random_range(0..24), id) {
        (0, _) => {
            oracle.begin_sync();
            files.sync()?;
            oracle.end_sync();
        }
        (1..=3, None) => {
            let made = files.make(place(in_sub), name(&label), &new(FILE))?;
            oracle.files.insert(made.id.0, Model::default());
            oracle.now.names.insert((in_sub, label), made.id.0);
        }
        (4, Some(id)) => {
            files.unlink(place(in_sub), name(&label))?;
            oracle.now.names.remove(&(in_sub, label));
            if !oracle.now.names.values().any(|other| *other == id) {
                files.forget(NodeId(id), u64::MAX);
            }
        }
        (5..=6, Some(id)) => {
            let (to_sub, other) = random_name(dice);
            files.rename((place(in_sub), name(&label)), (place(to_sub), name(&other)), Rename::Replace)?;
            let replaced = oracle.now.names.get(&(to_sub, other.clone())).copied();
            if replaced != Some(id) {
                oracle.now.names.remove(&(in_sub, label));
                oracle.now.names.insert((to_sub, other), id);
            }
        }
        (7, Some(id)) => {
            let (to_sub, other) = random_name(dice);
            match files.link(NodeId(id), place(to_sub), name(&other)) {
                Ok(_) => drop(oracle.now.names.insert((to_sub, other), id)),
                Err(e) if e.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {}
                Err(e) => return Err(e),
            }
        }
        (8..=9, Some(id)) => {
            let size =
                if dice.random_bool(0.2) { 0 } else { base + dice.random_range(0..FILE_BLOCKS * BLOCK) };
            let file = oracle.files.get_mut(&id).unwrap();
            // Made empty, a file gets other content; else its content goes, which is durable at once, with everything
            // before. A file without content only gets another length.
            let (shrinks, has_content) = (size > 0 && size < file.size, file.has_content);
            file.resize(size);
            if shrinks {
                oracle.begin_sync();
            }
            files.change(NodeId(id), &Change { size: Some(size as u64), ..Change::default() })?;
            if shrinks && has_content {
                oracle.end_sync();
            }
        }
        (10, Some(id)) => {
            let start = base + dice.random_range(0..FILE_BLOCKS * BLOCK);
            let end = start + dice.random_range(1..8 * BLOCK);
            let file = oracle.files.get_mut(&id).unwrap();
            let how = [Allocate::Punch, Allocate::Zero, Allocate::Extend][dice.random_range(0..3)];
            let inside = end.min(file.size);
            if how != Allocate::Extend && start < inside {
                file.set(start, &vec![0; inside - start]);
            }
            if how != Allocate::Punch {
                file.size = file.size.max(end);
            }
            files.allocate(NodeId(id), start as u64..end as u64, how)?;
        }
        (_, Some(id)) => {
            let start = base + dice.random_range(0..FILE_BLOCKS * BLOCK);
            let mut data = vec![0; dice.random_range(1..4 * BLOCK)];
            if dice.random_bool(0.5) {
                data.resize(data.len().div_ceil(BLOCK) * BLOCK, 0);
            }
            data.chunks_mut(BLOCK).for_each(|block| content(dice, 40, block));
            let start = if dice.random_bool(0.5) { start / BLOCK * BLOCK } else { start };
            let file = oracle.files.get_mut(&id).unwrap();
            file.set(start, &data);
            file.size = file.size.max(start + data.len());
            file.has_content = true;
            files.write(NodeId(id), start as u64, &data)?;
        }
        _ => {}
    }
    Ok(())
}

/// What is there, as the model has it.
fn found(files: &dyn Files, sub: NodeId) -> BTreeMap<(bool, String), Stat> {
    let mut all = BTreeMap::new();
    for (in_sub, directory) in [(false, NodeId::ROOT), (true, sub)] {
        for label in names(files, directory).into_iter().filter(|n| n != "sub") {
            let stat = files.lookup(directory, name(&label)).unwrap();
            all.insert((in_sub, label), stat);
        }
    }
    all
}

#[test]
fn random_operations_against_a_model() {
    let (mut fs, mut pool, mut files) = fresh(5);
    let mut dice = dice(seed());
    let sub = files.make(NodeId::ROOT, name("sub"), &new(DIRECTORY)).unwrap().id;
    let mut oracle = Oracle::default();
    for n in 0..budget("SAPWOOD_FILES_STEPS", 6_000) {
        step(&files, sub, &mut oracle, &mut dice).unwrap();
        if n % 500 == 499 {
            if dice.random_bool(0.5) {
                oracle.begin_sync();
                files.sync().unwrap();
                oracle.end_sync();
                pool.close().unwrap();
                drop((files, pool));
                fs = fs.restart();
                (pool, files) = system(&fs);
            }
            let there = found(&files, sub);
            let ids: BTreeMap<_, _> = there.iter().map(|(name, stat)| (name.clone(), stat.id.0)).collect();
            assert_eq!(ids, oracle.now.names);
            for stat in there.values() {
                let model = &oracle.files[&stat.id.0];
                let links = ids.values().filter(|id| **id == stat.id.0).count();
                assert_eq!((stat.size as usize, stat.links as usize), (model.size, links));
                assert!(read_all(&files, stat.id) == model.now(), "step {n}: node {}", stat.id.0);
            }
            files.sync().unwrap();
            assert_whole(&pool);
        }
    }
}

#[test]
fn what_was_synced_survives_power_cuts() {
    let (mut fs, pool, files) = fresh(6);
    let seed = seed();
    let mut dice = dice(seed);
    let sub = files.make(NodeId::ROOT, name("sub"), &new(DIRECTORY)).unwrap().id;
    files.sync().unwrap();
    drop((files, pool));
    let mut oracle = Oracle::default();
    for cut in 0..budget("SAPWOOD_FILES_STOPS", 120) {
        fs = fs.crash();
        let (pool, files) = loop {
            // Opening it again may be cut as well.
            if dice.random_bool(0.2) {
                fs.stop_after(dice.random_range(1..60));
            }
            let opened =
                open(&fs, BLOCKS).and_then(|pool| Ok((Arc::clone(&pool), FileSystem::open(pool, 1, 2)?)));
            match opened {
                Ok(opened) if !fs.is_stopped() => {
                    fs.stop_after(1 << 60);
                    break opened;
                }
                opened => {
                    assert!(fs.is_stopped(), "cut {cut}: {:?}", opened.err());
                    fs = fs.crash();
                }
            }
        };
        let there = found(&files, sub);
        let ids: BTreeMap<_, _> = there.iter().map(|(name, stat)| (name.clone(), stat.id.0)).collect();
        let is_it = |world: &World| {
            world.names == ids && there.values().all(|s| world.sizes.get(&s.id.0) == Some(&(s.size as usize)))
        };
        let is_one = [&oracle.durable].into_iter().chain(&oracle.pending).any(is_it);
        assert!(is_one, "cut {cut}: names or lengths that never were durable: {ids:?}");
        let mut files_now = BTreeMap::new();
        for stat in there.values() {
            let (data, model) = (read_all(&files, stat.id), &oracle.files[&stat.id.0]);
            for (n, block) in data.chunks(BLOCK).enumerate() {
                let zeros = [0; BLOCK];
                let was = model.blocks.get(n).map_or(&[][..], |b| b);
                let fits = was.iter().any(|w| &w[..block.len()] == block)
                    || (was.is_empty() && block == &zeros[..block.len()]);
                assert!(fits, "cut {cut}: block {n} of node {} is what it never was", stat.id.0);
            }
            let has_content = data.iter().any(|byte| *byte != 0);
            let mut now = Model { size: data.len(), blocks: Vec::new(), has_content };
            for block in data.chunks(BLOCK) {
                let mut whole = [0; BLOCK];
                whole[..block.len()].copy_from_slice(block);
                now.blocks.push(vec![whole]);
            }
            files_now.insert(stat.id.0, now);
        }
        oracle.files = files_now;
        oracle.now.names = ids;
        oracle.durable = oracle.world();
        oracle.pending.clear();
        if cut % 10 == 0 {
            assert_whole(&pool);
        }
        fs.stop_after(dice.random_range(1..900));
        let error = loop {
            match step(&files, sub, &mut oracle, &mut dice) {
                Ok(()) if fs.is_stopped() => break None,
                Ok(()) => {}
                Err(error) => break Some(error),
            }
        };
        assert!(fs.is_stopped(), "cut {cut}: {error:?}");
        // Killed, not closed.
        drop((files, pool));
    }
}
