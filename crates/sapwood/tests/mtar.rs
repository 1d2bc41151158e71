//! `mtar`: archives come back byte for byte, through files and pipes, and nothing is left half done.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, Child, DAMAGED, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

/// An archive of a tree beside the vault. Returns its path and its bytes.
fn archive(bench: &Bench) -> (String, Vec<u8>) {
    let tree = bench.path("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for n in 0..200u64 {
        std::fs::write(tree.join(format!("sub/{n}")), testing::noise(n, (n * 131) as usize)).unwrap();
    }
    let made =
        Command::new("tar").arg("-C").arg(&tree).args(["--format=pax", "-cf", "-", "sub"]).output().unwrap();
    assert!(made.status.success());
    (bench.file("a.tar", &made.stdout), made.stdout)
}

/// The names in the directory of the test that begin like this.
fn names(bench: &Bench, prefix: &str) -> Vec<String> {
    let all = std::fs::read_dir(bench.dir.path()).unwrap();
    let mut names: Vec<String> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n.starts_with(prefix));
    names.sort();
    names
}

#[test]
fn an_archive_comes_back_with_its_mode_and_time() {
    let bench = Bench::new("balanced");
    let (tar, bytes) = archive(&bench);
    std::fs::set_permissions(&tar, Permissions::from_mode(0o640)).unwrap();
    let (mtar, back) = (bench.arg("a.mtar"), bench.arg("back.tar"));
    let json = bench.json(&["mtar", "migrate", &tar, &mtar]);
    assert_eq!(json["tar_bytes"].as_u64(), Some(bytes.len() as u64));
    // A pax header each, of two parts, and one of the directory.
    assert!((201..1000).contains(&json["headers"].as_u64().unwrap()), "{json}");
    bench.done(&["mtar", "restore", &mtar, &back]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    let (old, new) = (std::fs::metadata(&tar).unwrap(), std::fs::metadata(&back).unwrap());
    assert_eq!((new.mode() & 0o777, new.mtime(), new.mtime_nsec()), (0o640, old.mtime(), old.mtime_nsec()));
    // By pipes, as tar does it.
    let shell = format!(
        "{0} mtar migrate - - < {tar} | {0} mtar restore - - | cmp - {tar}",
        env!("CARGO_BIN_EXE_sapwood")
    );
    let piped = Command::new("bash").args(["-o", "pipefail", "-c", &shell]).output().unwrap();
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let by_pipe =
        format!("{} mtar migrate - - --align 4KiB < {tar} | cmp - {mtar}", env!("CARGO_BIN_EXE_sapwood"));
    assert!(Command::new("bash").args(["-o", "pipefail", "-c", &by_pipe]).status().unwrap().success());
    // A reader that has gone is no message.
    let head = format!("{} mtar restore {mtar} - | head -c 100 | wc -c", env!("CARGO_BIN_EXE_sapwood"));
    let ended = Command::new("bash").args(["-c", &head]).output().unwrap();
    assert_eq!((ended.stdout.as_slice(), ended.stderr.as_slice()), (&b"100\n"[..], &b""[..]));
}

#[test]
fn what_is_there_stays_and_what_fails_leaves_nothing() {
    let bench = Bench::new("balanced");
    let (tar, _) = archive(&bench);
    let (mtar, back) = (bench.arg("a.mtar"), bench.arg("back.tar"));
    bench.done(&["mtar", "migrate", &tar, &mtar]);
    bench.fails(&["mtar", "migrate", &tar, &mtar], REFUSED, &["a.mtar: exists", "--force"]);
    bench.done(&["mtar", "migrate", &tar, &mtar, "--force", "--align", "512"]);
    bench.fails(&["mtar", "restore", &tar, &back], DAMAGED, &["a.tar", "byte 0", "not an mtar stream"]);
    bench.fails(&["mtar", "migrate", &tar, &back, "--align", "5000"], USAGE, &["5000", "power of two"]);
    // Whatever --force says, a device stays one.
    let pipe = bench.arg("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for place in [&pipe, "/dev/null"] {
        bench.fails(&["mtar", "migrate", &tar, place, "--force"], REFUSED, &["is no regular file"]);
    }
    bench.fails(&["mtar", "migrate", &bench.arg("none"), &back], FAILED, &["none: cannot open"]);
    bench.fails(&["mtar", "migrate", &tar, &bench.arg("none/a")], FAILED, &["none/a: cannot create"]);
    let mut bytes = std::fs::read(&mtar).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let harmed = bench.file("harmed.mtar", &bytes);
    bench.fails(
        &["mtar", "restore", &harmed, &back],
        DAMAGED,
        &["harmed.mtar", "damaged at byte", "checksum"],
    );
    std::fs::write(&back, b"mine").unwrap();
    bench.fails(&["mtar", "restore", &harmed, &back, "--force"], DAMAGED, &["damaged at byte"]);
    assert_eq!(std::fs::read(&back).unwrap(), b"mine");
    assert_eq!(names(&bench, ".sapwood"), Vec::<String>::new());
    assert_eq!(names(&bench, "back"), ["back.tar"]);
}

/// Killed at any time, there is no file of the name.
#[test]
fn a_killed_command_leaves_no_half_result() {
    let bench = Bench::new("balanced");
    let large = bench.file("large.tar", &testing::noise(3, 60 << 20));
    let out = bench.arg("large.mtar");
    let mut killed = 0;
    for n in 0..12 {
        let child = Child::start(bench.command(&["mtar", "migrate", &large, &out]), "mtar");
        std::thread::sleep(Duration::from_millis(2 + n * 4));
        child.signal(Signal::KILL);
        let ended = child.wait();
        if ended.code().is_none() {
            killed += 1;
            // Killed between its name and its end, it is whole.
            if std::fs::metadata(&out).is_ok() {
                let back = bench.arg("back");
                bench.done(&["mtar", "restore", &out, &back, "--force"]);
                assert!(std::fs::read(&back).unwrap() == std::fs::read(&large).unwrap());
            }
        }
        let _ = std::fs::remove_file(&out);
    }
    assert!(killed >= 3, "{killed} of 12 were killed");
    let mut unread = bench.command(&["mtar", "migrate", "-", &out]);
    let mut child = unread.stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    bench.done(&["mtar", "restore", &out, &bench.arg("empty.tar")]);
    assert_eq!(std::fs::metadata(bench.path("empty.tar")).unwrap().len(), 0);
}
