//! The copy of a manifest in a commit record.
#![no_main]

use format::{Kind, Manifest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Commit, body, Manifest::decode_record, Manifest::encode_record);
});
