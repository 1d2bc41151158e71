//! The end of a server, whatever its clients are doing.

use super::client::Client;
use super::{start, wait_until, Bench, LEAVE, SIZE};
use crate::memory_device::Memory;
use crate::nbd::limits::Limits;
use crate::nbd::plain_socket::PlainSocket;
use crate::nbd::socket::{with_deadline, Socket};
use crate::nbd::Address;
use format::nbd::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn what_was_taken_is_answered() {
    let mut bench = Bench::new();
    let Address::Unix(path) = bench.server().address().clone() else { panic!("no socket") };
    let (mut client, mut simple, idle) = (bench.client(), bench.simple(), bench.client());
    bench.device.hold();
    let cookies = [client.ask(CMD_READ, 0, 0, 700, &[]), simple.ask(CMD_READ, 0, 0, 700, &[])];
    wait_until("both reads", || bench.device.waiting() == 2);
    let device = bench.device.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        device.release();
    });
    let took = bench.stop();
    assert!(took >= Duration::from_millis(250) && took < LEAVE, "{took:?}");
    assert!(!path.exists());
    release.join().unwrap();
    for (mut client, cookie) in [client, simple].into_iter().zip(cookies) {
        let (found, reply) = client.next_done();
        assert_eq!((found, reply.error, reply.data.len()), (cookie, 0, 700));
        client.expect_end();
    }
    drop(idle);
}

#[test]
fn clients_in_their_handshake_are_not_waited_for() {
    let mut bench = Bench::new();
    let mut silent = bench.raw();
    let mut greeted = bench.raw();
    greeted.greet(true);
    let mut halfway = bench.raw();
    halfway.greet(true);
    halfway.send(&OPTION_MAGIC.to_be_bytes()[..5]);
    bench.wait_for_clients(3);
    assert!(bench.stop() < LEAVE);
    silent.greet_end();
    greeted.expect_end();
    halfway.expect_end();
}

#[test]
fn clients_that_take_no_answers_are_cut_off() {
    let leave = Duration::from_millis(300);
    let mut bench = Bench::with(Memory::new(33 << 20), Limits { leave, ..Limits::default() });
    let mut lazy = [bench.client(), bench.simple()];
    for client in &mut lazy {
        for _ in 0..20 {
            client.ask(CMD_READ, 0, 512, 32 << 20, &[]);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let took = bench.stop();
    assert!(took >= leave, "{took:?}");
    // The sockets are closed, not only left: what was not taken by then never comes.
    for client in &mut lazy {
        let mut some = vec![0; 1 << 20];
        let mut taken = 0u64;
        while let Ok(bytes @ 1..) = client.socket.read(&mut some) {
            taken += bytes as u64;
        }
        assert!(taken < 20 * (32 << 20), "{taken} bytes");
    }
}

/// A client that asks on and on was served on while the server waited for its end: a TCP socket that is shut down for
/// reading takes what still comes. In the end it was cut off with requests unanswered.
#[test]
fn clients_that_never_pause_are_not_served_on() {
    for address in [Address::Tcp("127.0.0.1:0".parse().unwrap()), in_a_directory()] {
        let device = Arc::new(Memory::new(SIZE));
        let server = start(&address, device, Arc::default(), 4).unwrap();
        let done: Arc<[AtomicU64; 3]> = Arc::default();
        let busy: Vec<_> = (0..3)
            .map(|i| {
                let (at, done) = (server.address().clone(), done.clone());
                std::thread::spawn(move || ask_on_and_on(&at, &done[i]))
            })
            .collect();
        wait_until("clients at work", || done.iter().all(|d| d.load(Ordering::Relaxed) > 100));
        let start = Instant::now();
        server.stop();
        assert!(start.elapsed() < LEAVE, "{address}: {:?}", start.elapsed());
        busy.into_iter().for_each(|b| b.join().unwrap());
        if let Address::Unix(path) = &address {
            std::fs::remove_dir(path.parent().unwrap()).unwrap();
        }
    }
}

fn in_a_directory() -> Address {
    Address::Unix(tempfile::tempdir().unwrap().keep().join("socket"))
}

/// Sends requests without a pause until the server ends it.
fn ask_on_and_on(at: &Address, done: &AtomicU64) {
    let mut client = Client::connect(at);
    client.greet(true);
    client.go("disk");
    let mut replies = client.socket.another();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut some = [0; 1 << 16];
            while let Ok(1..) = replies.read(&mut some) {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let ask = super::client::request(0, CMD_READ, 1, 100, 4096).repeat(64);
        while client.socket.write_all(&ask).is_ok() {}
    });
}

/// Each byte had its own thirty seconds: a client that sent one now and then kept its place for ever, and a few such
/// clients kept all others out.
#[test]
fn a_handshake_has_one_time_limit_not_one_for_each_byte() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let dripping = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) && ours.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut socket = Socket::Plain(PlainSocket::Unix(theirs));
    let mut limited = with_deadline(&mut socket, std::time::Instant::now() + Duration::from_millis(200));
    let error = limited.read_exact(&mut [0; 1000]).unwrap_err();
    assert!(matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock), "{error}");
    // Dripping would have filled it, and each byte came in time.
    stop.store(true, Ordering::Relaxed);
    dripping.join().unwrap();
}
