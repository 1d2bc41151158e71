//! Names and listings.

use super::check::{fails, names, ok, Check};
use crate::{Entry, ObjectStore, StoreError, NAME_BYTES_MAX, PART_BYTES_MAX};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("bad names are refused by every call", bad_names_are_refused),
    ("the longest names work", longest_names_work),
    ("odd but valid names work", odd_names_work),
    ("a listing has every object once, with its length", listing_is_whole),
    ("a listing of nothing is empty", listing_of_nothing),
    ("folders are listed once each", folders_are_listed),
    ("a listing stops at the caller's error", listing_stops),
    ("objects may be removed while listing", removing_while_listing),
    ("there is a location", location_is_said),
];

fn bad_names_are_refused(store: &dyn ObjectStore) {
    let long_part = "x".repeat(PART_BYTES_MAX + 1);
    let long_name = ["abc"; NAME_BYTES_MAX / 4 + 1].join("/");
    let bad =
        ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", ".a", "a/.b", "a b", "ä", "a\0b", "a\\b"];
    for name in bad.into_iter().chain([long_part.as_str(), long_name.as_str()]) {
        fails!(store.put(name, &[b"x"]), StoreError::BadName { .. });
        fails!(store.writer(name).map(drop), StoreError::BadName { .. });
        fails!(store.len(name), StoreError::BadName { .. });
        fails!(store.read_at(name, 0, &mut [0]), StoreError::BadName { .. });
        fails!(store.read(name, 1), StoreError::BadName { .. });
        fails!(store.load(name), StoreError::BadName { .. });
        fails!(store.swap(name, None, b"x"), StoreError::BadName { .. });
        fails!(store.punch(name, &[(0, 1)]), StoreError::BadName { .. });
        fails!(store.delete(name), StoreError::BadName { .. });
        fails!(store.lease(name, b"x").map(drop), StoreError::BadName { .. });
        fails!(store.is_leased(name), StoreError::BadName { .. });
        fails!(store.allocated(name), StoreError::BadName { .. });
        store.will_read(name, 0, 1);
    }
    for prefix in ["a", "/", "../", "a//", ".a/"] {
        fails!(store.list(prefix, &mut |_| Ok(())), StoreError::BadName { .. });
    }
    assert!(names(store, "").is_empty());
}

fn longest_names_work(store: &dyn ObjectStore) {
    let part = "p".repeat(PART_BYTES_MAX);
    let name = [part.as_str(); 4].join("/");
    ok(store.put(&name, &[b"far down"]));
    assert_eq!(ok(store.read(&name, 100)), b"far down");
    assert_eq!(names(store, ""), std::slice::from_ref(&name));
    assert!(ok(store.delete(&name)));
}

fn odd_names_work(store: &dyn ObjectStore) {
    let all =
        ["-", "A", "_.-", "a", "a.", "a..b", "tmp/x", "locks/00", "objects/objects", "z"].map(str::to_owned);
    for name in &all {
        ok(store.put(name, &[name.as_bytes()]));
    }
    for name in &all {
        assert_eq!(ok(store.read(name, 100)), name.as_bytes());
    }
    let mut sorted = all.to_vec();
    sorted.sort();
    assert_eq!(names(store, ""), sorted);
}

fn listing_is_whole(store: &dyn ObjectStore) {
    let mut expected = Vec::new();
    for i in 0..100_usize {
        let name = format!("disks/{}/containers/{i}.data", i % 7);
        ok(store.put(&name, &[&vec![1; i]]));
        expected.push((name, i as u64));
    }
    ok(store.put("disks2/x", &[b"beside"]));
    ok(store.swap("disks/0/manifest", None, b"replaceable"));
    expected.push(("disks/0/manifest".into(), 11));
    let mut found = Vec::new();
    ok(store.list("disks/", &mut |entry| {
        let Entry { name, len, allocated } = entry;
        assert_eq!(allocated, ok(store.allocated(&name)), "{name}");
        found.push((name, len));
        Ok(())
    }));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let mut alone = Vec::new();
    ok(store.list_names("disks/", &mut |name| {
        alone.push(name);
        Ok(())
    }));
    alone.sort();
    assert!(alone.iter().eq(expected.iter().map(|(name, _)| name)), "{alone:?}");
    let mut later = Vec::new();
    ok(store.list_names_from("disks/3/", "disks/3/containers/5", &mut |name| {
        later.push(name);
        Ok(())
    }));
    later.sort();
    let wanted = |name: &&String| name.starts_with("disks/3/") && name.as_str() >= "disks/3/containers/5";
    assert!(later.iter().eq(expected.iter().map(|(name, _)| name).filter(wanted)), "{later:?}");
    assert!(!later.is_empty() && later.len() < 14, "{later:?}");
    assert_eq!(names(store, "").len(), 102);
    assert_eq!(names(store, "disks/3/").len(), 14);
    assert_eq!(names(store, "disks2/"), ["disks2/x"]);
}

fn listing_of_nothing(store: &dyn ObjectStore) {
    assert!(names(store, "").is_empty());
    assert!(names(store, "never/made/").is_empty());
    ok(store.put("a/b", &[b"x"]));
    assert!(names(store, "a/b/").is_empty());
    assert!(ok(store.delete("a/b")));
    assert!(names(store, "a/").is_empty());
}

fn folders_are_listed(store: &dyn ObjectStore) {
    let folders = |prefix: &str| {
        let mut found = Vec::new();
        ok(store.list_folders(prefix, &mut |folder| {
            found.push(folder.to_owned());
            Ok(())
        }));
        found.sort();
        found
    };
    assert!(folders("").is_empty());
    for name in ["a/b/c", "a/b/d/e", "a/c/x", "a/file", "ab/c/d", "top"] {
        ok(store.put(name, &[b"x"]));
    }
    assert_eq!(folders(""), ["a", "ab"]);
    assert_eq!(folders("a/"), ["b", "c"]);
    assert_eq!(folders("a/b/"), ["d"]);
    assert!(folders("a/c/").is_empty());
    assert!(folders("never/made/").is_empty());
    fails!(store.list_folders("a", &mut |_| Ok(())), StoreError::BadName { .. });
    fails!(
        store.list_folders("a/", &mut |folder| Err(StoreError::Conflict { object: folder.into() })),
        StoreError::Conflict { .. }
    );
}

fn listing_stops(store: &dyn ObjectStore) {
    for i in 0..5 {
        ok(store.put(&format!("a/{i}"), &[]));
    }
    let mut seen = 0;
    let result = store.list("a/", &mut |entry| {
        seen += 1;
        if seen == 2 {
            return Err(StoreError::Conflict { object: entry.name });
        }
        Ok(())
    });
    fails!(result, StoreError::Conflict { .. });
    assert_eq!(seen, 2);
}

fn removing_while_listing(store: &dyn ObjectStore) {
    for i in 0..90 {
        ok(store.put(&format!("a/{}/{i}", i % 3), &[b"x"]));
    }
    let mut removed = 0;
    ok(store.list("a/", &mut |entry| {
        removed += usize::from(store.delete(&entry.name)?);
        Ok(())
    }));
    assert_eq!(removed, 90);
    assert!(names(store, "").is_empty());
}

fn location_is_said(store: &dyn ObjectStore) {
    assert!(!store.location().is_empty());
    ok(store.free());
    assert_eq!(ok(store.sweep()), 0);
}
