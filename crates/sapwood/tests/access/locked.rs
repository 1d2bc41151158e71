//! Locks that a stopped process has: waiting for them ends, and messages say who has them.
//!
//! The story: behind a process that was stopped (SIGSTOP, a frozen container) every other one waited for ever, silently.

use crate::common::{random, Bench, Child, FAILED, REFUSED};
use rustix::fs::{flock, FlockOperation};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::process::Stdio;

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// A backup that waits for its source, and so is at work for as long as it is wanted.
fn unfinished(bench: &Bench, disk: &str) -> (Child, std::process::ChildStdin) {
    let mut command = bench.command(&["backup", disk, "-", "--force"]);
    command.stdin(Stdio::piped());
    let mut child = Child::start(command, "backup from a pipe");
    let mut input = child.stdin();
    input.write_all(&[1; 100_000]).unwrap();
    while std::fs::read_dir(bench.store.join("objects/sessions")).map_or(0, Iterator::count) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    (child, input)
}

#[test]
fn a_backup_that_is_refused_says_who_is_at_work() {
    let bench = Bench::new("balanced");
    let source = bench.file("disk", &random(1 << 20, 1));
    bench.backup("vm/disk", &source);
    let (child, input) = unfinished(&bench, "vm/disk");
    child.signal(Signal::STOP);
    let pid = child.pid().as_raw_nonzero().to_string();
    // It may be about to register still.
    let refused = loop {
        let ended = bench.run(&["backup", "vm/disk", &source]);
        if ended.code() != Some(0) {
            break ended;
        }
        child.signal(Signal::CONT);
        std::thread::sleep(std::time::Duration::from_millis(20));
        child.signal(Signal::STOP);
    };
    refused.expect_failure(
        REFUSED,
        &["vm/disk: locked by a backup", &host(), &format!("process {pid}"), "since 2"],
    );
    child.signal(Signal::CONT);
    drop(input);
    child.wait().expect_done();
}

#[test]
fn waiting_for_a_lock_of_the_store_ends() {
    let bench = Bench::new("balanced");
    let source = bench.file("disk", &random(1 << 20, 1));
    bench.backup("vm/disk", &source);
    // As if stopped within a swap: this process has all the lock files there can be.
    let locks: Vec<File> = (0..256)
        .map(|n| {
            let path = bench.store.join(format!("locks/{n:02x}"));
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            file
        })
        .collect();
    let me = format!("process {}", std::process::id());
    for args in
        [&["hold", "vm/disk@latest"][..], &["backup", "vm/disk", &source], &["delete", "vm/disk@latest"]]
    {
        let args = [&["--lock-wait", "1"], args].concat();
        bench.fails(&args, REFUSED, &["locked", &me, &host(), "since 2"]);
    }
    // Who waits longer is told whom for, and goes on when the lock is free.
    let mut command = bench.command(&["--lock-wait", "600", "hold", "vm/disk@latest"]);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(process.stderr.as_mut().unwrap()), &mut line)
        .unwrap();
    let words = ["waiting for", &me, &host(), "since 2"];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    drop(locks);
    assert!(process.wait().unwrap().success());
    bench.verify();
}

/// A server that is stopped kept every command on its pool waiting for ever, silently.
#[test]
fn waiting_for_the_server_of_a_pool_ends() {
    let bench = Bench::bare();
    let (pool, socket) = (bench.arg("pool"), bench.path("pool.sock"));
    bench.done(&["pool", "create", &pool, "--size", "160MiB"]);
    let serve = ["pool", "serve", &pool, "--nbd", socket.to_str().unwrap()];
    let server = Child::start(bench.command(&serve), "pool serve");
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let list = ["volume", "--pool", &pool, "list"];
    bench.done(&list);
    server.signal(Signal::STOP);
    bench.fails(&list, FAILED, &[&pool, "its server does not answer"]);
    server.signal(Signal::CONT);
    bench.done(&list);
    server.signal(Signal::TERM);
    server.wait().expect_done();
}
