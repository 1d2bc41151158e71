//! Replaceable objects.

use super::check::{bytes, fails, names, ok, Check, MAX};
use crate::{ObjectStore, StoreError, Tag};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("swap makes what is not there", swap_creates),
    ("swap replaces what was loaded", swap_replaces),
    ("swap refuses what has changed", swap_refuses),
    ("tags follow the bytes", tags_follow_bytes),
    ("a swapped object may be deleted", swapped_is_deleted),
    ("what was put may be swapped", put_then_swap),
    ("every load sees a whole object", loads_are_whole),
    ("no update is lost", no_lost_update),
    ("of many first swaps one wins", one_first_swap_wins),
];

fn load(store: &dyn ObjectStore, name: &str) -> (Vec<u8>, Tag) {
    match ok(store.load(name)) {
        Some(found) => found,
        None => panic!("{name} must be there"),
    }
}

fn swap_creates(store: &dyn ObjectStore) {
    assert!(ok(store.load("a/manifest")).is_none());
    let tag = ok(store.swap("a/manifest", None, b"one"));
    assert_eq!(load(store, "a/manifest"), (b"one".to_vec(), tag));
    fails!(store.swap("a/manifest", None, b"two"), StoreError::Conflict { .. });
    assert_eq!(load(store, "a/manifest").0, b"one");
    assert_eq!(names(store, ""), ["a/manifest"]);
}

fn swap_replaces(store: &dyn ObjectStore) {
    let mut tag = ok(store.swap("a", None, b""));
    for i in 1..20 {
        let data = bytes(i, i as usize * 999);
        tag = ok(store.swap("a", Some(tag), &data));
        assert!(load(store, "a") == (data.clone(), tag));
        assert!(ok(store.read("a", MAX)) == data);
        assert_eq!(ok(store.len("a")), data.len() as u64);
    }
    assert_eq!(names(store, ""), ["a"]);
}

fn swap_refuses(store: &dyn ObjectStore) {
    fails!(store.swap("a", Some(Tag([0; 16])), b"x"), StoreError::Conflict { .. });
    assert!(ok(store.load("a")).is_none());
    let old = ok(store.swap("a", None, b"one"));
    let new = ok(store.swap("a", Some(old), b"two"));
    fails!(store.swap("a", Some(old), b"three"), StoreError::Conflict { .. });
    fails!(store.swap("a", None, b"three"), StoreError::Conflict { .. });
    assert_eq!(load(store, "a"), (b"two".to_vec(), new));
}

fn tags_follow_bytes(store: &dyn ObjectStore) {
    let one = ok(store.swap("a", None, b"one"));
    let two = ok(store.swap("a", Some(one), b"two"));
    assert_ne!(one, two);
    let again = ok(store.swap("a", Some(two), b"one"));
    assert_eq!(again, one);
    assert_eq!(ok(store.swap("a", Some(again), b"one")), one);
    assert_eq!(ok(store.swap("b", None, b"one")), one);
}

fn swapped_is_deleted(store: &dyn ObjectStore) {
    let tag = ok(store.swap("a", None, b"one"));
    assert!(ok(store.delete("a")));
    assert!(ok(store.load("a")).is_none());
    fails!(store.swap("a", Some(tag), b"two"), StoreError::Conflict { .. });
    ok(store.swap("a", None, b"two"));
    assert_eq!(load(store, "a").0, b"two");
}

fn put_then_swap(store: &dyn ObjectStore) {
    ok(store.put("a", &[b"one"]));
    fails!(store.swap("a", None, b"two"), StoreError::Conflict { .. });
    let (found, tag) = load(store, "a");
    assert_eq!(found, b"one");
    ok(store.swap("a", Some(tag), b"two"));
    assert_eq!(load(store, "a").0, b"two");
    fails!(store.put("a", &[b"three"]), StoreError::AlreadyExists { .. });
}

fn loads_are_whole(store: &dyn ObjectStore) {
    let value = |i: u8| vec![i; 1000 + 300 * usize::from(i)];
    let mut tag = ok(store.swap("a", None, &value(0)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for i in 1..=40 {
                tag = ok(store.swap("a", Some(tag), &value(i)));
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            let (found, _) = load(store, "a");
            assert!(found == value(found[0]));
            assert!(found[0] >= last, "an older value after a newer one");
            last = found[0];
        }
    });
}

fn no_lost_update(store: &dyn ObjectStore) {
    const THREADS: u64 = 4;
    const EACH: u64 = 25;
    ok(store.swap("counter", None, &0_u64.to_le_bytes()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    increment(store, "counter");
                }
            });
        }
    });
    assert_eq!(load(store, "counter").0, (THREADS * EACH).to_le_bytes());
}

/// Adds one to a counter, again and again until nobody was faster.
fn increment(store: &dyn ObjectStore, name: &str) {
    loop {
        let (found, tag) = load(store, name);
        let Ok(count) = found.try_into() else { panic!("{name} must have 8 bytes") };
        let next = u64::from_le_bytes(count) + 1;
        match store.swap(name, Some(tag), &next.to_le_bytes()) {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("must win or lose, but: {e}"),
        }
    }
}

fn one_first_swap_wins(store: &dyn ObjectStore) {
    let wins = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..8_u8 {
            let wins = &wins;
            scope.spawn(move || match store.swap("new/dir/a", None, &[i]) {
                Ok(_) => drop(wins.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                Err(StoreError::Conflict { .. }) => {}
                Err(e) => panic!("must win or lose, but: {e}"),
            });
        }
    });
    assert_eq!(wins.into_inner(), 1);
}
