//! What every backend must do: one suite of small checks, run by the tests of each.
//!
//! A check that fails panics and says what was expected. Every check gets a store of its own.

use crate::ObjectStore;

mod check;
mod leasing;
mod naming;
mod reading;
mod swapping;
mod writing;

/// Runs every check, each on an empty store from `make`. Panics at the first that fails.
pub fn run(make: &dyn Fn() -> Box<dyn ObjectStore>) {
    for checks in [naming::CHECKS, writing::CHECKS, reading::CHECKS, swapping::CHECKS, leasing::CHECKS] {
        for (name, check) in checks {
            eprintln!("conformance: {name}");
            check(make().as_ref());
        }
    }
}

/// Number of checks that [`run`] makes.
pub fn count() -> usize {
    [naming::CHECKS, writing::CHECKS, reading::CHECKS, swapping::CHECKS, leasing::CHECKS]
        .iter()
        .map(|c| c.len())
        .sum()
}
