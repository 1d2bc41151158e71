//! A tree of files with what is hard to read.

use rustix::fs::{
    chmodat, chownat, fallocate, lsetxattr, mknodat, utimensat, AtFlags, FallocateFlags, FileType, Gid, Mode,
    Timespec, Timestamps, Uid, XattrFlags, CWD,
};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, FileExt};
use std::path::Path;

/// What a file system can take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Entries of the large directory.
    pub entries: usize,
    /// The longest file.
    pub file_bytes: u64,
    /// The largest attribute.
    pub attribute_bytes: usize,
    /// Ranges can be allocated without being written.
    pub has_fallocate: bool,
    /// The largest numbers of a device, major and minor.
    pub device_max: (u32, u32),
    pub block_bytes: u64,
}

/// Fills an empty directory.
pub fn fill(dir: &Path, limits: Limits) {
    names(dir);
    links(dir);
    deep(&dir.join("deep"));
    large(&dir.join("large"), limits.entries);
    sizes(&dir.join("sizes"), limits.block_bytes);
    sparse(&dir.join("sparse"), limits);
    fragmented(&dir.join("fragmented"));
    special(&dir.join("special"), limits.device_max);
    attributes(&dir.join("attributes"), limits.attribute_bytes);
    times(&dir.join("times"));
    deleted(&dir.join("deleted"));
}

fn names(dir: &Path) {
    let dir = dir.join("names");
    fs::create_dir(&dir).expect("mkdir");
    let long = vec![b'x'; 255];
    let odd = (1..=255u8).filter(|b| *b != b'/').collect::<Vec<u8>>();
    let other: [&[u8]; 8] =
        [b"\xff\xfe\x80", b" ", b"-", b"...", b"\n", "Größe 日本語".as_bytes(), b"a\\b", &long];
    for name in other.into_iter().chain(odd.chunks(7)) {
        fs::write(dir.join(OsStr::from_bytes(name)), name).expect("write");
    }
    for length in 1..=254 {
        fs::write(dir.join("n".repeat(length)), []).expect("write");
    }
}

fn links(dir: &Path) {
    let dir = dir.join("links");
    fs::create_dir(&dir).expect("mkdir");
    for length in [1, 58, 59, 60, 61, 100, 150, 160, 500, 1000, 1023] {
        symlink("t".repeat(length), dir.join(format!("l{length}"))).expect("symlink");
    }
    symlink(OsStr::from_bytes(b"\xff/../\x01"), dir.join("odd")).expect("symlink");
    fs::write(dir.join("first"), "one of many names").expect("write");
    for n in 0..50 {
        fs::hard_link(dir.join("first"), dir.join(format!("hard{n}"))).expect("link");
    }
}

fn deep(dir: &Path) {
    let mut path = dir.to_path_buf();
    for n in 0..60 {
        path.push(format!("level{n}"));
    }
    fs::create_dir_all(&path).expect("mkdir");
    fs::write(path.join("ground"), "deep").expect("write");
}

fn large(dir: &Path, entries: usize) {
    fs::create_dir(dir).expect("mkdir");
    fs::write(dir.join("first"), "").expect("write");
    for n in 0..entries {
        fs::hard_link(dir.join("first"), dir.join(format!("entry number {n}"))).ok().unwrap_or_else(|| {
            File::create(dir.join(format!("entry number {n}"))).expect("create");
        });
    }
    for n in (0..entries).step_by(7) {
        fs::remove_file(dir.join(format!("entry number {n}"))).expect("remove");
    }
}

fn pattern(len: u64, salt: u64) -> Vec<u8> {
    let word = |n: u64| (n ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(len as usize);
    bytes
}

fn sizes(dir: &Path, block: u64) {
    fs::create_dir(dir).expect("mkdir");
    let around = [1, 2, 12, 13, 268, 269].map(|n| n * block);
    let small = (0..200).step_by(3).chain([59, 60, 61, 900, 3000]);
    for size in small.chain(around.into_iter().flat_map(|n| [n - 1, n, n + 1])) {
        fs::write(dir.join(format!("size{size}")), pattern(size, size)).expect("write");
    }
    fs::write(dir.join("big"), pattern(9_000_001, 7)).expect("write");
}

fn create(path: &Path) -> File {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    file.expect("create")
}

fn sparse(dir: &Path, limits: Limits) {
    fs::create_dir(dir).expect("mkdir");
    let top = limits.file_bytes;
    let file = create(&dir.join("holes"));
    for (at, len) in [(1 << 20, 5000), (top / 3, 70_000), (top - 10_000_000, 3)] {
        file.write_all_at(&pattern(len, at), at).expect("write");
    }
    file.set_len(top).expect("set_len");
    let file = create(&dir.join("begins with data"));
    file.write_all_at(b"data", 0).expect("write");
    file.write_all_at(b"the end", top - 7).expect("write");
    create(&dir.join("only a hole")).set_len(top).expect("set_len");
    create(&dir.join("a small hole")).set_len(12_345).expect("set_len");
    create(&dir.join("empty"));
    if !limits.has_fallocate {
        return;
    }
    let file = create(&dir.join("allocated"));
    fallocate(&file, FallocateFlags::empty(), 0, 3_000_000).expect("fallocate");
    file.write_all_at(&pattern(10_000, 3), 1_000_000).expect("write");
    file.write_all_at(&pattern(10_000, 4), 2_990_000).expect("write");
    let file = create(&dir.join("allocated beyond its size"));
    file.write_all_at(&pattern(5000, 5), 0).expect("write");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2_000_000).expect("fallocate");
    let file = create(&dir.join("punched"));
    file.write_all_at(&pattern(1_000_000, 6), 0).expect("write");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 123_456, 500_000)
        .expect("punch");
}

/// Two files whose blocks alternate, and one with a hole behind each block.
fn fragmented(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let (one, two, holes) =
        (create(&dir.join("one")), create(&dir.join("two")), create(&dir.join("every second block")));
    for n in 0..400u64 {
        for (file, salt) in [(&one, 1), (&two, 2)] {
            file.write_all_at(&pattern(8192, n + salt), n * 8192).expect("write");
            if n % 40 == 0 {
                file.sync_data().expect("fsync");
            }
        }
    }
    for n in 0..3000u64 {
        holes.write_all_at(&pattern(700, n), n * 8192).expect("write");
    }
}

fn special(dir: &Path, device_max: (u32, u32)) {
    fs::create_dir(dir).expect("mkdir");
    let kinds = [
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
        ("null", FileType::CharacterDevice, 1, 3),
        ("disk", FileType::BlockDevice, 8, 255),
        ("large numbers", FileType::BlockDevice, 4000, 1_000_000),
        ("large minor", FileType::CharacterDevice, 5, 256),
    ];
    for (name, kind, major, minor) in kinds {
        let device = rustix::fs::makedev(major.min(device_max.0), minor.min(device_max.1));
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device).expect("mknod");
    }
    for mode in [0o4755, 0o2755, 0o1777, 0o7000, 0o0, 0o777] {
        let path = dir.join(format!("mode{mode:o}"));
        fs::write(&path, "mode").expect("write");
        chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty()).expect("chmod");
    }
    for (uid, gid) in [(0, 1), (1000, 100), (65_535, 65_536), (4_000_000_000, 70_000)] {
        let path = dir.join(format!("owner{uid}"));
        fs::write(&path, "owner").expect("write");
        chownat(CWD, &path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::empty())
            .expect("chown");
    }
}

fn attributes(dir: &Path, largest: usize) {
    fs::create_dir(dir).expect("mkdir");
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty())
            .unwrap_or_else(|e| panic!("{name} of {path:?}: {e}"));
    };
    for size in [0, 1, 3, 4, 5, 40, 90, 150, 600, largest] {
        let path = dir.join(format!("value{size}"));
        fs::write(&path, "value").expect("write");
        set(&path, "user.comment", &pattern(size as u64, 1));
        set(&path, "user.b", b"");
        set(&path, "trusted.overlay", b"y");
        set(&path, "security.anything", b"\0\xff");
    }
    for n in 0..20 {
        set(&dir.join("value4"), &format!("user.many{n}"), &[n; 9]);
    }
    set(&dir.join("value3"), &format!("user.{}", "n".repeat(240)), b"a long name");
    // Version 2; owner rwx, user 300 rw, group r, mask rwx, others none.
    let acl = [
        &[2u8, 0, 0, 0][..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 6, 0, 44, 1, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[0x10, 0, 7, 0, 255, 255, 255, 255],
        &[0x20, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    set(&dir.join("value5"), "system.posix_acl_access", &acl);
    set(dir, "system.posix_acl_default", &acl);
    set(dir, "user.of a directory", b"too");
    fs::write(dir.join("inherits"), "").expect("write");
    symlink("value1", dir.join("link")).expect("symlink");
    set(&dir.join("link"), "trusted.of a link", &pattern(200, 2));
}

fn times(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let seconds = [0, -1, -2_000_000_000, 2_147_483_647, 2_147_483_648, 4_294_967_296, 10_000_000_000];
    for (n, seconds) in seconds.into_iter().enumerate() {
        let path = dir.join(format!("time{n}"));
        symlink("x", &path).expect("symlink");
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimens");
    }
}

fn deleted(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for n in 0..300 {
        fs::write(dir.join(format!("file{n}")), pattern(3000, n)).expect("write");
    }
    for n in (0..300).filter(|n| n % 3 != 0) {
        fs::remove_file(dir.join(format!("file{n}"))).expect("remove");
    }
    fs::rename(dir.join("file0"), dir.join("renamed")).expect("rename");
    let file = create(&dir.join("cut"));
    file.write_all_at(&pattern(500_000, 1), 0).expect("write");
    file.set_len(100_001).expect("set_len");
}
