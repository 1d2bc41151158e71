//! XFS with damaged metadata: errors are fine, panics, loops and floods are not.

use crate::disks::FileDisk;
use crate::tree::{noise, sub, write};
use crate::volume::{make, run, set_attribute, Mount, VOLUME_BYTES};
use filesystem::xfs::Xfs;
use filesystem::{Directory, Disk, FileSystem, NodeKind, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::FallocateFlags;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{hard_link, File};
use std::os::unix::fs::{symlink, FileExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SEED: u64 = 0x5a9_0d5f;
const DAMAGES: u64 = 6000;
/// How long one damaged volume may take. Only against hanging: a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(300);
/// What damage is counted in.
const PAGE: u64 = 512;

/// Of blocks that have one, all that lead to files but the leaves of attributes.
const MAGICS_WITH_CRC: [&[u8; 4]; 5] = [b"XDB3", b"XDD3", b"XSLM", b"XARM", b"BMA3"];

/// A disk with other bytes here and there, that remembers what was read.
struct Damaged {
    image: Arc<FileDisk>,
    other: BTreeMap<u64, u8>,
    read: Mutex<BTreeSet<u64>>,
}

impl Disk for Damaged {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.image.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        for (at, byte) in self.other.range(offset..end) {
            buf[(at - offset) as usize] = *byte;
        }
        if self.other.is_empty() {
            self.read.lock().expect("one thread").extend(offset / PAGE..end.div_ceil(PAGE));
        }
        Ok(())
    }
}

/// Something of each form, as small as can be.
fn fill_little(root: &Path) {
    for count in [2, 30, 400] {
        let dir = sub(root, &format!("of-{count}"));
        write(&dir.join("a"), b"one");
        (0..count).for_each(|n| hard_link(dir.join("a"), dir.join(format!("name-{n}"))).expect("a name"));
    }
    symlink("short", root.join("short")).expect("a link");
    symlink("l".repeat(900), root.join("long")).expect("a link");
    let pieces = File::create(root.join("pieces")).expect("a file");
    rustix::fs::fallocate(&pieces, FallocateFlags::empty(), 0, 600 << 10).expect("room");
    (0..150).for_each(|n| pieces.write_all_at(b"here", n * 4096).expect("data"));
    for (name, count, len) in [("few", 2, 5), ("some", 9, 60), ("many", 90, 50), ("large", 3, 9000)] {
        let path = root.join(name);
        write(&path, &noise(count, 3000));
        (0..count).for_each(|n| set_attribute(&path, &format!("user.a{n}"), &noise(n, len)));
    }
}

/// What a walk met.
struct Walked {
    nodes: usize,
    errors: usize,
}

/// Visits all nodes, each once, and reads what they hold.
fn walk(fs: &dyn FileSystem) -> Walked {
    let (mut open, mut seen, mut errors) = (vec![fs.root()], HashSet::new(), 0);
    let mut buf = vec![0; 64 << 10];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        errors += usize::from(fs.attributes(id).is_err());
        let Ok(node) = fs.node(id) else {
            errors += 1;
            continue;
        };
        match node.kind {
            NodeKind::Directory => match Directory::read(fs, id) {
                Ok(Directory { entries, damage }) => {
                    errors += damage.len();
                    open.extend(entries.into_iter().map(|e| e.id));
                }
                Err(_) => errors += 1,
            },
            NodeKind::Link => errors += usize::from(fs.link(id).is_err()),
            _ => {
                let mut end = 0;
                let extents = fs.extents(id);
                errors += usize::from(extents.is_err() && node.kind == NodeKind::File);
                for extent in extents.unwrap_or_default() {
                    assert!(extent.len > 0 && extent.offset >= end, "{extent:?} after {end}");
                    end = extent.offset + extent.len;
                }
                assert!(end <= node.size, "extents to {end} of {}", node.size);
                for at in [0, end.saturating_sub(10_000), node.size / 2, node.size, u64::MAX] {
                    let expected = node.size.saturating_sub(at).min(buf.len() as u64);
                    if let Ok(n) = fs.read_at(id, at, &mut buf) {
                        assert_eq!(n as u64, expected);
                    }
                }
            }
        }
    }
    Walked { nodes: seen.len(), errors }
}

/// Values that fields like to be checked for, or not.
fn field(rng: &mut StdRng) -> Vec<u8> {
    let value: u64 = match rng.random_range(0..6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << rng.random_range(0..64),
        3 => (1u64 << rng.random_range(0..64)) - 1,
        4 => rng.random_range(0..300),
        _ => rng.random(),
    };
    let len = [1, 2, 4, 8][rng.random_range(0..4)];
    let bytes = value.to_be_bytes();
    if rng.random() {
        bytes[8 - len..].to_vec()
    } else {
        bytes[8 - len..].iter().rev().copied().collect()
    }
}

fn damage(rng: &mut StdRng, image: &FileDisk, pages: &[u64]) -> BTreeMap<u64, u8> {
    let mut other = BTreeMap::new();
    for _ in 0..rng.random_range(1..6) {
        let page = pages[rng.random_range(0..pages.len())] * PAGE;
        // Heads of blocks and inodes hold the most fields.
        let most = if rng.random() { PAGE } else { 120 };
        let within = rng.random_range(0..most);
        let bytes = match rng.random_range(0..8) {
            0 => {
                // Another place's bytes.
                let from = pages[rng.random_range(0..pages.len())] * PAGE;
                let mut bytes = vec![0; PAGE as usize];
                image.read_at(from, &mut bytes).expect("the image's bytes");
                other.extend((page..).zip(bytes));
                continue;
            }
            1..=3 => {
                let mut byte = [0];
                image.read_at(page + within, &mut byte).expect("the image's byte");
                vec![byte[0] ^ (1 << rng.random_range(0..8))]
            }
            _ => field(rng),
        };
        other.extend((page + within..).zip(bytes));
    }
    other
}

/// Pages that are read and not empty.
fn pages_with_something(image: &FileDisk, read: &BTreeSet<u64>) -> Vec<u64> {
    let mut bytes = vec![0; PAGE as usize];
    let mut is_used = |page: u64| {
        image.read_at(page * PAGE, &mut bytes).expect("the image's bytes");
        bytes.iter().any(|b| *b != 0)
    };
    read.iter().copied().filter(|page| is_used(*page)).collect()
}

/// A flipped bit in a block that has a checksum is an error.
fn each_bit_counts(image: &Arc<FileDisk>, pages: &[u64]) {
    let mut kinds = BTreeSet::new();
    for page in pages {
        let mut bytes = [0; PAGE as usize];
        image.read_at(page * PAGE, &mut bytes).expect("the image's bytes");
        let kind: &[u8] = match &bytes[..12] {
            [.., 0x3b, 0xee, 0, 0] => b"leaf",
            head => match MAGICS_WITH_CRC.iter().find(|magic| head.starts_with(magic.as_slice())) {
                Some(magic) => magic.as_slice(),
                None => continue,
            },
        };
        kinds.insert(kind);
        let other = BTreeMap::from([(page * PAGE + 400, bytes[400] ^ 0x10)]);
        let damaged = Arc::new(Damaged { image: image.clone(), other, read: Mutex::default() });
        let fs = Xfs::open(damaged).expect("opens").expect("is XFS");
        assert!(walk(&fs).errors > 0, "page {page}: {:?}", bytes[..12].escape_ascii().to_string());
    }
    assert_eq!(kinds.len(), 6, "one of each kind");
}

fn damage_many(options: &str, is_dirty: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("xfs.img");
    make(&path, VOLUME_BYTES, options);
    let mount = Mount::new(&path, "rw");
    fill_little(mount.path());
    if is_dirty {
        let command = ["-x", "-c", "shutdown -f"].map(OsStr::new);
        let arguments: Vec<_> = command.into_iter().chain([mount.path().as_os_str()]).collect();
        run("xfs_io", "xfsprogs", &arguments);
    }
    drop(mount);
    let image = Arc::new(FileDisk::open(&path));
    let disk = |other| Arc::new(Damaged { image: image.clone(), other, read: Mutex::default() });
    let whole = disk(BTreeMap::new());
    let Walked { nodes, errors } = walk(&Xfs::open(whole.clone()).expect("opens").expect("is XFS"));
    assert_eq!(errors, 0);
    let pages = pages_with_something(&image, &whole.read.lock().expect("one thread"));
    println!("seed {SEED:#x}: {nodes} nodes, {} pages", pages.len());
    if !is_dirty {
        each_bit_counts(&image, &pages);
    }
    let mut refused = 0;
    for n in 0..DAMAGES {
        let mut rng = StdRng::seed_from_u64(SEED + n);
        let damaged = disk(damage(&mut rng, &image, &pages));
        let started = Instant::now();
        let opened = if n % 5 == 0 { Xfs::open(damaged) } else { Xfs::open_without_checksums(damaged) };
        match opened {
            Ok(Some(fs)) => drop(walk(&fs)),
            Ok(None) | Err(_) => refused += 1,
        }
        assert!(started.elapsed() < PATIENCE, "damage {n} of seed {SEED:#x}: {:?}", started.elapsed());
    }
    println!("{refused} of {DAMAGES} were refused whole");
    assert!(refused < DAMAGES / 2);
}

#[test]
fn damage_to_a_clean_volume() {
    if !testing::can_mount("xfs") {
        return;
    }
    damage_many("-b size=1024 -i size=512", false);
}

#[test]
fn damage_to_a_log() {
    if !testing::can_mount("xfs") {
        return;
    }
    damage_many("-b size=1024", true);
}
