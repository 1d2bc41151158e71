//! What a copy of a tree can lose, beside what is hard to read.

use crate::ext_tree::{self, Limits};
use rustix::fs::{
    lsetxattr, mknodat, utimensat, AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags, CWD,
};
use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink, FileExt, PermissionsExt};
use std::path::Path;

pub const TIB: u64 = 1 << 40;

/// Fills a file system of Linux.
pub fn fill(top: &Path) {
    // Attributes that other file systems take too, and devices that XFS does.
    let limits = Limits {
        entries: 300,
        file_bytes: TIB,
        attribute_bytes: 2000,
        has_fallocate: true,
        device_max: (511, (1 << 18) - 1),
        block_bytes: 4096,
    };
    ext_tree::fill(top, limits);
    let dir = top.join("copying");
    fs::create_dir(&dir).unwrap();
    long_names(&dir.join("long"));
    several_names(&dir.join("names"));
    rights(&dir.join("rights"));
    File::create(dir.join("of 9 GiB")).and_then(|f| f.write_all_at(b"end", (9 << 30) - 3)).unwrap();
    symlink("turns", dir.join("round")).unwrap();
    symlink("round", dir.join("turns")).unwrap();
    symlink("/copying/of 9 GiB", dir.join("absolute")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    // Times of directories are those of the guest, not of the copying.
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 987_654_321 };
    let both = Timestamps { last_access: time, last_modification: time };
    for old in [&dir.join("empty"), &dir, &top.join("names")] {
        utimensat(CWD, old, &both, AtFlags::empty()).unwrap();
    }
}

/// Paths around the lengths at which the formats of tar change.
fn long_names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for len in [98, 99, 100, 101, 102, 154, 155, 156, 255].map(|n| n - "copying/long/".len()) {
        fs::write(dir.join("p".repeat(len)), len.to_string()).unwrap();
        fs::create_dir(dir.join("d".repeat(len))).unwrap();
        symlink("l".repeat(len + 13), dir.join("l".repeat(len))).unwrap();
    }
    let deep = dir.join("a".repeat(200)).join("b".repeat(200)).join("c".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    fs::hard_link(deep.join("file"), deep.join("link")).unwrap();
    File::create(deep.join("sparse")).and_then(|f| f.write_all_at(b"x", 10 << 20)).unwrap();
    fs::write(deep.join("Ünïcode"), "text").unwrap();
}

/// Names of one node in several directories.
fn several_names(dir: &Path) {
    fs::create_dir_all(dir.join("b/below")).unwrap();
    fs::create_dir(dir.join("a")).unwrap();
    let node = |kind, name: &str, device| {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o644), device).unwrap();
    };
    fs::write(dir.join("a/file"), "of three directories").unwrap();
    symlink("nowhere", dir.join("a/symlink")).unwrap();
    node(FileType::Fifo, "a/fifo", 0);
    node(FileType::Socket, "a/socket", 0);
    node(FileType::CharacterDevice, "a/device", rustix::fs::makedev(1, 5));
    for name in ["file", "symlink", "fifo", "socket", "device"] {
        fs::hard_link(dir.join("a").join(name), dir.join("b/below").join(name)).unwrap();
        fs::hard_link(dir.join("a").join(name), dir.join("b").join(name)).unwrap();
    }
    let sparse = File::create(dir.join("a/sparse")).unwrap();
    sparse.write_all_at(b"one", 5 << 20).unwrap();
    fs::hard_link(dir.join("a/sparse"), dir.join("sparse too")).unwrap();
}

fn rights(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| {
        lsetxattr(dir.join(name), key, value, XattrFlags::empty()).unwrap();
    };
    for (name, mode) in [("read only", 0o444), ("capable", 0o755), ("setuid of another", 0o6755)] {
        fs::write(dir.join(name), name).unwrap();
        set(name, "user.comment", b"kept");
        set(name, "user.a=b%3D", b"=x\n=");
        chown(dir.join(name), Some(1234), Some(5678)).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    set("capable", "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (name, mode) in [("closed", 0o000), ("no way in", 0o644), ("read only dir", 0o555), ("group", 0o2775)]
    {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("within"), name).unwrap();
        fs::create_dir(dir.join(name).join("deeper")).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    mknodat(CWD, dir.join("device"), FileType::BlockDevice, Mode::from_raw_mode(0o600), 0x10_0203).unwrap();
    set("device", "trusted.of-a-device", b"d");
}
