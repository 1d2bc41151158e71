//! Held objects.

use super::check::{fails, names, ok, Check};
use crate::{ObjectStore, StoreError};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("a held object is there and held", hold_is_held),
    ("a dropped hold leaves nothing", dropped_hold_leaves_nothing),
    ("a held name is taken", held_name_is_taken),
    ("a replaced object stays held", replaced_stays_held),
    ("it is held at every moment of many replacements", always_held),
    ("an object without a holder is not held", others_are_not_held),
    ("a hold whose object was removed is not valid", removed_is_not_valid),
    ("a hold leaves its successor alone", successor_stays),
];

fn hold_is_held(store: &dyn ObjectStore) {
    let hold = ok(store.hold("sessions/a", b"me"));
    assert_eq!(hold.name(), "sessions/a");
    assert!(hold.is_valid());
    for _ in 0..3 {
        assert!(ok(store.is_held("sessions/a")));
    }
    assert_eq!(ok(store.read("sessions/a", 100)), b"me");
    assert_eq!(names(store, "sessions/"), ["sessions/a"]);
}

fn dropped_hold_leaves_nothing(store: &dyn ObjectStore) {
    for _ in 0..3 {
        let hold = ok(store.hold("sessions/a", b"me"));
        drop(hold);
        assert!(!ok(store.is_held("sessions/a")));
        assert!(names(store, "").is_empty());
    }
}

fn held_name_is_taken(store: &dyn ObjectStore) {
    let hold = ok(store.hold("a", b"me"));
    fails!(store.hold("a", b"you").map(drop), StoreError::AlreadyExists { .. });
    fails!(store.put("a", &[b"you"]), StoreError::AlreadyExists { .. });
    assert!(hold.is_valid());
    assert_eq!(ok(store.read("a", 100)), b"me");
    drop(hold);
    ok(store.put("a", &[b"you"]));
    fails!(store.hold("a", b"me").map(drop), StoreError::AlreadyExists { .. });
    assert_eq!(ok(store.read("a", 100)), b"you");
}

fn replaced_stays_held(store: &dyn ObjectStore) {
    let mut hold = ok(store.hold("a", b"one"));
    for data in [b"two".as_slice(), b"", b"a longer three"] {
        ok(hold.replace(data));
        assert!(hold.is_valid());
        assert!(ok(store.is_held("a")));
        assert_eq!(ok(store.read("a", 100)), data);
        assert_eq!(ok(store.load("a")).map(|found| found.0), Some(data.to_vec()));
    }
    drop(hold);
    assert!(names(store, "").is_empty());
}

fn always_held(store: &dyn ObjectStore) {
    let mut hold = ok(store.hold("a", b"0"));
    std::thread::scope(|scope| {
        let replacing = scope.spawn(move || {
            for i in 0..40 {
                ok(hold.replace(format!("{i}").as_bytes()));
            }
            hold
        });
        while !replacing.is_finished() {
            assert!(ok(store.is_held("a")));
            assert!(!ok(store.read("a", 100)).is_empty());
        }
        drop(replacing.join());
    });
    assert!(!ok(store.is_held("a")));
}

fn others_are_not_held(store: &dyn ObjectStore) {
    ok(store.put("a", &[b"x"]));
    ok(store.swap("b", None, b"x"));
    for name in ["a", "b", "c"] {
        assert!(!ok(store.is_held(name)));
    }
}

fn removed_is_not_valid(store: &dyn ObjectStore) {
    let mut hold = ok(store.hold("a", b"me"));
    assert!(ok(store.delete("a")));
    assert!(!hold.is_valid());
    assert!(!ok(store.is_held("a")));
    fails!(hold.replace(b"still me"), StoreError::NotFound { .. });
    assert!(names(store, "").is_empty());
}

fn successor_stays(store: &dyn ObjectStore) {
    let first = ok(store.hold("a", b"first"));
    assert!(ok(store.delete("a")));
    let second = ok(store.hold("a", b"second"));
    assert!(!first.is_valid());
    drop(first);
    assert!(second.is_valid());
    assert!(ok(store.is_held("a")));
    assert_eq!(ok(store.read("a", 100)), b"second");
}
