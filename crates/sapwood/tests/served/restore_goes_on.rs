//! A live restore that was killed, and its clients.

use crate::common::{random, Bench, Child, DONE};
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

/// QEMU looks again after 1, 2, 4, 8 and then each 16 seconds. A restore that was started again had all of the disk
/// before that, saw no client, and ended: the guest waited in vain, and had errors in the end.
#[test]
fn clients_may_take_their_time_to_come_back() {
    let bench = Bench::new("balanced");
    let bytes = random(8 << 20, 1);
    bench.backup("vm/d", &bench.file("disk", &bytes));
    let (target, socket) = (bench.arg("target"), bench.arg("socket"));
    let args = ["-q", "restore", "vm/d", &target, "--live", "--limit", "1M", "--socket", &socket];
    let child = Child::start(bench.command(&args), "a live restore that is killed");
    wait_for(&bench, "socket");
    child.signal(Signal::KILL);
    child.wait();
    assert!(!bench.path("target").exists(), "it had arrived before it could be killed");

    let args = ["-q", "restore", "vm/d", &target, "--live", "--socket", &socket];
    let child = Child::start(bench.command(&args), "a live restore that goes on");
    wait_for(&bench, "target");
    std::thread::sleep(Duration::from_secs(3));
    let uri = format!("nbd+unix:///?socket={socket}");
    let client = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write -q -P 7 4k 4k", "-c", "sleep 500", &uri])
        .output()
        .unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let left = Instant::now();
    let ended = child.wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    // Who waits for clients to come back waits for 20 s.
    assert!(left.elapsed() < Duration::from_secs(20), "nobody is awaited any more");
    let mut wanted = bytes;
    wanted[4096..8192].fill(7);
    assert!(std::fs::read(&target).unwrap() == wanted);
}

fn wait_for(bench: &Bench, file: &str) {
    let start = Instant::now();
    while !bench.path(file).exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "there is no {file}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
