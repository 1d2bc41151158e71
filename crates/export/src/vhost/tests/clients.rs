//! Clients that come and go, and disks.

use super::{wait_until, Bench, ALL};
use crate::exports::Exports;
use crate::memory_device::Memory;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use testing::vhost::{kind, Guest};

#[test]
fn a_socket_is_its_owners_only_and_has_the_disks_name() {
    let bench = Bench::new();
    assert_eq!(bench.socket().file_name().unwrap(), "web%2F01.socket");
    assert_eq!(std::fs::metadata(bench.socket()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn one_client_at_a_time() {
    let bench = Bench::new();
    let mut first = bench.guest();
    let Err(_) = Guest::connect(&bench.socket(), ALL) else { panic!("two at once") };
    assert_eq!(bench.errors(1), ["volume web/01: it is in use by another machine: a second one was refused"]);
    assert_eq!(first.ask(kind::READ, 0, 512), 0);
    // A machine that starts again may come before it has left.
    let socket = bench.socket();
    let second =
        std::thread::spawn(move || Guest::connect(&socket, ALL).map(|mut g| g.ask(kind::READ, 0, 512)));
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(first);
    assert_eq!(second.join().unwrap().unwrap(), 0);
}

#[test]
fn clients_may_leave_at_any_moment() {
    let bench = Bench::new();
    for round in 0..40 {
        drop(UnixStream::connect(bench.socket()).unwrap());
        let mut guest = bench.guest();
        for slot in 0..round {
            guest.submit(slot, [kind::READ, kind::WRITE][slot % 2], slot as u64, 4096);
        }
        guest.kick();
    }
    assert_eq!(bench.guest().ask(kind::READ, 0, 512), 0);
    assert!(bench.errors.lock().is_empty(), "{:?}", bench.errors.lock());
}

/// What a long-running server would run out of.
#[test]
fn no_descriptors_and_threads_are_left_behind() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let bench = Bench::new();
    assert_eq!(bench.guest().ask(kind::READ, 0, 512), 0);
    wait_until(|| bench.server.as_ref().unwrap().clients() == 0);
    let before = count("fd");
    for _ in 0..200 {
        assert_eq!(bench.guest().ask(kind::READ, 0, 512), 0);
    }
    wait_until(|| bench.server.as_ref().unwrap().clients() == 0);
    // Other tests of this process open files too, but not hundreds.
    assert!(count("fd") < before + 150, "{} descriptors, {before} before", count("fd"));
}

#[test]
fn disks_come_and_go() {
    let bench = Bench::new();
    let server = bench.server.as_ref().unwrap();
    let path = super::Server::path_of(bench.dir.path(), "new");
    assert!(UnixStream::connect(&path).is_err());
    bench.disks.0.lock().push(("new".into(), Arc::new(Memory::new(1 << 20))));
    server.refresh().unwrap();
    assert_eq!(Guest::connect(&path, ALL).unwrap().ask(kind::READ, 0, 512), 0);
    bench.disks.0.lock().retain(|(name, _)| name != "new");
    server.refresh().unwrap();
    assert!(!path.exists());
    assert_eq!(bench.disks.list().len(), 1);
    assert_eq!(bench.guest().ask(kind::READ, 0, 512), 0);
}

/// The path of a socket has 107 bytes at most, the name of a volume 255.
#[test]
fn a_name_that_is_too_long_for_a_socket_harms_no_other() {
    let mut bench = Bench::new();
    bench.disks.0.lock().push(("a".repeat(200), Arc::new(Memory::new(1 << 20))));
    bench.disks.0.lock().push(("zzz".into(), Arc::new(Memory::new(1 << 20))));
    let open = |bench: &Bench| {
        let path = super::Server::path_of(bench.dir.path(), "zzz");
        assert_eq!(Guest::connect(&path, ALL).unwrap().ask(kind::READ, 0, 512), 0);
    };
    for _ in 0..2 {
        bench.server.as_ref().unwrap().refresh().unwrap();
        open(&bench);
    }
    assert_eq!(bench.errors(1).len(), 1, "told once");
    bench.stop();
    bench.start("one");
    open(&bench);
}
