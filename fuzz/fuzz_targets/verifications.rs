//! What is kept of the last verifications.
#![no_main]

use format::{Kind, Verifications};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Verifications, body, Verifications::decode, |v, context| {
        v.encode(context).unwrap()
    });
});
