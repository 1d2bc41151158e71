//! Guests and clients that break the rules: they harm themselves only.

use super::Bench;
use crate::memory_device::byte;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use testing::vhost::{kind, Guest};
use vm_memory::{Bytes, GuestAddress};

/// Where [`Guest`] has its memory.
const GUEST: u64 = 0x10_0000;

/// Another guest can use the disk, and it holds what it held.
fn is_unharmed(bench: &Bench) {
    let mut guest = bench.guest();
    assert_eq!(guest.ask(kind::READ, 1, 512), 0);
    assert_eq!(guest.data(0, 512), (512..1024).map(byte).collect::<Vec<_>>());
}

#[test]
fn requests_that_cannot_be_answered_stop_their_queue() {
    type Break = fn(&mut Guest);
    let cases: [(&str, Break); 8] = [
        ("without a header", |g| g.describe(0, GUEST + 0x5000, 8, false, None)),
        ("without a status", |g| g.describe(0, GUEST + 0x5000, 16, false, None)),
        ("outside", |g| {
            g.describe(0, GUEST + 0x5000, 16, false, Some(1));
            g.describe(1, u64::MAX - 8, 512, true, None);
        }),
        ("outside", |g| {
            g.describe(0, GUEST + 0x5000, 16, false, Some(1));
            g.describe(1, GUEST + 0x5000, u32::MAX - 100, true, None);
        }),
        ("outside", |g| g.describe(0, 0, 16, false, Some(1))),
        ("without a status", |g| {
            // A chain that leads back to itself.
            g.describe(0, GUEST + 0x5000, 16, false, Some(0));
        }),
        ("without a status", |g| {
            g.describe(0, GUEST + 0x5000, 16, false, Some(60_000));
        }),
        ("without a header", |g| {
            // A table of descriptors that lies outside, and says that it has half a descriptor.
            let table =
                [&u64::MAX.to_le_bytes()[..], &17_u32.to_le_bytes(), &4_u16.to_le_bytes(), &[0; 2]].concat();
            g.memory().write_slice(&table, GuestAddress(GUEST)).unwrap();
        }),
    ];
    for (what, break_it) in cases {
        let bench = Bench::new();
        let mut guest = bench.guest();
        break_it(&mut guest);
        guest.offer(0);
        guest.kick();
        let errors = bench.errors(1);
        assert!(
            errors[0].starts_with("volume web/01: queue 0 is stopped") && errors[0].contains(what),
            "{what}: {errors:?}"
        );
        // Nothing more is taken from it, and nothing in it is answered.
        guest.submit(5, kind::READ, 0, 512);
        guest.kick();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(guest.poll(), None);
        drop(guest);
        is_unharmed(&bench);
    }
}

#[test]
fn an_index_that_jumps_stops_its_queue() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    let available = GuestAddress(GUEST + 16 * 256 + 2);
    guest.offer(0);
    guest.memory().write_obj(20_000_u16.to_le(), available).unwrap();
    guest.kick();
    assert!(bench.errors(1)[0].contains("queue 0 is stopped"));
    drop(guest);
    is_unharmed(&bench);
}

/// Random bytes where descriptors, rings and headers are.
#[test]
fn random_memory_harms_nobody() {
    let seed = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let bench = Bench::new();
    for _ in 0..60 {
        let mut guest = bench.guest();
        for _ in 0..20 {
            let mut noise = vec![0; random.random_range(1..200)];
            random.fill_bytes(&mut noise);
            guest.memory().write_slice(&noise, GuestAddress(GUEST + random.random_range(0..8000))).unwrap();
            // Some lead to parts of the memory that are there.
            let next = random.random_bool(0.7).then(|| random.random_range(0..256));
            let at = GUEST + random.random_range(0..60_000);
            let (index, len) = (random.random_range(0..256), random.random_range(0..3000));
            guest.describe(index, at, len, random.random_bool(0.5), next);
            guest.offer(random.random());
            guest.kick();
        }
    }
    // The disk may have been written: only that it can be used counts.
    bench.device.fail(None);
    let mut guest = bench.guest();
    guest.put(0, &[5; 512]);
    assert_eq!(guest.ask(kind::WRITE, 7, 512), 0);
    assert_eq!(guest.ask(kind::READ, 7, 512), 0);
    assert_eq!(guest.data(0, 512), [5; 512]);
}

/// Random messages at the socket.
#[test]
fn random_messages_harm_nobody() {
    let mut random = SmallRng::seed_from_u64(8);
    let bench = Bench::new();
    for round in 0..300 {
        let mut socket = UnixStream::connect(bench.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        for _ in 0..random.random_range(1..5) {
            let mut body = vec![0; random.random_range(0..64)];
            random.fill_bytes(&mut body);
            let len = if round % 3 == 0 { random.random() } else { body.len() as u32 };
            let request: u32 = random.random_range(0..45);
            let head = [
                request.to_le_bytes(),
                (1_u32 | (random.random::<u32>() & 8)).to_le_bytes(),
                len.to_le_bytes(),
            ];
            // The server may have left.
            if socket.write_all(&head.concat()).and_then(|()| socket.write_all(&body)).is_err() {
                break;
            }
        }
        drop(socket.shutdown(std::net::Shutdown::Write));
        drop(socket.read(&mut [0; 4096]));
    }
    is_unharmed(&bench);
}

/// Using memory that is not there would end the server.
#[test]
fn memory_beyond_the_end_of_its_file_is_refused() {
    let bench = Bench::new();
    assert!(Guest::connect_with_short_memory(&bench.socket()).is_err());
    assert!(bench.errors(1)[0].contains("are not in the file"), "{:?}", bench.errors(1));
    is_unharmed(&bench);
}

/// A guest cannot fill the host's log.
#[test]
fn failures_are_told_a_few_times_a_second() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    for _ in 0..500 {
        assert_eq!(guest.ask(kind::READ, u64::MAX / 512, 512), 1);
    }
    let told = bench.errors.lock().len();
    assert!((20..100).contains(&told), "{told}");
}
