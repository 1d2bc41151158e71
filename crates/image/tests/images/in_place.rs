//! Disks that are made in place: what they hold, how much was written, and what is left alone.

use crate::common::*;
use image::{open_in_place, ImageError};
use rand::RngExt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use tempfile::tempdir;

const BLOCK: usize = 4096;

/// Makes the file the disk; its zeros are not written. Returns the bytes that were.
fn make(path: &Path, disk: &[u8]) -> Result<u64, ImageError> {
    let changed: Arc<AtomicU64> = Arc::default();
    let target = open_in_place(path, disk.len() as u64, changed.clone())?;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let target = &target;
            scope.spawn(move || {
                // Pieces of no round size.
                for (n, piece) in disk.chunks(70_001).enumerate().skip(thread).step_by(3) {
                    if piece.iter().any(|b| *b != 0) {
                        target.write_at(n as u64 * 70_001, piece).unwrap();
                    }
                }
            });
        }
    });
    target.finish()?;
    Ok(changed.load(Ordering::Relaxed))
}

#[test]
fn any_disk_becomes_any_other() {
    let mut rng = rng(13);
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    for round in 0..60 {
        let sizes = [0, 1, BLOCK - 1, BLOCK, 700_000, 3 << 20].map(|n| n + rng.random_range(0..2));
        let mut disk = |len: usize| {
            let mut disk = vec![0u8; len];
            for _ in 0..rng.random_range(0..6) {
                let start = rng.random_range(0..=len);
                let end = (start + rng.random_range(0..300_000)).min(len);
                rng.fill(&mut disk[start..end]);
            }
            disk
        };
        let (old, new) = (disk(sizes[round % 6]), disk(sizes[round / 6 % 6]));
        fs::write(&path, &old).unwrap();
        make(&path, &new).unwrap();
        assert!(fs::read(&path).unwrap() == new, "round {round}");
        assert_eq!(make(&path, &new).unwrap(), 0, "round {round}: nothing differs any more");
    }
}

#[test]
fn only_what_differs_is_written() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    let mut rng = rng(14);
    let mut old = vec![0u8; 8 << 20];
    rng.fill(&mut old[..]);
    let mut new = old.clone();
    new[5 * BLOCK + 7] ^= 1;
    new[100 * BLOCK..104 * BLOCK].fill(3);
    // Long enough that whole pieces of it are zeros.
    new[4 << 20..5 << 20].fill(0);
    fs::write(&path, &old).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let changed = make(&path, &new).unwrap();
    let least = (5 * BLOCK + (1 << 20)) as u64;
    assert!((least..least + 10 * BLOCK as u64).contains(&changed), "{changed} bytes");
    assert!(fs::read(&path).unwrap() == new);
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.ino(), inode, "it is the same file");
    assert!(after.blocks() * 512 < (8 << 20) - (900 << 10), "zeros take no space: {}", after.blocks());
}

#[test]
fn what_is_no_raw_disk_is_refused() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refused = |path: &Path, why: &str| {
        let e = open_in_place(path, 1000, Arc::default()).err().unwrap().to_string();
        assert!(e.contains(why) && e.contains(path.to_str().unwrap()), "{e}");
    };
    fs::write(at("qcow2"), [&b"QFI\xfb\0\0\0\x03"[..], &[0; 2000]].concat()).unwrap();
    refused(&at("qcow2"), "only a raw disk");
    assert_eq!(fs::metadata(at("qcow2")).unwrap().len(), 2008, "it stays as it is");
    refused(&at("missing"), "No such file");
    refused(dir.path(), "neither a file nor a block device");
}
