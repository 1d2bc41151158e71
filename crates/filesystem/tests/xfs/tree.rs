//! A tree of files with all that makes reading hard.

use crate::volume::set_attribute;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, Timespec, Timestamps, CWD};
use std::ffi::OsStr;
use std::fs::{create_dir, hard_link, remove_file, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How much of what.
pub struct Plan {
    /// The largest directory.
    pub entries: usize,
    /// Pieces of the most fragmented file.
    pub pieces: u64,
    /// Whether times after 2038 can be held.
    pub has_bigtime: bool,
    pub has_reflink: bool,
}

pub fn fill(root: &Path, plan: &Plan) {
    directories(&sub(root, "directories"), plan.entries);
    names(&sub(root, "names"));
    links(&sub(root, "links"));
    specials(&sub(root, "specials"));
    sizes(&sub(root, "sizes"));
    sparse(&sub(root, "sparse"));
    fragmented(&sub(root, "fragmented"), plan);
    attributes(&sub(root, "attributes"));
    times(&sub(root, "times"), plan.has_bigtime);
    deep(&sub(root, "deep"));
}

pub fn sub(root: &Path, name: &str) -> PathBuf {
    let path = root.join(name);
    create_dir(&path).expect("a directory");
    path
}

/// Bytes that no other file has.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|e| panic!("{path:?}: {e}"));
}

/// A directory of each form, some with places that were freed.
fn directories(root: &Path, most: usize) {
    sub(root, "empty");
    for count in [1, 3, 8, 40, 200, 1000, most] {
        let path = sub(root, &format!("of-{count}"));
        for n in 0..count {
            File::create(path.join(format!("entry-{n}-{}", "x".repeat(n % 50)))).expect("a file");
        }
        let holes = sub(root, &format!("holes-{count}"));
        let name = |n: usize| holes.join(format!("{n:0width$}", width = 4 + n % 9));
        let count = count.min(1000);
        (0..count).for_each(|n| write(&name(n), b""));
        // A long run too, so that whole blocks are freed.
        (0..count).filter(|n| n % 3 == 0 || (200..700).contains(n)).for_each(|n| {
            remove_file(name(n)).expect("it was there");
        });
    }
}

fn names(root: &Path) {
    for first in 1..=255u8 {
        let name = [first, b'-', first];
        if first != b'/' {
            write(&root.join(OsStr::from_bytes(&name)), &name);
        }
    }
    for name in ["...", " ", "\n", "..x", "-", "ä€𐍈"] {
        write(&root.join(name), name.as_bytes());
    }
    for len in 1..=255 {
        File::create(root.join(format!("{}{}", "n".repeat(len - 1), len % 10))).expect("a file");
    }
}

fn links(root: &Path) {
    for len in [1, 30, 60, 140, 150, 156, 157, 300, 335, 336, 337, 400, 900, 1000, 1023] {
        symlink("t".repeat(len), root.join(format!("to-{len}"))).expect("a link");
    }
    symlink(OsStr::from_bytes(b"\xff\xfe/../\n"), root.join("odd")).expect("a link");
    let with_attributes = root.join("with-attributes");
    symlink("s".repeat(290), &with_attributes).expect("a link");
    set_attribute(&with_attributes, "trusted.of-a-link", &[1; 100]);
    let file = root.join("file");
    write(&file, b"one file, many names");
    (0..30).for_each(|n| hard_link(&file, root.join(format!("hard-{n}"))).expect("a hard link"));
}

fn specials(root: &Path) {
    let make = |name: &str, kind, major, minor| {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device).expect(name);
    };
    make("fifo", FileType::Fifo, 0, 0);
    make("socket", FileType::Socket, 0, 0);
    make("null", FileType::CharacterDevice, 1, 3);
    make("large", FileType::CharacterDevice, 511, 0x3_ffff);
    make("sda17", FileType::BlockDevice, 8, 17);
    make("nvme", FileType::BlockDevice, 259, 70000);
    set_attribute(&root.join("null"), "trusted.device", b"attributes beside a device's number");
    for mode in [0o4755, 0o2755, 0o1777, 0o7777, 0] {
        let path = root.join(format!("mode-{mode:o}"));
        write(&path, b"");
        chown(&path, Some(4_000_000_000), Some(70_000)).expect("an owner");
        path.metadata().map(|m| m.permissions()).map(|mut p| p.set_mode(mode)).expect("a mode");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
}

fn sizes(root: &Path) {
    for boundary in [0usize, 512, 1024, 4096, 8192, 65536, 1 << 20] {
        for size in [boundary, boundary + 1, boundary.saturating_sub(1)] {
            write(&root.join(size.to_string()), &noise(size as u64, size));
        }
    }
    write(&root.join("big"), &noise(99, 9_000_001));
    (0..50).for_each(|n| remove_file(root.join(n.to_string())).unwrap_or_default());
}

fn sparse(root: &Path) {
    let make = |name: &str, size: u64, data: &[u64]| {
        let file = File::create(root.join(name)).expect("a file");
        file.set_len(size).expect("a size");
        data.iter().for_each(|at| file.write_all_at(&noise(*at, 5000), *at).expect("data"));
        file
    };
    make("only-a-hole", 1 << 40, &[]);
    make("terabyte", 1 << 40, &[0, 700_000_000_000, (1 << 40) - 5000]);
    make("begin", 3 << 20, &[2 << 20]);
    make("middle", 3 << 20, &[0, (3 << 20) - 5000]);
    make("end", (3 << 20) + 17, &[100]);
    make("beyond-all", (1 << 62) + 5, &[1 << 61]);
    let none = FallocateFlags::empty();
    let kept = FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(make("preallocated", 0, &[]), none, 0, 5 << 20).expect("room");
    rustix::fs::fallocate(make("behind-its-end", 6000, &[0]), kept, 0, 3 << 20).expect("room");
    let partly = make("partly-written", 0, &[]);
    rustix::fs::fallocate(&partly, none, 4096, 4 << 20).expect("room");
    (1..10).for_each(|n| partly.write_all_at(&noise(n, 70_000), n * 400_000).expect("data"));
    let punched = File::create(root.join("punched")).expect("a file");
    punched.write_all_at(&noise(5, 3 << 20), 0).expect("data");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 100_000, 1_000_000).expect("a hole");
    let cut = File::create(root.join("cut")).expect("a file");
    cut.write_all_at(&noise(6, 3 << 20), 0).expect("data");
    cut.set_len(1_234_567).expect("a size");
}

/// Files of many extents: every other block is a hole, or was never written, or is another file's.
fn fragmented(root: &Path, plan: &Plan) {
    let step = root.metadata().map(|m| std::os::unix::fs::MetadataExt::blksize(&m)).expect("a block's size");
    let pieces = plan.pieces.min((24 << 20) / step);
    let punched = File::create(root.join("punched")).expect("a file");
    punched.write_all_at(&noise(1, (2 * pieces * step) as usize), 0).expect("data");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for n in 0..pieces {
        rustix::fs::fallocate(&punched, punch, 2 * n * step, step).expect("a hole");
    }
    let written = File::create(root.join("written")).expect("a file");
    rustix::fs::fallocate(&written, FallocateFlags::empty(), 0, 2 * pieces * step).expect("room");
    (0..pieces / 4).for_each(|n| written.write_all_at(b"here", 8 * n * step).expect("data"));
    if plan.has_reflink {
        let clone = File::create(root.join("clone")).expect("a file");
        rustix::fs::ioctl_ficlone(&clone, File::open(root.join("punched")).expect("it is there"))
            .expect("a clone");
        (0..20).for_each(|n| clone.write_all_at(b"changed", n * 31 * step).expect("data"));
    }
    let (a, b) = (File::create(root.join("a")).expect("a"), File::create(root.join("b")).expect("b"));
    for n in 0..40 {
        for file in [&a, &b] {
            file.write_all_at(&noise(n, step as usize), n * step).expect("data");
            file.sync_data().expect("written");
        }
    }
}

fn attributes(root: &Path) {
    let file = |name: &str| {
        let path = root.join(name);
        write(&path, name.as_bytes());
        path
    };
    let few = file("few");
    set_attribute(&few, "user.comment", b"short");
    set_attribute(&few, "user.empty", b"");
    set_attribute(&few, "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    set_attribute(&few, "trusted.overlay.opaque", b"y");
    let some = file("some");
    (0..25).for_each(|n| set_attribute(&some, &format!("user.a{n}"), &noise(n, 60)));
    let many = file("many");
    (0..600).for_each(|n| set_attribute(&many, &format!("user.attribute-{n}"), &noise(n, n as usize % 300)));
    (0..600)
        .step_by(3)
        .for_each(|n| rustix::fs::removexattr(&many, format!("user.attribute-{n}")).expect("gone"));
    let large = file("large");
    for (n, len) in [255, 256, 3000, 4039, 4040, 4041, 4096, 8000, 20_000, 65_535, 65_536].iter().enumerate()
    {
        set_attribute(&large, &format!("user.of-{len}"), &noise(n as u64, *len));
    }
    set_attribute(&large, &format!("user.{}", "n".repeat(250)), &noise(77, 9000));
    let with_acl = file("with-acl");
    set_attribute(&with_acl, "system.posix_acl_access", &acl());
    let dir = sub(root, "dir");
    set_attribute(&dir, "system.posix_acl_default", &acl());
    set_attribute(&dir, "user.x", &noise(3, 2000));
    write(&dir.join("inherits"), b"");
}

/// u::rw-,u:1000:rwx,g::r--,m::rwx,o::r--
fn acl() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, 6u16, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 4, u32::MAX)]
    {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

fn times(root: &Path, has_bigtime: bool) {
    let late: &[i64] = if has_bigtime { &[4_000_000_000, 16_299_260_424] } else { &[] };
    for seconds in [0, 1, -1, -2_000_000_000, 1_700_000_000, i64::from(i32::MAX)].iter().chain(late) {
        let path = root.join(seconds.to_string());
        write(&path, b"");
        let time = Timespec { tv_sec: *seconds, tv_nsec: 123_456_789 };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()).expect("a time");
    }
}

fn deep(root: &Path) {
    let mut path = root.to_path_buf();
    for n in 0..200 {
        path = sub(&path, &format!("d{n}"));
    }
    write(&path.join("bottom"), b"at last");
    OpenOptions::new().append(true).open(path.join("bottom")).expect("it is there");
}
