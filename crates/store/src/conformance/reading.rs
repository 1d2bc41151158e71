//! Reading objects, and holes in them.

use super::check::{bytes, fails, ok, Check, MAX, ODD_LEN};
use crate::{ObjectStore, StoreError};

/// What is checked, in this order.
pub(super) const CHECKS: &[Check] = &[
    ("ranges are read exactly", ranges),
    ("a range beyond the end is refused", out_of_range),
    ("a whole object may not be too long", too_long),
    ("what is not there is not found", not_found),
    ("many threads read many objects", many_readers),
    ("what is mapped is what is there", mapped),
    ("a hint harms nothing", hints),
    ("a punched range is zero and the length stays", punch_keeps_length),
    ("a punched range gives space back", punch_frees),
    ("a punch beyond the end is refused", punch_out_of_range),
    ("an object takes about its length", allocated_is_plausible),
];

fn ranges(store: &dyn ObjectStore) {
    let data = bytes(1, ODD_LEN);
    ok(store.put("a", &[&data]));
    let mut random = 12345_usize;
    for _ in 0..200 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let offset = (random >> 8) % ODD_LEN;
        let len = (random >> 3) % (ODD_LEN - offset).min(70_000);
        let mut part = vec![0xee; len];
        ok(store.read_at("a", offset as u64, &mut part));
        assert!(part == data[offset..offset + len], "{len} bytes at {offset}");
    }
    let mut all = vec![0; ODD_LEN];
    ok(store.read_at("a", 0, &mut all));
    assert!(all == data);
    ok(store.read_at("a", ODD_LEN as u64, &mut []));
}

fn out_of_range(store: &dyn ObjectStore) {
    ok(store.put("a", &[&[7; 1000]]));
    for (offset, len) in
        [(0, 1001), (999, 2), (1000, 1), (5000, 1), (u64::MAX, 1), (u64::MAX - 1, 2), (i64::MAX as u64, 4)]
    {
        match store.read_at("a", offset, &mut vec![0; len]) {
            Err(StoreError::OutOfRange { object, offset: at, len: wanted, size }) => {
                assert_eq!((object.as_str(), at, wanted, size), ("a", offset, len as u64, 1000));
            }
            other => panic!("{len} bytes at {offset}: must be out of range, but: {other:?}"),
        }
    }
    fails!(store.read_at("a", 1001, &mut []), StoreError::OutOfRange { .. });
}

fn too_long(store: &dyn ObjectStore) {
    ok(store.put("a", &[&[7; 1000]]));
    match store.read("a", 999) {
        Err(StoreError::TooLong { object, size, max }) => {
            assert_eq!((object.as_str(), size, max), ("a", 1000, 999))
        }
        other => panic!("must be too long, but: {other:?}"),
    }
    assert_eq!(ok(store.read("a", 1000)), [7; 1000]);
    assert_eq!(ok(store.read("a", u64::MAX)), [7; 1000]);
}

fn not_found(store: &dyn ObjectStore) {
    ok(store.put("dir/a", &[b"x"]));
    for name in ["b", "dir/b", "no/such/dir", "dir", "dir/a/b"] {
        fails!(store.len(name), StoreError::NotFound { .. });
        fails!(store.read(name, 1), StoreError::NotFound { .. });
        fails!(store.read_at(name, 0, &mut [0]), StoreError::NotFound { .. });
        fails!(store.allocated(name), StoreError::NotFound { .. });
        fails!(store.punch(name, &[(0, 1)]), StoreError::NotFound { .. });
        assert!(ok(store.load(name)).is_none());
        assert!(!ok(store.is_leased(name)));
        store.will_read(name, 0, 1);
    }
}

fn many_readers(store: &dyn ObjectStore) {
    const OBJECTS: usize = 150;
    let all: Vec<_> = (0..OBJECTS).map(|i| bytes(i as u64, 600)).collect();
    for (i, data) in all.iter().enumerate() {
        ok(store.put(&format!("o/{i}"), &[data]));
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let all = &all;
            scope.spawn(move || {
                for i in 0..1000 {
                    let at = (i * 7 + thread * 31 + i / 50) % OBJECTS;
                    let mut part = [0; 100];
                    ok(store.read_at(&format!("o/{at}"), 300, &mut part));
                    assert_eq!(part[..], all[at][300..400]);
                }
            });
        }
    });
}

fn mapped(store: &dyn ObjectStore) {
    let data = bytes(1, ODD_LEN);
    ok(store.put("a", &[&data]));
    ok(store.put("empty", &[]));
    let map = ok(store.map("a", ODD_LEN as u64));
    assert!((*map).as_ref() == data);
    assert!((*ok(store.map("empty", MAX))).as_ref().is_empty());
    fails!(store.map("a", ODD_LEN as u64 - 1).map(drop), StoreError::TooLong { .. });
    fails!(store.map("b", MAX).map(drop), StoreError::NotFound { .. });
    // It stays when the object goes.
    ok(store.delete("a"));
    assert!((*map).as_ref() == data);
}

fn hints(store: &dyn ObjectStore) {
    ok(store.put("a", &[&[7; 1000]]));
    for (offset, len) in [(0, 1000), (0, 0), (999, 5000), (u64::MAX, u64::MAX), (5000, 1)] {
        store.will_read("a", offset, len);
    }
    assert_eq!(ok(store.read("a", 1000)), [7; 1000]);
}

fn punch_keeps_length(store: &dyn ObjectStore) {
    let mut data = bytes(1, ODD_LEN);
    ok(store.put("a", &[&data]));
    for (offset, len) in
        [(5000, 100_000), (1 << 20, 1 << 20), (17, 1), (4096, 4096), (ODD_LEN - 10, 10), (3, 0)]
    {
        ok(store.punch("a", &[(offset as u64, len as u64)]));
        data[offset..offset + len].fill(0);
        assert_eq!(ok(store.len("a")), ODD_LEN as u64);
        assert!(ok(store.read("a", MAX)) == data, "{len} bytes at {offset} punched");
    }
    ok(store.punch("a", &[(0, ODD_LEN as u64)]));
    let mut part = [1; 5000];
    ok(store.read_at("a", ODD_LEN as u64 - 5000, &mut part));
    assert_eq!(part, [0; 5000]);
}

fn punch_frees(store: &dyn ObjectStore) {
    ok(store.put("a", &[&bytes(1, 8 << 20)]));
    let before = ok(store.allocated("a"));
    ok(store.punch("a", &[(1 << 20, 6 << 20)]));
    let after = ok(store.allocated("a"));
    assert!(after + (5 << 20) <= before, "{before} bytes before, {after} after");
}

fn punch_out_of_range(store: &dyn ObjectStore) {
    ok(store.put("a", &[&[7; 1000]]));
    for (offset, len) in [(0, 1001), (1000, 1), (u64::MAX, 1), (1, u64::MAX)] {
        fails!(store.punch("a", &[(offset, len)]), StoreError::OutOfRange { .. });
    }
    assert_eq!(ok(store.read("a", 1000)), [7; 1000]);
}

fn allocated_is_plausible(store: &dyn ObjectStore) {
    ok(store.put("a", &[&bytes(1, 1 << 20)]));
    let allocated = ok(store.allocated("a"));
    assert!(((1 << 20)..=(2 << 20)).contains(&allocated), "{allocated} bytes");
    assert_eq!(ok(store.delete_measured("a")), allocated);
    assert_eq!(ok(store.delete_measured("a")), 0);
}
