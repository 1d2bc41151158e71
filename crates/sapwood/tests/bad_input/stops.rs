//! Ctrl-C, broken pipes, two writers, and what comes through standard input.

use super::Kept;
use crate::common::mounted::until;
use crate::common::{files_below, random, Child, DONE, FAILED, INTERRUPTED, REFUSED, USAGE};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A backup that reads what it is given through a pipe.
fn backup_from_pipe(kept: &Kept, disk: &str) -> (Child, std::process::ChildStdin) {
    let args = ["--json", "backup", disk, "-"];
    let mut command = kept.bench.command(&args);
    command.stdin(Stdio::piped());
    let mut child = Child::start(command, &args.join(" "));
    let mut stdin = child.stdin();
    // More than a pipe holds: from now on the backup is at work.
    stdin.write_all(&random(9 << 20, 70)).unwrap();
    (child, stdin)
}

#[test]
fn an_interrupted_backup() {
    for (signal, disk) in [(Signal::INT, "vm/kept"), (Signal::TERM, "vm/kept"), (Signal::INT, "vm/new")] {
        let kept = Kept::new();
        let (child, mut stdin) = backup_from_pipe(&kept, disk);
        child.signal(signal);
        let more = random(1 << 20, 71);
        let mut given = 0;
        while stdin.write_all(&more).is_ok() {
            given += 1;
            assert!(given < 1000, "the signal does not end it");
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = child.wait();
        ended.expect_failure(INTERRUPTED, &["stopped", "sapwood gc"]);
        assert_eq!(ended.json()["exit_code"], INTERRUPTED, "{ended}");
        kept.bench.collect();
        if disk == "vm/kept" {
            kept.check();
        }
        kept.check_content();
        let content = random(5 << 20, 72);
        kept.bench.backup(disk, &kept.bench.file("next", &content));
        assert!(kept.bench.restored(disk) == content);
    }
}

#[test]
fn a_second_interrupt_ends_it_at_once() {
    let kept = Kept::new();
    let (child, stdin) = backup_from_pipe(&kept, "vm/kept");
    // Otherwise it sees the first signal between two reads, and stops in order.
    until("waiting for its source", || rustix::io::ioctl_fionread(&stdin).unwrap() == 0 && child.is_asleep());
    child.signal(Signal::INT);
    // Two signals that wait for a process are one.
    until("the first signal is taken", || !child.has_pending(Signal::INT));
    child.signal(Signal::INT);
    let ended = child.wait();
    assert_eq!(ended.code(), Some(130), "{ended}");
    drop(stdin);
    kept.bench.collect();
    kept.check();
}

#[test]
fn an_interrupted_restore() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let content = random(40 << 20, 73);
    let snapshot = format!("vm/big@{}", bench.backup("vm/big", &bench.file("big", &content)));
    let mut stopped = 0;
    for delay in [1, 5, 10, 20, 40, 80, 120] {
        let target = bench.arg("target");
        let args = ["--json", "restore", &snapshot, &target];
        let child = Child::start(bench.command(&args), &args.join(" "));
        std::thread::sleep(Duration::from_millis(delay));
        child.signal(Signal::INT);
        let ended = child.wait();
        if ended.code() == Some(DONE) {
            assert!(std::fs::read(&target).unwrap() == content);
            std::fs::remove_file(&target).unwrap();
            continue;
        }
        stopped += 1;
        assert!(!bench.path("target").exists());
        // A signal that comes before the program listens for it ends it as it ends any program.
        if ended.code().is_some() {
            ended.expect_failure(INTERRUPTED, &["stopped"]);
            let left = files_below(bench.dir.path());
            assert!(!left.iter().any(|f| f.to_string_lossy().contains("partial")), "{left:?}");
        }
    }
    println!("{stopped} of 7 restores were stopped");
    bench.collect();
    kept.check_content();
}

#[test]
fn two_writers_of_one_disk() {
    let kept = Kept::new();
    let (first, mut stdin) = backup_from_pipe(&kept, "vm/kept");
    let args = ["backup", "vm/kept", &kept.bench.arg("kept")];
    kept.bench.fails(&args, REFUSED, &["vm/kept", "locked by a backup (host ", "wait until"]);
    // Another disk does not wait.
    kept.bench.backup("vm/other", &kept.bench.arg("kept"));
    stdin.write_all(b"the end").unwrap();
    drop(stdin);
    let ended = first.wait();
    ended.expect_done();
    let mut content = random(9 << 20, 70);
    content.extend_from_slice(b"the end");
    assert!(kept.bench.restored("vm/kept") == content);
    kept.bench.done(&["-q", args[0], args[1], args[2]]);
    assert_eq!(kept.bench.snapshots("vm/kept").len(), 3);
    kept.bench.verify();
}

#[test]
fn a_broken_pipe() {
    let kept = Kept::new();
    let bench = &kept.bench;
    bench.backup("vm/big", &bench.file("big", &random(20 << 20, 74)));
    let args = ["restore", "vm/big", "-"];
    let child = Child::start_with_reader(bench.command(&args), &args.join(" "), |stdout| {
        let mut head = vec![0; 100_000];
        stdout.read_exact(&mut head).unwrap();
        head
    });
    let ended = child.wait();
    // Who closed it knows why.
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(FAILED), ""), "{ended}");
    assert!(ended.stdout == random(20 << 20, 74)[..100_000]);
    bench.collect();
    kept.check_content();
}

#[test]
fn streams_of_odd_sizes() {
    let kept = Kept::new();
    let bench = &kept.bench;
    for policy in ["balanced", "conventional"] {
        let disk = format!("vm/{policy}");
        for size in [0, 1, 511, 513, 4095, 4097, (128 << 10) + 1, 4 << 20, (4 << 20) + 1, (9 << 20) - 3] {
            let content = random(size, size as u64);
            let args = ["--json", "backup", &disk, "-", "--force", "--policy", policy];
            let mut command = bench.command(&args);
            command.stdin(Stdio::piped());
            let mut child = Child::start(command, &args.join(" "));
            let mut stdin = child.stdin();
            // In pieces that fit nothing.
            content.chunks(77_777).for_each(|c| stdin.write_all(c).unwrap());
            drop(stdin);
            let ended = child.wait();
            ended.expect_done();
            assert_eq!(ended.json()["size"], size);
            assert!(bench.restored(&disk) == content, "{policy}: {size} bytes");
        }
    }
    kept.check_content();
}

/// What a kill leaves in a directory that others use, too: the socket's own one, made and not yet locked, stayed for ever.
#[test]
fn a_kill_at_any_call_leaves_no_directory_that_the_next_run_does_not_remove() {
    if Command::new("strace").arg("--version").output().is_err() {
        return testing::skip("strace", "it is missing");
    }
    let kept = Kept::new();
    let runtime = kept.bench.path("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let nbd = kept.bench.command(&["-q", "nbd", "vm/kept", "--", "true"]);
    let entries = || std::fs::read_dir(&runtime).unwrap().count();
    let mut left = 0;
    // The first call of a kind, the second, and so on, until none is left to be killed at.
    for call in ["mkdir", "openat", "flock", "bind", "listen", "unlink", "rmdir"] {
        for when in 1..500 {
            let mut command = Command::new("strace");
            let inject = format!("inject={call}:signal=KILL:when={when}");
            command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
            command.arg(nbd.get_program()).args(nbd.get_args()).stdin(Stdio::null());
            command.envs(nbd.get_envs().filter_map(|(k, v)| Some((k, v?)))).env("XDG_RUNTIME_DIR", &runtime);
            let ended = Child::start(command, &format!("nbd, killed at {call} {when}")).wait();
            if ended.code() == Some(DONE) {
                break;
            }
            left += entries();
            if entries() > 0 {
                let mut next = kept.bench.command(&["-q", "nbd", "vm/kept", "--", "true"]);
                next.env("XDG_RUNTIME_DIR", &runtime);
                Child::start(next, "the next run").wait().expect_done();
            }
            assert_eq!(entries(), 0, "killed at {call} {when}");
        }
    }
    assert!(left > 3, "directories were left {left} times only");
    kept.bench.collect();
    kept.check_content();
}

/// Nothing, a part, and another disk were stored without a word, and exit code 0.
#[test]
fn what_is_probably_not_meant_is_refused() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let before = bench.all_snapshots();
    for args in [
        &["backup", "x/y", "-"][..],
        &["backup", "x/y", "--from-command", "true"],
        &["backup", "x/y", &bench.file("empty", b"")],
    ] {
        bench.fails(args, REFUSED, &["x/y", "empty", "--force"]);
    }
    bench.fails(
        &["backup", "x/y", "--from-command", "head -c 5M /dev/zero; exit 3"],
        FAILED,
        &["exit status: 3"],
    );
    bench.fails(&["backup", "x/y", "--from-command", "kill -9 $$"], FAILED, &["signal: 9"]);
    let five = ["backup", "x/y", "--from-command", "head -c 5000000 /dev/zero"];
    bench.fails(&[&five[..], &["--stdin-size", "5MiB"]].concat(), REFUSED, &["5000000", "5242880"]);
    bench.fails(&["backup", "x/y", "--stdin-size", "5M", &bench.arg("empty")], USAGE, &["--stdin-size"]);
    assert_eq!(bench.run(&["backup", "x/y"]).code(), Some(USAGE));
    assert_eq!(bench.all_snapshots(), before);
    // What is given and as long as it must be is stored, and so is what the user insists on.
    bench.done(&[&five[..], &["--stdin-size", "5M"]].concat());
    bench.done(&["backup", "x/empty", &bench.arg("empty"), "--force"]);
    let large = bench.file("large", &random(20 << 20, 7));
    bench.done(&["backup", "x/large", &large]);
    let small = bench.file("small", &[1; 1 << 20]);
    bench.fails(&["backup", "x/large", &small], REFUSED, &["1048576", "20971520", "another disk", "--force"]);
    let other = bench.file("other", &random(20 << 20, 8));
    bench.fails(&["backup", "x/large", &other], REFUSED, &["nothing in common", "--force"]);
    let zeros = bench.file("zeros", &vec![0; 20 << 20]);
    bench.fails(&["backup", "x/large", &zeros], REFUSED, &["nothing in common", "--force"]);
    let mut changed = random(20 << 20, 8);
    changed[..8192].copy_from_slice(&random(20 << 20, 7)[..8192]);
    bench.done(&["backup", "x/large", &bench.file("changed", &changed)]);
    bench.done(&["backup", "x/large", &zeros, "--force"]);
    assert!(bench.restored("x/large") == vec![0; 20 << 20]);
}
