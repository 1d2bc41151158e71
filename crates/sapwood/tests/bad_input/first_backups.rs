//! First backups that fail: they leave no disk.

use super::Kept;
use crate::common::{files_below, random, Bench, Child, Mount, FAILED, INTERRUPTED, REFUSED};
use rustix::process::Signal;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

/// The objects of disks and their names.
fn disks(bench: &Bench) -> Vec<PathBuf> {
    let of = |dir: &str| files_below(&bench.store.join("objects").join(dir));
    let mut files = [of("names"), of("disks"), of("sessions")].concat();
    // Each session renews its disk's.
    files.retain(|f| !f.parent().is_some_and(|dir| dir.ends_with("commits")));
    files
}

/// 900 first backups that failed left 901 disks without a snapshot.
#[test]
fn failed_ones_leave_nothing() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let before = disks(bench);
    let truncated = bench.file("cut.qcow2", b"QFI\xfb\0\0\0\x03");
    for n in 0..20 {
        let disk = format!("vm/disk{n}");
        assert_ne!(bench.run(&["backup", &disk, &bench.arg("none")]).code(), Some(0));
        assert_ne!(bench.run(&["backup", &disk, &truncated]).code(), Some(0));
        assert_ne!(bench.run(&["backup", &disk, "qmp:/nowhere/socket#node"]).code(), Some(0));
    }
    assert_eq!(disks(bench), before);
    kept.check();
}

#[test]
fn interrupted_ones_leave_nothing() {
    let kept = Kept::new();
    let before = disks(&kept.bench);
    for (signal, disk) in [(Signal::INT, "vm/one"), (Signal::TERM, "vm/one"), (Signal::INT, "vm/two")] {
        let mut command = kept.bench.command(&["backup", disk, "-"]);
        command.stdin(Stdio::piped());
        let mut child = Child::start(command, disk);
        let mut stdin = child.stdin();
        stdin.write_all(&random(9 << 20, 70)).unwrap();
        assert!(disks(&kept.bench).len() > before.len());
        // A second one is told who is at work, and takes nothing away.
        kept.bench.fails(&["backup", disk, &kept.bench.arg("kept")], REFUSED, &["locked by"]);
        child.signal(signal);
        let more = random(1 << 20, 71);
        while stdin.write_all(&more).is_ok() {}
        child.wait().expect_failure(INTERRUPTED, &["stopped"]);
        assert_eq!(disks(&kept.bench), before);
    }
    kept.check();
}

/// What a kill leaves, `gc` takes away: also the name, which is then free for a disk that is there.
#[test]
fn killed_ones_go_with_the_next_collection() {
    let kept = Kept::new();
    let before = disks(&kept.bench);
    for n in 0..3 {
        let disk = format!("vm/killed{n}");
        let mut command = kept.bench.command(&["backup", &disk, "-"]);
        command.stdin(Stdio::piped());
        let mut child = Child::start(command, &disk);
        let mut stdin = child.stdin();
        stdin.write_all(&random(9 << 20, 70)).unwrap();
        child.signal(Signal::KILL);
        assert_eq!(child.wait().code(), None);
    }
    kept.bench.collect();
    assert_eq!(disks(&kept.bench), before);
    kept.bench.backup("vm/killed1", &kept.bench.arg("kept"));
    assert!(kept.bench.restored("vm/killed1") == kept.content);
    kept.check_content();
}

#[test]
fn those_that_find_no_space_leave_nothing() {
    let bench = Bench::bare();
    let Some(_mount) = Mount::tmpfs(&bench.store, 28 << 20) else { return };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    let before = disks(&kept.bench);
    let source = kept.bench.file("big", &random(24 << 20, 5));
    for n in 0..10 {
        kept.bench.fails(&["-q", "backup", &format!("vm/disk{n}"), &source], FAILED, &["no space left"]);
        assert_eq!(disks(&kept.bench), before);
    }
    kept.check();
}
