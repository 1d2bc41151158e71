//! What the tests share: `qemu-img` and `qemu-io` as the second opinion, and reading a whole disk both ways.

#![allow(clippy::unwrap_used, dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::{Source, SourceOptions};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// What callers read at once.
pub const READ_BYTES: usize = 4 << 20;

/// Runs `program`, which must be installed and must succeed, and returns what it printed.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    let shown: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
    let out = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("these tests need {program} (Debian: qemu-utils): {e}"));
    assert!(
        out.status.success(),
        "{program} {}: {}\n{}{}",
        shown.join(" "),
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Runs `qemu-img` with words separated by blanks.
pub fn qemu_img(words: &str) -> String {
    run("qemu-img", &words.split_whitespace().collect::<Vec<_>>())
}

/// The disk of `path` as QEMU reads it.
pub fn qemu_content(path: &Path) -> Vec<u8> {
    let raw = path.with_extension("oracle");
    qemu_img(&format!("convert -O raw {} {}", path.display(), raw.display()));
    let content = std::fs::read(&raw).unwrap();
    std::fs::remove_file(raw).unwrap();
    content
}

/// Applies the commands of `qemu-io` to the image at `path`.
pub fn qemu_io(path: &Path, format: &str, commands: &[String]) {
    let mut args = vec!["-f".to_owned(), format.to_owned()];
    // Without it, discards would be ignored.
    args.extend(["-d".into(), "unmap".into()]);
    for command in commands {
        args.extend(["-c".into(), command.clone()]);
    }
    args.push(path.display().to_string());
    run("qemu-io", &args);
}

pub fn rng(seed: u64) -> StdRng {
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

/// Random writes, zero writes and discards on a disk of `size` bytes. Ranges are of whole sectors.
pub fn random_changes(rng: &mut StdRng, size: u64, count: usize, max_len: u64) -> Vec<String> {
    let sectors = size / 512;
    (0..count)
        .map(|_| {
            let at = rng.random_range(0..sectors);
            let len = rng.random_range(1..=(max_len / 512)).min(sectors - at);
            let (at, len) = (at * 512, len * 512);
            match rng.random_range(0..10) {
                0 => format!("write -z {at} {len}"),
                1 => format!("write -z -u {at} {len}"),
                2 => format!("discard {at} {len}"),
                _ => format!("write -P {} {at} {len}", rng.random_range(1..=255)),
            }
        })
        .collect()
}

/// A raw disk of random, compressible and empty stretches.
pub fn random_disk(rng: &mut StdRng, size: usize) -> Vec<u8> {
    let mut disk = vec![0; size];
    let mut at = 0;
    while at < size {
        let end = (at + rng.random_range(1..300_000)).min(size);
        match rng.random_range(0..3) {
            0 => rng.fill_bytes(&mut disk[at..end]),
            1 => {
                let pattern: [u8; 7] = rng.random();
                for (i, b) in disk[at..end].iter_mut().enumerate() {
                    *b = pattern[i % 7] ^ (i / 1000) as u8;
                }
            }
            _ => {}
        }
        at = end;
    }
    disk
}

/// Opens an image by its content, with all that it names.
pub fn open(path: &Path) -> image::Result<Box<dyn Source>> {
    image::open(path, &SourceOptions { follow_names: true, ..SourceOptions::default() })
}

/// Reads what `next_data` tells of `source`, in pieces of at most `piece` bytes; the rest is zeros.
pub fn read_data(source: &mut dyn Source, piece: usize) -> image::Result<Vec<u8>> {
    let size = source.size().unwrap();
    let mut disk = vec![0; size as usize];
    let mut at = 0;
    while let Some(range) = source.next_data(at)? {
        assert!(range.start >= at && range.start < range.end && range.end <= size);
        let mut from = range.start as usize;
        while (from as u64) < range.end {
            let to = (from + piece).min(range.end as usize);
            assert_eq!(source.read_at(from as u64, &mut disk[from..to])?, to - from);
            from = to;
        }
        at = range.end;
    }
    Ok(disk)
}

/// Reads all of `source`, holes included, in pieces of `piece` bytes.
pub fn read_all(source: &mut dyn Source, piece: usize) -> image::Result<Vec<u8>> {
    let mut disk = Vec::new();
    let mut buf = vec![0xee; piece];
    loop {
        let n = source.read_at(disk.len() as u64, &mut buf)?;
        disk.extend_from_slice(&buf[..n]);
        if n < piece {
            return Ok(disk);
        }
    }
}

/// Names the first difference; `assert_eq` would print megabytes.
pub fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}: size");
    if let Some(at) = (0..got.len()).find(|&i| got[i] != wanted[i]) {
        panic!("{what}: byte {at:#x} is {:#x}, not {:#x}", got[at], wanted[at]);
    }
}

/// Compares the image at `path` with what QEMU reads of it, in several ways of reading. Returns the content.
pub fn compare_with_qemu(path: &Path, format: &str) -> Vec<u8> {
    let wanted = qemu_content(path);
    let mut source = open(path).unwrap();
    assert_eq!(source.format(), format);
    let what = path.display().to_string();
    assert_same(&read_data(&mut *source, READ_BYTES).unwrap(), &wanted, &what);
    assert_same(&read_all(&mut *source, READ_BYTES).unwrap(), &wanted, &what);
    assert_same(&read_all(&mut *source, 10_007).unwrap(), &wanted, &what);
    // Random access, over the end too.
    let mut rng = StdRng::seed_from_u64(wanted.len() as u64);
    for _ in 0..50 {
        let at = rng.random_range(0..=wanted.len());
        let mut buf = vec![0xee; rng.random_range(0..200_000)];
        let n = source.read_at(at as u64, &mut buf).unwrap();
        assert_eq!(n, buf.len().min(wanted.len() - at));
        assert_same(&buf[..n], &wanted[at..at + n], &what);
    }
    assert_eq!(source.next_data(wanted.len() as u64).unwrap(), None);
    assert_eq!(source.next_data(u64::MAX).unwrap(), None);
    wanted
}

/// A path in `dir` as text.
pub fn text(dir: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let shown = path.display().to_string();
    (path, shown)
}

/// A loop device.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// The device over `file`; `None` where there is none: the test is reported as skipped.
    pub fn attach(file: &Path) -> Option<Self> {
        let why = match Command::new("losetup").args(["-f", "--show"]).arg(file).output() {
            Ok(out) if out.status.success() => {
                return Some(Self(String::from_utf8(out.stdout).unwrap().trim().to_owned()));
            }
            Ok(out) => String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(e) => format!("losetup: {e}"),
        };
        testing::skip("root and loop devices", why);
        None
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
