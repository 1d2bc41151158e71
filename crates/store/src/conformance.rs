//! What every backend must do: one suite of small checks, run by the tests of each.
//!
//! A check that fails panics and says what was expected. Every check gets a store of its own.

use crate::{ObjectStore, Result};

mod holding;
mod naming;
mod reading;
mod swapping;
mod writing;

/// A check: its name and what it does with an empty store.
type Check = (&'static str, fn(&dyn ObjectStore));

/// Runs every check, each on an empty store from `make`. Panics at the first that fails.
pub fn run(make: &dyn Fn() -> Box<dyn ObjectStore>) {
    for checks in [naming::CHECKS, writing::CHECKS, reading::CHECKS, swapping::CHECKS, holding::CHECKS] {
        for (name, check) in checks {
            eprintln!("conformance: {name}");
            check(make().as_ref());
        }
    }
}

/// Number of checks that [`run`] makes.
pub fn count() -> usize {
    [naming::CHECKS, writing::CHECKS, reading::CHECKS, swapping::CHECKS, holding::CHECKS]
        .iter()
        .map(|c| c.len())
        .sum()
}

/// The value of a call that must succeed.
#[track_caller]
fn ok<T>(result: Result<T>) -> T {
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
use fails;

/// Names of all objects below a prefix, sorted.
#[track_caller]
fn names(store: &dyn ObjectStore, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    ok(store.list(prefix, &mut |entry| {
        names.push(entry.name);
        Ok(())
    }));
    names.sort();
    names
}

/// Bytes that are different at every offset and for every seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let word = |i: usize| (seed << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8)).flat_map(word).take(len).collect()
}

/// A length that no buffer or block size divides.
const ODD_LEN: usize = 3_000_017;
/// What no object of the suite reaches.
const MAX: u64 = 64 << 20;
