//! What requests do.

use super::{Bench, ALL, SIZE};
use crate::memory_device::{byte, Memory};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::HashMap;
use testing::vhost::{feature, kind, Guest, SLOTS, SLOT_BYTES};

const SECTOR: u64 = 512;

#[test]
fn a_guest_is_told_what_the_disk_is() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    let config = guest.config(0, 60).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    assert_eq!(u64::from_le_bytes(config[..8].try_into().unwrap()), SIZE / SECTOR);
    assert_eq!((u32_at(12), u32_at(20), config[24]), (126, 512, 3));
    assert_eq!(config[34..36], 64_u16.to_le_bytes());
    // A client may know of more fields than there are.
    assert_eq!(guest.config(56, 40).unwrap(), [&[1][..], &[0; 39]].concat());
    assert_eq!(guest.ask(kind::ID, 0, 20), 0);
    assert_eq!(guest.data(0, 20), *b"web/01\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(guest.features() & feature::READ_ONLY, 0);
    let read_only = Bench::of(Memory::read_only(SIZE));
    assert_ne!(read_only.guest().features() & feature::READ_ONLY, 0);
}

#[test]
fn reads_writes_zeros_and_flushes() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    assert_eq!(guest.ask(kind::READ, 3, 5 * 512), 0);
    assert_eq!(guest.data(0, 5 * 512), (3 * 512..8 * 512).map(byte).collect::<Vec<_>>());
    guest.put(0, &[7; 1024]);
    assert_eq!(guest.ask(kind::WRITE, 4, 1024), 0);
    assert_eq!(bench.device.bytes()[2048..3072], [7; 1024]);
    assert_eq!(bench.device.flushes(), 0);
    assert_eq!(guest.ask(kind::FLUSH, 0, 0), 0);
    assert_eq!(bench.device.flushes(), 1);
    // Two ranges in one request: sector, sectors, flags.
    for (what, flags) in [(kind::DISCARD, 0), (kind::ZERO, 0), (kind::ZERO, 1_u32)] {
        guest.put(0, &[9; 4096]);
        assert_eq!(guest.ask(kind::WRITE, 16, 4096), 0);
        let range = |sector: u64, sectors: u32| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        };
        guest.put(0, &[range(16, 2), range(19, 5)].concat());
        assert_eq!(guest.ask(what, 0, 32), 0, "{what}");
        let bytes = bench.device.bytes();
        assert_eq!(bytes[16 * 512..18 * 512], [0; 1024]);
        assert_eq!(bytes[18 * 512..19 * 512], [9; 512]);
        assert_eq!(bytes[19 * 512..24 * 512], [0; 5 * 512]);
    }
    assert!(bench.errors.lock().is_empty());
}

#[test]
fn what_cannot_be_done_is_refused() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    let end = SIZE / SECTOR;
    assert_eq!(guest.ask(kind::READ, end - 1, 512), 0);
    for (what, sector, len) in [
        (kind::READ, end, 512),
        (kind::WRITE, end - 1, 1024),
        (kind::READ, u64::MAX, 512),
        (kind::WRITE, u64::MAX / 512, 4096),
        (kind::READ, 0, 511),
        (kind::WRITE, 0, 513),
    ] {
        assert_eq!(guest.ask(what, sector, len), 1, "{what} at {sector}, {len} bytes");
    }
    assert_eq!(guest.ask(77, 0, 512), 2);
    // Ranges: none, half of one, too many, and with flags that they cannot have.
    for len in [0, 8, 24, 16 * 65] {
        assert_eq!(guest.ask(kind::DISCARD, 0, len), 2, "{len} bytes of ranges");
    }
    guest.put(0, &[&[0; 8][..], &1_u32.to_le_bytes(), &1_u32.to_le_bytes()].concat());
    assert_eq!(guest.ask(kind::DISCARD, 0, 16), 2);
    guest.put(0, &[&end.to_le_bytes()[..], &1_u32.to_le_bytes(), &0_u32.to_le_bytes()].concat());
    assert_eq!(guest.ask(kind::ZERO, 0, 16), 1);
    assert_eq!(bench.device.bytes(), (0..SIZE).map(byte).collect::<Vec<_>>());
    assert!(bench.errors(13).iter().all(|e| e.starts_with("volume web/01: ")), "{:?}", bench.errors(13));
    let read_only = Bench::of(Memory::read_only(SIZE));
    assert_eq!(read_only.guest().ask(kind::WRITE, 0, 512), 1);
}

#[test]
fn errors_of_the_disk_reach_the_guest() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    for what in [kind::READ, kind::WRITE, kind::FLUSH] {
        bench.device.fail(Some(std::io::Error::other("broken")));
        assert_eq!(guest.ask(what, 8, if what == kind::FLUSH { 0 } else { 512 }), 1);
        assert_eq!(guest.ask(what, 8, if what == kind::FLUSH { 0 } else { 512 }), 0);
    }
    assert_eq!(bench.errors(3)[1], "volume web/01: write at sector 8: broken");
}

/// A guest that cannot flush wants each write to be durable.
#[test]
fn writes_of_a_guest_that_does_not_flush_are_durable() {
    let bench = Bench::new();
    let mut guest = Guest::connect(&bench.socket(), feature::EVENT_INDEX).unwrap();
    assert_eq!(guest.ask(kind::WRITE, 0, 512), 0);
    assert_eq!(guest.ask(kind::WRITE, 0, 512), 0);
    assert_eq!(guest.ask(kind::READ, 0, 512), 0);
    assert_eq!(bench.device.flushes(), 2);
}

/// A slow read delays nobody else.
#[test]
fn a_slow_request_delays_no_other() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    bench.device.hold();
    guest.submit(0, kind::READ, 0, 512);
    guest.kick();
    super::wait_until(|| bench.device.waiting() == 1);
    for slot in 1..SLOTS {
        guest.submit(
            slot,
            [kind::READ, kind::WRITE, kind::FLUSH][slot % 3],
            8,
            if slot % 3 == 2 { 0 } else { 512 },
        );
    }
    guest.kick();
    let mut others: Vec<_> = (1..SLOTS).map(|_| guest.wait()).collect();
    others.sort_by_key(|done| done.slot);
    assert!(others.iter().enumerate().all(|(i, done)| (done.slot, done.status) == (i + 1, 0)));
    bench.device.release();
    assert_eq!(guest.wait().slot, 0);
}

/// A queue that is never empty hides no other: with two queues, one request in the second is done while the first is full.
#[test]
fn a_full_queue_delays_no_other() {
    let bench = Bench::new();
    bench.device.slow.store(true, std::sync::atomic::Ordering::SeqCst);
    let (mut guest, mut other) = Guest::connect_with_two(&bench.socket(), ALL).unwrap();
    for slot in 0..SLOTS {
        guest.submit(slot, kind::WRITE, 8, 512);
    }
    guest.kick();
    let begin = std::time::Instant::now();
    let (mut done, mut asked) = (0, 0);
    while asked < 20 {
        other.submit(0, kind::WRITE, 16, 512);
        other.kick();
        // The first queue is kept full until the second has its answer.
        while other.poll().is_none() {
            assert!(
                begin.elapsed().as_secs() < 60,
                "the second queue is not looked at, after {done} requests of the first"
            );
            let Some(first) = guest.poll() else { continue };
            done += 1;
            guest.submit(first.slot, kind::WRITE, 8, 512);
            guest.kick();
        }
        asked += 1;
    }
    assert!(done > 0);
}

/// Random requests, as many at once as there are places, against a plain array: each place has a part of the disk of its own.
#[test]
fn random_requests_do_what_they_do_to_an_array() {
    let seed = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_126);
    println!("seed {seed}");
    for wanted in [ALL, feature::FLUSH] {
        against_an_array(wanted, seed);
    }
}

fn against_an_array(wanted: u64, seed: u64) {
    let part = 3 * SLOT_BYTES as u64 / 2;
    let bench = Bench::of(Memory::new(part * SLOTS as u64));
    let mut guest = Guest::connect(&bench.socket(), wanted).unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut model = bench.device.bytes();
    let mut in_hand = HashMap::new();
    for step in 0..4000 {
        let slot = random.random_range(0..SLOTS);
        if in_hand.contains_key(&slot) {
            guest.kick();
            let done = guest.wait();
            check(&guest, &model, done, in_hand.remove(&done.slot).unwrap());
            continue;
        }
        let sectors = if random.random_bool(0.1) { 2048 } else { 64 };
        let len = random.random_range(1..=sectors) * 512;
        let start = slot as u64 * part + random.random_range(0..=(part - len as u64) / 512) * 512;
        let what = [kind::READ, kind::WRITE, kind::ZERO, kind::FLUSH][random.random_range(0..4)];
        let range = start as usize..start as usize + len;
        let sent = match what {
            kind::WRITE => {
                let mut data = vec![0; len];
                random.fill_bytes(&mut data);
                guest.put(slot, &data);
                model[range.clone()].copy_from_slice(&data);
                len
            }
            kind::ZERO => {
                model[range.clone()].fill(0);
                let sectors = (len / 512) as u32;
                guest.put(
                    slot,
                    &[&(start / 512).to_le_bytes()[..], &sectors.to_le_bytes(), &[step as u8 & 1, 0, 0, 0]]
                        .concat(),
                );
                16
            }
            kind::FLUSH => 0,
            _ => len,
        };
        guest.submit(slot, what, start / 512, sent);
        in_hand.insert(slot, (what, range));
        if random.random_bool(0.3) {
            guest.kick();
        }
    }
    guest.kick();
    while !in_hand.is_empty() {
        let done = guest.wait();
        check(&guest, &model, done, in_hand.remove(&done.slot).unwrap());
    }
    assert!(bench.device.bytes() == model);
    assert!(bench.errors.lock().is_empty());
}

fn check(
    guest: &Guest,
    model: &[u8],
    done: testing::vhost::Done,
    (what, range): (u32, std::ops::Range<usize>),
) {
    assert_eq!(done.status, 0, "{what} of {range:?}");
    if what == kind::READ {
        assert!(guest.data(done.slot, range.len()) == model[range.clone()], "read of {range:?}");
    }
}
