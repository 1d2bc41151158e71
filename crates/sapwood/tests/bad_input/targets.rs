//! Targets that cannot be written, or must not be.

use super::Kept;
use crate::common::{files_below, Child, LoopDevice, Mount, FAILED, REFUSED};
use rustix::fs::{mknodat, FileType, Mode, CWD};
use std::fs::OpenOptions;

#[test]
fn targets_that_are_there() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let target = bench.file("target", b"precious");
    let said = [target.as_str(), "exists already"];
    bench.fails(&["restore", "vm/kept", &target], REFUSED, &said);
    bench.fails(&["restore", "vm/kept", &target, "--format", "qcow2"], REFUSED, &said);
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    bench.done(&["-q", "restore", "vm/kept", &target, "--force"]);
    assert!(std::fs::read(&target).unwrap() == kept.content);
    // The name of something that will never become a disk.
    let said = ["restore", "vm/kept@latest~5", &target, "--force"];
    bench.fails(&said, FAILED, &["vm/kept@latest~5"]);
    assert!(std::fs::read(&target).unwrap() == kept.content);
    kept.check();
}

#[test]
fn targets_that_are_no_files() {
    let kept = Kept::new();
    let bench = &kept.bench;
    mknodat(CWD, bench.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let missing = bench.arg("missing/target");
    bench.fails(&["restore", "vm/kept", &missing], FAILED, &[&missing, "No such file"]);
    let below = bench.arg("kept/target");
    bench.fails(&["restore", "vm/kept", &below], FAILED, &[&below]);
    for (target, said) in [
        (bench.dir.path().to_str().unwrap().to_string(), "is a directory"),
        (bench.arg("fifo"), "standard output"),
        ("/dev/full".into(), "neither a file nor a block device"),
    ] {
        for force in [&[][..], &["--force"]] {
            let args = [&["restore", "vm/kept", &target], force].concat();
            bench.fails(&args, REFUSED, &[&target, said]);
        }
    }
    bench.fails(
        &["restore", "vm/kept", "-", "--format", "qcow2"],
        REFUSED,
        &["only a raw disk", "name a file"],
    );
    kept.check();
}

#[test]
fn a_device_that_is_too_small() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let file = bench.file("device", &vec![9; 1 << 20]);
    let Some(small) = LoopDevice::on(file.as_ref()) else { return };
    let restore = ["restore", "vm/kept", &small.device];
    bench.fails(&restore, REFUSED, &[&small.device, "is a block device", "--force"]);
    let force = [&restore[..], &["--force"]].concat();
    bench.fails(&force, REFUSED, &[&small.device, "has 1048576 bytes", "1500001"]);
    drop(small);
    assert!(std::fs::read(&file).unwrap() == vec![9; 1 << 20], "the device was touched");

    let file = bench.file("device", &vec![9; 2 << 20]);
    let Some(large) = LoopDevice::on(file.as_ref()) else { return };
    bench.done(&["-q", "restore", "vm/kept", &large.device, "--force"]);
    drop(large);
    let got = std::fs::read(&file).unwrap();
    assert!(got[..kept.content.len()] == kept.content);
    assert!(got[kept.content.len()..].iter().all(|b| *b == 9), "what is behind the disk was touched");
    kept.check();
}

#[test]
fn a_full_target() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let Some(mount) = Mount::tmpfs(&bench.path("small"), 1 << 20) else { return };
    let target = bench.arg("small/target");
    std::fs::write(&target, b"precious").unwrap();
    for format in ["raw", "qcow2"] {
        let args = ["restore", "vm/kept", &target, "--force", "--format", format];
        bench.fails(&args, FAILED, &[&target, "the file system is full", "are free"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        assert_eq!(files_below(&mount.path).len(), 1, "something was left");
    }
    drop(mount);
    kept.check();
}

#[test]
fn a_full_standard_output() {
    let kept = Kept::new();
    let mut command = kept.bench.command(&["restore", "vm/kept", "-"]);
    command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    command.stderr(std::process::Stdio::piped());
    let ended = Child::start_as_is(command, "restore vm/kept - > /dev/full").wait();
    ended.expect_failure(FAILED, &["-: cannot write", "No space left"]);
    kept.check();
}
