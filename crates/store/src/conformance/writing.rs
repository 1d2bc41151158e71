//! Making and removing objects.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::check::{bytes, fails, names, ok, Check, MAX, ODD_LEN};
use crate::{ObjectStore, StoreError};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("put joins its parts", put_joins_parts),
    ("put never overwrites", put_never_overwrites),
    ("an empty object is an object", empty_object),
    ("a written object appears with finish", writer_appears_at_finish),
    ("a writer takes pieces of every size", writer_takes_all_sizes),
    ("a dropped writer leaves nothing", dropped_writer_leaves_nothing),
    ("the first finish wins", first_finish_wins),
    ("of many puts of one name one wins", one_put_wins),
    ("many objects are written at once", many_writers),
    ("delete says whether there was one", delete_is_idempotent),
    ("a deleted name is free again", deleted_name_is_free),
    ("a deleted object is not found", deleted_is_not_found),
];

fn put_joins_parts(store: &dyn ObjectStore) {
    let all = bytes(1, ODD_LEN);
    let (a, rest) = all.split_at(1);
    let (b, c) = rest.split_at(700_000);
    ok(store.put("a/b/c", &[a, b, &[], c]));
    assert_eq!(ok(store.len("a/b/c")), ODD_LEN as u64);
    assert!(ok(store.read("a/b/c", MAX)) == all);
}

fn put_never_overwrites(store: &dyn ObjectStore) {
    ok(store.put("a", &[b"first"]));
    fails!(store.put("a", &[b"second"]), StoreError::AlreadyExists { .. });
    assert_eq!(ok(store.read("a", MAX)), b"first");
}

fn empty_object(store: &dyn ObjectStore) {
    ok(store.put("a", &[]));
    ok(ok(store.writer("b")).finish());
    for name in ["a", "b"] {
        assert_eq!(ok(store.len(name)), 0);
        assert!(ok(store.read(name, 0)).is_empty());
        ok(store.read_at(name, 0, &mut []));
        fails!(store.put(name, &[b"x"]), StoreError::AlreadyExists { .. });
    }
}

fn writer_appears_at_finish(store: &dyn ObjectStore) {
    let mut writer = ok(store.writer("a/b"));
    ok(writer.append(&bytes(1, 1 << 20)));
    fails!(store.len("a/b"), StoreError::NotFound { .. });
    fails!(store.read("a/b", MAX), StoreError::NotFound { .. });
    assert!(names(store, "").is_empty());
    ok(writer.finish());
    assert_eq!(ok(store.len("a/b")), 1 << 20);
    assert_eq!(names(store, ""), ["a/b"]);
}

fn writer_takes_all_sizes(store: &dyn ObjectStore) {
    let mut writer = ok(store.writer("a"));
    let mut expected = Vec::new();
    for (i, len) in
        [1, 0, 511, 4096, 100_000, 262_143, 262_144, 262_145, 1, 9_000_000, 7].into_iter().enumerate()
    {
        let piece = bytes(i as u64, len);
        ok(writer.append(&piece));
        expected.extend_from_slice(&piece);
    }
    ok(writer.finish());
    assert!(ok(store.read("a", MAX)) == expected);
}

fn dropped_writer_leaves_nothing(store: &dyn ObjectStore) {
    let mut writer = ok(store.writer("a"));
    ok(writer.append(&bytes(1, ODD_LEN)));
    drop(writer);
    assert!(names(store, "").is_empty());
    fails!(store.len("a"), StoreError::NotFound { .. });
    ok(store.put("a", &[b"free"]));
}

fn first_finish_wins(store: &dyn ObjectStore) {
    let mut one = ok(store.writer("a"));
    let mut two = ok(store.writer("a"));
    ok(one.append(b"one"));
    ok(two.append(b"two"));
    ok(two.finish());
    fails!(one.finish(), StoreError::AlreadyExists { .. });
    assert_eq!(ok(store.read("a", MAX)), b"two");
    assert_eq!(names(store, ""), ["a"]);
}

fn one_put_wins(store: &dyn ObjectStore) {
    for round in 0..5 {
        let name = format!("dir{round}/a");
        let wins = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for i in 0..8_u8 {
                let (name, wins) = (&name, &wins);
                scope.spawn(move || match store.put(name, &[&[i; 1000]]) {
                    Ok(()) => drop(wins.fetch_add(1, Ordering::Relaxed)),
                    Err(StoreError::AlreadyExists { .. }) => {}
                    Err(e) => panic!("must win or find the name taken, but: {e}"),
                });
            }
        });
        assert_eq!(wins.into_inner(), 1);
        let found = ok(store.read(&name, MAX));
        assert!(found.len() == 1000 && found.iter().all(|byte| *byte == found[0]));
    }
}

fn many_writers(store: &dyn ObjectStore) {
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for i in 0..20_u64 {
                    let data = bytes(thread << 8 | i, 5000);
                    ok(store.put(&format!("shared/{i}/{thread}"), &[&data]));
                }
            });
        }
    });
    assert_eq!(names(store, "shared/").len(), 80);
    for thread in 0..4_u64 {
        for i in 0..20_u64 {
            assert!(ok(store.read(&format!("shared/{i}/{thread}"), MAX)) == bytes(thread << 8 | i, 5000));
        }
    }
}

fn delete_is_idempotent(store: &dyn ObjectStore) {
    ok(store.put("a/b", &[b"x"]));
    ok(store.put("a/c", &[b"y"]));
    assert!(ok(store.delete("a/b")));
    assert!(!ok(store.delete("a/b")));
    assert!(!ok(store.delete("never")));
    assert!(!ok(store.delete("never/made")));
    assert!(!ok(store.delete("a")));
    assert!(!ok(store.delete("a/c/d")));
    assert_eq!(names(store, ""), ["a/c"]);
}

fn deleted_name_is_free(store: &dyn ObjectStore) {
    for i in 0..3 {
        let data = bytes(i, 10_000);
        ok(store.put("a/b", &[&data]));
        let mut part = [0; 100];
        ok(store.read_at("a/b", 5000, &mut part));
        assert_eq!(part[..], data[5000..5100]);
        assert!(ok(store.delete("a/b")));
    }
}

fn deleted_is_not_found(store: &dyn ObjectStore) {
    ok(store.put("a", &[b"x"]));
    ok(store.read_at("a", 0, &mut [0]));
    assert!(ok(store.delete("a")));
    fails!(store.read_at("a", 0, &mut [0]), StoreError::NotFound { .. });
    fails!(store.read_at("a", 0, &mut []), StoreError::NotFound { .. });
    fails!(store.read("a", MAX), StoreError::NotFound { .. });
    fails!(store.len("a"), StoreError::NotFound { .. });
    fails!(store.allocated("a"), StoreError::NotFound { .. });
    fails!(store.punch("a", &[(0, 1)]), StoreError::NotFound { .. });
    assert!(ok(store.load("a")).is_none());
    assert!(!ok(store.is_leased("a")));
    store.will_read("a", 0, 1);
}
