//! Leases on objects.

use super::check::{fails, names, ok, Check};
use crate::{ObjectStore, StoreError};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("a leased object is there and leased", leased_is_leased),
    ("a dropped lease leaves nothing", dropped_lease_leaves_nothing),
    ("a leased name is taken", leased_name_is_taken),
    ("a replaced object stays leased", replaced_stays_leased),
    ("it is leased at every moment of many replacements", always_leased),
    ("an object without a lease is not leased", others_are_not_leased),
    ("a lease whose object was removed is not valid", removed_is_not_valid),
    ("a lease leaves its successor alone", successor_stays),
];

fn leased_is_leased(store: &dyn ObjectStore) {
    let lease = ok(store.lease("sessions/a", b"me"));
    assert_eq!(lease.name(), "sessions/a");
    assert!(lease.is_valid());
    for _ in 0..3 {
        assert!(ok(store.is_leased("sessions/a")));
    }
    assert_eq!(ok(store.read("sessions/a", 100)), b"me");
    assert_eq!(names(store, "sessions/"), ["sessions/a"]);
}

fn dropped_lease_leaves_nothing(store: &dyn ObjectStore) {
    for _ in 0..3 {
        let lease = ok(store.lease("sessions/a", b"me"));
        drop(lease);
        assert!(!ok(store.is_leased("sessions/a")));
        assert!(names(store, "").is_empty());
    }
}

fn leased_name_is_taken(store: &dyn ObjectStore) {
    let lease = ok(store.lease("a", b"me"));
    fails!(store.lease("a", b"you").map(drop), StoreError::AlreadyExists { .. });
    fails!(store.put("a", &[b"you"]), StoreError::AlreadyExists { .. });
    assert!(lease.is_valid());
    assert_eq!(ok(store.read("a", 100)), b"me");
    drop(lease);
    ok(store.put("a", &[b"you"]));
    fails!(store.lease("a", b"me").map(drop), StoreError::AlreadyExists { .. });
    assert_eq!(ok(store.read("a", 100)), b"you");
}

fn replaced_stays_leased(store: &dyn ObjectStore) {
    let mut lease = ok(store.lease("a", b"one"));
    for data in [b"two".as_slice(), b"", b"a longer three"] {
        ok(lease.replace(data));
        assert!(lease.is_valid());
        assert!(ok(store.is_leased("a")));
        assert_eq!(ok(store.read("a", 100)), data);
        assert_eq!(ok(store.load("a")).map(|found| found.0), Some(data.to_vec()));
    }
    drop(lease);
    assert!(names(store, "").is_empty());
}

fn always_leased(store: &dyn ObjectStore) {
    let mut lease = ok(store.lease("a", b"0"));
    std::thread::scope(|scope| {
        let replacing = scope.spawn(move || {
            for i in 0..40 {
                ok(lease.replace(format!("{i}").as_bytes()));
            }
            lease
        });
        while !replacing.is_finished() {
            assert!(ok(store.is_leased("a")));
            assert!(!ok(store.read("a", 100)).is_empty());
        }
        drop(replacing.join());
    });
    assert!(!ok(store.is_leased("a")));
}

fn others_are_not_leased(store: &dyn ObjectStore) {
    ok(store.put("a", &[b"x"]));
    ok(store.swap("b", None, b"x"));
    for name in ["a", "b", "c"] {
        assert!(!ok(store.is_leased(name)));
    }
}

fn removed_is_not_valid(store: &dyn ObjectStore) {
    let mut lease = ok(store.lease("a", b"me"));
    assert!(ok(store.delete("a")));
    assert!(!lease.is_valid());
    assert!(!ok(store.is_leased("a")));
    fails!(lease.replace(b"still me"), StoreError::NotFound { .. });
    assert!(names(store, "").is_empty());
}

fn successor_stays(store: &dyn ObjectStore) {
    let first = ok(store.lease("a", b"first"));
    assert!(ok(store.delete("a")));
    let second = ok(store.lease("a", b"second"));
    assert!(!first.is_valid());
    drop(first);
    assert!(second.is_valid());
    assert!(ok(store.is_leased("a")));
    assert_eq!(ok(store.read("a", 100)), b"second");
}
