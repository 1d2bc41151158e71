//! The tar archives of the test suites of GNU tar, libarchive, Python and Go: each comes back byte for byte, and of each
//! that GNU tar lists the headers are found. `tools/fetch-tars` fetches those that suites have; those that suites write while
//! they run are in `suites`.
#![allow(clippy::unwrap_used)]

use archive::mtar::{migrate, restore, ALIGN};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where they are.
fn fetched() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("sapwood/tars")
}

/// Entries that GNU tar lists, if it takes the file for a whole archive.
fn listed(file: &Path) -> Option<u64> {
    // Names may hold anything but a line's end this way.
    let out = Command::new("tar")
        .args(["--quoting-style=escape", "-tf"])
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    out.status
        .success()
        .then(|| out.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count() as u64)
}

/// Whether it is compressed: GNU tar looks into those.
fn is_packed(bytes: &[u8]) -> bool {
    let magics: [&[u8]; 7] =
        [b"\x1f\x8b", b"\x1f\x9d", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"LZIP", b"\x89LZO"];
    magics.iter().any(|magic| bytes.starts_with(magic)) || bytes.starts_with(b"\x5d\0\0")
}

/// Migrates and restores. Returns how many headers were found.
fn comes_back(what: &Path, tar: &[u8]) -> u64 {
    let mut headers = 0;
    for align in [512, ALIGN, 65_536] {
        let (mut stream, mut back) = (Vec::new(), Vec::new());
        headers = migrate(&mut &*tar, &mut stream, align).unwrap().headers;
        restore(&mut &*stream, &mut back).unwrap();
        assert!(back == tar, "{}, {align}", what.display());
    }
    headers
}

/// Of the archives of a suite there must be so many, where it was fetched.
fn suite(name: &str, least: u64) {
    let dir = fetched().join(name);
    if dir.is_dir() {
        all_come_back(name, &dir, least);
    } else {
        testing::skip("tools/fetch-tars", format!("{}: there is none", dir.display()));
    }
}

fn all_come_back(name: &str, dir: &Path, least: u64) {
    let entries = fs::read_dir(dir).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut archives, mut wrong) = (0, Vec::new());
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let headers = comes_back(file, &bytes);
        match listed(file).filter(|entries| *entries > 0 && !is_packed(&bytes)) {
            Some(entries) if headers < entries => {
                wrong.push(format!("{}: {headers} headers of {entries} entries", file.display()));
            }
            Some(_) => archives += 1,
            None => {}
        }
    }
    eprintln!("{name}: {} files, {archives} archives", files.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(archives >= least, "{name}: {archives} archives");
}

/// Of the archives that a suite writes while it runs there are so many.
fn written(name: &str, least: u64) {
    let dir = tempfile::tempdir().unwrap();
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/suites/{name}.tar.xz"));
    let unpacked = Command::new("tar").arg("-C").arg(dir.path()).arg("-xJf").arg(packed).status().unwrap();
    assert!(unpacked.success());
    all_come_back(name, dir.path(), least);
}

#[test]
fn that_gnu_tar_writes() {
    written("gnu-tar", 400);
}

#[test]
fn that_python_writes() {
    written("python-writes", 100);
}

#[test]
fn that_go_writes() {
    written("go-writes", 15);
}

#[test]
fn of_libarchive() {
    suite("libarchive", 40);
}

#[test]
fn of_python() {
    suite("python", 1);
}

#[test]
fn of_go() {
    suite("go", 20);
}
