//! What the kernel allows a mounted file system.
//!
//! It reads 128 KiB ahead of a program, and lets few pages wait to be written, since it knows nothing of what stands
//! behind. Only root can change that; without, all is the same but slower.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// How far it reads ahead: several of the largest requests at once.
const READ_AHEAD_KIB: u32 = 4096;
/// How much of the memory for such pages may wait to be written, in per cent.
const WAITING_PERCENT: u32 = 5;

/// Sets both for what is mounted on a directory.
pub(super) fn tune(mountpoint: &Path) {
    let Ok(root) = mountpoint.metadata() else { return };
    let device = format!("/sys/class/bdi/{}:{}", major(root.dev()), minor(root.dev()));
    for (name, value) in [("read_ahead_kb", READ_AHEAD_KIB), ("max_ratio", WAITING_PERCENT)] {
        let _ = fs::write(format!("{device}/{name}"), value.to_string());
    }
}
