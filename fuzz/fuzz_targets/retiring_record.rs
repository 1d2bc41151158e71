//! What a session says that it looks at, to remove it.
#![no_main]

use format::{Kind, RetiringRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let record = fuzz::comes_back(Kind::Retiring, body, RetiringRecord::decode, RetiringRecord::encode);
    assert!(record.is_none_or(|r| r.writers.is_sorted()));
});
