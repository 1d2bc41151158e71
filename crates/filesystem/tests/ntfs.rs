//! NTFS, made by mkntfs, filled and read through ntfs-3g, and read by this crate.

#[path = "common/windows.rs"]
mod windows;

use filesystem::ntfs::Ntfs;
use filesystem::{FileSystem, FsError, NodeKind, Place};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rustix::fs::{FileType, Mode, Timespec, Timestamps, XattrFlags, CWD};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use windows::{compare, damage, find, run, sparse_file, Compared, FileDisk, Memory, Mount};

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
    set_attribute(&path, "user.largest", &bytes(rng, 65_536));
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
    {
        // As extended attributes the kernel takes no such large ones.
        let mount = Mount::ntfs(&image, &at, "streams_interface=windows,noatime");
        let path = mount.path().join("streams");
        fs::write(path.join("with streams:too large"), bytes(&mut rng, 300_000)).expect("a stream");
        fs::write(path.join("with streams:one more"), bytes(&mut rng, 65_537)).expect("a stream");
    }
    let mount = Mount::ntfs(&image, &at, &format!("{OPTIONS},ro"));
    let ntfs = open(&image);
    let nodes = compare(&ntfs, ntfs.root(), mount.path(), HOW);
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

/// A small volume with something of everything, and what is in the file.
fn small(dir: &Path) -> Vec<u8> {
    let image = dir.join("image");
    make(&image, 3, &["-c", "512"]);
    let mount = Mount::ntfs(&image, &dir.join("mount"), OPTIONS);
    let root = mount.path();
    let mut rng = StdRng::seed_from_u64(3);
    fs::write(root.join("resident"), "a few bytes").expect("a file");
    fs::write(root.join("written"), bytes(&mut rng, 20_000)).expect("a file");
    fs::write(root.join("hiberfil.sys"), "hibr".repeat(2000)).expect("a file");
    symlink("resident", root.join("link")).expect("a link");
    set_attribute(&root.join("resident"), "user.stream", b"more");
    crowd(&root.join("crowd"), 150);
    fs::create_dir(root.join("compressed")).expect("a directory");
    rustix::fs::lsetxattr(
        root.join("compressed"),
        "system.ntfs_attrib_be",
        &[0, 0, 8, 0],
        XattrFlags::empty(),
    )
    .expect("compression");
    fs::write(root.join("compressed/text"), text(&mut rng, 50_000)).expect("a file");
    let file = File::create(root.join("fragments")).expect("a file");
    for n in 0..200 {
        file.write_all_at(&bytes(&mut rng, 512), n * 1024).expect("a piece");
    }
    drop(file);
    drop(mount);
    fs::read(&image).expect("the image")
}

/// Where the first record stands that holds this name.
fn record_of(image: &[u8], name: &str) -> usize {
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let is_it = |r: &[u8]| r.starts_with(b"FILE") && r.windows(units.len()).any(|w| w == units);
    image.chunks(1024).position(is_it).unwrap_or_else(|| panic!("{name} has no record")) * 1024
}

/// Where the unnamed data of a record begins.
fn data_of(image: &[u8], record: usize) -> usize {
    let field = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes")) as usize;
    let mut at = record + usize::from(image[record + 20]);
    while field(at) != 0x80 {
        at += field(at + 4);
    }
    at
}

fn open_bytes(image: Vec<u8>) -> Ntfs {
    Ntfs::open(Arc::new(Memory(image))).expect("a sound volume").expect("NTFS")
}

/// Windows allocates before it writes; ntfs-3g never leaves it so.
#[test]
fn what_was_never_written_is_zeros() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut image = small(dir.path());
    let at = data_of(&image, record_of(&image, "written")) + 0x38;
    assert_eq!(image[at..at + 8], 20_000u64.to_le_bytes());
    image[at..at + 8].copy_from_slice(&7_001u64.to_le_bytes());
    fs::write(dir.path().join("image"), &image).expect("the image");
    let mount = Mount::ntfs(&dir.path().join("image"), &dir.path().join("mount"), &format!("{OPTIONS},ro"));
    let ntfs = open_bytes(image);
    compare(&ntfs, ntfs.root(), mount.path(), HOW);
    let extents = ntfs.extents(find(&ntfs, "written")).expect("extents");
    assert!(matches!(extents[0].place, Place::Volume(_)), "{extents:?}");
    let zeros: Vec<_> =
        extents.iter().filter(|e| e.place == Place::Zeros).map(|e| (e.offset, e.len)).collect();
    assert_eq!(zeros, [(7001, 12_999)]);
}

#[test]
fn what_cannot_be_read_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut image = small(dir.path());
    let ntfs = open_bytes(image.clone());
    assert!(ntfs.warnings().iter().any(|w| w.contains("hibernates")), "{:?}", ntfs.warnings());
    let written = data_of(&image, record_of(&image, "written"));
    image[written + 0x0d] |= 0x40;
    let ntfs = open_bytes(image.clone());
    let id = find(&ntfs, "written");
    assert_eq!(ntfs.node(id).expect("a node").size, 20_000);
    for error in
        [ntfs.extents(id).expect_err("encrypted"), ntfs.read_at(id, 0, &mut [0]).expect_err("encrypted")]
    {
        assert!(
            matches!(&error, FsError::Unsupported { feature, .. } if feature == "an encrypted file"),
            "{error}"
        );
    }
    // The volume's flags: behind its version in the attribute `$VOLUME_INFORMATION`.
    let volume = record_of(&image, "$Volume");
    let info = (volume..volume + 1024).find(|at| image[*at..].starts_with(&[0x70, 0, 0, 0, 0x28, 0, 0, 0]));
    image[info.expect("the volume's state") + 0x18 + 10] |= 1;
    // The first record is damaged: the copy serves.
    let mft = record_of(&image, "$MFT");
    image[mft] ^= 0xff;
    let ntfs = open_bytes(image);
    for expected in ["dirty", "the copy was used"] {
        assert!(ntfs.warnings().iter().any(|w| w.contains(expected)), "{:?}", ntfs.warnings());
    }
    assert_eq!(ntfs.node(find(&ntfs, "resident")).expect("a node").kind, NodeKind::File);
}

/// Names of the same file in other cases, and files that are none.
#[test]
fn nodes_that_are_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let ntfs = open_bytes(small(dir.path()));
    let id = find(&ntfs, "CROWD");
    assert!(matches!(ntfs.read_at(id, 0, &mut [0]), Err(FsError::Wrong { .. })));
    assert!(matches!(ntfs.entries(find(&ntfs, "resident")), Err(FsError::Wrong { .. })));
    assert!(matches!(ntfs.link(find(&ntfs, "resident")), Err(FsError::Wrong { .. })));
    for id in [u64::MAX, 1 << 47, 23, id.0 ^ 1 << 50] {
        assert!(matches!(ntfs.node(filesystem::NodeId(id)), Err(FsError::Corrupt { .. })), "{id:#x}");
    }
}

/// Bytes of the boot sector, of records, indexes and lists are changed.
#[test]
fn damage_is_no_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = small(dir.path());
    let of = |magic: &[u8]| -> Vec<usize> {
        (0..image.len()).step_by(512).filter(|at| image[*at..].starts_with(magic)).collect()
    };
    let (records, blocks) = (of(b"FILE"), of(b"INDX"));
    assert!(records.len() > 150 && blocks.len() > 3, "{} records, {} blocks", records.len(), blocks.len());
    let places = |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => rng.random_range(0..84),
        1..5 => blocks[rng.random_range(0..blocks.len())] + rng.random_range(0..500),
        5 => rng.random_range(0..image.len()),
        // The first records are those of the file system.
        6..10 => records[rng.random_range(0..12)] + rng.random_range(0..500),
        _ => records[rng.random_range(0..records.len())] + rng.random_range(0..500),
    };
    let open = |disk| Ntfs::open(disk).map(|ntfs| ntfs.map(|ntfs| Box::new(ntfs) as Box<dyn FileSystem>));
    damage(image.clone(), 6000, 1, places, open);
}
