//! What all checks use.

use crate::{ObjectStore, Result};

/// A check: its name and what it does with an empty store.
pub(super) type Check = (&'static str, fn(&dyn ObjectStore));

/// The value of a call that must succeed.
#[track_caller]
pub(super) fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("must succeed, but: {e} ({e:?})"),
    }
}

/// Panics unless `$result` is an error of the given kind.
macro_rules! fails {
    ($result:expr, $error:pat) => {
        match $result {
            Err($error) => {}
            Err(other) => panic!("must fail with {}, but failed with {other:?}", stringify!($error)),
            Ok(_) => panic!("must fail with {}, but succeeded", stringify!($error)),
        }
    };
}
pub(super) use fails;

/// Names of all objects below a prefix, sorted.
#[track_caller]
pub(super) fn names(store: &dyn ObjectStore, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    ok(store.list(prefix, &mut |entry| {
        names.push(entry.name);
        Ok(())
    }));
    names.sort();
    names
}

/// Bytes that are different at every offset and for every seed.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let word = |i: usize| (seed << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8)).flat_map(word).take(len).collect()
}

/// A length that no buffer or block size divides.
pub(super) const ODD_LEN: usize = 3_000_017;
/// What no object of the suite reaches.
pub(super) const MAX: u64 = 64 << 20;
