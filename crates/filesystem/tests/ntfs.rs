//! NTFS, made by mkntfs, filled and read through ntfs-3g, and read by this crate.

#[path = "common/windows.rs"]
mod windows;

use filesystem::ntfs::Ntfs;
use filesystem::{FileSystem, FsError, NodeKind, Place};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::{FileType, Mode, Timespec, Timestamps, XattrFlags, CWD};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use windows::{compare, find, run, sparse_file, walk, Compared, FileDisk, Memory, Mount};

const OPTIONS: &str = "streams_interface=xattr,compression,efs_raw,noatime";
const HOW: Compared = Compared {
    links: true,
    changed: true,
    nanos: 100,
    directory_times: true,
    attributes: Some("user.stream."),
};

fn make(image: &Path, mib: u64, options: &[&str]) {
    sparse_file(image, mib << 20);
    let mut args: Vec<&OsStr> = ["-F", "-f", "-q", "-L", "Größe 1"].map(OsStr::new).to_vec();
    args.extend(options.iter().map(OsStr::new));
    args.push(image.as_os_str());
    run("ntfs-3g", "/usr/sbin/mkntfs", &args);
}

fn open(image: &Path) -> Ntfs {
    Ntfs::open(Arc::new(FileDisk::open(image))).expect("a sound volume").expect("NTFS")
}

fn bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Text that compresses, with parts that don't.
fn text(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 70_000);
    while text.len() < len {
        match rng.random_range(0..40) {
            0 => text.extend(bytes(rng, 70_000)),
            1 => text.resize(text.len() + 50_000, 0),
            n => text.extend(format!("line {} of {n}, ", text.len() / 100).repeat(n).bytes()),
        }
    }
    text.truncate(len);
    text
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("a time");
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|why| panic!("{name}: {why}"));
}

fn names(at: &Path) {
    fs::create_dir(at).expect("a directory");
    let longest = "n".repeat(255);
    let wide = "ß€".repeat(127);
    let names: [&[u8]; 14] = [
        b"plain",
        b"Two",
        "größe €".as_bytes(),
        "emoji 😀 in a name".as_bytes(),
        b"lone \xed\xa0\xbd surrogate",
        b"\xed\xb8\x80",
        b"back\\slash:colon*?\"<>|",
        b" leading and trailing. . ",
        b"CON",
        b"...",
        b"\x01\x02\x1f\x7f",
        longest.as_bytes(),
        wide.as_bytes(),
        b"$MFT",
    ];
    for (n, name) in names.iter().enumerate() {
        let path = at.join(OsStr::from_bytes(name));
        fs::write(&path, format!("file {n}")).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
    let mut deep = at.to_owned();
    for n in 0..60 {
        deep.push(format!("directory {n}"));
        fs::create_dir(&deep).expect("a directory");
    }
    fs::write(deep.join("at the bottom"), "found").expect("a file");
}

fn kinds(at: &Path) {
    fs::create_dir(at).expect("a directory");
    for (name, target) in
        [("short", "a"), ("long", &"x/".repeat(2000)[..]), ("odd", "../größe/😀"), ("up", "..")]
    {
        symlink(target, at.join(name)).expect("a link");
    }
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, at.join(name), kind, Mode::RWXU, device)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    };
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("disk", FileType::BlockDevice, rustix::fs::makedev(259, 70_000));
    for (n, time) in [0, 1, 1 << 31, 1 << 33, 1 << 37].into_iter().enumerate() {
        let path = at.join(format!("time {n}"));
        fs::write(&path, "").expect("a file");
        set_time(&path, time, 123_456_700);
    }
    let first = at.join("linked");
    fs::write(&first, "several names").expect("a file");
    for n in 0..300 {
        fs::hard_link(&first, at.join(format!("{n} is another name of the same file {}", "y".repeat(n / 2))))
            .expect("a link");
    }
}

fn sizes(at: &Path, cluster: usize, rng: &mut StdRng) {
    fs::create_dir(at).expect("a directory");
    let around = |n: usize| [n - 1, n, n + 1];
    let small = [0, 1, 500, 600, 650, 700, 750, 800, 1023, 1024, 1025];
    for size in
        small.into_iter().chain(around(cluster)).chain(around(3 * cluster)).chain(around(16 * cluster))
    {
        fs::write(at.join(format!("{size} bytes")), bytes(rng, size)).expect("a file");
    }
    fs::write(at.join("deleted"), bytes(rng, 100_000)).expect("a file");
    fs::remove_file(at.join("deleted")).expect("no file");
}

fn holes(at: &Path, cluster: usize, rng: &mut StdRng) {
    fs::create_dir(at).expect("a directory");
    let sparse = |name: &str, size: u64, pieces: &[(u64, usize)], rng: &mut StdRng| {
        let file = File::create(at.join(name)).expect("a file");
        for (offset, len) in pieces {
            file.write_all_at(&bytes(rng, *len), *offset).expect("a piece");
        }
        file.set_len(size).expect("a size");
    };
    let c = cluster as u64;
    sparse("hole first", 40 * c + 7, &[(35 * c + 3, 2 * cluster)], rng);
    sparse("hole between", 80 * c, &[(0, cluster), (79 * c, cluster)], rng);
    sparse("hole last", 80 * c + 1, &[(0, 3 * cluster + 1)], rng);
    sparse("hole only", 12_345_678, &[], rng);
    sparse("beyond 4 GiB", (5 << 30) + 1, &[(0, 10), ((4 << 30) - 5, 10), (5 << 30, 1)], rng);
    sparse("1 TiB", 1 << 40, &[(0, 100), (1 << 39, 100_000), ((1 << 40) - 3, 3)], rng);
    // Each piece in an extent of its own, so that the record overflows into others.
    let pieces: Vec<(u64, usize)> = (0..1500).map(|n| (n * 2 * c, cluster)).collect();
    sparse("fragments", 3001 * c, &pieces, rng);
    let filled = File::options().write(true).open(at.join("fragments")).expect("the file");
    for n in (0..700).rev() {
        filled.write_all_at(&bytes(rng, cluster), (n * 2 + 1) * c).expect("a piece");
    }
    let two = ["one", "two"].map(|name| File::create(at.join(name)).expect("a file"));
    for n in 0..300 {
        two.iter().for_each(|f| f.write_all_at(&bytes(rng, cluster), n * c).expect("a piece"));
        two.iter().for_each(|f| f.sync_all().expect("synced"));
    }
}

fn compressed(at: &Path, rng: &mut StdRng) {
    fs::create_dir(at).expect("a directory");
    rustix::fs::lsetxattr(at, "system.ntfs_attrib_be", &[0, 0, 8, 0], XattrFlags::empty())
        .expect("compression");
    for size in [0, 1, 100, 4095, 4096, 4097, 65535, 65536, 65537, 300_000, 3_000_000] {
        fs::write(at.join(format!("text {size}")), text(rng, size)).expect("a file");
    }
    fs::write(at.join("random"), bytes(rng, 500_000)).expect("a file");
    fs::write(at.join("zeros"), vec![0; 500_000]).expect("a file");
    let file = File::create(at.join("with holes")).expect("a file");
    for n in [0u64, 5, 6, 20] {
        file.write_all_at(&text(rng, 100_000), n << 20).expect("a piece");
    }
    file.set_len((1 << 30) + 1).expect("a size");
    let appended = File::create(at.join("appended")).expect("a file");
    for n in 0..200 {
        appended.write_all_at(&text(rng, 1000), n * 1000).expect("a piece");
    }
}

fn streams(at: &Path, rng: &mut StdRng) {
    fs::create_dir(at).expect("a directory");
    let path = at.join("with streams");
    fs::write(&path, "and data").expect("a file");
    set_attribute(&path, "user.Zone.Identifier", b"[ZoneTransfer]\r\nZoneId=3\r\n");
    set_attribute(&path, "user.größe", b"");
    set_attribute(&path, "user.large", &bytes(rng, 60_000));
    let many = at.join("many");
    fs::write(&many, "x").expect("a file");
    for n in 0..100 {
        set_attribute(&many, &format!("user.stream number {n}"), &bytes(rng, n * 10));
    }
}

fn crowd(at: &Path, count: usize) {
    fs::create_dir(at).expect("a directory");
    for n in 0..count {
        File::create(at.join(format!("{:x} entry number {n}", n * 7919 % count))).expect("a file");
    }
    for n in (0..count).step_by(5) {
        fs::remove_file(at.join(format!("{:x} entry number {n}", n * 7919 % count))).expect("no file");
    }
}

fn check(cluster: usize, mib: u64, options: &[&str], crowded: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mount"));
    let size = cluster.to_string();
    make(&image, mib, &[&["-c", &size], options].concat());
    let mut rng = StdRng::seed_from_u64(cluster as u64);
    {
        let mount = Mount::ntfs(&image, &at, OPTIONS);
        let root = mount.path();
        names(&root.join("names"));
        kinds(&root.join("kinds"));
        sizes(&root.join("sizes"), cluster, &mut rng);
        holes(&root.join("holes"), cluster, &mut rng);
        if cluster <= 4096 {
            compressed(&root.join("compressed"), &mut rng);
        }
        streams(&root.join("streams"), &mut rng);
        crowd(&root.join("crowd"), crowded);
    }
    let mount = Mount::ntfs(&image, &at, &format!("{OPTIONS},ro"));
    let ntfs = open(&image);
    let nodes = compare(&ntfs, mount.path(), HOW);
    assert!(nodes > crowded * 4 / 5 + 400, "{nodes} nodes");
    assert_eq!((ntfs.kind(), ntfs.label()), ("ntfs", "Größe 1".as_bytes().to_vec()));
    assert_eq!(ntfs.warnings(), Vec::<String>::new());
    check_holes(&ntfs, mount.path());
    if cluster <= 4096 {
        check_compressed(&ntfs);
    }
    let upper = ntfs.lookup(ntfs.root(), "CROWD".as_bytes()).expect("a lookup").map(|e| e.name);
    assert_eq!(upper.as_deref(), Some(&b"crowd"[..]));
    assert_eq!(ntfs.lookup(ntfs.root(), b"$MFT").expect("a lookup"), None);
}

/// Extents cover no more than is allocated.
fn check_holes(ntfs: &Ntfs, mount: &Path) {
    for entry in ntfs.entries(find(ntfs, "holes")).expect("entries") {
        let extents = ntfs.extents(entry.id).expect("extents");
        let covered: u64 = extents.iter().map(|e| e.len).sum();
        let path = mount.join("holes").join(OsStr::from_bytes(&entry.name));
        let allocated = fs::metadata(&path).expect("their file").blocks() * 512;
        assert!(covered <= allocated, "{}: {covered} bytes of {allocated}", path.display());
        if entry.name == b"fragments" {
            assert!(extents.len() > 700, "{} extents", extents.len());
        }
    }
    assert_eq!(ntfs.extents(find(ntfs, "holes/hole only")).expect("extents"), []);
}

/// Files are compressed, and what is not is where it is.
fn check_compressed(ntfs: &Ntfs) {
    let places = |name: &str| -> Vec<Place> {
        let extents = ntfs.extents(find(ntfs, &format!("compressed/{name}"))).expect("extents");
        extents.iter().map(|e| e.place).collect()
    };
    assert!(places("text 3000000").contains(&Place::Encoded));
    assert!(places("text 3000000").iter().any(|p| matches!(p, Place::Volume(_))));
    assert!(!places("random")[..1].contains(&Place::Encoded));
    let holes = ntfs.extents(find(ntfs, "compressed/with holes")).expect("extents");
    assert!(holes.iter().map(|e| e.len).sum::<u64>() < 1 << 20, "{holes:?}");
}

#[test]
fn clusters_of_4_kib() {
    check(4096, 400, &[], 20_000);
}

#[test]
fn clusters_of_512_bytes() {
    check(512, 64, &[], 2000);
}

#[test]
fn clusters_of_64_kib() {
    check(65536, 600, &[], 500);
}

#[test]
fn sectors_of_4_kib() {
    check(4096, 200, &["-s", "4096"], 500);
}
