//! Prefixes of a shared container.
#![no_main]

use format::{Kind, Prefixes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Prefixes, body, Prefixes::decode, Prefixes::encode);
});
