//! Each pair of purposes, and each pair with QEMU's own tools.
#![allow(clippy::unwrap_used)]

use locks::{check, claim, host_name, ClaimError, Purpose};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PURPOSES: [Purpose; 3] = [Purpose::Read, Purpose::Write, Purpose::Replace];

fn is_free(path: &Path, purpose: Purpose) -> bool {
    // As it is opened for reading: to ask and to claim takes no more.
    let file = File::open(path).unwrap();
    let asked = [check(&file, purpose), claim(&file, purpose)].map(|asked| match asked {
        Ok(()) => true,
        Err(ClaimError::InUse(_)) => false,
        Err(e) => panic!("{e}"),
    });
    assert_eq!(asked[0], asked[1], "{purpose:?}");
    asked[0]
}

/// Whether it becomes true. While another test starts a process, that has our files open for a moment, and QEMU does not
/// wait.
fn eventually(mut what: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn two_of_us_may_both_read_and_nothing_else() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for first in PURPOSES {
        for second in PURPOSES {
            let opened = File::open(file.path()).unwrap();
            claim(&opened, first).unwrap();
            let both_read = first == Purpose::Read && second == Purpose::Read;
            assert_eq!(is_free(file.path(), second), both_read, "{first:?}, then {second:?}");
            // Who was refused leaves nothing behind, and what is closed is free.
            drop(opened);
            assert!(is_free(file.path(), second));
        }
    }
}

/// As a forked process has them until it runs its own program.
#[test]
fn claims_of_a_closed_file_that_are_held_for_a_moment_are_waited_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let closed = File::open(file.path()).unwrap();
    claim(&closed, Purpose::Write).unwrap();
    let forked = closed.try_clone().unwrap();
    drop(closed);
    let again = File::open(file.path()).unwrap();
    claim(&again, Purpose::Write).unwrap_err();
    drop(again);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            drop(forked);
        });
        claim(&File::open(file.path()).unwrap(), Purpose::Write).unwrap();
    });
}

/// Two that wait for a third do not keep each other off.
#[test]
fn one_of_two_that_wait_gets_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let third = File::open(file.path()).unwrap();
    claim(&third, Purpose::Write).unwrap();
    let files = [(); 2].map(|()| File::open(file.path()).unwrap());
    let got = std::thread::scope(|threads| {
        let waiting = files.each_ref().map(|file| threads.spawn(|| claim(file, Purpose::Write).is_ok()));
        std::thread::sleep(Duration::from_millis(50));
        drop(third);
        waiting.map(|thread| thread.join().unwrap())
    });
    assert_ne!(got[0], got[1], "one of them, and not both");
}

#[test]
fn who_has_it_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (one, two) = (File::open(file.path()).unwrap(), File::open(file.path()).unwrap());
    claim(&one, Purpose::Write).unwrap();
    let error = claim(&two, Purpose::Read).unwrap_err().to_string();
    let begin = format!("is in use by process {} (", std::process::id());
    assert!(error.starts_with(&begin) && error.contains(", since 2"), "{error}");
    assert!(error.ends_with(&format!(") of host {}", host_name())), "{error}");
}

/// A `qemu-io` that has an image open until it is dropped.
struct QemuIo(Child);

impl QemuIo {
    /// `None` where QEMU refuses the image.
    fn open(path: &Path, format: &str, how: &[&str]) -> Option<QemuIo> {
        let mut command = Command::new("qemu-io");
        command.args(["-f", format]).args(how).arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("this test needs qemu-io (Debian: qemu-utils)");
        // It answers as soon as it has the image. One that refuses the image may be gone before it is asked.
        let _ = process.stdin.as_mut().unwrap().write_all(b"length\n");
        let mut answer = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        let opened = QemuIo(process);
        (!answer.is_empty()).then_some(opened)
    }
}

impl Drop for QemuIo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn qemu_and_we_keep_off_what_the_other_has_open() {
    let dir = tempfile::tempdir().unwrap();
    for format in ["raw", "qcow2"] {
        let path = dir.path().join(format);
        let image = path.to_str().unwrap();
        let made = Command::new("qemu-img").args(["create", "-q", "-f", format, image, "1M"]).status();
        assert!(made.expect("this test needs qemu-img (Debian: qemu-utils)").success());
        for (how, goes_with) in [(&[][..], &[][..]), (&["-r"], &[Purpose::Read])] {
            for purpose in PURPOSES {
                let both = goes_with.contains(&purpose);
                // Who only reads a raw file in QEMU minds nobody who writes it.
                let both = both || (format == "raw" && how == ["-r"] && purpose == Purpose::Write);
                let mut qemu = None;
                assert!(eventually(|| {
                    qemu = QemuIo::open(&path, format, how);
                    qemu.is_some()
                }));
                assert_eq!(is_free(&path, purpose), both, "{format}: QEMU {how:?}, then we {purpose:?}");
                drop(qemu);
                let file = File::open(&path).unwrap();
                claim(&file, purpose).unwrap();
                let opened = QemuIo::open(&path, format, how).is_some();
                assert_eq!(opened, both, "{format}: we {purpose:?}, then QEMU {how:?}");
            }
        }
    }
}
