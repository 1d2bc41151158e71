//! Damaged ext file systems: no panic, no endless loop, nothing that cannot be.

#![allow(dead_code, reason = "not all helpers are used here")]

#[path = "common/ext.rs"]
mod common;
#[path = "common/explore.rs"]
mod explore;

use common::disks::Memory;
use common::{alone, debugfs, make, open, Mounted, MIB};
use explore::{explore, Explored};
use filesystem::{ext, Disk, FileSystem, NodeId, NodeKind, Place};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{lsetxattr, XattrFlags};
use std::fs::File;
use std::os::unix::fs::{symlink, FileExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEED: u64 = 0x5a9_0001;
const ROUNDS: usize = 600;
/// How long one damaged file system may keep a reader busy. Only against hanging: a busy machine is slow.
const LIMIT: Duration = Duration::from_secs(300);

/// A few nodes of each sort.
fn fill(dir: &Path) {
    let large = dir.join("large");
    std::fs::create_dir_all(dir.join("a/b/c")).expect("mkdir");
    std::fs::create_dir(&large).expect("mkdir");
    for n in 0..150 {
        std::fs::write(large.join(format!("{}{n}", "name".repeat(15))), [n; 40]).expect("write");
    }
    for n in [1, 59, 60, 300] {
        symlink("t".repeat(n), dir.join(format!("link{n}"))).expect("symlink");
    }
    let file = File::create(dir.join("holes")).expect("create");
    for n in 0..700 {
        file.write_all_at(&[1], n * 2048).expect("write");
    }
    file.write_all_at(b"far", 300 << 20).expect("write");
    std::fs::write(dir.join("whole"), vec![7; 300_000]).expect("write");
    for (name, len) in [("user.small", 10), ("user.large", 700)] {
        for path in [dir.join("a"), dir.join("whole")] {
            lsetxattr(&path, name, &vec![b'v'; len], XattrFlags::empty()).expect("setxattr");
        }
    }
}

/// Which bytes are metadata: those that are not 0, in blocks that hold no file's data.
fn metadata(fs: &dyn FileSystem, bytes: &[u8]) -> Vec<usize> {
    let mut is_data = vec![false; bytes.len() / 1024];
    let mut todo = vec![fs.root()];
    while let Some(id) = todo.pop() {
        match fs.node(id).expect("a node").kind {
            NodeKind::Directory => todo.extend(fs.entries(id).expect("entries").into_iter().map(|e| e.id)),
            NodeKind::File => {
                for e in fs.extents(id).expect("extents") {
                    let Place::Volume(at) = e.place else { continue };
                    let blocks = at as usize / 1024..(at + e.len).div_ceil(1024) as usize;
                    is_data[blocks].fill(true);
                }
            }
            _ => {}
        }
    }
    (0..bytes.len()).filter(|at| bytes[*at] != 0 && !is_data[at / 1024]).collect()
}

fn harm(bytes: &mut [u8], metadata: &[usize], random: &mut StdRng) {
    // Superblock and descriptors are a small part of it.
    let first = metadata.partition_point(|at| *at < 4096);
    for _ in 0..random.random_range(1..4) {
        let among = if random.random_bool(0.1) { first } else { metadata.len() };
        let at = metadata[random.random_range(0..among)];
        let at =
            if random.random_bool(0.2) { (at + random.random_range(0..16)).min(bytes.len() - 4) } else { at };
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0xff][random.random_range(0..4)],
            3 => bytes[at & !3..][..4].copy_from_slice(&random.random::<u32>().to_le_bytes()),
            4 => bytes[at & !3..][..4].copy_from_slice(&random.random_range(0..9000u32).to_le_bytes()),
            _ => {
                let from = metadata[random.random_range(0..metadata.len())] & !3;
                bytes.copy_within(from..from + 4, at & !3);
            }
        }
    }
}

/// Damages a file system in many ways, and reads each.
fn check(args: &[&str], journal: Option<&str>) {
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), "mkfs.ext4", args, 4 * MIB);
    let mounted = Mounted::new(&image, "defaults");
    fill(&mounted.dir);
    drop(mounted);
    if let Some(open) = journal {
        // The journal gets a newer version of what it will be damaged in: the first blocks.
        let content = temp.path().join("content");
        std::fs::write(&content, &std::fs::read(&image).expect("read")[1024..6 * 1024]).expect("write");
        let blocks = format!("journal_write -b 1,2,3,4,5 {}", content.display());
        debugfs(&image, &[open, &blocks, "journal_write -r 900,901", &blocks, "journal_close"]);
    }
    let (fs, volume) = open(&image);
    assert_eq!(fs.warnings(), [""; 0]);
    let whole = explore(&fs, &*volume);
    assert!(whole.errors == 0 && whole.nodes > 160 && whole.attributes == 4, "{whole:?}");
    let bytes = std::fs::read(&image).expect("read");
    let metadata = metadata(&fs, &bytes);
    let (mut unopened, mut others) = (0, 0);
    for round in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(SEED + round as u64);
        let mut bytes = bytes.clone();
        harm(&mut bytes, &metadata, &mut random);
        let started = Instant::now();
        match explore_bytes(bytes) {
            Some(found) => others += usize::from(found != whole),
            None => unopened += 1,
        }
        assert!(started.elapsed() < LIMIT, "{args:?}, seed {SEED} and {round}: {:?}", started.elapsed());
    }
    println!("{args:?}, seed {SEED}: {unopened} not opened, {others} read in part, of {ROUNDS}");
    assert!(others > ROUNDS / 20, "damage is not noticed");
}

fn explore_bytes(bytes: Vec<u8>) -> Option<Explored> {
    let volume: Arc<dyn Disk> = Arc::new(Memory(bytes));
    let fs = ext::open(volume.clone()).ok()??;
    assert!(fs.node(NodeId(0)).is_err());
    Some(explore(&fs, &*volume))
}

#[test]
fn with_checksums() {
    if !testing::can_mount("ext4") {
        return;
    }
    check(&["-b", "1024", "-O", "metadata_csum"], None);
}

#[test]
fn without_checksums() {
    if !testing::can_mount("ext4") {
        return;
    }
    check(&["-b", "1024", "-O", "^metadata_csum"], None);
}

#[test]
fn with_pointers_to_blocks() {
    if !testing::can_mount("ext4") {
        return;
    }
    check(&["-b", "1024", "-O", "none,has_journal,dir_index,filetype"], None);
}

#[test]
fn with_inline_data() {
    if !testing::can_mount("ext4") {
        return;
    }
    check(&["-b", "1024", "-O", "^metadata_csum,inline_data,^has_journal"], None);
}

#[test]
fn with_a_journal_to_replay() {
    if !testing::can_mount("ext4") {
        return;
    }
    check(&["-b", "1024", "-O", "^metadata_csum"], Some("journal_open"));
}
