//! Pools: volumes for virtual machines, through shared memory.

use crate::common::mounted::until;
use crate::common::{random, Bench, Child, DAMAGED, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use std::path::PathBuf;
use testing::vhost::{feature, kind, Guest};

const ALL: u64 = feature::FLUSH | feature::EVENT_INDEX;

/// A pool of 256 MiB, and volumes in it.
fn pool(bench: &Bench, volumes: &[&str]) -> String {
    let pool = bench.arg("pool");
    bench.done(&["-q", "pool", "create", &pool, "--size", "256MiB"]);
    for volume in volumes {
        bench.done(&["-q", "volume", "--pool", &pool, "create", volume, "--size", "16MiB"]);
    }
    pool
}

fn serve(bench: &Bench, pool: &str) -> Child {
    let sockets = bench.arg("sockets");
    // One that was killed has left its socket.
    let _ = std::fs::remove_file(socket(bench, "web01"));
    let server =
        Child::start(bench.command(&["-q", "pool", "serve", pool, "--vhost", &sockets]), "pool serve");
    until("the socket is there", || socket(bench, "web01").exists());
    server
}

fn socket(bench: &Bench, volume: &str) -> PathBuf {
    bench.path("sockets").join(format!("{volume}.socket"))
}

fn stop(server: Child) {
    server.signal(Signal::TERM);
    server.wait().expect_done();
}

#[test]
fn what_a_machine_writes_is_there_for_all_others() {
    let bench = Bench::bare();
    let pool = pool(&bench, &["web01", "lab/web02"]);
    let server = serve(&bench, &pool);
    let data = random(64 << 10, 1);
    let mut guest = Guest::connect(&socket(&bench, "web01"), ALL).unwrap();
    guest.put(0, &data);
    assert_eq!(guest.ask(kind::WRITE, 64, data.len()), 0);
    assert_eq!(guest.ask(kind::FLUSH, 0, 0), 0);
    // A volume that a machine uses can grow, and can neither become smaller nor be deleted.
    let volume = |args: &[&str]| bench.run(&[&["volume", "--pool", &pool], args].concat());
    volume(&["delete", "web01"]).expect_failure(REFUSED, &["web01", "in use"]);
    volume(&["resize", "web01", "512KiB"]).expect_failure(REFUSED, &["web01", "in use"]);
    volume(&["resize", "web01", "1000"]).expect_failure(USAGE, &["multiple of 512"]);
    volume(&["resize", "web01", "32MiB"]).expect_done();
    // Those that are made meanwhile have their sockets at once.
    volume(&["snapshot", "web01@monday"]).expect_done();
    volume(&["clone", "web01@monday", "web03"]).expect_done();
    let mut clone = Guest::connect(&socket(&bench, "web03"), ALL).unwrap();
    assert_eq!(clone.ask(kind::READ, 64, data.len()), 0);
    assert_eq!(clone.data(0, data.len()), data);
    drop(clone);
    until("the clone is free", || volume(&["delete", "web03"]).code() == Some(0));
    assert!(!socket(&bench, "web03").exists());
    assert!(socket(&bench, "lab%2Fweb02").exists());
    assert!(!socket(&bench, "web01@monday").exists(), "a snapshot has many readers");
    stop(server);
    assert!(!socket(&bench, "web01").exists());
    bench.done(&["pool", "check", &pool, "--data"]);
    // Only that the machine began with this pool is left.
    let left: Vec<_> =
        std::fs::read_dir(bench.path("sockets")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["web01.began"]);
}

/// A signal: machines go on. A kill: they must restart, since what they had not flushed is lost.
#[test]
fn machines_go_on_when_the_server_was_stopped_and_not_when_it_was_killed() {
    let bench = Bench::bare();
    let pool = pool(&bench, &["web01"]);
    let mut server = serve(&bench, &pool);
    let mut guest = Guest::connect(&socket(&bench, "web01"), ALL).unwrap();
    for round in 0..3_u8 {
        guest.put(0, &[round + 1; 4096]);
        assert_eq!(guest.ask(kind::WRITE, 8, 4096), 0);
        stop(server);
        // Not flushed, and not lost.
        server = serve(&bench, &pool);
        guest = Guest::go_on(&socket(&bench, "web01"), ALL, guest.leave()).unwrap();
        assert_eq!(guest.ask(kind::READ, 8, 4096), 0);
        assert_eq!(guest.data(0, 4096), [round + 1; 4096]);
    }
    assert_eq!(guest.ask(kind::FLUSH, 0, 0), 0);
    guest.put(0, &[99; 4096]);
    assert_eq!(guest.ask(kind::WRITE, 8, 4096), 0);
    server.signal(Signal::KILL);
    server.wait();
    // Another command opens and closes the pool: that changes nothing of it.
    bench.done(&["pool", "stats", &pool]);
    let server = serve(&bench, &pool);
    assert!(Guest::go_on(&socket(&bench, "web01"), ALL, guest.leave()).is_err());
    let mut guest = Guest::connect(&socket(&bench, "web01"), ALL).unwrap();
    assert_eq!(guest.ask(kind::READ, 8, 4096), 0);
    assert_eq!(guest.data(0, 4096), [3; 4096], "what was flushed last");
    drop(guest);
    server.signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
    let said = "sapwood: volume web01: the pool was not closed, so what the guest had not flushed is lost: restart the machine\n";
    assert_eq!(ended.stderr, said);
}

/// A pool is read while machines use it: damage is found, and nothing else.
#[test]
fn a_pool_is_checked_while_it_is_served() {
    let bench = Bench::bare();
    let pool = pool(&bench, &["web01"]);
    let server = serve(&bench, &pool);
    let data = random(1 << 20, 2);
    let mut guest = Guest::connect(&socket(&bench, "web01"), ALL).unwrap();
    guest.put(0, &data);
    for n in 0..8 {
        assert_eq!(guest.ask(kind::WRITE, n * 2048, data.len()), 0);
    }
    assert_eq!(guest.ask(kind::FLUSH, 0, 0), 0);
    let check = |more: &[&str]| bench.run(&[&["--json", "pool", "check", &pool][..], more].concat());
    let ended = check(&["--data"]);
    ended.expect_done();
    assert_eq!(ended.json()["findings"], serde_json::json!([]));
    assert_eq!(ended.json()["counted"], false);
    // 1 MiB of content, at a quarter of that in a second; others are answered meanwhile.
    let begin = std::time::Instant::now();
    let slow =
        Child::start(bench.command(&["pool", "check", &pool, "--data", "--limit", "512KiB"]), "pool check");
    bench.done(&["pool", "stats", &pool]);
    assert!(!slow.has_ended());
    slow.wait().expect_done();
    assert!(begin.elapsed().as_secs_f64() > 1.5, "{:?}", begin.elapsed());
    check(&["--repair"]).expect_failure(REFUSED, &["being served", "repair"]);
    // Each block of the data is somewhere in the file once.
    let mut bytes = std::fs::read(&pool).unwrap();
    let at = bytes.chunks(4096).position(|block| block == &data[5 * 4096..6 * 4096]).unwrap() * 4096;
    bytes[at + 17] ^= 4;
    let file = std::fs::OpenOptions::new().write(true).open(&pool).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..at + 4096], at as u64).unwrap();
    check(&[]).expect_done();
    let ended = check(&["--data"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let findings = ended.json()["findings"].as_array().unwrap().clone();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings[0].as_str().unwrap();
    assert!(
        finding.starts_with("web01: block") && finding.ends_with("the content that its map says"),
        "{finding}"
    );
    assert_eq!(guest.ask(kind::READ, 5 * 8, 4096), 1, "the guest is told");
    // The server ends while it is checked.
    let slow =
        Child::start(bench.command(&["pool", "check", &pool, "--data", "--limit", "512KiB"]), "pool check");
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.signal(Signal::TERM);
    server.wait();
    slow.wait().expect_failure(FAILED, &["the server has ended before all was checked"]);
}
