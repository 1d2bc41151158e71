//! ext2, ext3 and ext4, made by mkfs and filled by the kernel, against what the kernel shows.

#[path = "common/ext.rs"]
mod common;
#[path = "common/ext_tree.rs"]
mod tree;

use common::{run, Comparison, FileDisk, Mounted, Totals};
use filesystem::{ext, Disk, FileSystem};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tree::Limits;

const MIB: u64 = 1 << 20;
/// Large enough for the block size that mkfs takes by itself.
const IMAGE_BYTES: u64 = 600 * MIB;

/// One test at a time: loop devices are few.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make(dir: &Path, program: &str, args: &[&str], size: u64) -> PathBuf {
    let image = dir.join("image");
    File::create(&image).expect("create").set_len(size).expect("set_len");
    run(program, "e2fsprogs", &[&["-q", "-F"], args, &[image.to_str().expect("text")]].concat());
    image
}

fn open(image: &Path) -> (ext::Ext, Arc<dyn Disk>) {
    let volume: Arc<dyn Disk> = Arc::new(FileDisk::open(image));
    let fs = ext::open(volume.clone()).expect("readable").expect("its magic number");
    (fs, volume)
}

/// Compares an image with a mount of it.
fn compare(image: &Path, options: &str) -> Totals {
    let (fs, volume) = open(image);
    assert_eq!(fs.warnings(), [""; 0]);
    let mounted = Mounted::new(image, options);
    Comparison { fs: &fs, volume: &*volume, is_same: true, totals: Totals::default() }.run(&mounted.dir)
}

const LIMITS: Limits = Limits {
    entries: 2000,
    file_bytes: 1 << 40,
    attribute_bytes: 2000,
    has_fallocate: true,
    block_bytes: 4096,
};

/// Makes a file system, fills it, and compares.
fn check(program: &str, args: &[&str], kind: &str, limits: Limits) -> Totals {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("no temporary directory");
    let image = make(temp.path(), program, &[&["-L", "a label"], args].concat(), IMAGE_BYTES);
    let mounted = Mounted::new(&image, "acl,user_xattr");
    tree::fill(&mounted.dir, limits);
    drop(mounted);
    let (fs, _) = open(&image);
    assert_eq!((fs.kind(), &fs.label()[..]), (kind, &b"a label"[..]));
    drop(fs);
    let totals = compare(&image, "ro");
    println!("{program} {args:?}: {totals:?}");
    assert!(totals.nodes > 2000 && totals.bytes > 20 * MIB && totals.attributes > 40, "{totals:?}");
    assert!(
        totals.holes > limits.file_bytes && (totals.never_written > MIB) == limits.has_fallocate,
        "{totals:?}"
    );
    totals
}

#[test]
fn ext4_as_mkfs_makes_it() {
    check("mkfs.ext4", &[], "ext4", Limits { entries: 20_000, ..LIMITS });
}

#[test]
fn ext2() {
    check("mkfs.ext2", &[], "ext2", Limits { has_fallocate: false, ..LIMITS });
}

#[test]
fn ext2_with_the_smallest_inodes_and_blocks() {
    let limits = Limits {
        has_fallocate: false,
        file_bytes: 16 << 30,
        attribute_bytes: 700,
        block_bytes: 1024,
        ..LIMITS
    };
    check("mkfs.ext2", &["-b", "1024", "-I", "128", "-O", "none,large_file"], "ext2", limits);
}

#[test]
fn ext3() {
    check("mkfs.ext3", &[], "ext3", Limits { has_fallocate: false, ..LIMITS });
}

#[test]
fn ext4_with_blocks_of_1_kib() {
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    check("mkfs.ext4", &["-b", "1024"], "ext4", limits);
}

#[test]
fn ext4_without_checksums() {
    check("mkfs.ext4", &["-O", "^metadata_csum,^64bit"], "ext4", LIMITS);
}

#[test]
fn ext4_with_checksums_of_groups() {
    check("mkfs.ext4", &["-O", "^metadata_csum,uninit_bg,^flex_bg"], "ext4", LIMITS);
}

#[test]
fn ext4_with_inline_data() {
    check("mkfs.ext4", &["-O", "inline_data", "-I", "256"], "ext4", LIMITS);
    check("mkfs.ext4", &["-O", "inline_data", "-I", "1024"], "ext4", LIMITS);
}

#[test]
fn ext4_with_clusters() {
    check("mkfs.ext4", &["-O", "bigalloc", "-C", "65536"], "ext4", LIMITS);
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    check("mkfs.ext4", &["-O", "bigalloc", "-b", "1024"], "ext4", limits);
}

#[test]
fn ext4_without_64_bits() {
    check("mkfs.ext4", &["-O", "^64bit,sparse_super2", "-I", "512"], "ext4", LIMITS);
}

#[test]
fn ext4_with_values_in_inodes() {
    check("mkfs.ext4", &["-O", "ea_inode"], "ext4", Limits { attribute_bytes: 60_000, ..LIMITS });
}

#[test]
fn ext4_with_descriptors_in_meta_groups() {
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    let options = ["-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode,metadata_csum_seed,large_dir"];
    check("mkfs.ext4", &options, "ext4", limits);
}

/// Compares a dirty image, read as it is, with a mount of a copy, whose journal the kernel replays.
fn compare_dirty(image: &Path) -> (Totals, usize) {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).expect("copy");
    let (fs, volume) = open(image);
    assert_eq!(fs.warnings(), [""; 0]);
    let mounted = Mounted::new(&copy, "ro");
    let totals =
        Comparison { fs: &fs, volume: &*volume, is_same: true, totals: Totals::default() }.run(&mounted.dir);
    drop(mounted);
    (totals, differences(image, &copy))
}

/// How many blocks of 1 KiB differ: what the kernel replayed, and a few more.
fn differences(one: &Path, two: &Path) -> usize {
    let (one, two) = (std::fs::read(one).expect("read"), std::fs::read(two).expect("read"));
    one.chunks(1024).zip(two.chunks(1024)).filter(|(a, b)| a != b).count()
}

/// Stops a file system as a power cut would, and returns its image as it is then.
fn cut_power(mounted: Mounted, image: &Path) -> PathBuf {
    run("xfs_io", "xfsprogs", &["-x", "-c", "shutdown", mounted.dir.to_str().expect("text")]);
    let cut = image.with_extension("cut");
    std::fs::copy(image, &cut).expect("copy");
    cut
}

/// Brings all changes into the journal, and not from there to their places as `sync` would.
fn commit(mounted: &Mounted) {
    File::open(&mounted.dir).and_then(|dir| dir.sync_all()).expect("fsync");
}

/// Fills the file system again and again, so that blocks of directories become those of files.
fn stir(mounted: &Mounted, rounds: u8) {
    let magic = [0xc0, 0x3b, 0x39, 0x98];
    for round in 0..rounds {
        let dir = mounted.dir.join(format!("round{round}"));
        std::fs::create_dir(&dir).expect("mkdir");
        for n in 0..300 {
            std::fs::write(dir.join(format!("{} {n}", "name".repeat(30))), magic).expect("write");
        }
        commit(mounted);
        for n in (0..300).filter(|n| n % 50 != 0) {
            std::fs::remove_file(dir.join(format!("{} {n}", "name".repeat(30)))).expect("remove");
        }
        if round > 0 {
            std::fs::remove_dir_all(mounted.dir.join(format!("round{}", round - 1))).expect("remove");
        }
        commit(mounted);
        let content = [&magic[..], &vec![round; 100_000]].concat();
        // Writes until nothing is free.
        for n in 0.. {
            let path = mounted.dir.join(format!("file {round} {n}"));
            if std::fs::write(&path, &content).is_err() {
                break;
            }
        }
        commit(mounted);
        for n in (0..).step_by(2) {
            if std::fs::remove_file(mounted.dir.join(format!("file {round} {n}"))).is_err() {
                break;
            }
        }
    }
}

/// Makes a small file system, stirs it, and cuts its power.
fn check_dirty(args: &[&str], options: &str) -> Totals {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("no temporary directory");
    let image = make(temp.path(), "mkfs.ext4", args, 24 * MIB);
    let mounted = Mounted::new(&image, options);
    stir(&mounted, 4);
    commit(&mounted);
    std::fs::rename(mounted.dir.join("round3"), mounted.dir.join("renamed")).expect("rename");
    let (totals, differences) = compare_dirty(&cut_power(mounted, &image));
    println!("{args:?} {options}: {totals:?}, {differences} blocks differ");
    assert!(differences > 100, "the journal was empty");
    totals
}

#[test]
fn a_journal_is_replayed() {
    check_dirty(&["-b", "1024"], "defaults");
    check_dirty(&["-b", "4096"], "defaults");
}

#[test]
fn a_journal_with_data_is_replayed() {
    check_dirty(&["-b", "1024"], "data=journal");
    check_dirty(&["-b", "2048", "-O", "bigalloc", "-C", "4096"], "data=journal");
}

#[test]
fn a_journal_without_checksums_is_replayed() {
    check_dirty(&["-b", "1024", "-O", "^metadata_csum,^64bit,^extents"], "defaults");
    check_dirty(&["-b", "1024", "-O", "^metadata_csum"], "data=journal");
}
