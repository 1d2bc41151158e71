//! XFS as mkfs.xfs and the kernel make it, read and compared with what the kernel shows.

mod damage;
#[path = "../common/disks.rs"]
mod disks;
mod log;
mod tree;
mod version4;
mod volume;

use filesystem::FileSystem;
use tree::{fill, Plan};
use volume::{compare, make, open, Mount, VOLUME_BYTES};

const SMALL: Plan = Plan { entries: 3000, pieces: 400, has_bigtime: true, has_reflink: true };

/// Makes a file system with these options, fills it, and compares all of it.
fn check(options: &str, plan: &Plan) -> volume::Compared {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("xfs.img");
    make(&image, VOLUME_BYTES, options);
    fill(Mount::new(&image, "rw").path(), plan);
    let mount = Mount::new(&image, "ro");
    let fs = open(&image);
    assert_eq!(fs.warnings(), Vec::<String>::new());
    let compared = compare(&fs, mount.path());
    println!("{options}: {compared:?}");
    compared
}

#[test]
fn as_mkfs_makes_it() {
    if !testing::can_mount("xfs") {
        return;
    }
    let plan = Plan { entries: 20_000, pieces: 3000, has_bigtime: true, has_reflink: true };
    let compared = check("-L sapwood", &plan);
    assert!(compared.nodes > 22_000 && compared.extents_most >= 3000, "{compared:?}");
}

#[test]
fn directory_blocks_of_16_kib() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-n size=16384", &SMALL);
}

#[test]
fn blocks_of_1_kib() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-b size=1024", &Plan { pieces: 3000, ..SMALL });
}

#[test]
fn blocks_of_1_kib_and_directory_blocks_of_8() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-b size=1024 -n size=8192", &SMALL);
}

#[test]
fn blocks_of_64_kib() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-b size=65536", &SMALL);
}

#[test]
fn inodes_of_2_kib() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-i size=2048 -s size=4096", &SMALL);
}

#[test]
fn without_newer_features() {
    if !testing::can_mount("xfs") {
        return;
    }
    check(
        "-m bigtime=0,reflink=0,finobt=0,inobtcount=0 -i sparse=0",
        &Plan { has_bigtime: false, has_reflink: false, ..SMALL },
    );
}

#[test]
fn with_large_counters_and_reverse_mappings() {
    if !testing::can_mount("xfs") {
        return;
    }
    check("-m rmapbt=1,bigtime=1 -i nrext64=1,sparse=1 -d agcount=5", &SMALL);
}
