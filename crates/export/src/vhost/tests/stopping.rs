//! A server that stops, and what a guest does with the next one.

use super::{wait_until, Bench, ALL};
use testing::vhost::{kind, Guest, SLOTS};

#[test]
fn requests_in_hand_are_done_before_the_server_leaves() {
    let mut bench = Bench::new();
    let mut guest = bench.guest();
    bench.device.hold();
    for slot in 0..2 {
        guest.submit(slot, kind::READ, 0, 512);
    }
    guest.kick();
    wait_until(|| bench.device.waiting() == 2);
    let device = bench.device.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        device.release();
    });
    bench.stop();
    release.join().unwrap();
    // Both are in the ring already: nobody is left who could put them there.
    assert_eq!(guest.poll().map(|d| d.status), Some(0));
    assert_eq!(guest.poll().map(|d| d.status), Some(0));
    assert!(!bench.socket().exists());
}

/// A machine that runs on while its server is restarted loses no request, and none is done twice.
#[test]
fn a_guest_goes_on_with_the_next_server() {
    let mut bench = Bench::new();
    let mut left = None;
    let mut done = 0;
    for round in 0..8_u8 {
        let mut guest = match left.take() {
            None => bench.guest(),
            Some(left) => Guest::go_on(&bench.socket(), ALL, left).unwrap(),
        };
        for slot in 0..SLOTS {
            guest.put(slot, &[round + 1; 512]);
            guest.submit(slot, kind::WRITE, slot as u64, 512);
        }
        guest.kick();
        // Some are done, some wait in the queue.
        let before = if round % 2 == 0 { SLOTS } else { 10 };
        (0..before).for_each(|_| assert_eq!(guest.wait().status, 0));
        bench.stop();
        while let Some(more) = guest.poll() {
            assert_eq!(more.status, 0);
            done += 1;
        }
        done += before;
        bench.start("one");
        let mut guest = Guest::go_on(&bench.socket(), ALL, guest.leave()).unwrap();
        while done < (usize::from(round) + 1) * SLOTS {
            assert_eq!(guest.wait().status, 0);
            done += 1;
        }
        assert_eq!(guest.poll(), None);
        assert_eq!(bench.device.bytes()[..SLOTS * 512], vec![round + 1; SLOTS * 512]);
        left = Some(guest.leave());
    }
    assert!(bench.errors.lock().is_empty(), "{:?}", bench.errors.lock());
}

/// What it had not flushed is lost: it would go on with a disk that is older than it knows.
#[test]
fn a_guest_does_not_go_on_where_something_was_lost() {
    let mut bench = Bench::new();
    let mut guest = bench.guest();
    assert_eq!(guest.ask(kind::WRITE, 0, 512), 0);
    bench.stop();
    bench.start("two");
    let mut left = guest.leave();
    for _ in 0..3 {
        let Err(_) = Guest::go_on(&bench.socket(), ALL, left.clone()) else { panic!("it went on") };
    }
    let why = "volume web/01: the pool was not closed, so what the guest had not flushed is lost: restart the machine";
    assert_eq!(bench.errors(1), [why], "told once");
    // It stays so, whatever comes in between.
    bench.stop();
    bench.start("two");
    assert!(Guest::go_on(&bench.socket(), ALL, left.clone()).is_err());
    // It restarts, and may then be stopped and go on as often as it likes.
    let mut guest = bench.guest();
    assert_eq!(guest.ask(kind::READ, 0, 512), 0);
    left = guest.leave();
    assert_eq!(Guest::go_on(&bench.socket(), ALL, left).unwrap().ask(kind::READ, 0, 512), 0);
}

/// A machine that pauses.
#[test]
fn a_queue_stops_and_goes_on() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    for _ in 0..5 {
        assert_eq!(guest.ask(kind::READ, 1, 512), 0);
    }
    assert_eq!(guest.stop().unwrap(), 5);
    guest.submit(3, kind::READ, 1, 512);
    guest.kick();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(guest.poll(), None);
    let mut guest = Guest::go_on(&bench.socket(), ALL, guest.leave()).unwrap();
    assert_eq!((guest.wait().slot, guest.poll()), (3, None));
}

/// A request that does not end in time: the guest counts it as not done, and it may be done still.
#[test]
fn a_guest_does_not_go_on_where_a_request_was_left_in_hand() {
    let bench = Bench::new();
    let mut guest = bench.guest();
    assert_eq!(guest.ask(kind::READ, 1, 512), 0);
    bench.device.hold();
    guest.submit(0, kind::READ, 0, 512);
    guest.kick();
    wait_until(|| bench.device.waiting() == 1);
    // It leaves, without the answer.
    let left = guest.leave();
    let device = bench.device.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        device.release();
    });
    assert!(Guest::go_on(&bench.socket(), ALL, left).is_err());
    release.join().unwrap();
    assert_eq!(bench.guest().ask(kind::READ, 1, 512), 0);
}
