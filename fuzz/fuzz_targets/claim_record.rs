//! A claim on containers of another owner.
#![no_main]

use format::{ClaimRecord, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Claim, body, ClaimRecord::decode, ClaimRecord::encode);
});
